# ---
# jupyter:
#   chapter: 2
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Exercise 2: siblings of dropout
#
# Five small kernels that leave something to chance. In the first you fill in one blank; the fifth you write alone.
#
# - A blank looks like `____`. Replace it, run the cell, then run the check below it.
# - **The line already printed under each check is the one you are working towards.** Run the check and it is replaced
#   by what your own code does: which case failed, at which elements, and the likely cause.
# - Stuck? `hint("masked_scale")` asks you a question; call it again for a nudge, and again for the shape of the
#   answer. `reset("masked_scale")` puts the blanks back and keeps a copy of what you wrote.
#
# Every answer is random, and exactly one is right: which number belongs to which element is part of the task. The
# kernel must do the work, and do it once: it is launched once, loads each element of its inputs once, stores each
# element of the result once, and keeps nothing else in memory. An answer that lets PyTorch or Python compute the result
# does not pass.

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
from kernels.dropout import philox_reference
from lab.task import Case, Task

TASKS: dict[str, Task] = {}
SEEDS = (0, 13, -1, 2**40 + 1)


def numbers(generator, *shape, dtype=torch.float32):
    """Return normal random numbers."""
    return torch.randn(shape, generator=generator, device=generator.device).to(dtype)


def special(generator, dtype=torch.float32):
    """Return the values that break a careless kernel, several times over, so that
    chance meets each of them.
    """
    limits = torch.finfo(dtype)
    values = [
        0.0,
        -0.0,
        float("inf"),
        -float("inf"),
        float("nan"),
        limits.max / 4,
        -limits.max / 4,
        limits.tiny,
    ]
    return torch.tensor(values, dtype=dtype, device=generator.device).repeat(5)


def uniform(words):
    """Return what `tl.rand` makes of 32-bit words: float32 in [0, 1)."""
    signed = torch.where(words >= 2**31, words - 2**32, words)
    return torch.where(signed < 0, -signed - 1, signed).float() * 4.6566127342e-10


def first_words(n, seed, device):
    """Return the first word of each of the calls 0 to n - 1."""
    return philox_reference(seed, torch.arange(n, device=device))[:, 0]


def number_of(counter, seed=13):
    """Return what `tl.rand` gives for one counter."""
    return uniform(first_words(counter + 1, seed, "cpu"))[counter].item()


# %% [markdown]
# ## 1. Apply a mask: what becomes of infinity? (1 point)
#
# `keep` holds a True for each element that stays. `out` is `x / (1 - p)` there, and 0 everywhere else. With 8 numbers
# and `p = 0.5`, so that what is kept is doubled:
#
# | `x` | 1 | inf | 3 | 4 | nan | 6 | 7 | 8 |
# | --- | --- | --- | --- | --- | --- | --- | --- | --- |
# | `keep` | yes | no | yes | no | no | yes | no | yes |
# | `out` | 2 | 0 | 6 | 0 | 0 | 12 | 0 | 16 |
#
# The host has worked out `scale = 1 / (1 - p)`. One blank is left.


# %% task="masked_scale"
@triton.jit
def masked_scale_kernel(x_ptr, keep_ptr, out_ptr, n, scale, BLOCK: tl.constexpr):
    """Each program writes BLOCK consecutive elements of out."""
    pid = tl.program_id(0).to(tl.int64)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    keep = tl.load(keep_ptr + offs, mask=mask)
    out = tl.where(keep, x * scale, 0.0)  # blank: out = ____
    tl.store(out_ptr + offs, out, mask=mask)


def masked_scale(x, keep, p):
    """Return x / (1 - p) where keep is True and 0 elsewhere; two contiguous vectors of
    one length, p below 1.
    """
    out = torch.empty_like(x)
    n = x.numel()
    masked_scale_kernel[(triton.cdiv(n, 256),)](x, keep, out, n, 1 / (1 - p), BLOCK=256)
    return out


# %% tags=["active-ipynb"]
# check("masked_scale", masked_scale)


# %% tags=["spec"]
def masked_scale_reference(x, keep, p):
    """The specification of `masked_scale`."""
    return torch.where(keep, x.double() / (1 - p), 0).to(x.dtype)


