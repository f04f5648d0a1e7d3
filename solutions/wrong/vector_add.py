"""Answers to the tasks of `solutions/vector_add.py` that the check must reject, each
for its reason.
"""

import numpy as np
import torch
import triton
import triton.language as tl

from lab.task import wrong
from solutions import vector_add as right

LIMIT = 4.0


def launch(kernel, x, y, alpha, out=None, programs=None, BLOCK=256):
    """Run a kernel with the parameters of `scale_add_kernel` and return its output."""
    out = torch.empty_like(x) if out is None else out
    grid = (triton.cdiv(x.numel(), BLOCK) if programs is None else programs,)
    kernel[grid](x, y, out, x.numel(), alpha, BLOCK=BLOCK)
    return out


# Scale and add: memory


@triton.jit
def load_unmasked_kernel(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs).to(tl.float32)
    y = tl.load(y_ptr + offs, mask=offs < n).to(tl.float32)
    tl.store(out_ptr + offs, alpha * x + y, mask=offs < n)


@wrong("scale_add", reason="out-of-bounds", cause="this load has no mask")
def no_mask_on_the_load(x, y, alpha):
    return launch(load_unmasked_kernel, x, y, alpha)


@triton.jit
def store_unmasked_kernel(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n).to(tl.float32)
    y = tl.load(y_ptr + offs, mask=offs < n).to(tl.float32)
    tl.store(out_ptr + offs, alpha * x + y)


@wrong("scale_add", reason="out-of-bounds", cause="this store has no mask")
def no_mask_on_the_store(x, y, alpha):
    return launch(store_unmasked_kernel, x, y, alpha)


