# ---
# jupyter:
#   chapter: 1
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Exercise 1: siblings of vector add
#
# Five small kernels, each one idea further than the last. In the first you fill in one blank; the fifth you write
# alone.
#
# - A blank looks like `____`. Replace it, run the cell, then run the check below it.
# - **The line already printed under each check is the one you are working towards.** Run the check and it is replaced
#   by what your own code does: which case failed, at which elements, and the likely cause.
# - Stuck? `hint("scale_add")` asks you a question; call it again for a nudge, and again for the shape of the answer.
#   `reset("scale_add")` puts the blanks back and keeps a copy of what you wrote; `progress()` shows how far you are.
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


def numbers(generator, *shape, dtype=torch.float32):
    """Return numbers between -4 and 4 that need more than 16 bits, rounded to dtype:
    sums of three are exact in float32, in any order.
    """
    whole = torch.randint(
        -(2**18), 2**18 + 1, shape, generator=generator, device=generator.device
    )
    return (whole / 2**16).to(dtype)


def bytes_of(generator, *shape):
    """Return integers of 8 bits, small enough for sums of two."""
    return torch.randint(
        -60, 61, shape, generator=generator, device=generator.device, dtype=torch.int8
    )


def special(generator, dtype=torch.float32):
    """Return the values that break a careless kernel: both zeros, infinities, large
    numbers, the smallest and NaN.
    """
    limits = torch.finfo(dtype)
    values = [
        0.0,
        -0.0,
        float("inf"),
        -float("inf"),
        limits.max / 4,
        -limits.max / 4,
        limits.tiny,
        float("nan"),
    ]
    return torch.tensor(values, dtype=dtype, device=generator.device)


# %% [markdown]
# ## 1. Scale and add: who may load and store? (1 point)
#
# `out = alpha * x + y` for two vectors of `n` elements. Each program owns 256 consecutive elements, and the last
# program rarely has 256 left. With 8 numbers and programs of 3 elements:
#
# | program | offsets | inside the vector |
# | --- | --- | --- |
# | 0 | 0 1 2 | yes yes yes |
# | 1 | 3 4 5 | yes yes yes |
# | 2 | 6 7 8 | yes yes **no** |
#
# Offset 8 belongs to somebody else's memory. (Real programs own a power of two of elements; 3 keeps the example
# small.) The mask says, for each offset, whether it may be touched. Fill it in.


# %% task="scale_add"
@triton.jit
def scale_add_kernel(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr):
    """Each program writes BLOCK consecutive elements of out."""
    pid = tl.program_id(0).to(tl.int64)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n  # blank: mask = ____
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    y = tl.load(y_ptr + offs, mask=mask).to(tl.float32)
    tl.store(out_ptr + offs, alpha * x + y, mask=mask)


def scale_add(x, y, alpha):
    """Return alpha * x + y, for contiguous vectors of one length and dtype."""
    out = torch.empty_like(x)
    n = x.numel()
    scale_add_kernel[(triton.cdiv(n, 256),)](x, y, out, n, alpha, BLOCK=256)
    return out


# %% tags=["active-ipynb"]
# check("scale_add", scale_add)


# %% tags=["spec"]
def scale_add_reference(x, y, alpha):
    """The specification of `scale_add`."""
    return (alpha * x.double() + y.double()).to(x.dtype)


def scale_add_inputs(n, dtype=torch.float32, alpha=2.5):
    """Return a maker of two vectors and a scale."""

    def make(generator):
        x, y = (
            torch.randn(2, n, generator=generator, device=generator.device)
            .to(dtype)
            .unbind()
        )
        return x.clone(), y.clone(), alpha

    return make


