# ---
# jupyter:
#   chapter: 3
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Exercise 3: siblings of the matrix product
#
# Four kernels, each one idea further than the last. The first three have blanks; the fourth you write alone.
#
# - A blank looks like `____`. Replace it, run the cell, then run the check below it.
# - **The line already printed under each check is the one you are working towards.** Run the check and it is replaced
#   by what your own code does: which case failed, at which elements, and the likely cause.
# - Stuck? `hint("matvec")` asks you a question; call it again for a nudge, and again for the shape of the answer.
#   `reset("matvec")` puts the blanks back and keeps a copy of what you wrote; `progress()` shows how far you are.
#
# All of it runs on a laptop. The kernel must do the work, and do it once: it is launched once, stores each element of
# the result once, and keeps nothing else in memory; for a block that it stores, a program loads each element that it
# needs once. An answer that lets PyTorch or Python multiply does not pass.

# %% [markdown]
# Run the next two cells first.

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


def fractions(generator, *shape, dtype=torch.float32):
    """Return fractions between -2 and 2, quarters for 16 bits: sums of hundreds of
    their products are exact in float32, in any order. TF32 holds them, bf16 does not.
    """
    parts = 256 if dtype == torch.float32 else 4
    whole = torch.randint(
        -2 * parts, 2 * parts + 1, shape, generator=generator, device=generator.device
    )
    return (whole / parts).to(dtype)


def factors(*shapes):
    """Return a maker of tensors of these shapes."""
    return lambda generator: tuple(fractions(generator, *shape) for shape in shapes)


def unlike(*shapes):
    """Return a maker of tensors, the first of which is too large for fp16, and the
    others too small.
    """

    def make(generator):
        first, *others = factors(*shapes)(generator)
        return first * 2**30, *(other / 2**30 for other in others)

    return make


def cancelling(dtype, M, *columns):
    """Return a maker of a matrix of M rows and of others with so many columns (None: a
    vector). The first half of each sum is large, and the second takes it nearly back.
    The matrix has sixteenths and the others have quarters: float32 holds every sum.
    """

    def make(generator):
        large, small = fractions(generator, 2, M, 150)
        shapes = [(150,) if N is None else (150, N) for N in columns]
        others = [16 + quarters(generator, *shape).to(dtype) for shape in shapes]
        rounded = (16 * large).to(dtype)
        back = (2 * small).round() / 16 - rounded.float()
        return torch.cat([rounded, back.to(dtype)], 1), *(
            torch.cat([other, other]) for other in others
        )

    return make


def far_apart(generator, axis, M, N):
    """Return an fp16 matrix of three rows (axis 0) or columns that lie 2**30 + 8 apart:
    the last begins past 2**31. What lies between is never touched.
    """
    step = 2**30 + 8
    memory = torch.empty(2 * step + 16, dtype=torch.float16, device=generator.device)
    strides = (step, 1) if axis == 0 else (1, step)
    values = fractions(generator, M, N, dtype=torch.float16)
    return memory.as_strided((M, N), strides).copy_(values)


def quarters(generator, *shape):
    """Return quarters in fp16."""
    return fractions(generator, *shape, dtype=torch.float16)


# %% [markdown]
# ## 1. A matrix times a vector: what may enter the sum? (2 points)
#
# `out[m]` is the sum over `k` of `a[m, k] * x[k]`. A program owns 16 rows and goes along them 32 columns at a time;
# `acc` holds a sum for each of its rows. With 2 rows of 4 numbers:
#
# | | | | | | `out` |
# | --- | --- | --- | --- | --- | --- |
# | `a`, row 0 | 1 | 2 | 3 | 4 | 1·5 + 2·6 + 3·7 + 4·8 = 70 |
# | `a`, row 1 | 0 | 1 | 0 | 1 | 6 + 8 = 14 |
# | `x` | 5 | 6 | 7 | 8 | |
#
# The last step of the loop may reach past the end of the rows. What lies there is not yours to read, and what stands
# in its place enters the sum. Both tensors may have any strides, so the columns are 64-bit numbers like the rows: a
# column times its stride can pass 2**31. Two blanks: the mask along `k`, and what a step adds to the sums.