def vector_and_mask(n, p=0.5, dtype=torch.float32):
    """Return a maker of a vector, a mask and p."""
    return lambda g: (
        numbers(g, n, dtype=dtype),
        torch.rand(n, generator=g, device=g.device) >= p,
        p,
    )


def special_and_mask(generator):
    """Return special values, each of them kept and dropped, and p."""
    x = special(generator)
    return x, torch.arange(x.numel(), device=x.device) % 3 == 0, 0.5


TASKS["masked_scale"] = Task(
    name="masked_scale",
    title="Apply a mask: what becomes of infinity?",
    points=1,
    hints=(
        "What is 0 times infinity? So can a product with the mask make every dropped "
        "element 0?",
        "`tl.where(condition, a, b)` chooses, element by element, and does no "
        "arithmetic on what it leaves behind.",
        "`out = tl.where(____, x * ____, 0.0)`",
    ),
    reference=masked_scale_reference,
    cases=(
        Case("one element", vector_and_mask(1)),
        Case("one block, masked tail", vector_and_mask(100)),
        Case("two blocks, exactly full", vector_and_mask(512), programs=2),
        Case("one past a block", vector_and_mask(257), programs=2),
        Case("a quarter dropped", vector_and_mask(1300, p=0.25), programs=2),
        Case("nothing dropped", vector_and_mask(300, p=0.0)),
        Case("empty", vector_and_mask(0)),
        Case("bf16", vector_and_mask(300, p=0.3, dtype=torch.bfloat16)),
        Case("fp16", vector_and_mask(300, p=0.3, dtype=torch.float16)),
        Case("zeros, infinities, NaN", special_and_mask),
    ),
)

# %% [markdown]
# ## 2. Toss a coin for each sign: whose number is it? (2 points)
#
# Each element keeps its sign or changes it, by the toss of a coin. `tl.randint(seed, counters)` gives a random integer
# from 0 to 2**32 - 1 for each counter of a block, and half of these integers are odd. Where the integer is odd, `out`
# is `-x`, elsewhere `x`. With seed 13:
#
# | element | 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 |
# | --- | --- | --- | --- | --- | --- | --- | --- | --- |
# | `x` | 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 |
# | last digits | …570 | …849 | …107 | …867 | …644 | …187 | …341 | …054 |
# | `out` | 1 | -2 | -3 | -4 | 5 | -6 | -7 | 8 |
#
# Element 300 lies in the second program of 256, and must get the number of counter 300: a number belongs to an
# element, not to a place in a program. Two blanks.


# %% task="random_sign"
@triton.jit
def random_sign_kernel(x_ptr, out_ptr, n, seed, BLOCK: tl.constexpr):
    """Each program writes BLOCK consecutive elements of out."""
    pid = tl.program_id(0).to(tl.int64)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    toss = tl.randint(seed, offs)  # blank: toss = tl.randint(seed, ____)
    out = tl.where(toss % 2 == 1, -x, x)  # blank: out = ____
    tl.store(out_ptr + offs, out, mask=mask)


def random_sign(x, seed):
    """Return x with random signs, for a contiguous vector."""
    out = torch.empty_like(x)
    n = x.numel()
    random_sign_kernel[(triton.cdiv(n, 256),)](x, out, n, seed, BLOCK=256)
    return out


# %% tags=["active-ipynb"]
# check("random_sign", random_sign)


# %% tags=["spec"]
def random_sign_reference(x, seed):
    """The specification of `random_sign`."""
    return torch.where(first_words(x.numel(), seed, x.device) % 2 == 1, -x, x)


def vector_and_seed(n, seed=13, dtype=torch.float32):
    """Return a maker of a vector and a seed."""
    return lambda generator: (numbers(generator, n, dtype=dtype), seed)


