# ---
# jupyter:
#   chapter: 5
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Exercise 5: siblings of attention
#
# Five kernels, each one idea further than the last: the correction that lets a matrix of scores vanish, a loop that
# ends where the future begins, the number that a backward pass needs, a window, and scores that may not grow too large.
#
# - A blank looks like `____`. Replace it, run the cell, then run the check below it.
# - **The line already printed under each check is the one you are working towards.** Run the check and it is replaced
#   by what your own code does: which case failed, at which elements, and the likely cause.
# - Stuck? `hint("weighted_mean")` asks you a question; call it again for a nudge, and again for the shape of the
#   answer. `reset("weighted_mean")` puts the blanks back and keeps a copy of what you wrote; `progress()` shows how far
#   you are.
#
# All of it runs on a laptop. The kernel must do the work, and do it once: unless a task says otherwise, it is launched
# once, loads each element of its inputs once, stores each element of the result once, and keeps nothing else in memory.
# An answer that lets PyTorch or Python compute the result does not pass.

# %% [markdown]
# Run the next two cells first. Importing `lab` lets kernels run on your CPU where there is no GPU.

# %% tags=["active-ipynb"]
# from lab.check import check
# from lab.progress import hint, progress, reset, solution

# %%
import torch
import triton
import triton.language as tl

# %% tags=["spec"]
from lab.task import Case, Task

TASKS: dict[str, Task] = {}

NAN, INF = float("nan"), float("inf")


def normal(generator, *shape, dtype=torch.float32, scale=1.0):
    """Return normal random numbers."""
    return (
        scale * torch.randn(shape, generator=generator, device=generator.device)
    ).to(dtype)


def near_one(generator, *shape, dtype=torch.float32):
    """Return numbers between 1/2 and 3/2: weighted means of them lose no digits to
    signs that cancel.
    """
    return (0.5 + torch.rand(shape, generator=generator, device=generator.device)).to(
        dtype
    )


def scores_and_values(M, N, dtype=torch.float32, scale=1.0, pad=0):
    """Return a maker of scores [M, N], their rows `pad` elements apart, and of values
    [N].
    """
    return lambda generator: (
        normal(generator, M, N + pad, dtype=dtype, scale=scale)[:, :N],
        near_one(generator, N, dtype=dtype),
    )


def attended(M, N, D=16, *more, dtype=torch.float32, scale=1.0):
    """Return a maker of queries [M, D], keys and values [N, D], and of further
    arguments.
    """
    return lambda generator: (
        normal(generator, M, D, dtype=dtype, scale=scale),
        normal(generator, N, D, dtype=dtype, scale=scale),
        near_one(generator, N, D, dtype=dtype),
        *more,
    )


def attended_apart(M, N, *more):
    """Return a maker of the same, each the middle of a wider matrix, so that rows lie
    apart.
    """

    def make(generator):
        q, k, v = (
            near_one(generator, rows, width)
            for rows, width in ((M, 24), (N, 29), (N, 37))
        )
        return q[:, 3:19], k[:, 5:21], v[:, 9:25], *more

    return make


def spoilt(N, first, last, *more):
    """Return a maker of N queries, keys and values, of which the values `first` to
    `last` - 1 are NaN.
    """

    def make(generator):
        q, k, v = attended(N, N)(generator)
        v[first:last] = NAN
        return q, k, v, *more

    return make


def one_way(M, N, size, *more, heads=()):
    """Return a maker of queries and keys that all point one way, some queries against
    it: scores are near `size`, or near -`size`. Values are so close to 1 that the
    roundings of large scores do not show.
    """

    def make(generator):
        way = torch.full((16,), (size / 4) ** 0.5, device=generator.device)
        signs = 1.0 - 2 * (torch.arange(M, device=generator.device) % 3 == 1)
        q = signs[:, None] * way + normal(generator, *heads, M, 16, scale=0.1)
        k = way + normal(generator, *heads, N, 16, scale=0.1)
        return q, k, near_one(generator, *heads, N, 16) / 64 + 1, *more

    return make


def rows_past_2_31(generator, width, make=normal):
    """Return three fp16 rows 2**30 + 8 apart: the last begins past 2**31. What lies
    between is never touched.
    """
    step = 2**30 + 8
    memory = torch.empty(2 * step + width, dtype=torch.float16, device=generator.device)
    return memory.as_strided((3, width), (step, 1)).copy_(make(generator, 3, width))