@triton.jit
def off_by_one_kernel(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs <= n
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    y = tl.load(y_ptr + offs, mask=mask).to(tl.float32)
    tl.store(out_ptr + offs, alpha * x + y, mask=mask)


@wrong("scale_add", reason="out-of-bounds", cause="one element too many")
def off_by_one(x, y, alpha):
    return launch(off_by_one_kernel, x, y, alpha)


@triton.jit
def shifted_kernel(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs - 1, mask=mask).to(tl.float32)
    y = tl.load(y_ptr + offs, mask=mask).to(tl.float32)
    tl.store(out_ptr + offs, alpha * x + y, mask=mask)


@wrong("scale_add", reason="out-of-bounds", cause="offsets of the load become negative")
def reads_before_the_start(x, y, alpha):
    return launch(shifted_kernel, x, y, alpha)


@wrong("scale_add", reason="not-written", cause="the grid has no program at all")
def skips_the_tail(x, y, alpha):
    return launch(right.scale_add_kernel, x, y, alpha, programs=x.numel() // 256)


@wrong("scale_add", reason="not-written", cause="no store of a kernel leads there")
def hopes_for_stale_memory(x, y, alpha):
    launch(right.scale_add_kernel, x, y, alpha)
    return torch.empty_like(x)


# Scale and add: who computes


@wrong("scale_add", reason="torch")
def torch_instead_of_the_kernel(x, y, alpha):
    return alpha * x + y


@wrong("scale_add", reason="no-launch")
def never_launches(x, y, alpha):
    return torch.empty_like(x)


@wrong("scale_add", reason="overwritten")
def launches_then_overwrites(x, y, alpha):
    out = launch(right.scale_add_kernel, x, y, 0.0)
    out.copy_(alpha * x + y)
    return out


@wrong("scale_add", reason="torch")
def torch_does_half(x, y, alpha):
    return launch(right.scale_add_kernel, alpha * x, y, 1.0)


@wrong("scale_add", reason="error", cause="is `no_such_method` misspelt")
def fails(x, y, alpha):
    return launch(right.scale_add_kernel, x, y, alpha).no_such_method()


@wrong("scale_add", reason="one-program")
def one_program_does_everything(x, y, alpha):
    return launch(
        right.scale_add_kernel,
        x,
        y,
        alpha,
        BLOCK=triton.next_power_of_2(max(1, x.numel())),
    )


CACHE = {}


@wrong("scale_add", reason="stale")
def remembers_by_pointer(x, y, alpha):
    key = (x.data_ptr(), y.data_ptr(), x.numel(), x.dtype)
    if key not in CACHE:
        CACHE[key] = launch(right.scale_add_kernel, x, y, alpha)
    return CACHE[key]


# Scale and add: what comes back


@wrong("scale_add", reason="not-a-tensor")
def forgets_to_return(x, y, alpha):
    launch(right.scale_add_kernel, x, y, alpha)


@wrong("scale_add", reason="returns-input")
def writes_into_its_input(x, y, alpha):
    return launch(right.scale_add_kernel, x, y, alpha, out=y)


@triton.jit
def negating_kernel(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    y = tl.load(y_ptr + offs, mask=mask).to(tl.float32)
    tl.store(out_ptr + offs, alpha * x + y, mask=mask)
    tl.store(x_ptr + offs, -x, mask=mask)


@wrong("scale_add", reason="input-changed")
def edits_its_input(x, y, alpha):
    return launch(negating_kernel, x, y, alpha)


@wrong("scale_add", reason="dtype")
def always_float32(x, y, alpha):
    return launch(
        right.scale_add_kernel,
        x,
        y,
        alpha,
        out=torch.empty_like(x, dtype=torch.float32),
    )


@wrong("scale_add", reason="shape")
def one_column(x, y, alpha):
    return launch(right.scale_add_kernel, x, y, alpha).view(-1, 1)


@wrong("scale_add", reason="wrong-values", cause="have changed places")
def scales_the_other(x, y, alpha):
    return launch(right.scale_add_kernel, y, x, alpha)


@wrong("scale_add", reason="wrong-values", cause="is loaded by no program")
def constant(x, y, alpha):
    return launch(
        right.scale_add_kernel, torch.zeros_like(x), torch.zeros_like(y), alpha
    )


@triton.jit
def not_a_number_kernel(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.full((BLOCK,), float("nan"), tl.float32), mask=offs < n)


@wrong("scale_add", reason="not-finite", cause="is loaded by no program")
def not_a_number(x, y, alpha):
    return launch(not_a_number_kernel, x, y, alpha)


@triton.jit
def rounding_kernel(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float16)
    y = tl.load(y_ptr + offs, mask=mask).to(tl.float32)
    tl.store(out_ptr + offs, alpha * x.to(tl.float32) + y, mask=mask)


@wrong("scale_add", reason="wrong-values", cause="lower precision than float32")
def lower_precision_inside(x, y, alpha):
    return launch(rounding_kernel, x, y, alpha)


# Three at once: programs


@triton.jit
def three_way_add_global_kernel(x_ptr, y_ptr, z_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    y = tl.load(y_ptr + offs, mask=mask).to(tl.float32)
    z = tl.load(z_ptr + offs, mask=mask).to(tl.float32)
    tl.store(out_ptr + offs, (x + y + z) * LIMIT / LIMIT, mask=mask)


@wrong("three_way_add", reason="compiler")
def a_python_global(x, y, z):
    out = torch.empty_like(x)
    three_way_add_global_kernel[(triton.cdiv(x.numel(), 256),)](
        x, y, z, out, x.numel(), BLOCK=256
    )
    return out


@triton.jit
def three_way_add_loop_kernel(x_ptr, y_ptr, z_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    for attempt in range(3):
        x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
        y = tl.load(y_ptr + offs, mask=mask).to(tl.float32)
        z = tl.load(z_ptr + offs, mask=mask).to(tl.float32)
        tl.store(out_ptr + offs, x + y + z, mask=mask)
        if attempt == 0:
            break


@wrong("three_way_add", reason="compiler")
def a_break_in_a_loop(x, y, z):
    out = torch.empty_like(x)
    three_way_add_loop_kernel[(triton.cdiv(x.numel(), 256),)](
        x, y, z, out, x.numel(), BLOCK=256
    )
    return out


@triton.jit
def three_way_add_overlapping_kernel(
    x_ptr, y_ptr, z_ptr, out_ptr, n, BLOCK: tl.constexpr
):
    """Each program fills its block and, with x alone, the next one, which its owner
    should overwrite.
    """
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs + BLOCK, mask=offs + BLOCK < n)
    tl.store(out_ptr + offs + BLOCK, x, mask=offs + BLOCK < n)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    y = tl.load(y_ptr + offs, mask=mask).to(tl.float32)
    z = tl.load(z_ptr + offs, mask=mask).to(tl.float32)
    tl.store(out_ptr + offs, x + y + z, mask=mask)


@wrong("three_way_add", reason="race")
def two_programs_write_one_element(x, y, z):
    out = torch.empty_like(x)
    three_way_add_overlapping_kernel[(triton.cdiv(x.numel(), 256),)](
        x, y, z, out, x.numel(), BLOCK=256
    )
    return out


@triton.jit
def three_way_add_relay_kernel(
    x_ptr, y_ptr, z_ptr, out_ptr, sum_ptr, n, BLOCK: tl.constexpr
):
    """Even programs add x and y for themselves and their neighbour; odd programs read
    what the neighbour left.
    """
    pid = tl.program_id(0).to(tl.int64)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    if pid % 2 == 0:
        offs_pair = pid * BLOCK + tl.arange(0, 2 * BLOCK)
        mask_pair = offs_pair < n
        x = tl.load(x_ptr + offs_pair, mask=mask_pair).to(tl.float32)
        y = tl.load(y_ptr + offs_pair, mask=mask_pair).to(tl.float32)
        tl.store(sum_ptr + offs_pair, x + y, mask=mask_pair)
        tl.debug_barrier()
    z = tl.load(z_ptr + offs, mask=mask).to(tl.float32)
    tl.store(out_ptr + offs, tl.load(sum_ptr + offs, mask=mask) + z, mask=mask)


@wrong("three_way_add", reason="race")
def reads_what_its_neighbour_wrote(x, y, z):
    out, partial = torch.empty_like(x), torch.zeros_like(x, dtype=torch.float32)
    three_way_add_relay_kernel[(triton.cdiv(x.numel(), 256),)](
        x, y, z, out, partial, x.numel(), BLOCK=256
    )
    return out


@triton.jit
def three_way_add_ticket_kernel(
    x_ptr, y_ptr, z_ptr, out_ptr, ticket_ptr, n, BLOCK: tl.constexpr
):
    """Takes tickets, and relies on program 0 drawing the first."""
    pid = tl.program_id(0).to(tl.int64)
    ticket = tl.atomic_add(ticket_ptr, 1)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    y = tl.load(y_ptr + offs, mask=mask).to(tl.float32)
    z = tl.load(z_ptr + offs, mask=mask).to(tl.float32)
    tl.store(out_ptr + offs, x + y + z + (ticket - pid), mask=mask)


@wrong("three_way_add", reason="order")
def relies_on_the_order_of_programs(x, y, z):
    out, ticket = (
        torch.empty_like(x),
        torch.zeros(1, dtype=torch.int32, device=x.device),
    )
    three_way_add_ticket_kernel[(triton.cdiv(x.numel(), 256),)](
        x, y, z, out, ticket, x.numel(), BLOCK=256
    )
    return out


@wrong("three_way_add", reason="idle-programs")
def launches_a_program_for_every_element(x, y, z):
    out = torch.empty_like(x)
    right.three_way_add_kernel[(x.numel(),)](x, y, z, out, x.numel(), BLOCK=256)
    return out


# Strides


def copy(kernel, x, stride_x):
    """Run a kernel with the parameters of `strided_copy_kernel` and return its
    output.
    """
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    kernel[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), stride_x, BLOCK=256)
    return out


@wrong(
    "strided_copy", reason="wrong-values", cause="as if its elements lay side by side"
)
def ignores_the_stride(x):
    return copy(right.strided_copy_kernel, x, 1)


@wrong("strided_copy", reason="torch")
def lets_torch_lay_it_out(x):
    x = x.contiguous()
    return copy(right.strided_copy_kernel, x, x.stride(0))


@triton.jit
def strided_copy_int32_kernel(x_ptr, out_ptr, n, stride_x, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    tl.store(out_ptr + offs, tl.load(x_ptr + offs * stride_x, mask=mask), mask=mask)


@wrong("strided_copy", reason="int32-overflow")
def int32_offsets(x):
    return copy(strided_copy_int32_kernel, x, x.stride(0))


@triton.jit
def strided_both_kernel(x_ptr, out_ptr, n, stride_x, BLOCK: tl.constexpr):
    offs = (tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)) * stride_x
    mask = offs < n * stride_x
    tl.store(out_ptr + offs, tl.load(x_ptr + offs, mask=mask), mask=mask)


@wrong(
    "strided_copy",
    reason="out-of-bounds",
    cause="the output is stored with the strides",
)
def strides_its_output_too(x):
    return copy(strided_both_kernel, x, x.stride(0))


# Two dimensions


def add_row(kernel, x, row, strides):
    """Run a kernel with the parameters of `row_add_kernel` and return its output."""
    M, N = x.shape
    out = torch.empty((M, N), dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(M, 16), triton.cdiv(N, 32))
    kernel[grid](x, row, out, M, N, *strides, BLOCK_M=16, BLOCK_N=32)
    return out


@wrong("row_add", reason="out-of-bounds", cause="have changed places")
def swaps_the_strides(x, row):
    return add_row(
        right.row_add_kernel, x, row, (x.stride(1), x.stride(0), row.stride(0))
    )


@wrong("row_add", reason="wrong-values", cause="as if its elements lay side by side")
def takes_every_matrix_for_contiguous(x, row):
    return add_row(right.row_add_kernel, x, row, (x.shape[1], 1, row.stride(0)))


@triton.jit
def row_add_one_mask_kernel(
    x_ptr, row_ptr, out_ptr, M, N, stride_xm, stride_xn, stride_row,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = offs_m[:, None] * N + offs_n[None, :] < M * N
    x = tl.load(
        x_ptr + offs_m[:, None] * stride_xm + offs_n[None, :] * stride_xn, mask=mask
    ).to(tl.float32)
    row = tl.load(row_ptr + offs_n * stride_row, mask=offs_n < N).to(tl.float32)
    tl.store(
        out_ptr + offs_m[:, None] * N + offs_n[None, :], x + row[None, :], mask=mask
    )


@wrong("row_add", reason="race")
def masks_the_flat_offset(x, row):
    strides = (*x.stride(), row.stride(0))
    return add_row(row_add_one_mask_kernel, x, row, strides)


# On one's own


@triton.jit
def clamped_add_numpy_kernel(
    x_ptr, y_ptr, out_ptr, n, stride_x, stride_y, low, high, BLOCK: tl.constexpr
):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs * stride_x, mask=mask).to(tl.float32)
    y = tl.load(y_ptr + offs * stride_y, mask=mask).to(tl.float32)
    out = tl.minimum(tl.maximum(x + y, low), high)
    tl.store(out_ptr + offs, out * float(np.float32(1.0)), mask=mask)


@wrong("clamped_add", reason="compiler")
def numpy_in_the_kernel(x, y, low, high):
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(x.numel(), 256),)
    strides = (x.stride(0), y.stride(0))
    clamped_add_numpy_kernel[grid](x, y, out, x.numel(), *strides, low, high, BLOCK=256)
    return out


@wrong("clamped_add", reason="wrong-values", cause="which is `low`")
def swaps_the_limits(x, y, low, high):
    return right.clamped_add(x, y, high, low)


@wrong("clamped_add", reason="torch")
def torch_clamps(x, y, low, high):
    return right.clamped_add(x.clamp(low, high), y, low, high)


# Grids, blocks and masks that disagree


def added(x, y, z, programs, kernel=right.three_way_add_kernel):
    """Run a kernel with the parameters of `three_way_add_kernel` and return its
    output.
    """
    out = torch.empty_like(x)
    kernel[(programs,)](x, y, z, out, x.numel(), BLOCK=256)
    return out


@wrong(
    "three_way_add",
    reason="not-written",
    cause="grid and block disagree",
)
def counts_programs_for_another_block(x, y, z):
    return added(x, y, z, triton.cdiv(x.numel(), 512))


@wrong("three_way_add", reason="not-written", cause="grid and block disagree")
def rounds_the_programs_down(x, y, z):
    return added(x, y, z, max(1, x.numel() // 256))


@triton.jit
def strided_copy_fault_kernel(
    x_ptr, out_ptr, n, stride_x, FAULT: tl.constexpr, BLOCK: tl.constexpr
):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs * stride_x < n if FAULT == "mask" else offs < n
    offs_x = offs + stride_x if FAULT == "sum" else offs * stride_x
    tl.store(out_ptr + offs, tl.load(x_ptr + offs_x, mask=mask), mask=mask)


def copy_with(fault, x):
    """Run the kernel with one fault and return its output."""
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(x.numel(), 256),)
    strided_copy_fault_kernel[grid](x, out, x.numel(), x.stride(0), fault, BLOCK=256)
    return out


@wrong(
    "strided_copy", reason="not-written", cause="the mask of the store is too strict"
)
def strides_the_mask(x):
    return copy_with("mask", x)


@wrong("strided_copy", reason="out-of-bounds", cause="reaches is 1, and not 0")
def adds_the_stride(x):
    return copy_with("sum", x)


def add_row_on(grid, x, row, rows=None):
    """Run the right kernel on another grid, or with fewer rows in its mask."""
    M, N = x.shape
    out = torch.empty((M, N), dtype=x.dtype, device=x.device)
    strides = (*x.stride(), row.stride(0))
    rows = M if rows is None else rows
    right.row_add_kernel[grid](x, row, out, rows, N, *strides, BLOCK_M=16, BLOCK_N=32)
    return out


@wrong("row_add", reason="not-written", cause="tiles of 16 x 32 elements, and")
def counts_rows_for_another_block(x, row):
    M, N = x.shape
    return add_row_on((triton.cdiv(M, 32), triton.cdiv(N, 32)), x, row)


@wrong("row_add", reason="not-written", cause="its axes have changed places")
def swaps_the_axes_of_the_grid(x, row):
    M, N = x.shape
    return add_row_on((triton.cdiv(N, 32), triton.cdiv(M, 16)), x, row)


@wrong("row_add", reason="not-written", cause="the mask of the store is too strict")
def masks_half_of_the_rows(x, row):
    M, N = x.shape
    return add_row_on((triton.cdiv(M, 16), triton.cdiv(N, 32)), x, row, (M + 1) // 2)


# Formulas


@wrong("clamped_add", reason="wrong-values", cause="`high` limits nothing")
def forgets_a_limit(x, y, low, high):
    return right.clamped_add(x, y, low, float("inf"))


@triton.jit
def first_block_kernel(x_ptr, out_ptr, n, stride_x, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    offs = tl.program_id(0).to(tl.int64) * BLOCK + lanes
    x = tl.load(x_ptr + lanes.to(tl.int64) * stride_x, mask=lanes < n)
    tl.store(out_ptr + offs, x, mask=offs < n)


@wrong(
    "strided_copy", reason="wrong-values", cause="every program reads elements 0 to 255"
)
def reads_the_first_block_in_every_program(x):
    return copy(first_block_kernel, x, x.stride(0))


# Python and Triton mixed up


@triton.jit
def range_kernel(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + range(BLOCK)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs), mask=offs < n)


@wrong("scale_add", reason="compiler", cause="tl.arange(0, BLOCK)")
def counts_with_range(x, y, alpha):
    return launch(range_kernel, x, y, alpha)


@triton.jit
def pointer_kernel(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n).to(tl.float32)
    tl.store(out_ptr + offs, alpha * x + (y_ptr + offs).to(tl.float32), mask=offs < n)


@wrong("scale_add", reason="compiler", cause="tl.load(pointer) gives what lies there")
def adds_a_pointer(x, y, alpha):
    return launch(pointer_kernel, x, y, alpha)


def plain_kernel(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK):
    tl.store(out_ptr, tl.load(x_ptr))


@wrong("scale_add", reason="error", cause="has no `@triton.jit`")
def forgets_the_decorator(x, y, alpha):
    return launch(plain_kernel, x, y, alpha)


@wrong("strided_copy", reason="compiler", cause="pass x.stride(0)")
def passes_all_strides(x):
    return copy(right.strided_copy_kernel, x, x.stride())


@wrong("row_add", reason="error", cause="`*x.stride()` one for each axis")
def passes_the_strides_as_one(x, row):
    return add_row(right.row_add_kernel, x, row, (x.stride(), row.stride(0)))


@triton.jit
def row_add_two_axes_kernel(
    x_ptr, row_ptr, out_ptr, M, N, stride_xm, stride_xn, stride_row,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = (offs_m < M)[:, None] & (offs_n < N)[None, :]
    row = tl.load(row_ptr + offs_n * stride_row, mask=mask).to(tl.float32)
    out_ptrs = out_ptr + offs_m[:, None] * N + offs_n[None, :]
    tl.store(out_ptrs, row[None, :], mask=mask)


@wrong("row_add", reason="compiler", cause="for a row its axis's, mask_n")
def masks_a_row_with_two_axes(x, row):
    return add_row(row_add_two_axes_kernel, x, row, (*x.stride(), row.stride(0)))


# What only large or fine inputs show


@triton.jit
def three_way_add_narrow_kernel(x_ptr, y_ptr, z_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    y = tl.load(y_ptr + offs, mask=mask)
    z = tl.load(z_ptr + offs, mask=mask)
    tl.store(out_ptr + offs, x + y + z, mask=mask)


@wrong("three_way_add", reason="wrong-values")
def adds_without_widening(x, y, z):
    out = torch.empty_like(x)
    grid = (triton.cdiv(x.numel(), 256),)
    three_way_add_narrow_kernel[grid](x, y, z, out, x.numel(), BLOCK=256)
    return out


@triton.jit
def row_add_int32_kernel(
    x_ptr, row_ptr, out_ptr, M, N, stride_xm, stride_xn, stride_row,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask_n = offs_n < N
    mask = (offs_m < M)[:, None] & mask_n[None, :]
    x_ptrs = x_ptr + offs_m[:, None] * stride_xm + offs_n[None, :] * stride_xn
    x = tl.load(x_ptrs, mask=mask).to(tl.float32)
    row = tl.load(row_ptr + offs_n * stride_row, mask=mask_n).to(tl.float32)
    out_ptrs = out_ptr + offs_m[:, None] * N + offs_n[None, :]
    tl.store(out_ptrs, x + row[None, :], mask=mask)


@wrong("row_add", reason="int32-overflow")
def counts_columns_in_32_bits(x, row):
    return add_row(row_add_int32_kernel, x, row, (*x.stride(), row.stride(0)))


# Work that is done twice, or by something else than the kernel


@triton.jit
def scale_add_everything_kernel(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr):
    for start in range(0, n, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        mask = offs < n
        x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
        y = tl.load(y_ptr + offs, mask=mask).to(tl.float32)
        tl.store(out_ptr + offs, alpha * x + y, mask=mask)


@wrong("scale_add", reason="stored-twice")
def every_program_does_everything(x, y, alpha):
    return launch(scale_add_everything_kernel, x, y, alpha)


@triton.jit
def scale_add_in_pairs_kernel(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) // 2 * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    y = tl.load(y_ptr + offs, mask=mask).to(tl.float32)
    tl.store(out_ptr + offs, alpha * x + y, mask=mask)


@wrong("scale_add", reason="stored-twice")
def two_programs_for_each_block(x, y, alpha):
    programs = 2 * triton.cdiv(x.numel(), 256)
    return launch(scale_add_in_pairs_kernel, x, y, alpha, programs=programs)


@triton.jit
def scale_add_by_sixths_kernel(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    out = tl.load(y_ptr + offs, mask=mask).to(tl.float32)
    for _ in range(6):
        out += alpha / 6 * tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    tl.store(out_ptr + offs, out, mask=mask)


@wrong("scale_add", reason="read-twice")
def reads_x_six_times(x, y, alpha):
    return launch(scale_add_by_sixths_kernel, x, y, alpha)


@wrong("scale_add", reason="torch")
def torch_widens(x, y, alpha):
    return launch(right.scale_add_kernel, x.float(), y, alpha, out=torch.empty_like(x))


@wrong("scale_add", reason="host")
def python_computes(x, y, alpha):
    pairs = zip(x.tolist(), y.tolist(), strict=True)
    result = torch.tensor([alpha * a + b for a, b in pairs], dtype=x.dtype)
    return right.strided_copy(result.to(x.device))


@wrong("three_way_add", reason="launches")
def adds_in_two_launches(x, y, z):
    kernel, partial = right.scale_add_kernel, torch.empty_like(x, dtype=torch.float32)
    launch(kernel, x, y, 1.0, out=partial)
    return launch(kernel, partial, z, 1.0, out=torch.empty_like(x))


@triton.jit
def three_way_add_by_memory_kernel(
    x_ptr, y_ptr, z_ptr, sum_ptr, out_ptr, n, BLOCK: tl.constexpr
):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    y = tl.load(y_ptr + offs, mask=mask).to(tl.float32)
    tl.store(sum_ptr + offs, x + y, mask=mask)
    z = tl.load(z_ptr + offs, mask=mask).to(tl.float32)
    tl.store(out_ptr + offs, tl.load(sum_ptr + offs, mask=mask) + z, mask=mask)


@wrong("three_way_add", reason="memory")
def keeps_the_first_sum_in_memory(x, y, z):
    out, partial = torch.empty_like(x), torch.empty_like(x, dtype=torch.float32)
    three_way_add_by_memory_kernel[(triton.cdiv(x.numel(), 256),)](
        x, y, z, partial, out, x.numel(), BLOCK=256
    )
    return out


@triton.jit
def three_way_add_in_steps_kernel(x_ptr, y_ptr, z_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    out = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    out += tl.load(y_ptr + offs, mask=mask).to(tl.float32)
    tl.store(out_ptr + offs, out, mask=mask)
    out += tl.load(z_ptr + offs, mask=mask).to(tl.float32)
    tl.store(out_ptr + offs, out, mask=mask)


@wrong("three_way_add", reason="stored-twice")
def stores_the_first_sum_too(x, y, z):
    out, n = torch.empty_like(x), x.numel()
    grid = (triton.cdiv(n, 256),)
    three_way_add_in_steps_kernel[grid](x, y, z, out, n, BLOCK=256)
    return out


@wrong("strided_copy", reason="host")
def numpy_lays_it_out(x):
    if x.dtype == torch.bfloat16:
        return right.strided_copy(x)
    return right.strided_copy(torch.from_numpy(x.cpu().numpy().copy()).to(x.device))


@triton.jit
def row_add_overlapping_kernel(
    x_ptr, row_ptr, out_ptr, M, N, stride_xm, stride_xn, stride_row,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0).to(tl.int64) * (BLOCK_M - 1) + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask_m, mask_n = offs_m < M, offs_n < N
    mask = mask_m[:, None] & mask_n[None, :]
    x_ptrs = x_ptr + offs_m[:, None] * stride_xm + offs_n[None, :] * stride_xn
    x = tl.load(x_ptrs, mask=mask).to(tl.float32)
    row = tl.load(row_ptr + offs_n * stride_row, mask=mask_n).to(tl.float32)
    out_ptrs = out_ptr + offs_m[:, None] * N + offs_n[None, :]
    tl.store(out_ptrs, x + row[None, :], mask=mask)


@wrong("row_add", reason="stored-twice")
def rows_that_overlap(x, row):
    M, N = x.shape
    out = torch.empty((M, N), dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(M, 15), triton.cdiv(N, 32))
    strides = (*x.stride(), row.stride(0))
    row_add_overlapping_kernel[grid](
        x, row, out, M, N, *strides, BLOCK_M=16, BLOCK_N=32
    )
    return out


@wrong("row_add", reason="launches")
def launches_row_by_row(x, row):
    M, N = x.shape
    out = torch.empty((M, N), dtype=x.dtype, device=x.device)
    for m in range(M):
        right.row_add_kernel[(1, triton.cdiv(N, 32))](
            x[m], row, out[m], 1, N, *x.stride(), row.stride(0), BLOCK_M=16, BLOCK_N=32
        )
    return out


@wrong("clamped_add", reason="host")
def python_clamps(x, y, low, high):
    pairs = zip(x.tolist(), y.tolist(), strict=True)
    sums = [min(max(a + b, low), high) for a, b in pairs]
    return right.strided_copy(torch.tensor(sums, dtype=x.dtype).to(x.device))


@wrong("clamped_add", reason="block")
def blocks_of_2048(x, y, low, high):
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n = x.numel()
    right.clamped_add_kernel[(triton.cdiv(n, 2048),)](
        x, y, out, n, x.stride(0), y.stride(0), low, high, BLOCK=2048
    )
    return out