TASKS["random_sign"] = Task(
    name="random_sign",
    title="Toss a coin for each sign: whose number is it?",
    points=2,
    hints=(
        "Two programs with the same counters get the same numbers. Which block in "
        "this kernel differs from program to program, and holds the number of each "
        "element?",
        "The positions in the vector are the counters. Then choose between `-x` and "
        "`x` as in task 1; a number is odd if the remainder `% 2` is 1.",
        "`toss = tl.randint(seed, o___)`; `out = tl.where(toss % 2 == ____, ____, x)`",
    ),
    reference=random_sign_reference,
    cases=(
        Case("one element", vector_and_seed(1)),
        Case("one block, masked tail", vector_and_seed(100)),
        Case("two blocks, exactly full", vector_and_seed(512), programs=2),
        Case("one past a block", vector_and_seed(257), programs=2),
        Case("nothing divides", vector_and_seed(1311), programs=2),
        *(Case(f"seed {seed}", vector_and_seed(50, seed)) for seed in SEEDS),
        Case("empty", vector_and_seed(0)),
        Case("bf16", vector_and_seed(300, dtype=torch.bfloat16)),
        Case("zeros, infinities, NaN", lambda g: (special(g), 13)),
    ),
)

# %% [markdown]
# ## 3. Drop whole rows: one number for many elements (3 points)
#
# Some networks drop whole samples: a row of `x` is divided by `1 - p`, or it is 0 from end to end. Row `i` stays if
# `tl.rand(seed, i)`, a number in [0, 1), is at least `p`. With `p = 0.5` and seed 13:
#
# | row | number | `x` | `out` |
# | --- | --- | --- | --- |
# | 0 | 0.90 | 1 2 | 2 4 |
# | 1 | 0.67 | 3 4 | 6 8 |
# | 2 | 0.35 | 5 6 | 0 0 |
# | 3 | 0.30 | 7 8 | 0 0 |
#
# A program owns a tile of `BLOCK_M` by `BLOCK_N`. All programs in a row of tiles must agree, and they cannot talk. They
# need not: equal seeds and counters give equal numbers. `x` may have any strides, as in chapter 1. Three blanks.


