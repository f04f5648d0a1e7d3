"""Answers to the tasks of `solutions/dropout.py` that the check must reject, each for
its reason.
"""

import torch
import triton
import triton.language as tl

from lab.task import wrong
from solutions import dropout as right
from solutions.vector_add import strided_copy

NOTHING = 0.0


def launch(kernel, x, *arguments, out=None, programs=None, BLOCK=256):
    """Run a kernel with the parameters (x_ptr, …, out_ptr, n, …) on 256 elements a
    program and return its output.
    """
    tensors = [a for a in arguments if isinstance(a, torch.Tensor)]
    numbers = [a for a in arguments if not isinstance(a, torch.Tensor)]
    out = torch.empty_like(x) if out is None else out
    grid = (triton.cdiv(x.numel(), BLOCK) if programs is None else programs,)
    kernel[grid](x, *tensors, out, x.numel(), *numbers, BLOCK=BLOCK)
    return out


# Apply a mask


@triton.jit
def product_kernel(x_ptr, keep_ptr, out_ptr, n, scale, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    keep = tl.load(keep_ptr + offs, mask=mask).to(tl.float32)
    tl.store(out_ptr + offs, x * scale * keep, mask=mask)


@wrong("masked_scale", reason="not-finite", cause="it is finite when `x` is")
def multiplies_with_the_mask(x, keep, p):
    return launch(product_kernel, x, keep, 1 / (1 - p))


@wrong("masked_scale", reason="wrong-values", cause="not divided by `1 - p`")
def forgets_to_divide(x, keep, p):
    return launch(right.masked_scale_kernel, x, keep, 1.0)


@triton.jit
def inverted_kernel(x_ptr, keep_ptr, out_ptr, n, scale, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    keep = tl.load(keep_ptr + offs, mask=mask)
    tl.store(out_ptr + offs, tl.where(keep, 0.0, x * scale), mask=mask)


@wrong("masked_scale", reason="wrong-values", cause="the wrong way round")
def drops_what_should_stay(x, keep, p):
    return launch(inverted_kernel, x, keep, 1 / (1 - p))


@triton.jit
def unmasked_kernel(x_ptr, keep_ptr, out_ptr, n, scale, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    keep = tl.load(keep_ptr + offs)
    tl.store(out_ptr + offs, tl.where(keep, x * scale, 0.0), mask=mask)


@wrong("masked_scale", reason="out-of-bounds", cause="this load has no mask")
def no_mask_on_the_mask(x, keep, p):
    return launch(unmasked_kernel, x, keep, 1 / (1 - p))


@wrong("masked_scale", reason="torch")
def torch_applies_the_mask(x, keep, p):
    return launch(right.masked_scale_kernel, torch.where(keep, x, 0), keep, 1 / (1 - p))


@wrong("masked_scale", reason="returns-input")
def drops_in_place(x, keep, p):
    return launch(right.masked_scale_kernel, x, keep, 1 / (1 - p), out=x)


@triton.jit
def kept_only_kernel(x_ptr, keep_ptr, out_ptr, n, scale, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    keep = tl.load(keep_ptr + offs, mask=offs < n, other=False)
    x = tl.load(x_ptr + offs, mask=keep).to(tl.float32)
    tl.store(out_ptr + offs, x * scale, mask=keep)


@wrong(
    "masked_scale", reason="not-written", cause="the mask of the store is too strict"
)
def leaves_dropped_elements_unwritten(x, keep, p):
    return launch(kept_only_kernel, x, keep, 1 / (1 - p))


# Toss a coin for each sign


@triton.jit
def lane_kernel(x_ptr, out_ptr, n, seed, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    offs = tl.program_id(0).to(tl.int64) * BLOCK + lanes
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    tl.store(
        out_ptr + offs, tl.where(tl.randint(seed, lanes) % 2 == 1, -x, x), mask=mask
    )


@wrong(
    "random_sign", reason="wrong-values", cause="every program draws the same numbers"
)
def one_number_for_each_lane(x, seed):
    return launch(lane_kernel, x, seed)


@triton.jit
def program_kernel(x_ptr, out_ptr, n, seed, BLOCK: tl.constexpr):
    pid = tl.program_id(0).to(tl.int64)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    tl.store(out_ptr + offs, tl.where(tl.randint(seed, pid) % 2 == 1, -x, x), mask=mask)


@wrong("random_sign", reason="wrong-values", cause="draws one number for them all")
def one_number_for_each_program(x, seed):
    return launch(program_kernel, x, seed)


@wrong("random_sign", reason="wrong-values", cause="`seed` changes nothing")
def ignores_the_seed(x, seed):
    return launch(right.random_sign_kernel, x, 13)


@wrong("random_sign", reason="one-program")
def one_program_does_everything(x, seed):
    return launch(
        right.random_sign_kernel,
        x,
        seed,
        BLOCK=triton.next_power_of_2(max(1, x.numel())),
    )


@triton.jit
def negative_kernel(x_ptr, out_ptr, n, seed, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    tl.store(out_ptr + offs, tl.where(tl.randint(seed, offs) < 0, -x, x), mask=mask)


@wrong("random_sign", reason="wrong-values", cause="no sign changes")
def waits_for_a_negative_number(x, seed):
    return launch(negative_kernel, x, seed)


# Drop whole rows


def drop(kernel, x, p, seed, strides=None):
    """Run a kernel with the parameters of `drop_rows_kernel` and return its output."""
    M, N = x.shape
    out = torch.empty((M, N), dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(M, 16), triton.cdiv(N, 32))
    kernel[grid](
        x,
        out,
        M,
        N,
        *(strides or x.stride()),
        seed,
        p,
        1 / (1 - p),
        BLOCK_M=16,
        BLOCK_N=32,
    )
    return out


@triton.jit
def drop_elements_kernel(
    x_ptr, out_ptr, M, N, stride_xm, stride_xn, seed, p, scale,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = (offs_m < M)[:, None] & (offs_n < N)[None, :]
    x = tl.load(
        x_ptr + offs_m[:, None] * stride_xm + offs_n[None, :] * stride_xn, mask=mask
    ).to(tl.float32)
    offs = offs_m[:, None] * N + offs_n[None, :]
    tl.store(
        out_ptr + offs, tl.where(tl.rand(seed, offs) >= p, x * scale, 0.0), mask=mask
    )


@wrong("drop_rows", reason="wrong-values", cause="single elements are dropped")
def drops_single_elements(x, p, seed):
    return drop(drop_elements_kernel, x, p, seed)


@triton.jit
def drop_columns_kernel(
    x_ptr, out_ptr, M, N, stride_xm, stride_xn, seed, p, scale,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = (offs_m < M)[:, None] & (offs_n < N)[None, :]
    x = tl.load(
        x_ptr + offs_m[:, None] * stride_xm + offs_n[None, :] * stride_xn, mask=mask
    ).to(tl.float32)
    keep = tl.rand(seed, offs_n) >= p
    out = tl.where(keep[None, :], x * scale, 0.0)
    tl.store(out_ptr + offs_m[:, None] * N + offs_n[None, :], out, mask=mask)


@wrong("drop_rows", reason="wrong-values", cause="columns are dropped")
def drops_columns(x, p, seed):
    return drop(drop_columns_kernel, x, p, seed)


@triton.jit
def drop_rows_of_tiles_kernel(
    x_ptr, out_ptr, M, N, stride_xm, stride_xn, seed, p, scale,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    rows = tl.arange(0, BLOCK_M)
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + rows
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = (offs_m < M)[:, None] & (offs_n < N)[None, :]
    x = tl.load(
        x_ptr + offs_m[:, None] * stride_xm + offs_n[None, :] * stride_xn, mask=mask
    ).to(tl.float32)
    keep = tl.rand(seed, rows) >= p
    out = tl.where(keep[:, None], x * scale, 0.0)
    tl.store(out_ptr + offs_m[:, None] * N + offs_n[None, :], out, mask=mask)


@wrong(
    "drop_rows",
    reason="wrong-values",
    cause="rows are counted from the top of a tile of 16",
)
def counts_rows_from_the_top_of_the_tile(x, p, seed):
    return drop(drop_rows_of_tiles_kernel, x, p, seed)


@wrong("drop_rows", reason="out-of-bounds", cause="have changed places")
def swaps_the_strides(x, p, seed):
    return drop(right.drop_rows_kernel, x, p, seed, (x.stride(1), x.stride(0)))


# Round by chance


def rounded(kernel, x, seed, dtype=torch.int32):
    """Run a kernel with the parameters of `chance_round_kernel` and return its
    output.
    """
    out = torch.empty(x.shape, dtype=dtype, device=x.device)
    kernel[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), seed, CALLS=64)
    return out


@triton.jit
def words_in_pairs_kernel(x_ptr, out_ptr, n, seed, CALLS: tl.constexpr):
    call = tl.program_id(0).to(tl.int64) * CALLS + tl.arange(0, CALLS)
    offs = call[:, None] * 4 + tl.arange(0, 4)[None, :]
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    u0, u1, u2, u3 = tl.rand4x(seed, call)
    u = tl.reshape(tl.join(tl.join(u0, u1), tl.join(u2, u3)), (CALLS, 4))
    tl.store(out_ptr + offs, tl.floor(x + u).to(tl.int32), mask=mask)


@wrong("chance_round", reason="wrong-values", cause="have changed places")
def words_in_the_wrong_order(x, seed):
    return rounded(words_in_pairs_kernel, x, seed)


@triton.jit
def first_word_kernel(x_ptr, out_ptr, n, seed, CALLS: tl.constexpr):
    call = tl.program_id(0).to(tl.int64) * CALLS + tl.arange(0, CALLS)
    offs = call[:, None] * 4 + tl.arange(0, 4)[None, :]
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    tl.store(
        out_ptr + offs,
        tl.floor(x + tl.rand(seed, call)[:, None]).to(tl.int32),
        mask=mask,
    )


@wrong("chance_round", reason="wrong-values", cause="the first number of a call")
def one_word_for_four_elements(x, seed):
    return rounded(first_word_kernel, x, seed)


@triton.jit
def to_nearest_kernel(x_ptr, out_ptr, n, seed, CALLS: tl.constexpr):
    call = tl.program_id(0).to(tl.int64) * CALLS + tl.arange(0, CALLS)
    offs = call[:, None] * 4 + tl.arange(0, 4)[None, :]
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    tl.store(out_ptr + offs, tl.floor(x + 0.5).to(tl.int32), mask=mask)


@wrong("chance_round", reason="wrong-values", cause="rounded to the nearest")
def rounds_to_nearest(x, seed):
    return rounded(to_nearest_kernel, x, seed)


@triton.jit
def towards_zero_kernel(x_ptr, out_ptr, n, seed, CALLS: tl.constexpr):
    call = tl.program_id(0).to(tl.int64) * CALLS + tl.arange(0, CALLS)
    offs = call[:, None] * 4 + tl.arange(0, 4)[None, :]
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    u0, u1, u2, u3 = tl.rand4x(seed, call)
    u = tl.reshape(tl.join(tl.join(u0, u2), tl.join(u1, u3)), (CALLS, 4))
    tl.store(out_ptr + offs, (x + u).to(tl.int32), mask=mask)


@wrong("chance_round", reason="wrong-values", cause="the sum is cut towards 0")
def cuts_towards_zero(x, seed):
    return rounded(towards_zero_kernel, x, seed)


@wrong("chance_round", reason="dtype")
def returns_floats(x, seed):
    return rounded(right.chance_round_kernel, x, seed, torch.float32)


# Dropout and a residual


@triton.jit
def drops_both_kernel(
    x_ptr, residual_ptr, out_ptr, n, seed, p, scale, BLOCK: tl.constexpr
):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    residual = tl.load(residual_ptr + offs, mask=mask).to(tl.float32)
    tl.store(
        out_ptr + offs,
        tl.where(tl.rand(seed, offs) >= p, residual + x * scale, 0.0),
        mask=mask,
    )


def scale_of(p):
    return 1 / (1 - p) if p < 1 else 0.0


@wrong("dropout_add", reason="wrong-values", cause="`residual` is dropped")
def drops_the_residual_too(x, residual, p, seed):
    return launch(drops_both_kernel, x, residual, seed, p, scale_of(p))


@wrong("dropout_add", reason="error", cause="a divisor is 0")
def divides_by_zero(x, residual, p, seed):
    return launch(right.dropout_add_kernel, x, residual, seed, p, 1 / (1 - p))


@wrong("dropout_add", reason="not-written", cause="the grid has no program at all")
def skips_the_tail(x, residual, p, seed):
    return launch(
        right.dropout_add_kernel,
        x,
        residual,
        seed,
        p,
        scale_of(p),
        programs=x.numel() // 256,
    )


@wrong("dropout_add", reason="torch")
def torch_adds_the_residual(x, residual, p, seed):
    return residual + launch(
        right.dropout_add_kernel, x, torch.zeros_like(x), seed, p, scale_of(p)
    )


CACHE = {}


@wrong("dropout_add", reason="stale")
def remembers_by_seed(x, residual, p, seed):
    key = (x.numel(), x.dtype, p, seed)
    if key not in CACHE:
        CACHE[key] = launch(right.dropout_add_kernel, x, residual, seed, p, scale_of(p))
    return CACHE[key]


@triton.jit
def global_kernel(x_ptr, residual_ptr, out_ptr, n, seed, p, scale, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    residual = tl.load(residual_ptr + offs, mask=mask).to(tl.float32)
    tl.store(
        out_ptr + offs,
        residual + tl.where(tl.rand(seed, offs) >= p, x * scale, NOTHING),
        mask=mask,
    )


@wrong("dropout_add", reason="compiler")
def a_python_global(x, residual, p, seed):
    return launch(global_kernel, x, residual, seed, p, scale_of(p))


@triton.jit
def accumulating_kernel(
    x_ptr, residual_ptr, out_ptr, n, seed, p, scale, BLOCK: tl.constexpr
):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    residual = tl.load(residual_ptr + offs, mask=mask).to(tl.float32)
    out = residual + tl.where(tl.rand(seed, offs) >= p, x * scale, 0.0)
    tl.store(residual_ptr + offs, out, mask=mask)
    tl.store(out_ptr + offs, out, mask=mask)


@wrong("dropout_add", reason="input-changed")
def changes_the_residual(x, residual, p, seed):
    return launch(accumulating_kernel, x, residual, seed, p, scale_of(p))


# What only a number exactly at p shows


@triton.jit
def drop_rows_above_kernel(
    x_ptr, out_ptr, M, N, stride_xm, stride_xn, seed, p, scale,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = (offs_m < M)[:, None] & (offs_n < N)[None, :]
    x_ptrs = x_ptr + offs_m[:, None] * stride_xm + offs_n[None, :] * stride_xn
    x = tl.load(x_ptrs, mask=mask).to(tl.float32)
    keep = tl.rand(seed, offs_m) > p
    out = tl.where(keep[:, None], x * scale, 0.0)
    tl.store(out_ptr + offs_m[:, None] * N + offs_n[None, :], out, mask=mask)


@wrong("drop_rows", reason="wrong-values")
def keeps_only_what_is_above_p(x, p, seed):
    return drop(drop_rows_above_kernel, x, p, seed)


@triton.jit
def fp16_comparison_kernel(
    x_ptr, residual_ptr, out_ptr, n, seed, p, scale, BLOCK: tl.constexpr
):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    residual = tl.load(residual_ptr + offs, mask=mask).to(tl.float32)
    keep = tl.rand(seed, offs).to(tl.float16) >= p
    tl.store(out_ptr + offs, residual + tl.where(keep, x * scale, 0.0), mask=mask)


@wrong("dropout_add", reason="wrong-values")
def compares_in_half_precision(x, residual, p, seed):
    return launch(fp16_comparison_kernel, x, residual, seed, p, scale_of(p))


# Work that is done twice, or by something else than the kernel


@wrong("masked_scale", reason="torch")
def torch_makes_numbers_of_the_mask(x, keep, p):
    return launch(right.masked_scale_kernel, x, keep.to(torch.int32), 1 / (1 - p))


@wrong("masked_scale", reason="host")
def python_applies_the_mask(x, keep, p):
    pairs = zip(x.tolist(), keep.tolist(), strict=True)
    kept = [a / (1 - p) if stays else 0.0 for a, stays in pairs]
    return strided_copy(torch.tensor(kept, dtype=x.dtype).to(x.device))


@triton.jit
def random_sign_everything_kernel(x_ptr, out_ptr, n, seed, BLOCK: tl.constexpr):
    for start in range(0, n, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offs, mask=offs < n).to(tl.float32)
        out = tl.where(tl.randint(seed, offs) % 2 == 1, -x, x)
        tl.store(out_ptr + offs, out, mask=offs < n)


@wrong("random_sign", reason="stored-twice")
def every_program_tosses_all_coins(x, seed):
    return launch(random_sign_everything_kernel, x, seed)


@triton.jit
def drop_rows_overlapping_kernel(
    x_ptr, out_ptr, M, N, stride_xm, stride_xn, seed, p, scale,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1).to(tl.int64) // 2 * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = (offs_m < M)[:, None] & (offs_n < N)[None, :]
    x_ptrs = x_ptr + offs_m[:, None] * stride_xm + offs_n[None, :] * stride_xn
    x = tl.load(x_ptrs, mask=mask).to(tl.float32)
    keep = tl.rand(seed, offs_m) >= p
    out = tl.where(keep[:, None], x * scale, 0.0)
    tl.store(out_ptr + offs_m[:, None] * N + offs_n[None, :], out, mask=mask)


@wrong("drop_rows", reason="stored-twice")
def two_programs_for_each_tile(x, p, seed):
    M, N = x.shape
    out = torch.empty((M, N), dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(M, 16), 2 * triton.cdiv(N, 32))
    numbers = (M, N, *x.stride(), seed, p, 1 / (1 - p))
    drop_rows_overlapping_kernel[grid](x, out, *numbers, BLOCK_M=16, BLOCK_N=32)
    return out


@wrong("chance_round", reason="launches")
def launches_twice(x, seed):
    rounded(right.chance_round_kernel, x, seed)
    return rounded(right.chance_round_kernel, x, seed)


@triton.jit
def dropout_add_everything_kernel(
    x_ptr, residual_ptr, out_ptr, n, seed, p, scale, BLOCK: tl.constexpr
):
    for start in range(0, n, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        mask = offs < n
        x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
        residual = tl.load(residual_ptr + offs, mask=mask).to(tl.float32)
        out = residual + tl.where(tl.rand(seed, offs) >= p, x * scale, 0.0)
        tl.store(out_ptr + offs, out, mask=mask)


@wrong("dropout_add", reason="stored-twice")
def every_program_does_everything(x, residual, p, seed):
    kernel = dropout_add_everything_kernel
    return launch(kernel, x, residual, seed, p, 1 / (1 - p) if p < 1 else 0.0)


@wrong("dropout_add", reason="block")
def blocks_of_2048(x, residual, p, seed):
    kernel, scale = right.dropout_add_kernel, 1 / (1 - p) if p < 1 else 0.0
    return launch(kernel, x, residual, seed, p, scale, BLOCK=2048)