# %% task="matvec"
@triton.jit
def matvec_kernel(
    a_ptr, x_ptr, out_ptr, M, K, stride_am, stride_ak, stride_x,
    BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Each program writes BLOCK_M elements of out, which is [M] and contiguous."""
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    mask_m = offs_m < M
    acc = tl.zeros((BLOCK_M,), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K).to(tl.int64)
        mask_k = offs_k < K  # blank: mask_k = ____
        a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
        a = tl.load(a_ptrs, mask=mask_m[:, None] & mask_k[None, :], other=0.0).to(
            tl.float32
        )
        x = tl.load(x_ptr + offs_k * stride_x, mask=mask_k, other=0.0).to(tl.float32)
        acc += tl.sum(a * x[None, :], axis=1)  # blank: acc += tl.sum(____, axis=____)
    tl.store(out_ptr + offs_m, acc, mask=mask_m)


def matvec(a, x):
    """Return a @ x, for a matrix [M, K] and a vector [K] of one dtype, with any
    strides.
    """
    M, K = a.shape
    out = torch.empty(M, dtype=a.dtype, device=a.device)
    matvec_kernel[(triton.cdiv(M, 16),)](
        a, x, out, M, K, *a.stride(), x.stride(0), BLOCK_M=16, BLOCK_K=32
    )
    return out


# %% tags=["active-ipynb"]
# check("matvec", matvec)


# %% tags=["spec"]
def matvec_reference(a, x):
    """The specification of `matvec`."""
    return (a.double() @ x.double()).to(a.dtype)


TASKS["matvec"] = Task(
    name="matvec",
    title="A matrix times a vector: what may enter the sum?",
    points=2,
    hints=(
        "K = 40 and steps of 32: which columns does the second step reach for, and "
        "how many of them exist?",
        "`a` is a block of rows and columns, `x` a block of columns. `x[None, :]` "
        "lays it along the columns of `a`, so that the two can be multiplied. The sum "
        "must leave one number a row: it runs along axis 1.",
        "`mask_k = offs_k ____ K`; `acc += tl.sum(a * x[____, ____], axis=1)`.",
    ),
    reference=matvec_reference,
    shared=("x",),
    cases=(
        Case("one element", factors((1, 1), (1,))),
        Case("one block exactly full", factors((16, 32), (32,))),
        Case("masked rows and columns", factors((5, 40), (40,))),
        Case("one past both", factors((17, 33), (33,)), programs=2),
        Case("nothing divides", factors((50, 77), (77,)), programs=2),
        Case("many steps", factors((150, 600), (600,)), programs=2),
        Case("large and small", unlike((20, 50), (50,)), programs=2),
        Case(
            "transposed, strided",
            lambda g: (fractions(g, 40, 21).t(), fractions(g, 80)[::2]),
            programs=2,
        ),
        Case("no columns: sums of nothing", factors((20, 0), (0,)), programs=2),
        Case("bf16", cancelling(torch.bfloat16, 20, None)),
        Case("fp16", cancelling(torch.float16, 20, None)),
        Case("rows past 2**31", lambda g: (far_apart(g, 0, 3, 16), quarters(g, 16))),
        Case("columns past 2**31", lambda g: (far_apart(g, 1, 16, 3), quarters(g, 3))),
        Case(
            "elements past 2**31",
            lambda g: (quarters(g, 5, 3), far_apart(g, 0, 3, 1)[:, 0]),
        ),
    ),
)

# %% [markdown]
# ## 2. A tile of a product: which blocks meet? (3 points)
#
# Now `out[m, n]` is the sum over `k` of `a[m, k] * b[k, n]`, and a program owns a tile of 16 by 32 elements. In every
# step it loads a block of `a`, 16 rows by 32 columns, and a block of `b`, 32 rows by 32 columns; `tl.dot` multiplies
# the two and adds the product to the tile. With 8 numbers, 2 by 2 each:
#
# | | column 0 | column 1 |
# | --- | --- | --- |
# | `a`, row 0 | 1 | 2 |
# | `a`, row 1 | 3 | 4 |
# | `b`, row 0 | 5 | 6 |
# | `b`, row 1 | 7 | 8 |
# | `out`, row 0 | 19 | 22 |
# | `out`, row 1 | 43 | 50 |
#
# Four blanks: the rows of this tile, where the block of `b` lies, which of it exists, and the step itself.


# %% task="tile_product"
@triton.jit
def tile_product_kernel(
    a_ptr, b_ptr, out_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Each program writes one tile of BLOCK_M x BLOCK_N elements of out, which is
    [M, N] and contiguous.
    """
    pid = tl.program_id(0).to(tl.int64)
    tiles_n = tl.cdiv(N, BLOCK_N)
    # blank: offs_m = ____ * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_m = pid // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
    mask_m, mask_n = offs_m < M, offs_n < N
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K).to(tl.int64)
        mask_k = offs_k < K
        a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
        # blank: offs_b = ____ + ____
        offs_b = offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
        mask_b = mask_k[:, None] & mask_n[None, :]  # blank: mask_b = ____
        a = tl.load(a_ptrs, mask=mask_m[:, None] & mask_k[None, :], other=0.0)
        b = tl.load(b_ptr + offs_b, mask=mask_b, other=0.0)
        acc = tl.dot(a, b, acc)  # blank: acc = ____
    out_ptrs = out_ptr + offs_m[:, None] * N + offs_n[None, :]
    tl.store(out_ptrs, acc, mask=mask_m[:, None] & mask_n[None, :])