# %% task="drop_rows"
@triton.jit
def drop_rows_kernel(
    x_ptr, out_ptr, M, N, stride_xm, stride_xn, seed, p, scale,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Each program writes one tile of BLOCK_M x BLOCK_N elements of out, which is
    [M, N] and contiguous.
    """
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = (offs_m < M)[:, None] & (offs_n < N)[None, :]
    x_ptrs = x_ptr + offs_m[:, None] * stride_xm + offs_n[None, :] * stride_xn
    x = tl.load(x_ptrs, mask=mask).to(tl.float32)
    random = tl.rand(seed, offs_m)  # blank: random = tl.rand(seed, ____)
    keep = random >= p  # blank: keep = ____
    # blank: out = tl.where(____, x * scale, 0.0)
    out = tl.where(keep[:, None], x * scale, 0.0)
    tl.store(out_ptr + offs_m[:, None] * N + offs_n[None, :], out, mask=mask)


def drop_rows(x, p, seed):
    """Return x / (1 - p) with some rows 0, for x of shape [M, N], any strides, and p
    below 1.
    """
    M, N = x.shape
    out = torch.empty((M, N), dtype=x.dtype, device=x.device)
    BLOCK_M, BLOCK_N = 16, 32
    grid = (triton.cdiv(M, BLOCK_M), triton.cdiv(N, BLOCK_N))
    drop_rows_kernel[grid](
        x, out, M, N, *x.stride(), seed, p, 1 / (1 - p),
        BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N,
    )  # fmt: skip
    return out


# %% tags=["active-ipynb"]
# check("drop_rows", drop_rows)


# %% tags=["spec"]
def drop_rows_reference(x, p, seed):
    """The specification of `drop_rows`."""
    keep = uniform(first_words(x.shape[0], seed, x.device)) >= p
    out = torch.where(keep[:, None], x.double() / (1 - p), 0)
    return out.to(x.dtype).contiguous()


def matrix(M, N, p=0.5, seed=13, dtype=torch.float32):
    """Return a maker of a contiguous matrix, p and a seed."""
    return lambda generator: (numbers(generator, M, N, dtype=dtype), p, seed)


def rows_far_apart(generator):
    """Return three fp16 rows 2**30 + 8 apart: the last begins past 2**31. What lies
    between is never touched.
    """
    step = 2**30 + 8
    memory = torch.empty(2 * step + 16, dtype=torch.float16, device=generator.device)
    return memory.as_strided((3, 16), (step, 1)).copy_(numbers(generator, 3, 16))


TASKS["drop_rows"] = Task(
    name="drop_rows",
    title="Drop whole rows: one number for many elements",
    points=3,
    hints=(
        "How many numbers does a tile of 16 rows and 32 columns need? Which of the "
        "two blocks of offsets has as many, and is the same in every tile of a row of "
        "tiles?",
        "`offs_m` holds the numbers of the rows. `keep` then has one entry a row; to "
        "meet a tile it must be a column.",
        "`random = tl.rand(seed, offs____)`; `keep = random >= ____`; `out = "
        "tl.where(keep[____, None], ____, 0.0)`, with what stood there before in the "
        "last gap.",
    ),
    reference=drop_rows_reference,
    cases=(
        Case("one element", matrix(1, 1)),
        Case("one row", matrix(1, 100), programs=2),
        Case("one column", matrix(100, 1), programs=2),
        Case("tiles exactly full", matrix(32, 64), programs=2),
        Case("one past a tile", matrix(17, 33), programs=2),
        Case("a tenth dropped", matrix(90, 7, p=0.1), programs=2),
        Case("nothing dropped", matrix(20, 20, p=0.0)),
        Case("p is the number of row 5", matrix(60, 5, p=number_of(5)), programs=2),
        Case("many tiles each way", matrix(140, 200, p=0.3), programs=4),
        Case("another seed", matrix(50, 5, seed=2**40 + 1), programs=2),
        Case("transposed", lambda g: (numbers(g, 21, 45).t(), 0.5, 13), programs=2),
        Case("sliced", lambda g: (numbers(g, 40, 100)[::2, 1::3], 0.5, 13), programs=2),
        Case("no rows", matrix(0, 5)),
        Case("bf16", matrix(20, 40, p=0.3, dtype=torch.bfloat16)),
        Case("zeros, infinities, NaN", lambda g: (special(g).reshape(10, 4), 0.5, 13)),
        Case("rows past 2**31", lambda g: (rows_far_apart(g), 0.0, 13)),
        Case("columns past 2**31", lambda g: (rows_far_apart(g).t(), 0.0, 13)),
    ),
)

# %% [markdown]
# ## 4. Round by chance: four numbers from one call (4 points)
#
# 2.3 lies between 2 and 3. Rounded *by chance* it becomes 3 with probability 0.3 and 2 otherwise, so that the mean of
# many roundings is 2.3. That is how weights are kept in few bits without losing small changes. With a number `u` in
# [0, 1), `floor(x + u)` does it:
#
# | `x` | 2.3 | 2.3 | -0.5 | -0.5 |
# | --- | --- | --- | --- | --- |
# | `u` | 0.1 | 0.8 | 0.2 | 0.9 |
# | `x + u` | 2.4 | 3.1 | -0.3 | 0.4 |
# | `out` | 2 | 3 | -1 | 0 |
#
# One call of the generator gives four numbers: `tl.rand4x(seed, call)` returns four blocks, one for each of the words.
# Call `c` serves the elements `4c` to `4c + 3`, in the order of the words:
#
# | | word 0 | word 1 | word 2 | word 3 |
# | --- | --- | --- | --- | --- |
# | call 0 | element 0 | 1 | 2 | 3 |
# | call 1 | 4 | 5 | 6 | 7 |
#
# `tl.join(a, b)` puts two blocks side by side along a new last axis, so `tl.join(tl.join(a, b), tl.join(c, d))` has two
# new axes; reshaped to four columns it runs `a, c, b, d`, for the last axis runs fastest. Three blanks: the tile of
# offsets, the four words in order, and the sum.


# %% task="chance_round"
@triton.jit
def chance_round_kernel(x_ptr, out_ptr, n, seed, CALLS: tl.constexpr):
    """Each program writes 4 * CALLS consecutive elements of out."""
    pid = tl.program_id(0).to(tl.int64)
    call = pid * CALLS + tl.arange(0, CALLS)
    offs = call[:, None] * 4 + tl.arange(0, 4)[None, :]  # blank: offs = ____
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    u0, u1, u2, u3 = tl.rand4x(seed, call)
    # blank: pairs = tl.join(tl.join(u0, ____), ____)
    pairs = tl.join(tl.join(u0, u2), tl.join(u1, u3))
    u = tl.reshape(pairs, (CALLS, 4))
    out = tl.floor(x + u).to(tl.int32)  # blank: out = ____
    tl.store(out_ptr + offs, out, mask=mask)


def chance_round(x, seed):
    """Return x rounded up or down by chance, as int32, for a contiguous vector of
    numbers below 2**20.
    """
    out = torch.empty(x.shape, dtype=torch.int32, device=x.device)
    n = x.numel()
    chance_round_kernel[(triton.cdiv(n, 256),)](x, out, n, seed, CALLS=64)
    return out


# %% tags=["active-ipynb"]
# check("chance_round", chance_round)


# %% tags=["spec"]
def chance_round_reference(x, seed):
    """The specification of `chance_round`."""
    calls = torch.arange(triton.cdiv(x.numel(), 4), device=x.device)
    u = uniform(philox_reference(seed, calls)).flatten()[: x.numel()]
    return torch.floor(x.float() + u).to(torch.int32)


def hundreds(n, seed=13, dtype=torch.float32):
    """Return a maker of a vector of numbers in the hundreds, of both signs, and
    a seed.
    """
    return lambda generator: ((100 * numbers(generator, n)).to(dtype), seed)


TASKS["chance_round"] = Task(
    name="chance_round",
    title="Round by chance: four numbers from one call",
    points=4,
    hints=(
        "Call 5 serves the elements 20, 21, 22 and 23. How do you get all four from 5 "
        "and `tl.arange(0, 4)`, for a whole column of calls at once? And which blocks "
        "must meet first, if a, b, c, d come out as a, c, b, d?",
        "A column `call[:, None]` and a row `tl.arange(0, 4)[None, :]` make a tile. "
        "Blocks 0 and 2 are one pair, 1 and 3 the other. `tl.floor` rounds down, also "
        "below zero; `.to(tl.int32)` cuts towards zero.",
        "`offs = call[:, None] * ____ + tl.arange(0, 4)[____, :]`; `pairs = "
        "tl.join(tl.join(u0, u2), tl.join(____, ____))`; `out = tl.floor(____ + "
        "____).to(tl.int32)`",
    ),
    reference=chance_round_reference,
    cases=(
        Case("one element", hundreds(1)),
        Case("fewer than a call gives", hundreds(3)),
        Case("one more than a call gives", hundreds(5)),
        Case("one block, masked tail", hundreds(100)),
        Case("two blocks, exactly full", hundreds(512), programs=2),
        Case("one past a block", hundreds(257), programs=2),
        Case("nothing divides", hundreds(1311), programs=2),
        Case("large", lambda g: (2**18 * numbers(g, 300).clamp(-3, 3), 13)),
        *(Case(f"seed {seed}", hundreds(50, seed)) for seed in SEEDS[2:]),
        Case("whole numbers", lambda g: (numbers(g, 50).round(), 13)),
        Case("empty", hundreds(0)),
        Case("bf16", hundreds(300, dtype=torch.bfloat16)),
    ),
)

# %% [markdown]
# ## 5. Dropout and a residual: a kernel of your own (5 points)
#
# In a transformer, dropout is followed by an addition: `out = residual + dropout(x)`. One kernel saves a round trip
# through memory. Element `i` of `x` is kept, and divided by `1 - p`, if `tl.rand(seed, i)` is at least `p`. With
# `p = 0.5` and seed 13:
#
# | element | 0 | 1 | 2 | 3 |
# | --- | --- | --- | --- | --- |
# | number | 0.90 | 0.67 | 0.35 | 0.30 |
# | `x` | 1 | 2 | inf | 4 |
# | `residual` | 10 | 20 | 30 | 40 |
# | `out` | 12 | 24 | 30 | 40 |
#
# Both vectors are contiguous and of one dtype; `p` may be anything from 0 to 1, both ends included: with `p = 1`
# nothing of `x` is left, whatever it holds. Write both functions. The parameters of the kernel are a proposal. Share
# the work among programs that take at most 1,024 elements at a time, compute in float32, and return the dtype of `x`.


# %% task="dropout_add"
@triton.jit
def dropout_add_kernel(
    x_ptr, residual_ptr, out_ptr, n, seed, p, scale, BLOCK: tl.constexpr
):
    """Each program writes BLOCK consecutive elements of out."""
    pid = tl.program_id(0).to(tl.int64)  # blank: ____
    offs = pid * BLOCK + tl.arange(0, BLOCK)  # blank:
    mask = offs < n  # blank:
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)  # blank:
    residual = tl.load(residual_ptr + offs, mask=mask).to(tl.float32)  # blank:
    keep = tl.rand(seed, offs) >= p  # blank:
    out = residual + tl.where(keep, x * scale, 0.0)  # blank:
    tl.store(out_ptr + offs, out, mask=mask)  # blank:


def dropout_add(x, residual, p, seed):
    """Return residual + dropout(x), for two contiguous vectors of one length and dtype,
    and p from 0 to 1.
    """
    out = torch.empty_like(x)  # blank: ____
    n = x.numel()  # blank:
    scale = 1 / (1 - p) if p < 1 else 0.0  # blank:
    # blank:
    dropout_add_kernel[(triton.cdiv(n, 256),)](
        x, residual, out, n, seed, p, scale, BLOCK=256
    )
    return out  # blank:


# %% tags=["active-ipynb"]
# check("dropout_add", dropout_add)


# %% tags=["spec"]
def dropout_add_reference(x, residual, p, seed):
    """The specification of `dropout_add`."""
    keep = uniform(first_words(x.numel(), seed, x.device)) >= p
    kept = torch.where(keep, x.double() / max(1 - p, 1e-9), 0)
    return (residual.double() + kept).to(x.dtype)


def two_vectors(n, p=0.5, seed=13, dtype=torch.float32):
    """Return a maker of two vectors, p and a seed."""
    return lambda generator: (
        *(numbers(generator, n, dtype=dtype) for _ in range(2)),
        p,
        seed,
    )


TASKS["dropout_add"] = Task(
    name="dropout_add",
    title="Dropout and a residual: a kernel of your own",
    points=5,
    hints=(
        "Say in one sentence each: which elements does a program own, what does it "
        "load, which numbers does it draw, what becomes of an element, where does it "
        "go? And what is `1 / (1 - p)` when `p` is 1?",
        "The kernel is task 2 with a second load: `tl.rand(seed, offs) >= p` says "
        "which elements stay, `tl.where` makes the others 0, and the residual is "
        "added to all. The host must not divide by zero.",
        "Kernel: `pid`, `offs`, `mask`, two loads, `keep = tl.rand(seed, ____) >= "
        "____`, `out = residual + tl.where(____, x * scale, ____)`, one store. Host: "
        "`out = torch.empty_like(x)`, `scale = 1 / (1 - p) if ____ else 0.0`, "
        "`dropout_add_kernel[(triton.cdiv(____, 256),)](____, BLOCK=256)`, `return "
        "out`.",
    ),
    reference=dropout_add_reference,
    block=1024,
    cases=(
        Case("one element", two_vectors(1)),
        Case("one block, masked tail", two_vectors(100)),
        Case("exactly full", two_vectors(4096), programs=4),
        Case("one past a block", two_vectors(1025), programs=2),
        Case("nothing divides", two_vectors(4999, p=0.1), programs=5),
        Case("p is 0", two_vectors(300, p=0.0)),
        Case("p is the number of element 5", two_vectors(60, p=number_of(5))),
        Case("p is 1", lambda g: (special(g), numbers(g, 40), 1.0, 13)),
        Case("another seed", two_vectors(300, seed=-1)),
        Case("empty", two_vectors(0)),
        Case("bf16", two_vectors(300, p=0.3, dtype=torch.bfloat16)),
        Case("fp16", two_vectors(300, p=0.3, dtype=torch.float16)),
        Case("zeros, infinities, NaN", lambda g: (special(g), numbers(g, 40), 0.5, 13)),
    ),
)

# %% [markdown]
# ## Done?
#
# Run `progress()` for your points and the next step. When you have passed a task, `solution("masked_scale")` shows how
# we wrote it; yours may well be better.
