# ---
# jupyter:
#   chapter: 4
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Exercise 4: siblings of softmax
#
# Five kernels that reduce rows: the largest element, the logarithm of a softmax, a softmax in which nobody looks
# ahead, a sum that does not fit a program, and the loss of a language model.
#
# - A blank looks like `____`. Replace it, run the cell, then run the check below it.
# - **The line already printed under each check is the one you are working towards.** Run the check and it is replaced
#   by what your own code does: which case failed, at which elements, and the likely cause.
# - Stuck? `hint("row_max")` asks you a question; call it again for a nudge, and again for the shape of the answer.
#   `reset("row_max")` puts the blanks back and keeps a copy of what you wrote; `progress()` shows how far you are.
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

INF = float("inf")


def scores(generator, *shape, dtype=torch.float32, shift=0.0):
    """Return normal random numbers around `shift`."""
    return (
        shift + torch.randn(shape, generator=generator, device=generator.device)
    ).to(dtype)


def matrix(M, N, dtype=torch.float32, shift=0.0):
    """Return a maker of one contiguous matrix."""
    return lambda generator: (scores(generator, M, N, dtype=dtype, shift=shift),)


def rows_apart(M, N):
    """Return a maker of a matrix that is the middle of a wider one, so that its rows
    lie apart.
    """
    return lambda generator: (scores(generator, M, N + 9)[:, 4 : N + 4],)


def one_row_of(value, N=40):
    """Return a maker of three rows, the second of which holds one value alone."""

    def make(generator):
        x = scores(generator, 3, N)
        x[1] = value
        return (x,)

    return make


def rows_past_2_31(generator, N=40):
    """Return three fp16 rows 2**30 + 8 apart: the last begins past 2**31. What lies
    between is never touched.
    """
    step = 2**30 + 8
    memory = torch.empty(2 * step + N, dtype=torch.float16, device=generator.device)
    return memory.as_strided((3, N), (step, 1)).copy_(scores(generator, 3, N))


def mostly_hidden(generator, M, N, hidden):
    """Return rows of which the first `hidden` elements are -inf."""
    x = scores(generator, M, N)
    x[:, :hidden] = -INF
    return x


def one_nan(generator):
    """Return five rows with a NaN in the first, in the middle and in the last."""
    x = scores(generator, 5, 40)
    x[0, 0] = x[2, 20] = x[4, 39] = float("nan")
    return x


# %% [markdown]
# ## 1. Row maximum: what do the missing lanes hold? (1 point)
#
# `out[i]` is the largest element of row `i` of a matrix. One program takes one row, and a block has a power of two of
# lanes, so most rows leave some over. With 3 elements and a block of 4:
#
# | lane | 0 | 1 | 2 | 3 |
# | --- | --- | --- | --- | --- |
# | element | -5 | -6 | -7 | masked |
# | loaded | -5 | -6 | -7 | **?** |
#
# In chapter 1 a masked lane did nothing, so nobody cared what it held. Here `tl.max` looks at all four. Whatever
# `other` puts into the fourth must not change the answer, -5.
#
# The last lines are there because `tl.max` passes over NaN, and PyTorch does not: the largest element of a row with a
# NaN in it is NaN. A NaN is the only number that differs from itself.


# %% task="row_max"
@triton.jit
def row_max_kernel(x_ptr, out_ptr, N, stride_xm, BLOCK: tl.constexpr):
    """Each program finds the largest element of one row, which BLOCK lanes hold."""
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    x_ptrs = x_ptr + row * stride_xm + offs
    mask = offs < N
    # blank: x = tl.load(x_ptrs, mask=mask, other=____)
    x = tl.load(x_ptrs, mask=mask, other=-float("inf"))
    has_nan = tl.max((x != x).to(tl.int32), 0) > 0
    tl.store(out_ptr + row, tl.where(has_nan, float("nan"), tl.max(x, 0)))


def row_max(x):
    """Return the largest element of each row of x, [M, N], whose elements lie side by
    side in a row.
    """
    M, N = x.shape
    out = torch.empty(M, dtype=x.dtype, device=x.device)
    row_max_kernel[(M,)](x, out, N, x.stride(0), BLOCK=triton.next_power_of_2(N))
    return out


# %% tags=["active-ipynb"]
# check("row_max", row_max)


# %% tags=["spec"]
def row_max_reference(x):
    """The specification of `row_max`."""
    return x.amax(1)


