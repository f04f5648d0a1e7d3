"""Answers to the tasks of `solutions/softmax.py` that the check must reject, each for
its reason.
"""

import torch
import triton
import triton.language as tl

from lab.task import wrong
from solutions import softmax as right

LOWEST = -1000.0


# Row maximum: padding, and who computes


def largest(kernel, x, **options):
    """Run a kernel with the parameters of `row_max_kernel` and return its output."""
    M, N = x.shape
    out = torch.empty(M, dtype=x.dtype, device=x.device)
    kernel[(M,)](x, out, N, x.stride(0), BLOCK=triton.next_power_of_2(N), **options)
    return out


@triton.jit
def row_max_zero_kernel(x_ptr, out_ptr, N, stride_xm, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride_xm + offs, mask=offs < N, other=0.0)
    tl.store(out_ptr + row, tl.max(x, 0))


@wrong("row_max", reason="wrong-values")
def pads_with_zero(x):
    return largest(row_max_zero_kernel, x)


@triton.jit
def row_max_finite_kernel(x_ptr, out_ptr, N, stride_xm, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride_xm + offs, mask=offs < N, other=-65504.0)
    tl.store(out_ptr + row, tl.max(x, 0))


@wrong("row_max", reason="wrong-values")
def pads_with_a_number_that_seems_small(x):
    return largest(row_max_finite_kernel, x)


