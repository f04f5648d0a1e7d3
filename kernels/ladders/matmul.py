"""Matmul on the way to the kernels that ship.

One element a program; one tile a program; autotuned; persistent.
"""

import triton
import triton.language as tl

from ..gpu import shared_limit
from ..matmul import CONFIGS, matmul_kernel, shared_bytes, tile_origin


@triton.jit
def matmul_element_kernel(
    a_ptr, b_ptr, out_ptr, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_om, stride_on,
    BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Each program writes one element of out: a row of a times a column of b.

    a_ptr: [M, K]; b_ptr: [K, N]; out_ptr: [M, N]; any strides, one dtype.
    """
    pid = tl.program_id(0).to(tl.int64)
    pid_m, pid_n = pid // N, pid % N
    acc = tl.zeros((BLOCK_K,), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K).to(tl.int64)
        mask_k = offs_k < K
        a_ptrs = a_ptr + pid_m * stride_am + offs_k * stride_ak
        b_ptrs = b_ptr + offs_k * stride_bk + pid_n * stride_bn
        a = tl.load(a_ptrs, mask=mask_k, other=0.0)
        b = tl.load(b_ptrs, mask=mask_k, other=0.0)
        acc += a.to(tl.float32) * b.to(tl.float32)
    out = tl.sum(acc, 0).to(out_ptr.dtype.element_ty)
    # Every program has an element: the grid is as large as out.
    tl.store(out_ptr + pid_m * stride_om + pid_n * stride_on, out)


@triton.jit
def matmul_tile_kernel(
    a_ptr, b_ptr, out_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_om, stride_on,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Each program writes one tile of out, [BLOCK_M, BLOCK_N].

    It computes every address anew.
    a_ptr: [M, K]; b_ptr: [K, N]; out_ptr: [M, N]; any strides, one dtype.
    """
    pid = tl.program_id(0).to(tl.int64)
    tiles_n = tl.cdiv(N, BLOCK_N)
    offs_m = pid // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
    mask_m, mask_n = offs_m < M, offs_n < N
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K).to(tl.int64)
        mask_k = offs_k < K
        a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
        b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
        a = tl.load(a_ptrs, mask=mask_m[:, None] & mask_k[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=mask_k[:, None] & mask_n[None, :], other=0.0)
        acc = tl.dot(a, b, acc)
    mask = mask_m[:, None] & mask_n[None, :]
    out_ptrs = out_ptr + offs_m[:, None] * stride_om + offs_n[None, :] * stride_on
    tl.store(out_ptrs, acc.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def matmul_increment_kernel(
    a_ptr, b_ptr, out_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_om, stride_on,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Each program writes one tile of out, and moves its pointers along K.

    a_ptr: [M, K]; b_ptr: [K, N]; out_ptr: [M, N]; any strides, one dtype.
    """
    pid = tl.program_id(0).to(tl.int64)
    tiles_n = tl.cdiv(N, BLOCK_N)
    offs_m = pid // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K).to(tl.int64)
    mask_m, mask_n = offs_m < M, offs_n < N
    a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
    b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        mask_k = offs_k < K - k
        a = tl.load(a_ptrs, mask=mask_m[:, None] & mask_k[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=mask_k[:, None] & mask_n[None, :], other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += BLOCK_K * tl.cast(stride_ak, tl.int64)
        b_ptrs += BLOCK_K * tl.cast(stride_bk, tl.int64)
    mask = mask_m[:, None] & mask_n[None, :]
    out_ptrs = out_ptr + offs_m[:, None] * stride_om + offs_n[None, :] * stride_on
    tl.store(out_ptrs, acc.to(out_ptr.dtype.element_ty), mask=mask)


def prune(
    configs: list[triton.Config], arguments: dict, **options
) -> list[triton.Config]:
    """Return the configurations that fit the shared memory of the GPU of `a_ptr`.

    Autotune tries no others.
    """
    a = arguments["a_ptr"]
    limit = shared_limit(a.device)
    return [one for one in configs if shared_bytes(one, a.element_size()) <= limit]


matmul_autotuned_kernel = triton.autotune(
    CONFIGS[:-1],
    key=["M", "N", "K"],
    prune_configs_by={"early_config_prune": prune},
)(matmul_kernel)


@triton.jit
def matmul_persistent_kernel(
    a_desc, b_desc, out_desc, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):  # fmt: skip
    """Each program of P writes every P-th tile of out.

    The copy engine (TMA) finds the addresses and masks the edges.
    a_desc: blocks of [BLOCK_M, BLOCK_K]; b_desc: [BLOCK_K, BLOCK_N]; out_desc:
    [BLOCK_M, BLOCK_N]; one dtype.
    """
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    first, programs = tl.program_id(0), tl.num_programs(0)
    for tile in tl.range(first, tiles_m * tiles_n, programs, flatten=True):
        pid_m, pid_n = tile_origin(tile, tiles_m, tiles_n, GROUP_M)
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, K, BLOCK_K):
            a = a_desc.load([pid_m * BLOCK_M, k])
            b = b_desc.load([k, pid_n * BLOCK_N])
            acc = tl.dot(a, b, acc)
        out = acc.to(out_desc.dtype)
        out_desc.store([pid_m * BLOCK_M, pid_n * BLOCK_N], out)