def past_2_31(place, *more):
    """Return a maker of three queries, keys and values, of which those at `place` lie
    far apart.
    """

    def make(generator):
        inputs = list(attended(3, 3, dtype=torch.float16)(generator))
        inputs[place] = rows_past_2_31(generator, 16, (normal, normal, near_one)[place])
        return *inputs, *more

    return make


PAST_2_31 = ("queries", "keys", "values")


def attend(q, k, v):
    """Return the mean of v weighted by softmax(q @ k.T / sqrt(D)): what one query, or
    several, make of the keys.
    """
    return torch.softmax(q @ k.T / q.shape[-1] ** 0.5, -1) @ v


# %% [markdown]
# ## 1. A weighted mean: the step that everything rests on (2 points)
#
# Attention is a mean. The scores of a row are turned into weights by softmax, and the values are averaged with them:
#
# $$\text{out}_i = \frac{\sum_j e^{x_{ij}}\, v_j}{\sum_j e^{x_{ij}}}$$
#
# A row may have any length, so a program takes 32 scores at a time, never more than 128, and the values that belong to
# them. It keeps three numbers: the largest score so far, $m$; the sum of powers, $s = \sum e^{x_j - m}$; and the sum of
# powers times values, $a = \sum e^{x_j - m} v_j$. When a block brings a larger score, *both* sums were taken against
# the wrong $m$, and one factor, $e^{m - m_\text{new}}$, puts both right. With blocks of 2, the scores 1, 3, 2, 5 and
# the values 10, 20, 30, 40:
#
# | after block | $m$ | $s$ | $a$ |
# | --- | --- | --- | --- |
# | 1, 3 | 3 | $e^{-2} + 1 = 1.135$ | $10\, e^{-2} + 20 = 21.35$ |
# | 2, 5 | 5 | $1.135\, e^{-2} + e^{-3} + 1 = 1.203$ | $21.35\, e^{-2} + 30\, e^{-3} + 40 = 44.38$ |
#
# and the mean is $44.38 / 1.203 = 36.88$. The division comes once, at the end. A score may be $-\infty$: its value has
# no weight. `top` begins with the smallest number that float32 has, for with $-\infty$ a block of such scores would
# compute $\infty - \infty$. Four blanks.