TASKS["row_max"] = Task(
    name="row_max",
    title="Row maximum: what do the missing lanes hold?",
    points=1,
    hints=(
        "If the masked lane held 0, what would be the largest of -5, -6, -7 and it?",
        "It must hold a number that loses against every other, however small that one "
        "is.",
        "`other=-float(____)`: minus infinity.",
    ),
    reference=row_max_reference,
    cases=(
        Case("one element", matrix(1, 1)),
        Case(
            "negative, masked lane",
            lambda g: (torch.tensor([[-5.0, -6.0, -7.0]], device=g.device),),
        ),
        Case("block exactly full", matrix(3, 64), programs=3),
        Case("one past a power of two", matrix(5, 65, shift=-9.0), programs=5),
        Case("rows that lie apart", rows_apart(4, 33), programs=4),
        Case("one column", matrix(6, 1), programs=6),
        Case("bf16", matrix(3, 100, torch.bfloat16, shift=-4.0), programs=3),
        Case("fp16", matrix(3, 100, torch.float16), programs=3),
        Case("a row of -inf", one_row_of(-INF), programs=3),
        Case("a row of inf", one_row_of(INF), programs=3),
        Case("NaN", lambda g: (one_nan(g),), programs=5),
        Case("offsets past 2**31", lambda g: (rows_past_2_31(g),), programs=3),
    ),
)

# %% [markdown]
# ## 2. Log-softmax: subtract before you raise (2 points)
#
# Losses want the logarithm of a softmax, and taking `log(softmax(x))` in two steps turns every small probability into
# `log(0)`. Multiplied out, no power has to be divided:
#
# $$\text{out}_j = x_j - m - \log \sum_k e^{x_k - m}, \qquad m = \max_k x_k$$
#
# With one row of 4 and the natural logarithm:
#
# | $x$ | 1002 | 1001 | 1002 | 1000 |
# | --- | --- | --- | --- | --- |
# | $x - m$ | 0 | -1 | 0 | -2 |
# | $e^{x - m}$ | 1 | 0.368 | 1 | 0.135 |
# | out | -0.918 | -1.918 | -0.918 | -2.918 |
#
# Without $m$, $e^{1002}$ would be infinite. The sum is 2.503, its logarithm 0.918. Fill in the two lines between load
# and store.


# %% task="log_softmax"
@triton.jit
def log_softmax_kernel(x_ptr, out_ptr, N, stride_xm, BLOCK: tl.constexpr):
    """Each program writes one row of out, which BLOCK lanes hold."""
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    mask = offs < N
    x = tl.load(x_ptr + row * stride_xm + offs, mask=mask, other=-float("inf")).to(
        tl.float32
    )
    shifted = x - tl.max(x, 0)  # blank: shifted = ____
    out = shifted - tl.log(tl.sum(tl.exp(shifted), 0))  # blank: out = ____
    tl.store(out_ptr + row * N + offs, out, mask=mask)


def log_softmax(x):
    """Return log(softmax(x)) of each row of x, [M, N], whose elements lie side by side
    in a row.
    """
    M, N = x.shape
    out = torch.empty((M, N), dtype=x.dtype, device=x.device)
    log_softmax_kernel[(M,)](x, out, N, x.stride(0), BLOCK=triton.next_power_of_2(N))
    return out


# %% tags=["active-ipynb"]
# check("log_softmax", log_softmax)


# %% tags=["spec"]
def log_softmax_reference(x):
    """The specification of `log_softmax`."""
    return torch.log_softmax(x, 1)


TASKS["log_softmax"] = Task(
    name="log_softmax",
    title="Log-softmax: subtract before you raise",
    points=2,
    hints=(
        "The table has a row for each step. Which line of code makes its second row, "
        "and which number is subtracted from that row to make the last one?",
        "`tl.max(x, 0)` and `tl.sum(…, 0)` each make one number out of a block; a "
        "block minus a number is a block. `tl.exp` and `tl.log` work on blocks and "
        "numbers alike. Masked lanes hold -inf, and `exp` makes 0 of that.",
        "`shifted = x - tl.max(____, 0)`; `out = shifted - "
        "tl.log(tl.sum(tl.exp(____), 0))`.",
    ),
    reference=log_softmax_reference,
    cases=(
        Case("two elements", matrix(1, 2)),
        Case(
            "the row above",
            lambda g: (
                torch.tensor([[1002.0, 1001.0, 1002.0, 1000.0]], device=g.device),
            ),
        ),
        Case("block exactly full", matrix(3, 64), programs=3),
        Case("one past a power of two", matrix(5, 65), programs=5),
        Case("rows that lie apart", rows_apart(4, 33), programs=4),
        Case("large", matrix(3, 50, shift=300.0), programs=3),
        Case("large and negative", matrix(3, 50, shift=-300.0), programs=3),
        Case("bf16", matrix(3, 100, torch.bfloat16), programs=3),
        Case("fp16", matrix(3, 100, torch.float16, shift=50.0), programs=3),
        Case("far apart", lambda g: (200 * scores(g, 3, 50),), programs=3),
        Case("some -inf", lambda g: (mostly_hidden(g, 3, 50, 20),), programs=3),
        Case("a row of -inf", one_row_of(-INF), programs=3),
        Case("NaN", lambda g: (one_nan(g),), programs=5),
        Case("offsets past 2**31", lambda g: (rows_past_2_31(g),), programs=3),
    ),
)