TASKS["scale_add"] = Task(
    name="scale_add",
    title="Scale and add: who may load and store?",
    points=1,
    hints=(
        "The last program has offsets past the end of the vector. How can it tell "
        "which ones, knowing `offs` and `n`?",
        "A comparison of a block of offsets with one number gives a block of True and "
        "False.",
        "`mask = offs ____ n`, with one comparison sign in the gap. Try n = 8: offset "
        "7 is inside, offset 8 is not.",
    ),
    reference=scale_add_reference,
    cases=(
        Case("one element", scale_add_inputs(1)),
        Case("one block, masked tail", scale_add_inputs(100)),
        Case("two blocks, exactly full", scale_add_inputs(512), programs=2),
        Case("one past a block", scale_add_inputs(257), programs=2),
        Case("nothing divides", scale_add_inputs(1300, alpha=-0.3), programs=2),
        Case("empty", scale_add_inputs(0)),
        Case("bf16", scale_add_inputs(300, torch.bfloat16)),
        Case("fp16", scale_add_inputs(300, torch.float16)),
        Case("zeros, infinities, NaN", lambda g: (special(g), numbers(g, 8), 1.0)),
    ),
)

# %% [markdown]
# ## 2. Three at once: which elements are mine? (2 points)
#
# `out = x + y + z`. PyTorch does this in two passes: it writes `x + y` to memory and reads it back. One kernel reads
# each input once and writes once, so it moves 4 vectors instead of 6. With 8 numbers and programs of 4:
#
# | | program 0 | program 1 |
# | --- | --- | --- |
# | offsets | 0 1 2 3 | 4 5 6 7 |
# | `x` | 1 2 3 4 | 5 6 7 8 |
# | `y` | 10 10 10 10 | 10 10 10 10 |
# | `z` | 0 0 0 0 | 100 100 100 100 |
# | `out` | 11 12 13 14 | 115 116 117 118 |
#
# Three blanks: the offsets this program owns, the third load, and how many programs to launch.