def tile_product(a, b):
    """Return a @ b, for matrices [M, K] and [K, N] of one dtype, with any strides."""
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty(M, N, dtype=a.dtype, device=a.device)
    grid = (triton.cdiv(M, 16) * triton.cdiv(N, 32),)
    tile_product_kernel[grid](
        a, b, out, M, N, K, *a.stride(), *b.stride(), BLOCK_M=16, BLOCK_N=32, BLOCK_K=32
    )
    return out


# %% tags=["active-ipynb"]
# check("tile_product", tile_product)


# %% tags=["spec"]
def tile_product_reference(a, b):
    """The specification of `tile_product`."""
    return (a.double() @ b.double()).to(a.dtype)


TASKS["tile_product"] = Task(
    name="tile_product",
    title="A tile of a product: which blocks meet?",
    points=3,
    hints=(
        "Tiles are numbered row by row. With 3 tiles in a row, in which row is tile "
        "7, and in which column? And which axis of `b` is the one that the sum runs "
        "along?",
        "Dividing the number by the tiles in a row gives the row, the remainder the "
        "column. `b` is [K, N]: `offs_k` are its rows, so they stand in a column, "
        "`offs_k[:, None]`, each times the stride of that axis.",
        "`offs_m = pid // ____ * BLOCK_M + …`; `offs_b = offs_k[:, None] * ____ + "
        "offs_n[None, :] * ____`; `mask_b = mask_k[:, None] & mask_n[____, ____]`; "
        "`acc = tl.dot(____, ____, acc)`.",
    ),
    reference=tile_product_reference,
    shared=("a", "b"),
    cases=(
        Case("one element", factors((1, 1), (1, 1))),
        Case("one tile exactly full", factors((16, 32), (32, 32))),
        Case("smaller than a tile", factors((3, 7), (7, 30))),
        Case("one past a tile each way", factors((17, 33), (33, 65)), programs=2),
        Case(
            "nothing divides, all sizes differ", factors((50, 37), (37, 71)), programs=2
        ),
        Case(
            "a transposed",
            lambda g: (fractions(g, 40, 21).t(), fractions(g, 40, 35)),
            programs=2,
        ),
        Case(
            "b transposed",
            lambda g: (fractions(g, 21, 40), fractions(g, 35, 40).t()),
            programs=2,
        ),
        Case("many tiles", factors((70, 40), (40, 140)), programs=4),
        Case("many steps", factors((20, 300), (300, 40)), programs=2),
        Case("large and small", unlike((20, 50), (50, 40)), programs=2),
        Case("no rows", factors((0, 4), (4, 5))),
        Case("no columns to sum", factors((20, 0), (0, 40)), programs=2),
        Case("bf16", cancelling(torch.bfloat16, 20, 40), programs=2),
        Case("fp16", cancelling(torch.float16, 20, 40), programs=2),
        Case(
            "rows of a past 2**31",
            lambda g: (far_apart(g, 0, 3, 16), quarters(g, 16, 8)),
        ),
        Case(
            "columns of a past 2**31",
            lambda g: (far_apart(g, 1, 16, 3), quarters(g, 3, 8)),
        ),
        Case(
            "rows of b past 2**31",
            lambda g: (quarters(g, 5, 3), far_apart(g, 0, 3, 16)),
        ),
        Case(
            "columns of b past 2**31",
            lambda g: (quarters(g, 5, 16), far_apart(g, 1, 16, 3)),
        ),
    ),
)