# %% [markdown]
# ## 3. Causal softmax: several rows, and nobody looks ahead (3 points)
#
# In a language model, position `i` may attend to positions 0 to `i` and to no later one. So row `i` of a square matrix
# of scores is normalized over its first `i + 1` elements, and the rest become 0. With 3 positions of equal scores:
#
# | | column 0 | column 1 | column 2 |
# | --- | --- | --- | --- |
# | row 0 | 1 | 0 | 0 |
# | row 1 | 1/2 | 1/2 | 0 |
# | row 2 | 1/3 | 1/3 | 1/3 |
#
# A program takes four rows at once, as a tile: `offs_m[:, None]` is a column of row numbers, `offs_n[None, :]` a row of
# column numbers. Two masks differ here. An element *exists* if row and column do; it is *seen* if it exists and is not
# ahead. What is not seen need not even be loaded. What exists must be stored.


# %% task="causal_softmax"
@triton.jit
def causal_softmax_kernel(
    x_ptr, out_ptr, T, stride_xm, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """Each program writes ROWS rows of out, which is [T, T] and contiguous; BLOCK lanes
    hold a row.
    """
    offs_m = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    offs_n = tl.arange(0, BLOCK)
    exists = (offs_m < T)[:, None] & (offs_n < T)[None, :]
    # blank: seen = exists & (____)
    seen = exists & (offs_n[None, :] <= offs_m[:, None])
    x_ptrs = x_ptr + offs_m[:, None] * stride_xm + offs_n[None, :]
    x = tl.load(x_ptrs, mask=seen, other=-float("inf")).to(tl.float32)
    powers = tl.exp(x - tl.max(x, 1)[:, None])  # blank: powers = tl.exp(x - ____)
    out = powers / tl.sum(powers, 1)[:, None]  # blank: out = powers / ____
    out_ptrs = out_ptr + offs_m[:, None] * T + offs_n[None, :]
    tl.store(out_ptrs, out, mask=exists)  # blank: tl.store(out_ptrs, out, mask=____)


def causal_softmax(x):
    """Return softmax(x[i, : i + 1]) in each row i of a square matrix, and 0 in the rest
    of it.
    """
    T = x.shape[0]
    ROWS = 4
    out = torch.empty((T, T), dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(T, ROWS),)
    causal_softmax_kernel[grid](
        x, out, T, x.stride(0), ROWS=ROWS, BLOCK=triton.next_power_of_2(T)
    )
    return out


# %% tags=["active-ipynb"]
# check("causal_softmax", causal_softmax)


# %% tags=["spec"]
def causal_softmax_reference(x):
    """The specification of `causal_softmax`."""
    ahead = torch.ones(x.shape, dtype=torch.bool, device=x.device).triu(1)
    return x.masked_fill(ahead, -INF).softmax(1)


def levels(generator, T):
    """Return a square matrix whose rows are 0, 300, 600 or 900 above the first."""
    rows = torch.arange(T, device=generator.device) % 4
    return scores(generator, T, T) + 300.0 * rows[:, None]


def future(value, T=21):
    """Return a maker of a square matrix with one value everywhere ahead."""

    def make(generator):
        ahead = torch.ones((T, T), dtype=torch.bool, device=generator.device).triu(1)
        return (scores(generator, T, T).masked_fill(ahead, value),)

    return make


TASKS["causal_softmax"] = Task(
    name="causal_softmax",
    title="Causal softmax: several rows, and nobody looks ahead",
    points=3,
    hints=(
        "Row 1 sees columns 0 and 1. Say it as a comparison of a column number with a "
        "row number. And which lanes of a tile does `tl.max` compare with each other, "
        "if every row is to have a maximum of its own?",
        "`tl.max(x, 1)` reduces along axis 1, the columns, and leaves one number a "
        "row; `[:, None]` stands it up as a column, so that each row subtracts its "
        "own. Every element that exists gets a value, seen or not.",
        "`seen = exists & (offs_n[None, :] <= offs_m[____])`; `tl.exp(x - tl.max(x, "
        "____)[:, None])`; `powers / tl.sum(powers, ____)[:, None]`; `mask=____`, one "
        "of the two masks.",
    ),
    reference=causal_softmax_reference,
    cases=(
        Case("one position", matrix(1, 1)),
        Case("the table above", lambda g: (torch.ones(3, 3, device=g.device),)),
        Case("tiles exactly full", matrix(8, 8), programs=2),
        Case("one past a tile", matrix(9, 9), programs=3),
        Case("nothing divides", matrix(37, 37), programs=10),
        Case("rows that lie apart", rows_apart(14, 14), programs=4),
        Case("large", matrix(18, 18, shift=200.0), programs=5),
        Case("large and negative", matrix(18, 18, shift=-200.0), programs=5),
        Case("rows of different size", lambda g: (levels(g, 18),), programs=5),
        Case("a large future", future(500.0), programs=6),
        Case("NaN in the future", future(float("nan")), programs=6),
        Case("bf16", matrix(19, 19, torch.bfloat16), programs=5),
        Case("fp16", matrix(19, 19, torch.float16), programs=5),
        Case("offsets past 2**31", lambda g: (rows_past_2_31(g, 3),)),
    ),
)

# %% [markdown]
# ## 4. Log-sum-exp: a row that does not fit (4 points)
#
# $\log \sum_j e^{x_j}$ of each row, for rows of any length: a program goes over its row once, 128 elements at a time
# (512 is the most that it may take). It keeps two numbers, the largest element so far, $m$, and the sum of powers so
# far, $s = \sum e^{x_j - m}$. When a block brings a larger element, the old sum was taken against the wrong $m$; one
# multiplication puts it right:
#
# $$s_\text{new} = s \cdot e^{m - m_\text{new}} + \sum_\text{block} e^{x_j - m_\text{new}}$$
#
# With blocks of 2 and the row 1, 3, 2, 5:
#
# | after block | $m$ | $s$ |
# | --- | --- | --- |
# | 1, 3 | 3 | $e^{-2} + 1 = 1.135$ |
# | 2, 5 | 5 | $1.135 \cdot e^{-2} + e^{-3} + 1 = 1.203$ |
#
# and the answer is $5 + \log 1.203 = 5.185$.
#
# An element may be $-\infty$, as a score that is hidden; it adds nothing, whole blocks of them included. That is why
# `top` begins with the smallest number that float32 has: with $-\infty$, such a block would compute $\infty - \infty$.
# No element is $+\infty$.


# %% task="log_sum_exp"
@triton.jit
def log_sum_exp_kernel(x_ptr, out_ptr, N, stride_xm, BLOCK: tl.constexpr):
    """Each program writes one element of out, from one row of any length."""
    row = tl.program_id(0).to(tl.int64)
    top = -3.4028234663852886e38  # the smallest number
    total = 0.0
    for start in range(0, N, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        x = tl.load(
            x_ptr + row * stride_xm + offs, mask=offs < N, other=-float("inf")
        ).to(tl.float32)
        new_top = tl.maximum(top, tl.max(x, 0))  # blank: new_top = ____
        # blank: total = ____
        total = total * tl.exp(top - new_top) + tl.sum(tl.exp(x - new_top), 0)
        top = new_top  # blank: top = ____
    tl.store(out_ptr + row, top + tl.log(total))  # blank: tl.store(out_ptr + row, ____)


def log_sum_exp(x):
    """Return the logarithm of the sum of powers of each row of x, [M, N], whose
    elements lie side by side in a row.
    """
    M, N = x.shape
    out = torch.empty(M, dtype=x.dtype, device=x.device)
    log_sum_exp_kernel[(M,)](x, out, N, x.stride(0), BLOCK=128)
    return out


# %% tags=["active-ipynb"]
# check("log_sum_exp", log_sum_exp)


# %% tags=["spec"]
def log_sum_exp_reference(x):
    """The specification of `log_sum_exp`."""
    return torch.logsumexp(x, 1)


def sorted_rows(descending, M=3, N=700):
    """Return a maker of rows that rise by thousands, so that every block brings a new
    maximum, or that fall.
    """
    return lambda generator: (
        (1000 * scores(generator, M, N))
        .sort(1, descending=descending)
        .values.contiguous(),
    )


TASKS["log_sum_exp"] = Task(
    name="log_sum_exp",
    title="Log-sum-exp: a row that does not fit",
    points=4,
    hints=(
        "Go through the table by hand: how does each `m` follow from the one above "
        "and the block? And what must a sum taken against 3 be multiplied by, to "
        "become one taken against 5?",
        "`tl.maximum` takes the larger of two numbers, `tl.max` the largest of a "
        "block. The formula is one line; both of its powers use the new maximum. Only "
        "after that may the old one be forgotten.",
        "`new_top = tl.maximum(____, tl.max(____, 0))`; `total = total * tl.exp(____ "
        "- new_top) + tl.sum(tl.exp(____ - new_top), 0)`; `top = new_top`; at the end "
        "`top + tl.log(____)`.",
    ),
    reference=log_sum_exp_reference,
    step=512,
    cases=(
        Case("one element", matrix(1, 1)),
        Case(
            "the row above",
            lambda g: (torch.tensor([[1.0, 3.0, 2.0, 5.0]], device=g.device),),
        ),
        Case("one block, masked tail", matrix(3, 100), programs=3),
        Case("two blocks, exactly full", matrix(3, 256), programs=3),
        Case("one past a block", matrix(3, 129), programs=3),
        Case("nothing divides", matrix(7, 5003), programs=7),
        Case("rows that lie apart", rows_apart(4, 300), programs=4),
        Case("rising", sorted_rows(descending=False), programs=3),
        Case("falling", sorted_rows(descending=True), programs=3),
        Case("large", matrix(3, 300, shift=500.0), programs=3),
        Case("large and negative", matrix(3, 300, shift=-500.0), programs=3),
        Case("blocks of -inf", lambda g: (mostly_hidden(g, 3, 700, 300),), programs=3),
        Case("a row of -inf", one_row_of(-INF, 300), programs=3),
        Case("NaN", lambda g: (one_nan(g),), programs=5),
        Case("bf16", matrix(3, 300, torch.bfloat16, shift=9.0), programs=3),
        Case("fp16", matrix(3, 300, torch.float16, shift=9.0), programs=3),
        Case("offsets past 2**31", lambda g: (rows_past_2_31(g),), programs=3),
    ),
)

# %% [markdown]
# ## 5. Cross-entropy: a kernel of your own (5 points)
#
# A language model gives each of $N$ words a score, and one word was right. The loss says how surprised the model was:
#
# $$\text{loss}_i = \log \sum_j e^{x_{ij}} - x_{i, t_i}$$
#
# For the row 1, 3, 2, 5 with the right word at position 1, that is $5.185 - 3 = 2.185$; at position 3 it would be
# 0.185. PyTorch writes the logarithms of all $N$ probabilities to memory on the way, and $N$ may be 128,000. You need
# one number a row, so nothing but that number has to be written.
#
# `x` is [M, N] with the elements of a row side by side, and rows may lie apart; `target` is [M], int64. As in task 4,
# elements may be $-\infty$: words that are ruled out. Write both functions; a row may have any length, so give a
# program at most 1,024 of its elements at a time. It may go over its row twice, and load the right score once more.
# Compute in float32 and return [M] losses of the dtype of `x`.


# %% task="cross_entropy"
@triton.jit
def cross_entropy_kernel(x_ptr, target_ptr, out_ptr, N, stride_xm, BLOCK: tl.constexpr):
    """Each program writes the loss of one row."""
    row = tl.program_id(0).to(tl.int64)  # blank: ____
    x_ptr += row * stride_xm  # blank:
    top = -3.4028234663852886e38  # blank:
    total = 0.0  # blank:
    for start in range(0, N, BLOCK):  # blank:
        offs = start + tl.arange(0, BLOCK)  # blank:
        # blank:
        x = tl.load(x_ptr + offs, mask=offs < N, other=-float("inf")).to(tl.float32)
        new_top = tl.maximum(top, tl.max(x, 0))  # blank:
        total = total * tl.exp(top - new_top) + tl.sum(tl.exp(x - new_top), 0)  # blank:
        top = new_top  # blank:
    right = tl.load(x_ptr + tl.load(target_ptr + row)).to(tl.float32)  # blank:
    tl.store(out_ptr + row, top - right + tl.log(total))  # blank:


def cross_entropy(x, target):
    """Return the loss of each row of scores x, [M, N], of which element target[i] was
    right.
    """
    M, N = x.shape  # blank: ____
    out = torch.empty(M, dtype=x.dtype, device=x.device)  # blank:
    cross_entropy_kernel[(M,)](x, target, out, N, x.stride(0), BLOCK=256)  # blank:
    return out  # blank:


# %% tags=["active-ipynb"]
# check("cross_entropy", cross_entropy)


# %% tags=["spec"]
def cross_entropy_reference(x, target):
    """The specification of `cross_entropy`."""
    return torch.nn.functional.cross_entropy(x, target, reduction="none")


def scores_and_target(M, N, dtype=torch.float32, shift=0.0, pad=0):
    """Return a maker of scores, their rows `pad` elements apart, and of the right
    positions.
    """

    def make(generator):
        x = scores(generator, M, N + pad, dtype=dtype, shift=shift)[:, :N]
        return x, torch.randint(
            0, N, (M,), generator=generator, device=generator.device
        )

    return make


def certain(generator):
    """Return scores of which one is far above the rest: right in the first row, wrong
    in the second.
    """
    x = scores(generator, 2, 400)
    x[:, 301] = 60.0
    return x, torch.tensor([301, 7], device=generator.device)


def falling(generator):
    """Return rows that fall by thousands, and right positions."""
    x = (1000 * scores(generator, 3, 5000)).sort(1, descending=True).values
    return x.contiguous(), torch.tensor([0, 17, 4999], device=generator.device)


def ruled_out(generator):
    """Return scores of which the first 2,100 are -inf, a right word that is and two
    that are not.
    """
    x = mostly_hidden(generator, 3, 2500, 2100)
    return x, torch.tensor([2100, 2499, 5], device=generator.device)


def ends(generator):
    """Return scores of which the first is right, then the last."""
    return scores(generator, 2, 1500), torch.tensor([0, 1499], device=generator.device)


TASKS["cross_entropy"] = Task(
    name="cross_entropy",
    title="Cross-entropy: a kernel of your own",
    points=5,
    hints=(
        "The first half of the formula is task 4. Where in memory lies the score of "
        "the right word, and how many elements does a program have to load to get it?",
        "Load the program's own element of `target`: a number. Added to the start of "
        "the row it makes a pointer to one score. Load that too, turn it into "
        "float32, and subtract. The rest is the loop of task 4.",
        "Kernel: `row`, `top`, `total`, the loop of task 4, then `right = "
        "tl.load(x_ptr + row * stride_xm + tl.load(target_ptr + "
        "____)).to(tl.float32)` and `tl.store(out_ptr + row, ____ - right + "
        "tl.log(____))`. Host: `out = torch.empty(M, …)`, one program a row, `return "
        "out`.",
    ),
    reference=cross_entropy_reference,
    reads={"x": 3},
    step=1024,
    cases=(
        Case("one word", scores_and_target(1, 1)),
        Case(
            "the row above",
            lambda g: (
                torch.tensor([[1.0, 3.0, 2.0, 5.0]], device=g.device),
                torch.tensor([1], device=g.device),
            ),
        ),
        Case("masked tail", scores_and_target(3, 100), programs=3),
        Case("exactly full", scores_and_target(3, 1024), programs=3),
        Case("one past a block", scores_and_target(3, 1025), programs=3),
        Case("nothing divides", scores_and_target(7, 2003), programs=7),
        Case("a long row", scores_and_target(2, 50_257), programs=2),
        Case("rows that lie apart", scores_and_target(4, 300, pad=11), programs=4),
        Case("the first and the last word", ends, programs=2),
        Case("certain, and certainly wrong", certain, programs=2),
        Case("large", scores_and_target(3, 300, shift=500.0), programs=3),
        Case("large and negative", scores_and_target(3, 300, shift=-500.0), programs=3),
        Case("falling", falling, programs=3),
        Case("words ruled out", ruled_out, programs=3),
        Case("bf16", scores_and_target(3, 300, torch.bfloat16), programs=3),
        Case(
            "offsets past 2**31",
            lambda g: (rows_past_2_31(g), torch.tensor([0, 39, 7], device=g.device)),
            programs=3,
        ),
        Case("no rows", scores_and_target(0, 10)),
    ),
)

# %% [markdown]
# ## Done?
#
# Run `progress()` for your points and the next step. When you have passed a task, `solution("row_max")` shows how we
# wrote it; yours may well be better.