# %% task="weighted_mean"
@triton.jit
def weighted_mean_kernel(x_ptr, v_ptr, out_ptr, N, stride_xm, BLOCK: tl.constexpr):
    """Each program writes one element of out: a mean of v, weighted by the softmax of
    one row of x.
    """
    row = tl.program_id(0).to(tl.int64)
    top = -3.4028234663852886e38  # the smallest number
    total = 0.0
    acc = 0.0
    for start in range(0, N, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        mask = offs < N
        x = tl.load(x_ptr + row * stride_xm + offs, mask=mask, other=-float("inf")).to(
            tl.float32
        )
        v = tl.load(v_ptr + offs, mask=mask, other=0.0).to(tl.float32)
        new_top = tl.maximum(top, tl.max(x, 0))
        factor = tl.exp(top - new_top)  # blank: factor = ____
        powers = tl.exp(x - new_top)
        total = total * factor + tl.sum(powers, 0)  # blank: total = ____
        acc = acc * factor + tl.sum(powers * v, 0)  # blank: acc = ____
        top = new_top
    tl.store(out_ptr + row, acc / total)  # blank: tl.store(out_ptr + row, ____)


def weighted_mean(x, v):
    """Return softmax(x) @ v for scores x, [M, N], with the elements of a row side by
    side, and values v, [N].
    """
    M, N = x.shape
    out = torch.empty(M, dtype=x.dtype, device=x.device)
    weighted_mean_kernel[(M,)](x, v, out, N, x.stride(0), BLOCK=32)
    return out


# %% tags=["active-ipynb"]
# check("weighted_mean", weighted_mean)


# %% tags=["spec"]
def weighted_mean_reference(x, v):
    """The specification of `weighted_mean`."""
    return torch.softmax(x, 1) @ v


def sorted_scores(descending):
    """Return a maker of rows of scores that rise by hundreds, so that every block
    brings a new maximum, or that fall.
    """

    def make(generator):
        x, v = scores_and_values(3, 150, scale=500.0)(generator)
        return x.sort(1, descending=descending).values.contiguous(), v

    return make


def hidden_scores(generator):
    """Return scores of which the first 70 of each row are -inf."""
    x, v = scores_and_values(3, 150)(generator)
    x[:, :70] = -INF
    return x, v


def low_scores(generator):
    """Return scores near -1000."""
    x, v = scores_and_values(3, 100)(generator)
    return x - 1000, v


def table_of_scores(generator):
    """Return the scores and values of the exercise's table."""
    return tuple(
        torch.tensor(t, device=generator.device)
        for t in ([[1.0, 3.0, 2.0, 5.0]], [10.0, 20.0, 30.0, 40.0])
    )


TASKS["weighted_mean"] = Task(
    name="weighted_mean",
    title="A weighted mean: the step that everything rests on",
    points=2,
    hints=(
        "In the table, 1.135 was counted against a maximum of 3. By which power must "
        "it be multiplied, to count against 5? And does 21.35 need another one?",
        "`top` still holds the old maximum where the blanks stand, `new_top` the new "
        "one. Old sum times factor, plus the sum over the new block: `tl.sum(…, 0)`.",
        "`factor = tl.exp(____ - new_top)`; `total = total * factor + tl.sum(____, "
        "0)`; `acc = acc * factor + tl.sum(powers * ____, 0)`; at the end `acc / "
        "____`.",
    ),
    reference=weighted_mean_reference,
    shared=("v",),
    step=128,
    cases=(
        Case("one score", scores_and_values(1, 1)),
        Case("the table above", table_of_scores),
        Case("one block, masked tail", scores_and_values(3, 20), programs=3),
        Case("two blocks, exactly full", scores_and_values(3, 64), programs=3),
        Case("one past a block", scores_and_values(3, 33), programs=3),
        Case("nothing divides", scores_and_values(7, 201), programs=7),
        Case("rows that lie apart", scores_and_values(4, 70, pad=11), programs=4),
        Case("rising", sorted_scores(descending=False), programs=3),
        Case("falling", sorted_scores(descending=True), programs=3),
        Case("large", scores_and_values(3, 100, scale=100.0), programs=3),
        Case("large and negative", low_scores, programs=3),
        Case("blocks of -inf", hidden_scores, programs=3),
        Case("bf16", scores_and_values(3, 100, torch.bfloat16), programs=3),
        Case("fp16", scores_and_values(3, 100, torch.float16), programs=3),
        Case(
            "offsets past 2**31",
            lambda g: (rows_past_2_31(g, 40), near_one(g, 40, dtype=torch.float16)),
            programs=3,
        ),
    ),
)

# %% [markdown]
# ## 2. Causal attention: where does the loop end? (3 points)
#
# Now a program takes 16 queries at once, loads each key and value that they see once, and a block of 16 keys gives a
# tile of scores. `absorb` is your step from task 1 for a tile: one maximum, one sum and one row of `out` for every
# query. The running maximum starts at $-10^{30}$ and not at $-\infty$: a row that sees nothing yet would compute
# $\infty - \infty$.


# %%
@triton.jit
def load_rows(ptr, offs, count, stride, D: tl.constexpr):
    """Return the rows `offs` of a matrix with rows of D elements, in fp32; rows from
    `count` on are zero.
    """
    ptrs = ptr + offs.to(tl.int64)[:, None] * stride + tl.arange(0, D)[None, :]
    return tl.load(ptrs, mask=(offs < count)[:, None], other=0.0).to(tl.float32)


@triton.jit
def absorb(top, total, acc, scores, v):
    """Return running maxima, sums and rows of out after one more tile of scores; v
    holds the rows for its columns.
    """
    new_top = tl.maximum(top, tl.max(scores, 1))
    factor = tl.exp(top - new_top)
    powers = tl.exp(scores - new_top[:, None])
    total = total * factor + tl.sum(powers, 1)
    acc = acc * factor[:, None] + tl.dot(powers, v, input_precision="ieee")
    return new_top, total, acc


# %% [markdown]
# In a language model nobody looks ahead. With `M` queries and `N` keys, the last query belongs to the last key, so
# query `i` sees the keys `j` up to `i + N - M`. For 3 queries and 5 keys:
#
# | | key 0 | key 1 | key 2 | key 3 | key 4 |
# | --- | --- | --- | --- | --- | --- |
# | query 0 | sees | sees | sees | | |
# | query 1 | sees | sees | sees | sees | |
# | query 2 | sees | sees | sees | sees | sees |
#
# Two blanks. `seen` says which scores of a tile count. And `end` is the first key that *no* query of this program sees,
# where the loop can stop: that spares half of the work. It is also a matter of right and wrong. Should a value in the
# future be NaN, a weight of 0 does not help: 0 times NaN is NaN. A tile that nobody sees must not be touched.


# %% task="causal_attention"
@triton.jit
def causal_attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, M, N, scale, stride_qm, stride_kn, stride_vn,
    D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Each program writes BLOCK_M rows of out, which is [M, D] and contiguous."""
    first = tl.program_id(0).to(tl.int64) * BLOCK_M
    offs_m = first + tl.arange(0, BLOCK_M)
    q = load_rows(q_ptr, offs_m, M, stride_qm, D)
    top = tl.full((BLOCK_M,), -1e30, tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    end = tl.minimum(N, first + BLOCK_M + N - M)  # blank: end = tl.minimum(N, ____)
    for start in range(0, end, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        k = load_rows(k_ptr, offs_n, N, stride_kn, D)
        v = load_rows(v_ptr, offs_n, N, stride_vn, D)
        seen = offs_n[None, :] <= offs_m[:, None] + N - M  # blank: seen = ____
        scores = scale * tl.dot(q, tl.trans(k), input_precision="ieee")
        top, total, acc = absorb(
            top, total, acc, tl.where(seen, scores, -float("inf")), v
        )
    out = acc / tl.where(total > 0, total, 1.0)[:, None]  # a row that saw nothing is 0
    out_ptrs = out_ptr + offs_m[:, None] * D + tl.arange(0, D)[None, :]
    tl.store(out_ptrs, out, mask=(offs_m < M)[:, None])


def causal_attention(q, k, v):
    """Return attention in which query i sees keys up to i + N - M, for q [M, D], k and
    v [N, D], D = 16 or 32.
    """
    (M, D), N = q.shape, k.shape[0]
    out = torch.empty((M, D), dtype=q.dtype, device=q.device)
    strides = (q.stride(0), k.stride(0), v.stride(0))
    grid = (triton.cdiv(M, 16),)
    causal_attention_kernel[grid](
        q, k, v, out, M, N, D**-0.5, *strides, D=D, BLOCK_M=16, BLOCK_N=16
    )
    return out


# %% tags=["active-ipynb"]
# check("causal_attention", causal_attention)


# %% tags=["spec"]
def causal_attention_reference(q, k, v):
    """The specification of `causal_attention`."""
    ends = [max(0, i + 1 + len(k) - len(q)) for i in range(len(q))]
    return torch.stack([attend(q[i], k[:end], v[:end]) for i, end in enumerate(ends)])


TASKS["causal_attention"] = Task(
    name="causal_attention",
    title="Causal attention: where does the loop end?",
    points=3,
    hints=(
        "Which query of a program sees furthest, and up to which key? What is the "
        "first key after that?",
        "`offs_m[:, None]` is a column of query numbers, `offs_n[None, :]` a row of "
        "key numbers: compare them as the table does. The last query of the program "
        "is `first + BLOCK_M - 1`.",
        "`end = tl.minimum(N, first + ____ + N - M)`; `seen = offs_n[None, :] <= "
        "offs_m[:, None] + ____`.",
    ),
    reference=causal_attention_reference,
    shared=("k", "v"),
    cases=(
        Case("one query, one key", attended(1, 1)),
        Case("the table above", attended(3, 5)),
        Case("tiles exactly full", attended(32, 32), programs=2),
        Case("one past a tile", attended(17, 17), programs=2),
        Case("nothing divides", attended(37, 37), programs=3),
        Case("one query, many keys", attended(1, 150)),
        Case("one key more than queries", attended(16, 17)),
        Case("more keys than queries", attended(19, 41), programs=2),
        Case("many tiles", attended(90, 150), programs=2),
        Case("scores near 200 and -200", one_way(20, 20, 200.0), programs=2),
        Case("more queries than keys: some see nothing", attended(40, 21), programs=3),
        Case("rows that lie apart", attended_apart(18, 18), programs=2),
        Case("NaN in the last keys", spoilt(48, 32, 48), programs=3),
        Case("32 numbers a row", attended(20, 20, 32), programs=2),
        Case("bf16", attended(20, 20, dtype=torch.bfloat16), programs=2),
        Case("fp16", attended(20, 20, dtype=torch.float16), programs=2),
        *(Case(f"{PAST_2_31[i]} past 2**31", past_2_31(i)) for i in range(3)),
    ),
)

# %% [markdown]
# ## 3. The log-sum-exp: what a row leaves behind (3 points)
#
# A backward pass needs the weights again, and computes them anew from the scores. For that it needs one number of each
# row, the logarithm of the sum of its powers; then a weight is $e^{x_{ij} - \text{lse}_i}$:
#
# $$\text{lse}_i = \log \sum_j e^{x_{ij}}$$
#
# It is good for more. Two programs may each take half of the keys, and what they return can be joined exactly: half 1
# says 10 with $\text{lse} = \log 3$, half 2 says 20 with $\text{lse} = \log 1$, and together that is
# $(3 \cdot 10 + 1 \cdot 20) / (3 + 1) = 12.5$.
#
# When the loop is over you hold $m$ and $s = \sum_j e^{x_{ij} - m}$, not $\sum_j e^{x_{ij}}$, which may be too large
# for any number. How do you get to the logarithm? Three blanks: the number itself, its store, and the tensor for it,
# which is fp32 whatever the queries are. This attention is not causal.


# %% task="attention_lse"
@triton.jit
def attention_lse_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, M, N, scale, stride_qm, stride_kn, stride_vn,
    D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Each program writes BLOCK_M rows of out, [M, D], and as many elements of lse,
    [M]; both are contiguous.
    """
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    mask_m = offs_m < M
    q = load_rows(q_ptr, offs_m, M, stride_qm, D)
    top = tl.full((BLOCK_M,), -1e30, tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        k = load_rows(k_ptr, offs_n, N, stride_kn, D)
        v = load_rows(v_ptr, offs_n, N, stride_vn, D)
        scores = scale * tl.dot(q, tl.trans(k), input_precision="ieee")
        top, total, acc = absorb(
            top, total, acc, tl.where((offs_n < N)[None, :], scores, -float("inf")), v
        )
    out_ptrs = out_ptr + offs_m[:, None] * D + tl.arange(0, D)[None, :]
    tl.store(out_ptrs, acc / total[:, None], mask=mask_m[:, None])
    lse = top + tl.log(total)  # blank: lse = ____
    tl.store(lse_ptr + offs_m, lse, mask=mask_m)  # blank: tl.store(____)


def attention_lse(q, k, v):
    """Return attention and the log-sum-exp of each row of its scores, for q [M, D], k
    and v [N, D], D = 16 or 32.
    """
    (M, D), N = q.shape, k.shape[0]
    out = torch.empty((M, D), dtype=q.dtype, device=q.device)
    # blank: lse = torch.empty(____)
    lse = torch.empty(M, dtype=torch.float32, device=q.device)
    strides = (q.stride(0), k.stride(0), v.stride(0))
    grid = (triton.cdiv(M, 16),)
    attention_lse_kernel[grid](
        q, k, v, out, lse, M, N, D**-0.5, *strides, D=D, BLOCK_M=16, BLOCK_N=16
    )
    return out, lse


# %% tags=["active-ipynb"]
# check("attention_lse", attention_lse)


# %% tags=["spec"]
def attention_lse_reference(q, k, v):
    """The specification of `attention_lse`."""
    scores = q @ k.T / q.shape[-1] ** 0.5
    return attend(q, k, v), torch.logsumexp(scores, 1).to(torch.float32)


TASKS["attention_lse"] = Task(
    name="attention_lse",
    title="The log-sum-exp: what a row leaves behind",
    points=3,
    hints=(
        "Every power in $s$ was divided by $e^m$. What must be added to the logarithm "
        "of $s$, to make up for that?",
        "`top` and `total` each hold one number for every query, and so does `lse`: "
        "one element for each of `offs_m`, under the mask of the queries. `tl.log` is "
        "the natural logarithm.",
        "`lse = top + tl.log(____)`; `tl.store(lse_ptr + ____, lse, mask=____)`; "
        "`torch.empty(M, dtype=____, device=q.device)`.",
    ),
    reference=attention_lse_reference,
    shared=("k", "v"),
    cases=(
        Case("one query, one key", attended(1, 1)),
        Case("tiles exactly full", attended(32, 32), programs=2),
        Case("one past a tile", attended(17, 33), programs=2),
        Case("nothing divides", attended(37, 50), programs=3),
        Case("one query, many keys", attended(1, 150)),
        Case("many tiles", attended(90, 150), programs=2),
        Case("rows that lie apart", attended_apart(18, 30), programs=2),
        Case("large scores", attended(18, 30, scale=12.0), programs=2),
        Case("scores near 200 and -200", one_way(20, 70, 200.0), programs=2),
        Case("32 numbers a row", attended(20, 20, 32), programs=2),
        Case("bf16", attended(20, 20, dtype=torch.bfloat16), programs=2),
        Case("fp16", attended(20, 20, dtype=torch.float16), programs=2),
        *(Case(f"{PAST_2_31[i]} past 2**31", past_2_31(i)) for i in range(3)),
    ),
)

# %% [markdown]
# ## 4. A sliding window: a loop with two ends (4 points)
#
# Many models let most of their layers see only the last few hundred keys: query `i` sees key `i` and the `window - 1`
# keys before it. For 5 queries and a window of 3:
#
# | | key 0 | key 1 | key 2 | key 3 | key 4 |
# | --- | --- | --- | --- | --- | --- |
# | query 0 | sees | | | | |
# | query 1 | sees | sees | | | |
# | query 2 | sees | sees | sees | | |
# | query 3 | | sees | sees | sees | |
# | query 4 | | | sees | sees | sees |
#
# There are as many queries as keys, `T`. Now the work grows with `T * window` and no longer with `T * T`, if the loop
# also *begins* where the window does. Three blanks. Mind that tiles are visited from `begin` on in steps of `BLOCK_N`,
# and `begin` may not be negative. Neither end may touch a tile that nobody sees: there may be NaN in it.


# %% task="window_attention"
@triton.jit
def window_attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, T, window, scale, stride_qm, stride_kn, stride_vn,
    D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Each program writes BLOCK_M rows of out, which is [T, D] and contiguous."""
    first = tl.program_id(0).to(tl.int64) * BLOCK_M
    offs_m = first + tl.arange(0, BLOCK_M)
    q = load_rows(q_ptr, offs_m, T, stride_qm, D)
    top = tl.full((BLOCK_M,), -1e30, tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    # blank: begin = ____
    begin = tl.maximum(0, first - window + 1) // BLOCK_N * BLOCK_N
    end = tl.minimum(T, first + BLOCK_M)  # blank: end = ____
    for start in range(begin, end, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        k = load_rows(k_ptr, offs_n, T, stride_kn, D)
        v = load_rows(v_ptr, offs_n, T, stride_vn, D)
        back = offs_m[:, None] - offs_n[None, :]  # how many keys ago
        seen = (back >= 0) & (back < window)  # blank: seen = ____
        scores = scale * tl.dot(q, tl.trans(k), input_precision="ieee")
        top, total, acc = absorb(
            top, total, acc, tl.where(seen, scores, -float("inf")), v
        )
    out_ptrs = out_ptr + offs_m[:, None] * D + tl.arange(0, D)[None, :]
    tl.store(out_ptrs, acc / total[:, None], mask=(offs_m < T)[:, None])


def window_attention(q, k, v, window):
    """Return attention in which query i sees keys i - window + 1 to i, for q, k and v,
    [T, D], D = 16 or 32.
    """
    T, D = q.shape
    out = torch.empty((T, D), dtype=q.dtype, device=q.device)
    strides = (q.stride(0), k.stride(0), v.stride(0))
    grid = (triton.cdiv(T, 16),)
    window_attention_kernel[grid](
        q, k, v, out, T, window, D**-0.5, *strides, D=D, BLOCK_M=16, BLOCK_N=16
    )
    return out


# %% tags=["active-ipynb"]
# check("window_attention", window_attention)


# %% tags=["spec"]
def window_attention_reference(q, k, v, window):
    """The specification of `window_attention`."""
    begins = [max(0, i + 1 - window) for i in range(len(q))]
    return torch.stack(
        [
            attend(q[i], k[begin : i + 1], v[begin : i + 1])
            for i, begin in enumerate(begins)
        ]
    )


TASKS["window_attention"] = Task(
    name="window_attention",
    title="A sliding window: a loop with two ends",
    points=4,
    hints=(
        "Which query of a program sees the earliest key, and which the latest? For a "
        "window of 3, how far back is the earliest key that query `i` sees?",
        "The first query of the program, `first`, looks back furthest: to `first - "
        "window + 1`, or to 0. Its last one looks furthest ahead, to itself. `back` "
        "counts from a query down to a key: it may not be negative, nor too large.",
        "`begin = tl.maximum(0, first - ____ + 1)`, rounded down to a multiple of "
        "BLOCK_N if you like; `end = tl.minimum(T, first + ____)`; `seen = (back >= "
        "____) & (back < ____)`.",
    ),
    reference=window_attention_reference,
    shared=("k", "v"),
    cases=(
        Case("one query", attended(1, 1, 16, 4)),
        Case("the table above", attended(5, 5, 16, 3)),
        Case(
            "a window of one: the values themselves",
            attended(20, 20, 16, 1),
            programs=2,
        ),
        *(
            Case(f"a window of {window}", attended(32, 32, 16, window), programs=2)
            for window in (2, 18, 34)
        ),
        Case("a window as wide as a tile", attended(48, 48, 16, 16), programs=3),
        Case("many tiles", attended(150, 150, 16, 110), programs=2),
        Case("scores near 200 and -200", one_way(20, 20, 200.0, 9), programs=2),
        Case("nothing divides", attended(53, 53, 16, 21), programs=4),
        Case("a window wider than all", attended(37, 37, 16, 1000), programs=3),
        Case("NaN before the window", spoilt(64, 0, 16, 17), programs=4),
        Case("NaN after it", spoilt(64, 48, 64, 17), programs=4),
        Case("rows that lie apart", attended_apart(40, 40, 7), programs=3),
        Case("32 numbers a row", attended(40, 40, 32, 9), programs=3),
        Case("bf16", attended(40, 40, 16, 9, dtype=torch.bfloat16), programs=3),
        Case("fp16", attended(40, 40, 16, 9, dtype=torch.float16), programs=3),
        *(Case(f"{PAST_2_31[i]} past 2**31", past_2_31(i, 2)) for i in range(3)),
    ),
)

# %% [markdown]
# ## 5. A softcap: a kernel of your own (5 points)
#
# Gemma 2 keeps its scores from growing too large, so that no single key takes all the weight. Every score passes
# through a function that leaves small ones nearly as they are and lets none beyond `cap`:
#
# $$\tilde x = \text{cap} \cdot \tanh\left(\frac{x}{\text{cap}}\right), \qquad x = \frac{q \cdot k}{\sqrt D}$$
#
# With a cap of 50:
#
# | $x$ | 1 | 10 | 100 | 1000 |
# | --- | --- | --- | --- | --- |
# | $\tilde x$ | 0.9999 | 9.869 | 48.20 | 50.00 |
#
# There are `H` heads now: `q` is [H, M, D], `k` and `v` are [H, N, D], each contiguous, and nothing is causal. Write
# both functions. One program takes 16 queries of one head, so the grid has two axes: the heads stand on axis 1, where
# `tl.program_id(1)` tells them. `load_rows` and `absorb` are there for you. Keys that do not exist must stay without
# weight, and no score, however large, may make a NaN. `tl` has no tanh, but it has `tl.sigmoid`, and
# $\tanh y = 2\, \text{sigmoid}(2y) - 1$.


# %% task="softcap_attention"
@triton.jit
def softcap_attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, M, N, scale, cap,
    D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Each program writes BLOCK_M rows of one head of out, which is [H, M, D] and
    contiguous.
    """
    head = tl.program_id(1).to(tl.int64)  # blank: ____
    k_ptr += head * N * D  # blank:
    v_ptr += head * N * D  # blank:
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)  # blank:
    q = load_rows(q_ptr + head * M * D, offs_m, M, D, D)  # blank:
    top = tl.full((BLOCK_M,), -1e30, tl.float32)  # blank:
    total = tl.zeros((BLOCK_M,), tl.float32)  # blank:
    acc = tl.zeros((BLOCK_M, D), tl.float32)  # blank:
    for start in range(0, N, BLOCK_N):  # blank:
        offs_n = start + tl.arange(0, BLOCK_N)  # blank:
        k = load_rows(k_ptr, offs_n, N, D, D)  # blank:
        v = load_rows(v_ptr, offs_n, N, D, D)  # blank:
        scores = scale * tl.dot(q, tl.trans(k), input_precision="ieee")  # blank:
        scores = cap * (2 * tl.sigmoid(2 * scores / cap) - 1)  # blank:
        scores = tl.where((offs_n < N)[None, :], scores, -float("inf"))  # blank:
        top, total, acc = absorb(top, total, acc, scores, v)  # blank:
    # blank:
    out_ptrs = out_ptr + head * M * D + offs_m[:, None] * D + tl.arange(0, D)[None, :]
    tl.store(out_ptrs, acc / total[:, None], mask=(offs_m < M)[:, None])  # blank:


def softcap_attention(q, k, v, cap):
    """Return attention with scores capped at cap, for q [H, M, D], k and v [H, N, D],
    contiguous, D = 16 or 32.
    """
    (H, M, D), N = q.shape, k.shape[1]  # blank: ____
    out = torch.empty_like(q)  # blank:
    grid = (triton.cdiv(M, 16), H)  # blank:
    # blank:
    softcap_attention_kernel[grid](
        q, k, v, out, M, N, D**-0.5, cap, D=D, BLOCK_M=16, BLOCK_N=16
    )
    return out  # blank:


# %% tags=["active-ipynb"]
# check("softcap_attention", softcap_attention)


# %% tags=["spec"]
def softcap_attention_reference(q, k, v, cap):
    """The specification of `softcap_attention`."""
    scores = q @ k.mT / q.shape[-1] ** 0.5
    return torch.softmax(cap * torch.tanh(scores / cap), -1) @ v


def heads(H, M, N, D=16, cap=2.0, dtype=torch.float32, scale=1.0):
    """Return a maker of queries [H, M, D], keys and values [H, N, D], and a cap."""
    return lambda generator: (
        normal(generator, H, M, D, dtype=dtype, scale=scale),
        normal(generator, H, N, D, dtype=dtype, scale=scale),
        near_one(generator, H, N, D, dtype=dtype),
        cap,
    )


TASKS["softcap_attention"] = Task(
    name="softcap_attention",
    title="A softcap: a kernel of your own",
    points=5,
    hints=(
        "Task 3 has nearly everything. Which line changes, where do the rows of head "
        "2 begin in a contiguous tensor of [H, N, D], and what does the cap make of a "
        "score of minus infinity?",
        "Head `h` begins `h * N * D` elements into `k` and `v`, and `h * M * D` into "
        "`q` and `out`; rows are `D` elements apart. First scale, then cap, and only "
        "then give the keys past the end minus infinity: the other way round, they "
        "would come out with `-cap`, and that is a weight.",
        "Kernel: `head = tl.program_id(1).to(tl.int64)`, `offs_m`, `q`, `top`, "
        "`total`, `acc` as in task 3; in the loop `scores = scale * tl.dot(…)`, "
        "`scores = cap * (2 * tl.sigmoid(____) - 1)`, `tl.where(____, scores, "
        '-float("inf"))`, `absorb(…)`; one store. Host: `torch.empty_like(q)`, the '
        "grid `(triton.cdiv(M, 16), ____)`, launch, return.",
    ),
    reference=softcap_attention_reference,
    shared=("k", "v"),
    cases=(
        Case("one query, one key", heads(1, 1, 1)),
        Case("tiles exactly full", heads(2, 16, 32), programs=2),
        Case("one past a tile", heads(2, 17, 33), programs=4),
        Case("one key past a tile, a small cap", heads(2, 5, 17, cap=0.5), programs=2),
        Case("nothing divides, all sizes differ", heads(3, 21, 37), programs=6),
        Case("one query, many keys", heads(4, 1, 150), programs=4),
        Case("many tiles", heads(2, 90, 300), programs=2),
        Case(
            "scores near 200 and -200, a large cap",
            one_way(20, 70, 200.0, 300.0, heads=(2,)),
            programs=2,
        ),
        Case(
            "scores far beyond the cap",
            heads(2, 18, 20, cap=5.0, scale=40.0),
            programs=4,
        ),
        Case("32 numbers a row", heads(2, 20, 20, 32), programs=4),
        Case("bf16", heads(2, 20, 20, dtype=torch.bfloat16), programs=4),
        Case("fp16", heads(2, 20, 20, dtype=torch.float16), programs=4),
    ),
)

# %% [markdown]
# ## Done?
#
# Run `progress()` for your points and the next step. When you have passed a task, `solution("window_attention")` shows
# how we wrote it; yours may well be better.