# %% [markdown]
# ## 3. The order of tiles: who works beside whom? (3 points)
#
# In grouped order, programs go down `GROUP` rows of tiles, then one column on; when the group is done, the next one
# begins. Here are the numbers of the programs for 3 by 4 tiles and groups of 2. The last group has one row left:
#
# | | column 0 | column 1 | column 2 | column 3 |
# | --- | --- | --- | --- | --- |
# | row 0 | 0 | 2 | 4 | 6 |
# | row 1 | 1 | 3 | 5 | 7 |
# | row 2 | 8 | 9 | 10 | 11 |
#
# Write, for every program, the row and the column of its tile. Four blanks, one idea each: how many tiles a whole
# group has, in which row the group of this tile begins, and then the tile's own row and column.


# %% task="tile_order"
@triton.jit
def tile_order_kernel(out_ptr, tiles_m, tiles_n, GROUP: tl.constexpr):
    """Each program writes the row and the column of its tile into out, which is
    [tiles_m * tiles_n, 2].
    """
    tile = tl.program_id(0)
    per_group = GROUP * tiles_n  # blank: per_group = ____
    first = tile // per_group * GROUP  # blank: first = ____
    rows = tl.minimum(tiles_m - first, GROUP)  # the last group may have fewer
    row = first + tile % per_group % rows  # blank: row = first + ____
    column = tile % per_group // rows  # blank: column = ____
    tl.store(out_ptr + 2 * tile, row)
    tl.store(out_ptr + 2 * tile + 1, column)


def tile_order(shape, group, device):
    """Return the (row, column) of each program's tile, int32, for a number of tiles
    (down, across).
    """
    tiles_m, tiles_n = shape
    out = torch.empty(tiles_m * tiles_n, 2, dtype=torch.int32, device=device)
    tile_order_kernel[(tiles_m * tiles_n,)](out, tiles_m, tiles_n, GROUP=group)
    return out


# %% tags=["active-ipynb"]
# check("tile_order", tile_order)


# %% tags=["spec"]
def tile_order_reference(shape, group, device):
    """The specification of `tile_order`."""
    tiles_m, tiles_n = shape
    order = [
        (row, column)
        for first in range(0, tiles_m, group)
        for column in range(tiles_n)
        for row in range(first, min(first + group, tiles_m))
    ]
    return torch.tensor(order, dtype=torch.int32, device=device).reshape(-1, 2)


def tiles(tiles_m, tiles_n, group):
    """Return a maker of the arguments of `tile_order`."""
    return lambda generator: ((tiles_m, tiles_n), group, generator.device)