@triton.jit
def row_max_unmasked_kernel(x_ptr, out_ptr, N, stride_xm, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x = tl.load(x_ptr + row * stride_xm + tl.arange(0, BLOCK))
    tl.store(out_ptr + row, tl.max(x, 0))


@wrong("row_max", reason="out-of-bounds")
def loads_without_a_mask(x):
    return largest(row_max_unmasked_kernel, x)


@wrong("row_max", reason="torch")
def torch_finds_the_largest(x):
    return x.amax(1)


@wrong("row_max", reason="shape")
def keeps_the_dimension(x):
    return right.row_max(x)[:, None]


@wrong("row_max", reason="not-written")
def leaves_out_the_last_row(x):
    M, N = x.shape
    out = torch.empty(M, dtype=x.dtype, device=x.device)
    right.row_max_kernel[(max(1, M - 1),)](
        x, out, N, x.stride(0), BLOCK=triton.next_power_of_2(N)
    )
    return out


@triton.jit
def row_max_alone_kernel(x_ptr, out_ptr, M, N, stride_xm, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    for row in range(0, M):
        x = tl.load(x_ptr + row * stride_xm + offs, mask=offs < N, other=-float("inf"))
        tl.store(out_ptr + row, tl.max(x, 0))


@wrong("row_max", reason="one-program")
def one_program_takes_every_row(x):
    M, N = x.shape
    out = torch.empty(M, dtype=x.dtype, device=x.device)
    row_max_alone_kernel[(1,)](
        x, out, M, N, x.stride(0), BLOCK=triton.next_power_of_2(N)
    )
    return out


# Log-softmax: what is subtracted


def log_of_rows(kernel, x):
    """Run a kernel with the parameters of `log_softmax_kernel` and return its
    output.
    """
    M, N = x.shape
    out = torch.empty((M, N), dtype=x.dtype, device=x.device)
    kernel[(M,)](x, out, N, x.stride(0), BLOCK=triton.next_power_of_2(N))
    return out


@triton.jit
def log_softmax_unshifted_kernel(x_ptr, out_ptr, N, stride_xm, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    mask = offs < N
    x = tl.load(x_ptr + row * stride_xm + offs, mask=mask, other=-float("inf")).to(
        tl.float32
    )
    tl.store(out_ptr + row * N + offs, x - tl.log(tl.sum(tl.exp(x), 0)), mask=mask)


@wrong("log_softmax", reason="not-finite")
def subtracts_no_maximum(x):
    return log_of_rows(log_softmax_unshifted_kernel, x)


@triton.jit
def log_softmax_two_steps_kernel(x_ptr, out_ptr, N, stride_xm, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    mask = offs < N
    x = tl.load(x_ptr + row * stride_xm + offs, mask=mask, other=-float("inf")).to(
        tl.float32
    )
    powers = tl.exp(x - tl.max(x, 0))
    tl.store(out_ptr + row * N + offs, powers / tl.sum(powers, 0), mask=mask)


@wrong("log_softmax", reason="wrong-values")
def forgets_the_logarithm(x):
    return log_of_rows(log_softmax_two_steps_kernel, x)


@triton.jit
def log_softmax_half_kernel(x_ptr, out_ptr, N, stride_xm, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    mask = offs < N
    x = (
        tl.load(x_ptr + row * stride_xm + offs, mask=mask, other=-float("inf"))
        .to(tl.float16)
        .to(tl.float32)
    )
    shifted = x - tl.max(x, 0)
    tl.store(
        out_ptr + row * N + offs,
        shifted - tl.log(tl.sum(tl.exp(shifted), 0)),
        mask=mask,
    )


@wrong("log_softmax", reason="wrong-values")
def lower_precision_inside(x):
    return log_of_rows(log_softmax_half_kernel, x)


@triton.jit
def log_softmax_global_kernel(x_ptr, out_ptr, N, stride_xm, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    mask = offs < N
    x = tl.load(x_ptr + row * stride_xm + offs, mask=mask, other=-float("inf")).to(
        tl.float32
    )
    shifted = x - tl.max(x, 0) + (LOWEST - LOWEST)
    tl.store(
        out_ptr + row * N + offs,
        shifted - tl.log(tl.sum(tl.exp(shifted), 0)),
        mask=mask,
    )


@wrong("log_softmax", reason="compiler")
def a_python_global(x):
    return log_of_rows(log_softmax_global_kernel, x)


@wrong("log_softmax", reason="overwritten")
def torch_takes_the_logarithm(x):
    out = log_of_rows(log_softmax_two_steps_kernel, x)
    return out.log_()


@wrong("log_softmax", reason="dtype")
def always_float32(x):
    M, N = x.shape
    out = torch.empty((M, N), dtype=torch.float32, device=x.device)
    right.log_softmax_kernel[(M,)](
        x, out, N, x.stride(0), BLOCK=triton.next_power_of_2(N)
    )
    return out


# Causal softmax: axes and masks


def causal(kernel, x, ROWS=4):
    """Run a kernel with the parameters of `causal_softmax_kernel` and return its
    output.
    """
    T = x.shape[0]
    out = torch.empty((T, T), dtype=x.dtype, device=x.device)
    kernel[(triton.cdiv(T, ROWS),)](
        x, out, T, x.stride(0), ROWS=ROWS, BLOCK=triton.next_power_of_2(T)
    )
    return out


@triton.jit
def causal_everything_kernel(
    x_ptr, out_ptr, T, stride_xm, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    offs_m = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    offs_n = tl.arange(0, BLOCK)
    exists = (offs_m < T)[:, None] & (offs_n < T)[None, :]
    x_ptrs = x_ptr + offs_m[:, None] * stride_xm + offs_n[None, :]
    x = tl.load(x_ptrs, mask=exists, other=-float("inf")).to(tl.float32)
    powers = tl.exp(x - tl.max(x, 1)[:, None])
    out = powers / tl.sum(powers, 1)[:, None]
    tl.store(out_ptr + offs_m[:, None] * T + offs_n[None, :], out, mask=exists)


@wrong("causal_softmax", reason="wrong-values")
def looks_ahead(x):
    return causal(causal_everything_kernel, x)


@triton.jit
def causal_late_kernel(
    x_ptr, out_ptr, T, stride_xm, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """Hides the future after the powers were taken, by a product: NaN times 0
    is NaN.
    """
    offs_m = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    offs_n = tl.arange(0, BLOCK)
    exists = (offs_m < T)[:, None] & (offs_n < T)[None, :]
    seen = offs_n[None, :] <= offs_m[:, None]
    x_ptrs = x_ptr + offs_m[:, None] * stride_xm + offs_n[None, :]
    x = tl.load(x_ptrs, mask=exists, other=-float("inf")).to(tl.float32)
    powers = tl.exp(x - tl.max(x, 1)[:, None]) * seen
    out = powers / tl.sum(powers, 1)[:, None]
    tl.store(out_ptr + offs_m[:, None] * T + offs_n[None, :], out, mask=exists)


@wrong("causal_softmax", reason="not-finite")
def hides_the_future_too_late(x):
    return causal(causal_late_kernel, x)


@triton.jit
def causal_unwritten_kernel(
    x_ptr, out_ptr, T, stride_xm, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    offs_m = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    offs_n = tl.arange(0, BLOCK)
    exists = (offs_m < T)[:, None] & (offs_n < T)[None, :]
    seen = exists & (offs_n[None, :] <= offs_m[:, None])
    x_ptrs = x_ptr + offs_m[:, None] * stride_xm + offs_n[None, :]
    x = tl.load(x_ptrs, mask=seen, other=-float("inf")).to(tl.float32)
    powers = tl.exp(x - tl.max(x, 1)[:, None])
    out = powers / tl.sum(powers, 1)[:, None]
    tl.store(out_ptr + offs_m[:, None] * T + offs_n[None, :], out, mask=seen)


@wrong("causal_softmax", reason="not-written")
def stores_what_is_seen_alone(x):
    return causal(causal_unwritten_kernel, x)


@triton.jit
def causal_whole_tile_kernel(
    x_ptr, out_ptr, T, stride_xm, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    offs_m = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    offs_n = tl.arange(0, BLOCK)
    exists = (offs_m < T)[:, None] & (offs_n < T)[None, :]
    seen = exists & (offs_n[None, :] <= offs_m[:, None])
    x_ptrs = x_ptr + offs_m[:, None] * stride_xm + offs_n[None, :]
    x = tl.load(x_ptrs, mask=seen, other=-float("inf")).to(tl.float32)
    powers = tl.exp(x - tl.max(x, 0)[None, :])
    out = powers / tl.sum(powers, 0)[None, :]
    tl.store(out_ptr + offs_m[:, None] * T + offs_n[None, :], out, mask=exists)


@wrong("causal_softmax", reason="wrong-values")
def reduces_the_columns(x):
    return causal(causal_whole_tile_kernel, x)


@triton.jit
def causal_flat_kernel(
    x_ptr, out_ptr, T, stride_xm, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    offs_m = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    offs_n = tl.arange(0, BLOCK)
    exists = (offs_m < T)[:, None] & (offs_n < T)[None, :]
    seen = exists & (offs_n[None, :] <= offs_m[:, None])
    x = tl.load(
        x_ptr + offs_m[:, None] * T + offs_n[None, :], mask=seen, other=-float("inf")
    ).to(tl.float32)
    powers = tl.exp(x - tl.max(x, 1)[:, None])
    out = powers / tl.sum(powers, 1)[:, None]
    tl.store(out_ptr + offs_m[:, None] * T + offs_n[None, :], out, mask=exists)


@wrong("causal_softmax", reason="wrong-values")
def takes_every_matrix_for_contiguous(x):
    return causal(causal_flat_kernel, x)


@triton.jit
def causal_spill_kernel(
    x_ptr, out_ptr, T, stride_xm, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    offs_m = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    offs_n = tl.arange(0, BLOCK)
    seen = (
        (offs_m < T)[:, None]
        & (offs_n < T)[None, :]
        & (offs_n[None, :] <= offs_m[:, None])
    )
    x_ptrs = x_ptr + offs_m[:, None] * stride_xm + offs_n[None, :]
    x = tl.load(x_ptrs, mask=seen, other=-float("inf")).to(tl.float32)
    powers = tl.exp(x - tl.max(x, 1)[:, None])
    out = powers / tl.sum(powers, 1)[:, None]
    tl.store(
        out_ptr + offs_m[:, None] * T + offs_n[None, :], out, mask=(offs_n < T)[None, :]
    )


@wrong("causal_softmax", reason="out-of-bounds")
def stores_rows_that_do_not_exist(x):
    return causal(causal_spill_kernel, x)


@wrong("causal_softmax", reason="torch")
def torch_hides_the_future(x):
    ahead = torch.ones(x.shape, dtype=torch.bool, device=x.device).triu(1)
    return causal(right.causal_softmax_kernel, x.masked_fill(ahead, -float("inf")))


# Log-sum-exp: the running sum


def summed(kernel, x, BLOCK=128):
    """Run a kernel with the parameters of `log_sum_exp_kernel` and return its
    output.
    """
    M, N = x.shape
    out = torch.empty(M, dtype=x.dtype, device=x.device)
    kernel[(M,)](x, out, N, x.stride(0), BLOCK=BLOCK)
    return out


@triton.jit
def log_sum_exp_uncorrected_kernel(x_ptr, out_ptr, N, stride_xm, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    top = -float("inf")
    total = 0.0
    for start in range(0, N, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        x = tl.load(
            x_ptr + row * stride_xm + offs, mask=offs < N, other=-float("inf")
        ).to(tl.float32)
        top = tl.maximum(top, tl.max(x, 0))
        total += tl.sum(tl.exp(x - top), 0)
    tl.store(out_ptr + row, top + tl.log(total))


@wrong("log_sum_exp", reason="wrong-values")
def never_corrects_the_sum(x):
    return summed(log_sum_exp_uncorrected_kernel, x)


@triton.jit
def log_sum_exp_first_top_kernel(x_ptr, out_ptr, N, stride_xm, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride_xm + offs, mask=offs < N, other=-float("inf")).to(
        tl.float32
    )
    top = tl.max(x, 0)
    total = tl.sum(tl.exp(x - top), 0)
    tl.store(out_ptr + row, top + tl.log(total))


@wrong("log_sum_exp", reason="wrong-values")
def sums_the_first_block_alone(x):
    return summed(log_sum_exp_first_top_kernel, x)


@triton.jit
def log_sum_exp_plain_kernel(x_ptr, out_ptr, N, stride_xm, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = 0.0
    for start in range(0, N, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        x = tl.load(
            x_ptr + row * stride_xm + offs, mask=offs < N, other=-float("inf")
        ).to(tl.float32)
        total += tl.sum(tl.exp(x), 0)
    tl.store(out_ptr + row, tl.log(total))


@wrong("log_sum_exp", reason="not-finite")
def sums_plain_powers(x):
    return summed(log_sum_exp_plain_kernel, x)


@triton.jit
def log_sum_exp_zero_kernel(x_ptr, out_ptr, N, stride_xm, BLOCK: tl.constexpr):
    """Starts from 0: nothing is wrong until all of a row is far below it."""
    row = tl.program_id(0).to(tl.int64)
    top = 0.0
    total = 0.0
    for start in range(0, N, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        x = tl.load(
            x_ptr + row * stride_xm + offs, mask=offs < N, other=-float("inf")
        ).to(tl.float32)
        new_top = tl.maximum(top, tl.max(x, 0))
        total = total * tl.exp(top - new_top) + tl.sum(tl.exp(x - new_top), 0)
        top = new_top
    tl.store(out_ptr + row, top + tl.log(total))


@wrong("log_sum_exp", reason="not-finite")
def begins_with_zero_for_a_maximum(x):
    return summed(log_sum_exp_zero_kernel, x)


@triton.jit
def log_sum_exp_type_kernel(x_ptr, out_ptr, N, stride_xm, BLOCK: tl.constexpr):
    """`total` begins as an integer, and a loop cannot change its type."""
    row = tl.program_id(0).to(tl.int64)
    top = -float("inf")
    total = 0
    for start in range(0, N, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        x = tl.load(
            x_ptr + row * stride_xm + offs, mask=offs < N, other=-float("inf")
        ).to(tl.float32)
        new_top = tl.maximum(top, tl.max(x, 0))
        total = total * tl.exp(top - new_top) + tl.sum(tl.exp(x - new_top), 0)
        top = new_top
    tl.store(out_ptr + row, top + tl.log(total))


@wrong("log_sum_exp", reason="compiler")
def begins_with_an_integer(x):
    return summed(log_sum_exp_type_kernel, x)


# Cross-entropy: the right word


def losses(kernel, x, target, out=None):
    """Run a kernel with the parameters of `cross_entropy_kernel` and return its
    output.
    """
    M, N = x.shape
    out = torch.empty(M, dtype=x.dtype, device=x.device) if out is None else out
    kernel[(M,)](x, target, out, N, x.stride(0), BLOCK=256)
    return out


@triton.jit
def cross_entropy_first_row_kernel(
    x_ptr, target_ptr, out_ptr, N, stride_xm, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    top = -float("inf")
    total = 0.0
    for start in range(0, N, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        x = tl.load(
            x_ptr + row * stride_xm + offs, mask=offs < N, other=-float("inf")
        ).to(tl.float32)
        new_top = tl.maximum(top, tl.max(x, 0))
        total = total * tl.exp(top - new_top) + tl.sum(tl.exp(x - new_top), 0)
        top = new_top
    score = tl.load(x_ptr + tl.load(target_ptr + row)).to(tl.float32)
    tl.store(out_ptr + row, top - score + tl.log(total))


@wrong("cross_entropy", reason="wrong-values")
def takes_every_score_from_row_0(x, target):
    return losses(cross_entropy_first_row_kernel, x, target)


@wrong("cross_entropy", reason="torch")
def torch_gathers_the_scores(x, target):
    return right.log_sum_exp(x) - x.gather(1, target[:, None])[:, 0]


@wrong("cross_entropy", reason="shape")
def the_mean_of_all(x, target):
    return right.cross_entropy(x, target)[:1]


@wrong("cross_entropy", reason="not-written")
def hopes_for_stale_memory(x, target):
    right.cross_entropy(x, target)
    return torch.empty(x.shape[0], dtype=x.dtype, device=x.device)


CACHE = {}


@wrong("cross_entropy", reason="stale")
def remembers_by_pointer(x, target):
    key = (x.data_ptr(), x.shape, x.dtype)
    if key not in CACHE:
        CACHE[key] = right.cross_entropy(x, target)
    return CACHE[key]


@triton.jit
def cross_entropy_shared_kernel(
    x_ptr, target_ptr, out_ptr, N, stride_xm, BLOCK: tl.constexpr
):
    """Every program also writes a first guess for the row after its own."""
    row = tl.program_id(0).to(tl.int64)
    if row + 1 < tl.num_programs(0):
        tl.store(out_ptr + row + 1, 0.0)
    top = -float("inf")
    total = 0.0
    for start in range(0, N, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        x = tl.load(
            x_ptr + row * stride_xm + offs, mask=offs < N, other=-float("inf")
        ).to(tl.float32)
        new_top = tl.maximum(top, tl.max(x, 0))
        total = total * tl.exp(top - new_top) + tl.sum(tl.exp(x - new_top), 0)
        top = new_top
    score = tl.load(x_ptr + row * stride_xm + tl.load(target_ptr + row)).to(tl.float32)
    tl.store(out_ptr + row, top - score + tl.log(total))


@wrong("cross_entropy", reason="race")
def two_programs_write_one_loss(x, target):
    return losses(cross_entropy_shared_kernel, x, target)


@wrong("cross_entropy", reason="compiler")
def asks_for_a_block_that_is_no_power_of_two(x, target):
    M, N = x.shape
    out = torch.empty(M, dtype=x.dtype, device=x.device)
    right.cross_entropy_kernel[(M,)](x, target, out, N, x.stride(0), BLOCK=250)
    return out


# What only rows far apart, -inf and NaN show


@triton.jit
def row_max_over_nan_kernel(x_ptr, out_ptr, N, stride_xm, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    x_ptrs = x_ptr + row * stride_xm + offs
    x = tl.load(x_ptrs, mask=offs < N, other=-float("inf"))
    tl.store(out_ptr + row, tl.max(x, 0))


@wrong("row_max", reason="wrong-values")
def passes_over_nan(x):
    return largest(row_max_over_nan_kernel, x)


@triton.jit
def log_of_softmax_kernel(x_ptr, out_ptr, N, stride_xm, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    mask = offs < N
    x = tl.load(x_ptr + row * stride_xm + offs, mask=mask, other=-float("inf")).to(
        tl.float32
    )
    powers = tl.exp(x - tl.max(x, 0))
    tl.store(out_ptr + row * N + offs, tl.log(powers / tl.sum(powers, 0)), mask=mask)


@wrong("log_softmax", reason="not-finite")
def takes_the_logarithm_of_a_softmax(x):
    return log_of_rows(log_of_softmax_kernel, x)


@triton.jit
def causal_top_kernel(
    x_ptr, out_ptr, T, stride_xm, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    ZERO: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    offs_n = tl.arange(0, BLOCK)
    exists = (offs_m < T)[:, None] & (offs_n < T)[None, :]
    seen = exists & (offs_n[None, :] <= offs_m[:, None])
    x_ptrs = x_ptr + offs_m[:, None] * stride_xm + offs_n[None, :]
    x = tl.load(x_ptrs, mask=seen, other=-float("inf")).to(tl.float32)
    top = tl.max(x, 1)
    top = tl.maximum(top, 0.0) if ZERO else top * 0 + tl.max(top, 0)
    powers = tl.exp(x - top[:, None])
    out = powers / tl.sum(powers, 1)[:, None]
    tl.store(out_ptr + offs_m[:, None] * T + offs_n[None, :], out, mask=exists)


def causal_with(x, ZERO):
    """Run the kernel with a maximum of at least 0, or with one for the whole tile."""
    T = x.shape[0]
    out = torch.empty((T, T), dtype=x.dtype, device=x.device)
    BLOCK = triton.next_power_of_2(T)
    causal_top_kernel[(triton.cdiv(T, 4),)](
        x, out, T, x.stride(0), ROWS=4, BLOCK=BLOCK, ZERO=ZERO
    )
    return out


@wrong("causal_softmax", reason="not-finite")
def subtracts_at_least_zero(x):
    return causal_with(x, True)


@wrong("causal_softmax", reason="not-finite")
def subtracts_one_maximum_for_all_rows(x):
    return causal_with(x, False)


@triton.jit
def log_sum_exp_top_kernel(
    x_ptr, out_ptr, N, stride_xm, BLOCK: tl.constexpr, RUNNING: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    top = -float("inf")
    total = 0.0
    for start in range(0, N, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        x = tl.load(
            x_ptr + row * stride_xm + offs, mask=offs < N, other=-float("inf")
        ).to(tl.float32)
        new_top = tl.max(x, 0)
        if RUNNING:
            new_top = tl.maximum(top, new_top)
        total = total * tl.exp(top - new_top) + tl.sum(tl.exp(x - new_top), 0)
        top = new_top
    tl.store(out_ptr + row, top + tl.log(total))


@wrong("log_sum_exp", reason="not-finite")
def takes_the_maximum_of_the_last_block(x):
    out = torch.empty(len(x), dtype=x.dtype, device=x.device)
    log_sum_exp_top_kernel[(len(x),)](
        x, out, x.shape[1], x.stride(0), BLOCK=128, RUNNING=False
    )
    return out


@wrong("log_sum_exp", reason="not-finite")
def begins_with_minus_infinity(x):
    out = torch.empty(len(x), dtype=x.dtype, device=x.device)
    log_sum_exp_top_kernel[(len(x),)](
        x, out, x.shape[1], x.stride(0), BLOCK=128, RUNNING=True
    )
    return out
