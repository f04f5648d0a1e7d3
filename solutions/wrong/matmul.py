"""Answers to the tasks of `solutions/matmul.py` that the check must reject, each for
its reason.
"""

import torch
import triton
import triton.language as tl

from lab.task import wrong
from solutions import matmul as right
from solutions.vector_add import strided_copy

# A matrix times a vector


def times_vector(kernel, a, x, out=None, strides=None, **constants):
    """Run a kernel with the parameters of `matvec_kernel` and return its output."""
    out = (
        torch.empty(a.shape[0], dtype=a.dtype, device=a.device) if out is None else out
    )
    constants = {"BLOCK_M": 16, "BLOCK_K": 32} | constants
    grid = (triton.cdiv(a.shape[0], constants["BLOCK_M"]),)
    kernel[grid](
        a, x, out, *a.shape, *(strides or (*a.stride(), x.stride(0))), **constants
    )
    return out


@triton.jit
def matvec_unmasked_kernel(
    a_ptr, x_ptr, out_ptr, M, K, stride_am, stride_ak, stride_x,
    BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    mask_m = offs_m < M
    acc = tl.zeros((BLOCK_M,), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
        a = tl.load(a_ptrs, mask=mask_m[:, None], other=0.0).to(tl.float32)
        x = tl.load(x_ptr + offs_k * stride_x).to(tl.float32)
        acc += tl.sum(a * x[None, :], axis=1)
    tl.store(out_ptr + offs_m, acc, mask=mask_m)


@wrong(
    "matvec",
    reason="out-of-bounds",
    cause="must be false for every offset past the end",
)
def no_mask_along_k(a, x):
    return times_vector(matvec_unmasked_kernel, a, x)


@triton.jit
def matvec_one_block_kernel(
    a_ptr, x_ptr, out_ptr, M, K, stride_am, stride_ak, stride_x,
    BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_k = tl.arange(0, BLOCK_K)
    mask_m, mask_k = offs_m < M, offs_k < K
    a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
    a = tl.load(a_ptrs, mask=mask_m[:, None] & mask_k[None, :], other=0.0).to(
        tl.float32
    )
    x = tl.load(x_ptr + offs_k * stride_x, mask=mask_k, other=0.0).to(tl.float32)
    tl.store(out_ptr + offs_m, tl.sum(a * x[None, :], axis=1), mask=mask_m)


@wrong(
    "matvec", reason="wrong-values", cause="along axis 1 of `a` and axis 0 of `x` count"
)
def forgets_the_loop(a, x):
    return times_vector(matvec_one_block_kernel, a, x)


@triton.jit
def matvec_other_axis_kernel(
    a_ptr, x_ptr, out_ptr, M, K, stride_am, stride_ak, stride_x,
    BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    mask_m = offs_m < M
    acc = tl.zeros((BLOCK_M,), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        mask_k = offs_k < K
        a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
        a = tl.load(a_ptrs, mask=mask_m[:, None] & mask_k[None, :], other=0.0).to(
            tl.float32
        )
        x = tl.load(x_ptr + offs_k * stride_x, mask=mask_k, other=0.0).to(tl.float32)
        acc += tl.sum(a * x[None, :], axis=0)
    tl.store(out_ptr + offs_m, acc, mask=mask_m)


@wrong("matvec", reason="wrong-values", cause="summed down the columns")
def sums_along_the_rows(a, x):
    return times_vector(matvec_other_axis_kernel, a, x, BLOCK_M=32)


@wrong("matvec", reason="wrong-values", cause="as if their elements lay side by side")
def ignores_the_strides(a, x):
    return times_vector(right.matvec_kernel, a, x, strides=(a.shape[1], 1, 1))


@wrong("matvec", reason="out-of-bounds", cause="have changed places")
def swaps_the_strides(a, x):
    return times_vector(
        right.matvec_kernel, a, x, strides=(a.stride(1), a.stride(0), x.stride(0))
    )


@wrong("matvec", reason="torch")
def torch_multiplies(a, x):
    return a @ x


@wrong("matvec", reason="one-program")
def one_program_has_all_rows(a, x):
    return times_vector(
        right.matvec_kernel, a, x, BLOCK_M=triton.next_power_of_2(a.shape[0])
    )


@wrong("matvec", reason="dtype")
def keeps_the_sums_in_float32(a, x):
    return times_vector(
        right.matvec_kernel, a, x, out=torch.empty(a.shape[0], device=a.device)
    )


@wrong("matvec", reason="shape")
def returns_a_column(a, x):
    return times_vector(right.matvec_kernel, a, x).view(-1, 1)


# A tile of a product


def product(kernel, a, b, strides=None, tiles=None):
    """Run a kernel with the parameters of `tile_product_kernel` and return its
    output.
    """
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty(M, N, dtype=a.dtype, device=a.device)
    grid = (triton.cdiv(M, 16) * triton.cdiv(N, 32) if tiles is None else tiles,)
    strides = strides or (*a.stride(), *b.stride())
    kernel[grid](a, b, out, M, N, K, *strides, BLOCK_M=16, BLOCK_N=32, BLOCK_K=32)
    return out


@triton.jit
def tile_product_last_kernel(
    a_ptr, b_ptr, out_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0).to(tl.int64)
    tiles_n = tl.cdiv(N, BLOCK_N)
    offs_m = pid // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
    mask_m, mask_n = offs_m < M, offs_n < N
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        mask_k = offs_k < K
        a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
        b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
        a = tl.load(a_ptrs, mask=mask_m[:, None] & mask_k[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=mask_k[:, None] & mask_n[None, :], other=0.0)
        acc = tl.dot(a, b)
    out_ptrs = out_ptr + offs_m[:, None] * N + offs_n[None, :]
    tl.store(out_ptrs, acc, mask=mask_m[:, None] & mask_n[None, :])


@wrong(
    "tile_product",
    reason="wrong-values",
    cause="does every step of the loop add to the sum?",
)
def keeps_only_the_last_step(a, b):
    return product(tile_product_last_kernel, a, b)


@triton.jit
def tile_product_no_k_mask_kernel(
    a_ptr, b_ptr, out_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0).to(tl.int64)
    tiles_n = tl.cdiv(N, BLOCK_N)
    offs_m = pid // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
    mask_m, mask_n = offs_m < M, offs_n < N
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        a = tl.load(
            a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak,
            mask=mask_m[:, None],
            other=0.0,
        )
        b = tl.load(
            b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn,
            mask=mask_n[None, :],
            other=0.0,
        )
        acc = tl.dot(a, b, acc)
    out_ptrs = out_ptr + offs_m[:, None] * N + offs_n[None, :]
    tl.store(out_ptrs, acc, mask=mask_m[:, None] & mask_n[None, :])


@wrong(
    "tile_product",
    reason="out-of-bounds",
    cause="must be false for every offset past the end",
)
def masks_only_the_tile(a, b):
    return product(tile_product_no_k_mask_kernel, a, b)


@wrong("tile_product", reason="wrong-values", cause="have changed places")
def swaps_the_strides_of_b(a, b):
    return product(
        right.tile_product_kernel, a, b, strides=(*a.stride(), b.stride(1), b.stride(0))
    )


@wrong(
    "tile_product", reason="wrong-values", cause="as if its elements lay side by side"
)
def takes_every_matrix_for_contiguous(a, b):
    return product(
        right.tile_product_kernel, a, b, strides=(a.shape[1], 1, b.shape[1], 1)
    )


@wrong(
    "tile_product",
    reason="not-written",
    cause="tiles of 16 x 32 elements, and",
)
def launches_too_few_tiles(a, b):
    return product(
        right.tile_product_kernel,
        a,
        b,
        tiles=max(1, a.shape[0] // 16) * max(1, b.shape[1] // 32),
    )


@wrong("tile_product", reason="torch")
def torch_multiplies_matrices(a, b):
    return torch.matmul(a, b)


@triton.jit
def tile_product_columns_kernel(
    a_ptr, b_ptr, out_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0).to(tl.int64)
    tiles_n = tl.cdiv(N, BLOCK_N)
    offs_m = pid % tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid // tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
    mask_m, mask_n = offs_m < M, offs_n < N
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        mask_k = offs_k < K
        a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
        b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
        a = tl.load(a_ptrs, mask=mask_m[:, None] & mask_k[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=mask_k[:, None] & mask_n[None, :], other=0.0)
        acc = tl.dot(a, b, acc)
    out_ptrs = out_ptr + offs_m[:, None] * N + offs_n[None, :]
    tl.store(out_ptrs, acc, mask=mask_m[:, None] & mask_n[None, :])


@wrong("tile_product", reason="not-written", cause="Their programs, row by row")
def takes_rows_for_columns(a, b):
    return product(tile_product_columns_kernel, a, b)


# The order of tiles


def ordered(kernel, shape, group, device):
    """Run a kernel with the parameters of `tile_order_kernel` and return its output."""
    out = torch.empty(shape[0] * shape[1], 2, dtype=torch.int32, device=device)
    kernel[(shape[0] * shape[1],)](out, *shape, GROUP=group)
    return out


@wrong("tile_order", reason="wrong-values", cause="without groups")
def goes_row_by_row(shape, group, device):
    return ordered(right.tile_order_kernel, shape, 1, device)


@triton.jit
def whole_groups_only_kernel(out_ptr, tiles_m, tiles_n, GROUP: tl.constexpr):
    tile = tl.program_id(0)
    per_group = GROUP * tiles_n
    tl.store(out_ptr + 2 * tile, tile // per_group * GROUP + tile % per_group % GROUP)
    tl.store(out_ptr + 2 * tile + 1, tile % per_group // GROUP)


@wrong(
    "tile_order", reason="wrong-values", cause="the last group is taken for a whole one"
)
def forgets_the_short_group(shape, group, device):
    return ordered(whole_groups_only_kernel, shape, group, device)


@triton.jit
def wrong_divisor_kernel(out_ptr, tiles_m, tiles_n, GROUP: tl.constexpr):
    tile = tl.program_id(0)
    per_group = GROUP * tiles_m
    first = tile // per_group * GROUP
    rows = tl.maximum(tl.minimum(tiles_m - first, GROUP), 1)
    tl.store(out_ptr + 2 * tile, first + tile % per_group % rows)
    tl.store(out_ptr + 2 * tile + 1, tile % per_group // rows)


@wrong("tile_order", reason="wrong-values", cause="has `GROUP` rows")
def counts_rows_for_columns(shape, group, device):
    return ordered(wrong_divisor_kernel, shape, group, device)


@triton.jit
def all_tiles_kernel(
    out_ptr, tiles_m, tiles_n, GROUP: tl.constexpr, BLOCK: tl.constexpr
):
    tile = tl.arange(0, BLOCK)
    per_group = GROUP * tiles_n
    first = tile // per_group * GROUP
    rows = tl.minimum(tiles_m - first, GROUP)
    mask = tile < tiles_m * tiles_n
    tl.store(out_ptr + 2 * tile, first + tile % per_group % rows, mask=mask)
    tl.store(out_ptr + 2 * tile + 1, tile % per_group // rows, mask=mask)


@wrong("tile_order", reason="one-program")
def one_program_orders_all(shape, group, device):
    count = shape[0] * shape[1]
    out = torch.empty(count, 2, dtype=torch.int32, device=device)
    all_tiles_kernel[(1,)](
        out, *shape, GROUP=group, BLOCK=triton.next_power_of_2(count)
    )
    return out


# A gated product


def gated(kernel, a, gate, b):
    """Run a kernel with the parameters of `gated_product_kernel` and return its
    output.
    """
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty(M, N, dtype=a.dtype, device=a.device)
    grid = (triton.cdiv(M, 16) * triton.cdiv(N, 32),)
    strides = (*a.stride(), *gate.stride(), *b.stride())
    kernel[grid](a, gate, b, out, M, N, K, *strides, BLOCK_M=16, BLOCK_N=32, BLOCK_K=32)
    return out


@wrong("gated_product", reason="wrong-values", cause="relu` belongs to `a @ gate`")
def gates_the_other(a, gate, b):
    return gated(right.gated_product_kernel, a, b, gate)


@wrong("gated_product", reason="torch")
def torch_applies_the_gate(a, gate, b):
    return torch.relu(right.tile_product(a, gate)) * right.tile_product(a, b)


@triton.jit
def gated_each_step_kernel(
    a_ptr, gate_ptr, b_ptr, out_ptr, M, N, K, stride_am, stride_ak, stride_gk,
    stride_gn, stride_bk, stride_bn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0).to(tl.int64)
    tiles_n = tl.cdiv(N, BLOCK_N)
    offs_m = pid // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
    mask_m, mask_n = offs_m < M, offs_n < N
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        mask_k = offs_k < K
        a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
        gate_ptrs = gate_ptr + offs_k[:, None] * stride_gk + offs_n[None, :] * stride_gn
        b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
        a = tl.load(a_ptrs, mask=mask_m[:, None] & mask_k[None, :], other=0.0)
        gate = tl.load(gate_ptrs, mask=mask_k[:, None] & mask_n[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=mask_k[:, None] & mask_n[None, :], other=0.0)
        gates = tl.dot(a, gate)
        acc += tl.where(gates > 0, gates, 0.0) * tl.dot(a, b)
    out_ptrs = out_ptr + offs_m[:, None] * N + offs_n[None, :]
    tl.store(out_ptrs, acc, mask=mask_m[:, None] & mask_n[None, :])


@wrong(
    "gated_product", reason="wrong-values", cause="every step of 32 columns is gated"
)
def gates_every_step(a, gate, b):
    return gated(gated_each_step_kernel, a, gate, b)


@wrong("gated_product", reason="not-a-tensor")
def returns_both_products(a, gate, b):
    return right.tile_product(a, gate), right.tile_product(a, b)


# Loops that leave something out


@triton.jit
def tile_product_part_kernel(
    a_ptr, b_ptr, out_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    FIRST: tl.constexpr, LEFT: tl.constexpr,
):  # fmt: skip
    """Begins FIRST steps late and ends LEFT steps early."""
    pid = tl.program_id(0).to(tl.int64)
    tiles_n = tl.cdiv(N, BLOCK_N)
    offs_m = pid // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
    mask_m, mask_n = offs_m < M, offs_n < N
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(FIRST * BLOCK_K, K - LEFT * BLOCK_K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        mask_k = offs_k < K
        a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
        b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
        a = tl.load(a_ptrs, mask=mask_m[:, None] & mask_k[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=mask_k[:, None] & mask_n[None, :], other=0.0)
        acc = tl.dot(a, b, acc)
    out_ptrs = out_ptr + offs_m[:, None] * N + offs_n[None, :]
    tl.store(out_ptrs, acc, mask=mask_m[:, None] & mask_n[None, :])


def part_of_product(a, b, first=0, left=0):
    """Run the kernel on some of the steps and return its output."""
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty(M, N, dtype=a.dtype, device=a.device)
    grid = (triton.cdiv(M, 16) * triton.cdiv(N, 32),)
    strides = (*a.stride(), *b.stride())
    blocks = {"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 32}
    tile_product_part_kernel[grid](
        a, b, out, M, N, K, *strides, **blocks, FIRST=first, LEFT=left
    )
    return out


@wrong("tile_product", reason="wrong-values", cause="does the loop go on to the end?")
def leaves_out_the_last_step(a, b):
    return part_of_product(a, b, left=1)


@wrong("tile_product", reason="wrong-values", cause="does every step of the loop add")
def leaves_out_the_first_step(a, b):
    return part_of_product(a, b, first=1)


@triton.jit
def matvec_without_x_kernel(
    a_ptr, x_ptr, out_ptr, M, K, stride_am, stride_ak, stride_x,
    BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    mask_m = offs_m < M
    acc = tl.zeros((BLOCK_M,), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
        mask = mask_m[:, None] & (offs_k < K)[None, :]
        acc += tl.sum(tl.load(a_ptrs, mask=mask, other=0.0).to(tl.float32), axis=1)
    tl.store(out_ptr + offs_m, acc, mask=mask_m)


@wrong("matvec", reason="wrong-values", cause="if every element of `x` were 1")
def forgets_the_vector(a, x):
    return times_vector(matvec_without_x_kernel, a, x)


# What only long sums, fine numbers and far columns show


@triton.jit
def tile_product_fault_kernel(
    a_ptr, b_ptr, out_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    FAULT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0).to(tl.int64)
    tiles_n = tl.cdiv(N, BLOCK_N)
    offs_m = pid // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
    mask_m, mask_n = offs_m < M, offs_n < N
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    end = tl.minimum(K, 2 * BLOCK_K) if FAULT == "two steps" else K
    for k in range(0, end, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        if FAULT != "32 bits":
            offs_k = offs_k.to(tl.int64)
        mask_k = offs_k < K
        if FAULT == "ends":
            mask_k &= (k == 0) | (k + BLOCK_K >= K)
        a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
        b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
        a = tl.load(a_ptrs, mask=mask_m[:, None] & mask_k[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=mask_k[:, None] & mask_n[None, :], other=0.0)
        if FAULT == "rounds":
            a, b = a.to(tl.bfloat16), b.to(tl.bfloat16)
        acc = tl.dot(a, b, acc)
    out_ptrs = out_ptr + offs_m[:, None] * N + offs_n[None, :]
    tl.store(out_ptrs, acc, mask=mask_m[:, None] & mask_n[None, :])


def product_with(fault, a, b):
    """Run the kernel with one fault and return its output."""
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty(M, N, dtype=a.dtype, device=a.device)
    grid = (triton.cdiv(M, 16) * triton.cdiv(N, 32),)
    tile_product_fault_kernel[grid](
        a, b, out, M, N, K, *a.stride(), *b.stride(), fault,
        BLOCK_M=16, BLOCK_N=32, BLOCK_K=32,
    )  # fmt: skip
    return out


@wrong("tile_product", reason="wrong-values")
def stops_after_two_steps(a, b):
    return product_with("two steps", a, b)


@wrong("tile_product", reason="wrong-values")
def adds_the_first_and_the_last_step(a, b):
    return product_with("ends", a, b)


@wrong("tile_product", reason="wrong-values")
def rounds_its_inputs_to_bf16(a, b):
    return product_with("rounds", a, b)


@wrong("tile_product", reason="int32-overflow")
def counts_columns_in_32_bits(a, b):
    return product_with("32 bits", a, b)


@triton.jit
def matvec_narrow_kernel(
    a_ptr, x_ptr, out_ptr, M, K, stride_am, stride_ak, stride_x,
    BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    mask_m = offs_m < M
    acc = tl.zeros((BLOCK_M,), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K).to(tl.int64)
        mask_k = offs_k < K
        a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
        a = tl.load(a_ptrs, mask=mask_m[:, None] & mask_k[None, :], other=0.0)
        x = tl.load(x_ptr + offs_k * stride_x, mask=mask_k, other=0.0)
        acc += tl.sum((a * x[None, :]).to(tl.float32), axis=1)
    tl.store(out_ptr + offs_m, acc, mask=mask_m)


@wrong("matvec", reason="wrong-values")
def widens_after_the_product(a, x):
    return times_vector(matvec_narrow_kernel, a, x)


@wrong("gated_product", reason="wrong-values")
def ignores_the_column_stride_of_a(a, gate, b):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty(M, N, dtype=a.dtype, device=a.device)
    grid = (triton.cdiv(M, 16) * triton.cdiv(N, 32),)
    strides = (a.stride(0), 1, *gate.stride(), *b.stride())
    right.gated_product_kernel[grid](
        a, gate, b, out, M, N, K, *strides, BLOCK_M=16, BLOCK_N=32, BLOCK_K=32
    )
    return out


# Work that is done twice, or by something else than the kernel


@triton.jit
def matvec_overlapping_kernel(
    a_ptr, x_ptr, out_ptr, M, K, stride_am, stride_ak, stride_x,
    BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0).to(tl.int64) * (BLOCK_M // 2) + tl.arange(0, BLOCK_M)
    mask_m = offs_m < M
    acc = tl.zeros((BLOCK_M,), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = (k + tl.arange(0, BLOCK_K)).to(tl.int64)
        mask_k = offs_k < K
        a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
        a = tl.load(a_ptrs, mask=mask_m[:, None] & mask_k[None, :], other=0.0).to(
            tl.float32
        )
        x = tl.load(x_ptr + offs_k * stride_x, mask=mask_k, other=0.0).to(tl.float32)
        acc += tl.sum(a * x[None, :], axis=1)
    tl.store(out_ptr + offs_m, acc, mask=mask_m)


@wrong("matvec", reason="stored-twice")
def rows_that_overlap(a, x):
    M, K = a.shape
    out = torch.empty(M, dtype=a.dtype, device=a.device)
    matvec_overlapping_kernel[(triton.cdiv(M, 8),)](
        a, x, out, M, K, *a.stride(), x.stride(0), BLOCK_M=16, BLOCK_K=32
    )
    return out


@wrong("matvec", reason="torch")
def torch_widens(a, x):
    out = torch.empty(a.shape[0], dtype=a.dtype, device=a.device)
    return times_vector(right.matvec_kernel, a.float(), x.float(), out)


@triton.jit
def tile_product_everything_kernel(
    a_ptr, b_ptr, out_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    tiles_n = tl.cdiv(N, BLOCK_N)
    for tile in range(tl.cdiv(M, BLOCK_M) * tiles_n):
        offs_m = (tile // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
        offs_n = (tile % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
        mask_m, mask_n = offs_m < M, offs_n < N
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, K, BLOCK_K):
            offs_k = (k + tl.arange(0, BLOCK_K)).to(tl.int64)
            mask_k = offs_k < K
            a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
            b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
            a = tl.load(a_ptrs, mask=mask_m[:, None] & mask_k[None, :], other=0.0)
            b = tl.load(b_ptrs, mask=mask_k[:, None] & mask_n[None, :], other=0.0)
            acc = tl.dot(a, b, acc)
        out_ptrs = out_ptr + offs_m[:, None] * N + offs_n[None, :]
        tl.store(out_ptrs, acc, mask=mask_m[:, None] & mask_n[None, :])


@wrong("tile_product", reason="stored-twice")
def every_program_does_every_tile(a, b):
    return product(tile_product_everything_kernel, a, b)


@wrong("tile_order", reason="stored-twice")
def every_program_orders_all(shape, group, device):
    count = shape[0] * shape[1]
    out = torch.empty(count, 2, dtype=torch.int32, device=device)
    all_tiles_kernel[(count,)](
        out, *shape, GROUP=group, BLOCK=triton.next_power_of_2(count)
    )
    return out


@wrong("tile_order", reason="host")
def python_orders_them(shape, group, device):
    order = right.tile_order_reference(shape, group, device)
    return strided_copy(order.flatten()).view(-1, 2)


@triton.jit
def gated_product_twice_kernel(
    a_ptr, gate_ptr, b_ptr, out_ptr, M, N, K, stride_am, stride_ak, stride_gk,
    stride_gn, stride_bk, stride_bn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0).to(tl.int64)
    tiles_n = tl.cdiv(N, BLOCK_N)
    offs_m = pid // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
    mask_m, mask_n = offs_m < M, offs_n < N
    gates = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = (k + tl.arange(0, BLOCK_K)).to(tl.int64)
        mask_k = offs_k < K
        mask_a = mask_m[:, None] & mask_k[None, :]
        mask_b = mask_k[:, None] & mask_n[None, :]
        a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
        gate_ptrs = gate_ptr + offs_k[:, None] * stride_gk + offs_n[None, :] * stride_gn
        b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
        a = tl.load(a_ptrs, mask=mask_a, other=0.0)
        gates = tl.dot(a, tl.load(gate_ptrs, mask=mask_b, other=0.0), gates)
        again = tl.load(a_ptrs, mask=mask_a, other=0.0)
        acc = tl.dot(again, tl.load(b_ptrs, mask=mask_b, other=0.0), acc)
    out_ptrs = out_ptr + offs_m[:, None] * N + offs_n[None, :]
    out = tl.where(gates <= 0, 0.0, gates) * acc
    tl.store(out_ptrs, out, mask=mask_m[:, None] & mask_n[None, :])


@wrong("gated_product", reason="read-twice")
def loads_a_for_each_product(a, gate, b):
    return gated(gated_product_twice_kernel, a, gate, b)


@triton.jit
def gate_kernel(gates_ptr, products_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    gates = tl.load(gates_ptr + offs, mask=mask).to(tl.float32)
    products = tl.load(products_ptr + offs, mask=mask).to(tl.float32)
    tl.store(out_ptr + offs, tl.where(gates <= 0, 0.0, gates) * products, mask=mask)


@wrong("gated_product", reason="launches")
def launches_three_kernels(a, gate, b):
    gates, products = right.tile_product(a, gate), right.tile_product(a, b)
    out = torch.empty_like(products)
    n = out.numel()
    gate_kernel[(triton.cdiv(n, 256),)](gates, products, out, n, BLOCK=256)
    return out