TASKS["tile_order"] = Task(
    name="tile_order",
    title="The order of tiles: who works beside whom?",
    points=3,
    hints=(
        "In the table, with which number does the second group begin, and how do you "
        "get it from 2 and 4? Within the first group, what do 0, 2, 4 and 6 have in "
        "common that 1, 3, 5 and 7 have not?",
        "`tile // per_group` counts the groups before this one, `tile % per_group` is "
        "the place within the group. A column of the group has `rows` tiles: divide "
        "the place by that, and the remainder is the row.",
        "`per_group = GROUP * ____`; `first = tile // ____ * GROUP`; `row = first + "
        "tile % per_group % ____`; `column = tile % per_group // ____`.",
    ),
    reference=tile_order_reference,
    cases=(
        Case("one tile", tiles(1, 1, 8)),
        Case("the table above", tiles(3, 4, 2), programs=2),
        Case("groups of one: row by row", tiles(3, 5, 1), programs=2),
        Case("whole groups", tiles(8, 3, 4), programs=2),
        Case("fewer rows than a group", tiles(3, 7, 8), programs=2),
        Case("one column, last group short", tiles(11, 1, 8), programs=2),
        Case("one row", tiles(1, 9, 4), programs=2),
        Case("nothing divides", tiles(10, 6, 4), programs=2),
    ),
)

# %% [markdown]
# ## 4. A gated product: two sums, one pass (4 points)
#
# Many language models have layers with a *gate*: `out = relu(a @ gate) * (a @ b)`. Done with PyTorch, that is two
# products and two more passes over memory, and `a` is read twice. In one kernel, every block of `a` meets a block of
# `gate` and a block of `b`, there are two tiles of sums, and the result is worked out before it is stored. With one
# row and one column of 2:
#
# | `a` | `gate` | `b` | `a @ gate` | `a @ b` | `out` |
# | --- | --- | --- | --- | --- | --- |
# | 1 2 | 3 1 | 4 5 | 5 | 14 | 70 |
# | 1 2 | 3 -2 | 4 5 | -1 | 14 | 0 |
#
# `relu` makes negative numbers 0 and leaves all else as it is: a NaN stays NaN. `gate` and `b` have one shape and may
# have different strides. Write the loop and the last step; the rest stands. You may take task 2 as your model.