# %% task="three_way_add"
@triton.jit
def three_way_add_kernel(x_ptr, y_ptr, z_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Each program writes BLOCK consecutive elements of out."""
    pid = tl.program_id(0).to(tl.int64)
    offs = pid * BLOCK + tl.arange(0, BLOCK)  # blank: offs = ____
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    y = tl.load(y_ptr + offs, mask=mask).to(tl.float32)
    z = tl.load(z_ptr + offs, mask=mask).to(tl.float32)  # blank: z = ____
    tl.store(out_ptr + offs, x + y + z, mask=mask)


def three_way_add(x, y, z):
    """Return x + y + z, for contiguous vectors of one length and dtype."""
    out = torch.empty_like(x)
    n = x.numel()
    BLOCK = 256
    grid = (triton.cdiv(n, BLOCK),)  # blank: grid = (____,)
    three_way_add_kernel[grid](x, y, z, out, n, BLOCK=BLOCK)
    return out


# %% tags=["active-ipynb"]
# check("three_way_add", three_way_add)


# %% tags=["spec"]
def three_way_add_reference(x, y, z):
    """The specification of `three_way_add`."""
    return (x.double() + y.double() + z.double()).to(x.dtype)


def three_vectors(n, dtype=torch.float32):
    """Return a maker of three vectors."""
    return lambda generator: tuple(numbers(generator, n, dtype=dtype) for _ in range(3))


TASKS["three_way_add"] = Task(
    name="three_way_add",
    title="Three at once: which elements are mine?",
    points=2,
    hints=(
        "Program 0 owns elements 0 to 255. Which element does program `pid` begin at, "
        "and which 256 follow?",
        "`tl.arange(0, BLOCK)` counts from 0 within a block; shift it by the "
        "program's first element. `z` is loaded as `y` is. And n = 257 needs two "
        "programs: the division must round up.",
        "`offs = pid * ____ + tl.arange(0, ____)`; `z = tl.load(____ + offs, "
        "mask=____).to(tl.float32)`; `grid = (triton.cdiv(____, ____),)`.",
    ),
    reference=three_way_add_reference,
    cases=(
        Case("one element", three_vectors(1)),
        Case("one block, masked tail", three_vectors(77)),
        Case("four blocks, exactly full", three_vectors(1024), programs=2),
        Case("one past a block", three_vectors(257), programs=2),
        Case("nothing divides", three_vectors(1111), programs=2),
        Case("empty", three_vectors(0)),
        Case("bf16", three_vectors(300, torch.bfloat16)),
        Case("fp16", three_vectors(300, torch.float16)),
        Case(
            "zeros, infinities, NaN",
            lambda g: (special(g), numbers(g, 8), numbers(g, 8)),
        ),
    ),
)

# %% [markdown]
# ## 3. Strided copy: where does the next element lie? (3 points)
#
# Not every vector is contiguous. `x[::2]` of 8 numbers has 4 elements that lie 2 apart in the same memory:
#
# | memory | 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 |
# | --- | --- | --- | --- | --- | --- | --- | --- | --- |
# | value | **7** | 1 | **8** | 1 | **9** | 1 | **5** | 1 |
# | element of `x[::2]` | 0 | | 1 | | 2 | | 3 | |
#
# The *stride* is the distance between neighbours in memory: element `i` lies at `i * stride`. `x.stride(0)` tells it;
# a vector made by `expand` has stride 0, and all its elements are one. Copy any vector into a new, contiguous one.
# Keep the stride in its place: `x.contiguous()` would do the copying for you.


# %% task="strided_copy"
@triton.jit
def strided_copy_kernel(x_ptr, out_ptr, n, stride_x, BLOCK: tl.constexpr):
    """Each program copies BLOCK consecutive elements of x."""
    # 64-bit offsets: a stride can carry the product past 2**31.
    pid = tl.program_id(0).to(tl.int64)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    # blank: x = tl.load(____, mask=mask)
    x = tl.load(x_ptr + offs * stride_x, mask=mask)
    tl.store(out_ptr + offs, x, mask=mask)  # blank: tl.store(____, x, mask=mask)


def strided_copy(x):
    """Return a contiguous copy of a vector of any stride and dtype."""
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n = x.numel()
    stride_x = x.stride(0)  # blank: stride_x = ____
    strided_copy_kernel[(triton.cdiv(n, 256),)](x, out, n, stride_x, BLOCK=256)
    return out


# %% tags=["active-ipynb"]
# check("strided_copy", strided_copy)


# %% tags=["spec"]
def strided_copy_reference(x):
    """The specification of `strided_copy`."""
    return x.clone(memory_format=torch.contiguous_format)


def every(step, n, dtype=torch.float32):
    """Return a maker of a vector of n elements that lie `step` apart, one element into
    their storage.
    """

    def make(generator):
        return (numbers(generator, 1 + n * step, dtype=dtype)[1::step][:n],)

    return make


def far_apart(generator):
    """Return three int8 elements 2**30 + 8 apart: the last lies past 2**31. The bytes
    between are never touched.
    """
    step = 2**30 + 8
    x = torch.empty(2 * step + 1, dtype=torch.int8, device=generator.device)[::step]
    return x.copy_(bytes_of(generator, 3))


TASKS["strided_copy"] = Task(
    name="strided_copy",
    title="Strided copy: where does the next element lie?",
    points=3,
    hints=(
        "In the table above, at which memory position does element 3 of `x[::2]` lie, "
        "and how did you work it out?",
        "Only `x` has gaps: its offsets are multiplied by its stride. `out` is "
        "contiguous: its neighbours are 1 apart. A tensor tells the stride of "
        "dimension 0 by `x.stride(0)`.",
        "`x = tl.load(x_ptr + offs * ____, mask=mask)`; `tl.store(out_ptr + ____, x, "
        "mask=mask)`; `stride_x = x.____(0)`.",
    ),
    reference=strided_copy_reference,
    cases=(
        Case("one element", every(1, 1)),
        Case("contiguous, masked tail", every(1, 100)),
        Case("every second", every(2, 100)),
        Case("every third, exactly full", every(3, 1024), programs=2),
        Case("one past a block", every(2, 257), programs=2),
        Case("expanded, stride 0", lambda g: (numbers(g, 1).expand(300),), programs=2),
        Case("empty", every(2, 0)),
        Case("bf16", every(5, 300, torch.bfloat16)),
        Case("zeros, infinities, large", lambda g: (special(g)[::2],)),
        Case("int64", lambda g: (bytes_of(g, 300).long() * (2**40 + 1),)),
        Case("offsets past 2**31", lambda g: (far_apart(g),)),
    ),
)

# %% [markdown]
# ## 4. Add a row to a matrix: two dimensions (4 points)
#
# `out[i, j] = x[i, j] + row[j]`, which is how a bias is added. With 8 numbers in `x`:
#
# | | column 0 | column 1 | column 2 | column 3 |
# | --- | --- | --- | --- | --- |
# | `x`, row 0 | 1 | 2 | 3 | 4 |
# | `x`, row 1 | 5 | 6 | 7 | 8 |
# | `row` | 10 | 20 | 30 | 40 |
# | `out`, row 0 | 11 | 22 | 33 | 44 |
# | `out`, row 1 | 15 | 26 | 37 | 48 |
#
# Programs now form a grid of two dimensions, and each owns a tile of `BLOCK_M` by `BLOCK_N` elements. `offs_m[:,
# None]` is a column of row numbers and `offs_n[None, :]` a row of column numbers; combining the two gives a whole
# tile. Element `(i, j)` lies at `i * stride_xm + j * stride_xn`: a matrix has a stride for each dimension, and for a
# transposed one they have changed places. `stride_row` is the stride of `row`, of which each tile loads its part.


# %% task="row_add"
@triton.jit
def row_add_kernel(
    x_ptr, row_ptr, out_ptr, M, N, stride_xm, stride_xn, stride_row,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Each program writes one tile of out, which is [M, N] and contiguous."""
    # 64-bit, because a row number times a stride can pass 2**31.
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    # blank: offs_n = ____
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask_m = offs_m < M
    mask_n = offs_n < N
    mask = mask_m[:, None] & mask_n[None, :]  # blank: mask = ____
    # blank: x_ptrs = ____
    x_ptrs = x_ptr + offs_m[:, None] * stride_xm + offs_n[None, :] * stride_xn
    x = tl.load(x_ptrs, mask=mask).to(tl.float32)
    # blank: row = ____
    row = tl.load(row_ptr + offs_n * stride_row, mask=mask_n).to(tl.float32)
    out_ptrs = out_ptr + offs_m[:, None] * N + offs_n[None, :]
    # blank: tl.store(out_ptrs, ____, mask=mask)
    tl.store(out_ptrs, x + row[None, :], mask=mask)


def row_add(x, row):
    """Return x + row: x is [M, N], row is [N], of one dtype and any strides."""
    M, N = x.shape
    out = torch.empty((M, N), dtype=x.dtype, device=x.device)
    BLOCK_M, BLOCK_N = 16, 32
    grid = (triton.cdiv(M, BLOCK_M), triton.cdiv(N, BLOCK_N))
    row_add_kernel[grid](
        x, row, out, M, N, *x.stride(), row.stride(0), BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N
    )
    return out


# %% tags=["active-ipynb"]
# check("row_add", row_add)


# %% tags=["spec"]
def row_add_reference(x, row):
    """The specification of `row_add`."""
    if not x.is_floating_point():
        return (x + row).contiguous()
    return (x.double() + row.double()).to(x.dtype).contiguous()


def matrix_and_row(M, N, dtype=torch.float32):
    """Return a maker of a contiguous matrix and a row."""
    return lambda generator: (
        numbers(generator, M, N, dtype=dtype),
        numbers(generator, N, dtype=dtype),
    )


def rows_far_apart(generator):
    """Return three int8 rows 2**30 + 8 apart: the last begins past 2**31. The bytes
    between are never touched.
    """
    step = 2**30 + 8
    x = torch.empty(
        2 * step + 16, dtype=torch.int8, device=generator.device
    ).as_strided((3, 16), (step, 1))
    return x.copy_(bytes_of(generator, 3, 16))


TASKS["row_add"] = Task(
    name="row_add",
    title="Add a row to a matrix: two dimensions",
    points=4,
    hints=(
        "Write down row, column and memory position of `x[1, 2]` in the example. "
        "Which part comes from `offs_m`, which from `offs_n`? And which elements of "
        "`row` does a tile need?",
        "Everything about columns mirrors what stands there for rows, with program id "
        "1. A tile comes from combining a column and a row: `+` for positions, `&` "
        "for masks. The row needs only `offs_n`, its stride and `mask_n`.",
        "`mask = mask_m[:, None] & ____`; `x_ptrs = x_ptr + offs_m[:, None] * ____ + "
        "offs_n[None, :] * ____`; `row = tl.load(row_ptr + offs_n * ____, "
        "mask=____).to(tl.float32)`; the sum is `x + row[____]`.",
    ),
    reference=row_add_reference,
    shared=("row",),
    cases=(
        Case("one element", matrix_and_row(1, 1)),
        Case("one row", matrix_and_row(1, 50)),
        Case("one column", matrix_and_row(50, 1)),
        Case("tiles exactly full", matrix_and_row(32, 64), programs=2),
        Case("one past a tile", matrix_and_row(17, 33), programs=2),
        Case("many tiles each way", matrix_and_row(140, 200), programs=4),
        Case(
            "transposed", lambda g: (numbers(g, 45, 21).t(), numbers(g, 45)), programs=2
        ),
        Case(
            "sliced",
            lambda g: (numbers(g, 40, 100)[::2, 1::3], numbers(g, 66)[::2]),
            programs=2,
        ),
        Case(
            "expanded, stride 0",
            lambda g: (numbers(g, 1, 37).expand(19, 37), numbers(g, 1).expand(37)),
        ),
        Case("no rows", matrix_and_row(0, 5)),
        Case("bf16", matrix_and_row(20, 40, torch.bfloat16)),
        Case("fp16", matrix_and_row(20, 40, torch.float16)),
        Case(
            "zeros, infinities, NaN",
            lambda g: (special(g).reshape(2, 4), numbers(g, 4)),
        ),
        Case("rows past 2**31", lambda g: (rows_far_apart(g), bytes_of(g, 16))),
        Case("columns past 2**31", lambda g: (rows_far_apart(g).t(), bytes_of(g, 3))),
        Case("a row past 2**31", lambda g: (bytes_of(g, 5, 3), far_apart(g))),
    ),
)

# %% [markdown]
# ## 5. Clamped add: a kernel of your own (5 points)
#
# `out = x + y`, but never below `low` and never above `high`. With `low = 0` and `high = 10`:
#
# | `x` | 1 | -5 | 7 | 9 | 0 | 3 | -2 | 8 |
# | --- | --- | --- | --- | --- | --- | --- | --- | --- |
# | `y` | 1 | 1 | 7 | 1 | 0 | -4 | 2 | 8 |
# | `out` | 2 | 0 | 10 | 10 | 0 | 0 | 0 | 10 |
#
# The vectors may have any stride, and each its own; no sum is NaN. Now write both functions; the parameters are a
# proposal, and you may change those of the kernel. `tl.maximum(a, b)` and `tl.minimum(a, b)` compare element by
# element. Share the work among programs that take at most 1,024 elements at a time, compute in float32, and return a
# contiguous vector of the dtype of `x`.


# %% task="clamped_add"
@triton.jit
def clamped_add_kernel(
    x_ptr, y_ptr, out_ptr, n, stride_x, stride_y, low, high, BLOCK: tl.constexpr
):
    """Each program writes BLOCK consecutive elements of out."""
    pid = tl.program_id(0).to(tl.int64)  # blank: ____
    offs = pid * BLOCK + tl.arange(0, BLOCK)  # blank:
    mask = offs < n  # blank:
    x = tl.load(x_ptr + offs * stride_x, mask=mask).to(tl.float32)  # blank:
    y = tl.load(y_ptr + offs * stride_y, mask=mask).to(tl.float32)  # blank:
    out = tl.minimum(tl.maximum(x + y, low), high)  # blank:
    tl.store(out_ptr + offs, out, mask=mask)  # blank:


def clamped_add(x, y, low, high):
    """Return x + y held between low and high: vectors of one dtype, any strides."""
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)  # blank: ____
    n = x.numel()  # blank:
    grid = (triton.cdiv(n, 256),)  # blank:
    # blank:
    clamped_add_kernel[grid](
        x, y, out, n, x.stride(0), y.stride(0), low, high, BLOCK=256
    )
    return out  # blank:


# %% tags=["active-ipynb"]
# check("clamped_add", clamped_add)


# %% tags=["spec"]
def clamped_add_reference(x, y, low, high):
    """The specification of `clamped_add`."""
    return (x.double() + y.double()).clamp(low, high).to(x.dtype).contiguous()


def clamped_add_inputs(n, dtype=torch.float32, step_x=1, step_y=1):
    """Return a maker of two vectors with strides of their own, and two limits."""

    def make(generator):
        x = numbers(generator, n * step_x, dtype=dtype)[::step_x]
        y = numbers(generator, n * step_y, dtype=dtype)[::step_y]
        return x, y, -1.5, 3.0

    return make


TASKS["clamped_add"] = Task(
    name="clamped_add",
    title="Clamped add: a kernel of your own",
    points=5,
    hints=(
        "Say in one sentence each: which elements does a program own, which of them "
        "exist, what does it load, what does it compute, where does it store? That is "
        "the kernel, line by line. What must exist before its launch?",
        "The kernel is the one of task 2 with the strides of task 3 in its loads. The "
        "host function allocates `out` (`torch.empty`), counts the programs "
        "(`triton.cdiv`), launches, and returns `out`.",
        "Kernel: `pid`, `offs`, `mask`, two loads at `offs * stride`, "
        "`tl.minimum(tl.maximum(x + y, ____), ____)`, one store. Host: `out = "
        "torch.empty(x.shape, dtype=____, device=____)`, `grid = (triton.cdiv(____, "
        "256),)`, `clamped_add_kernel[grid](____, BLOCK=256)`, `return out`.",
    ),
    reference=clamped_add_reference,
    block=1024,
    cases=(
        Case("one element", clamped_add_inputs(1)),
        Case("one block, masked tail", clamped_add_inputs(100)),
        Case("exactly full", clamped_add_inputs(4096), programs=4),
        Case("one past a block", clamped_add_inputs(1025), programs=2),
        Case("nothing divides", clamped_add_inputs(4999), programs=5),
        Case("two different strides", clamped_add_inputs(300, step_x=2, step_y=3)),
        Case(
            "expanded, stride 0",
            lambda g: (numbers(g, 1).expand(70), numbers(g, 70), -1.0, 1.0),
        ),
        Case("empty", clamped_add_inputs(0)),
        Case("bf16", clamped_add_inputs(300, torch.bfloat16)),
        Case("fp16", clamped_add_inputs(300, torch.float16)),
        Case(
            "zeros, infinities, large",
            lambda g: (special(g)[:7], numbers(g, 7), -1.0, 1.0),
        ),
        Case(
            "limits that are equal",
            lambda g: (numbers(g, 20), numbers(g, 20), 0.5, 0.5),
        ),
        Case(
            "no limits",
            lambda g: (numbers(g, 20), numbers(g, 20), -float("inf"), float("inf")),
        ),
        Case(
            "offsets of x past 2**31",
            lambda g: (far_apart(g), bytes_of(g, 3), -128, 127),
        ),
        Case(
            "offsets of y past 2**31",
            lambda g: (bytes_of(g, 3), far_apart(g), -128, 127),
        ),
    ),
)

# %% [markdown]
# ## Done?
#
# Run `progress()` for your points and the next step. When you have passed a task, `solution("scale_add")` shows how
# we wrote it; yours may well be better.