# %% task="gated_product"
@triton.jit
def gated_product_kernel(
    a_ptr, gate_ptr, b_ptr, out_ptr, M, N, K, stride_am, stride_ak, stride_gk,
    stride_gn, stride_bk, stride_bn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Each program writes one tile of BLOCK_M x BLOCK_N elements of out, which is
    [M, N] and contiguous.
    """
    pid = tl.program_id(0).to(tl.int64)
    tiles_n = tl.cdiv(N, BLOCK_N)
    offs_m = pid // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
    mask_m, mask_n = offs_m < M, offs_n < N
    gates = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K).to(tl.int64)  # blank: ____
        mask_k = offs_k < K  # blank:
        # blank:
        a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
        # blank:
        gate_ptrs = gate_ptr + offs_k[:, None] * stride_gk + offs_n[None, :] * stride_gn
        # blank:
        b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
        a = tl.load(a_ptrs, mask=mask_m[:, None] & mask_k[None, :], other=0.0)  # blank:
        # blank:
        gate = tl.load(gate_ptrs, mask=mask_k[:, None] & mask_n[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=mask_k[:, None] & mask_n[None, :], other=0.0)  # blank:
        gates = tl.dot(a, gate, gates)  # blank:
        acc = tl.dot(a, b, acc)  # blank:
    out = tl.where(gates < 0, 0.0, gates) * acc  # blank: out = ____
    out_ptrs = out_ptr + offs_m[:, None] * N + offs_n[None, :]
    tl.store(out_ptrs, out, mask=mask_m[:, None] & mask_n[None, :])


def gated_product(a, gate, b):
    """Return relu(a @ gate) * (a @ b), for a [M, K], gate and b [K, N], of one dtype,
    with any strides.
    """
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty(M, N, dtype=a.dtype, device=a.device)
    grid = (triton.cdiv(M, 16) * triton.cdiv(N, 32),)
    strides = (*a.stride(), *gate.stride(), *b.stride())
    gated_product_kernel[grid](
        a, gate, b, out, M, N, K, *strides, BLOCK_M=16, BLOCK_N=32, BLOCK_K=32
    )
    return out


# %% tags=["active-ipynb"]
# check("gated_product", gated_product)


# %% tags=["spec"]
def gated_product_reference(a, gate, b):
    """The specification of `gated_product`."""
    return (torch.relu(a.double() @ gate.double()) * (a.double() @ b.double())).to(
        a.dtype
    )


def gated(M, K, N):
    """Return a maker of a matrix, a gate and another matrix."""
    return factors((M, K), (K, N), (K, N))


def nan_in_gate(generator):
    """Return a product of which one column of gates is NaN, and b is not."""
    a, gate, b = gated(20, 50, 40)(generator)
    gate[17, 5] = float("nan")
    return a, gate, b


TASKS["gated_product"] = Task(
    name="gated_product",
    title="A gated product: two sums, one pass",
    points=4,
    hints=(
        "Which lines of task 2 stand in its loop, and which of them does a second "
        "matrix need again?",
        "One block of `a` is enough for both products. `gates` and `acc` are summed "
        "side by side over the whole of K; only after the loop is it known whether a "
        "gate is negative. `tl.where(condition, yes, no)` chooses, and a NaN is "
        "neither less than 0 nor greater.",
        "In the loop: `offs_k`, `mask_k`, three blocks of pointers, three loads, "
        "`gates = tl.dot(a, gate, gates)`, `acc = tl.dot(a, b, acc)`. After it: `out "
        "= tl.where(gates < 0, ____, gates) * ____`.",
    ),
    reference=gated_product_reference,
    shared=("a", "gate", "b"),
    cases=(
        Case("one element", gated(1, 1, 1)),
        Case("one tile exactly full", gated(16, 32, 32)),
        Case("smaller than a tile", gated(3, 7, 30)),
        Case("one past a tile each way", gated(17, 33, 33), programs=2),
        Case("nothing divides, all sizes differ", gated(37, 53, 71), programs=2),
        Case("many tiles", gated(70, 40, 140), programs=4),
        Case("many steps", gated(20, 300, 40), programs=2),
        Case("large and small", unlike((20, 50), (50, 40), (50, 40)), programs=2),
        Case(
            "gate transposed, b sliced",
            lambda g: (
                fractions(g, 20, 40),
                fractions(g, 35, 40).t(),
                fractions(g, 80, 70)[::2, ::2],
            ),
            programs=2,
        ),
        Case(
            "a and b transposed, gate sliced",
            lambda g: (
                fractions(g, 40, 20).t(),
                fractions(g, 80, 70)[::2, ::2],
                fractions(g, 35, 40).t(),
            ),
            programs=2,
        ),
        Case("NaN in the gate", nan_in_gate, programs=2),
        Case("no columns to sum", gated(20, 0, 40), programs=2),
        Case("bf16", cancelling(torch.bfloat16, 20, 40, 40), programs=2),
        Case("fp16", cancelling(torch.float16, 20, 40, 40), programs=2),
        Case(
            "rows of a past 2**31",
            lambda g: (far_apart(g, 0, 3, 16), quarters(g, 16, 8), quarters(g, 16, 8)),
        ),
        Case(
            "columns of a past 2**31",
            lambda g: (far_apart(g, 1, 16, 3), quarters(g, 3, 8), quarters(g, 3, 8)),
        ),
        Case(
            "rows of the gate past 2**31",
            lambda g: (quarters(g, 5, 3), far_apart(g, 0, 3, 8), quarters(g, 3, 8)),
        ),
        Case(
            "columns of the gate past 2**31",
            lambda g: (quarters(g, 5, 16), far_apart(g, 1, 16, 3), quarters(g, 16, 3)),
        ),
        Case(
            "rows of b past 2**31",
            lambda g: (quarters(g, 5, 3), quarters(g, 3, 8), far_apart(g, 0, 3, 8)),
        ),
        Case(
            "columns of b past 2**31",
            lambda g: (quarters(g, 5, 16), quarters(g, 16, 3), far_apart(g, 1, 16, 3)),
        ),
    ),
)

# %% [markdown]
# ## Done?
#
# Run `progress()` for your points and the next step. When you have passed a task, `solution("gated_product")` shows
# how we wrote it; yours may well be better.
