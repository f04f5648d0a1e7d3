"""Attention's forward pass in plain Triton, for any GPU.

One kernel loads through pointers, the other through tensor descriptors where the GPU
has a copy engine (TMA) that can read the tensors.
"""

import functools
from collections.abc import Callable

import torch
import triton
import triton.language as tl

from ..gpu import shared_limit
from ..launch import TensorSpec, launcher, placeholder, tensor_spec
from .common import LOG2_E, descriptor, fetches, padded, readable

# The maximum of a row that has seen no key yet. It is finite: -inf - -inf would be NaN.
LOWEST = tl.constexpr(torch.finfo(torch.float32).min)


@triton.jit
def rows_of(x_ptr, b, h, rows, stride_b, stride_h, stride_row, BLOCK_D: tl.constexpr):
    """Return pointers to the rows of one head, [len(rows), BLOCK_D]."""
    # Each of the products can pass 2**31.
    head_ptr = x_ptr + b.to(tl.int64) * stride_b + h.to(tl.int64) * stride_h
    row_ptrs = head_ptr + rows.to(tl.int64)[:, None] * stride_row
    return row_ptrs + tl.arange(0, BLOCK_D)[None, :]


@triton.jit
def hide(scores, offs_m, offs_n, M, N, IS_CAUSAL: tl.constexpr):
    """Return scores, [queries, keys], with -inf where a query does not see a key."""
    seen = (offs_n < N)[None, :]
    if IS_CAUSAL:
        seen &= offs_n[None, :] <= offs_m[:, None] + (N - M)
    return tl.where(seen, scores, -float("inf"))


@triton.jit
def keys_seen(
    first, M, N, IS_CAUSAL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    """Return the ends of two ranges of keys for the BLOCK_M queries from `first` on.

    All of these queries see every key up to the first end, a multiple of BLOCK_N: no
    mask is needed. Some of them see keys up to the second end.
    """
    unmasked_end, end = N, N
    if IS_CAUSAL:
        unmasked_end = tl.minimum(N, tl.maximum(0, first + 1 + (N - M)))
        end = tl.minimum(N, tl.maximum(0, first + BLOCK_M + (N - M)))
    return unmasked_end // BLOCK_N * BLOCK_N, end


@triton.jit
def online_softmax_update(acc, row_sum, row_max, products, v, scale):
    """Return acc, row_sum and row_max of a tile of queries after one more tile of keys.

    With p = exp2(products * scale - row_max): acc is the sum of p times v, row_sum the
    sum of p. products: q @ k.T; scale contains log2(e), so that one multiply-add makes
    the exponent.
    """
    new_max = tl.maximum(row_max, tl.max(products, 1) * scale)
    p = tl.exp2(products * scale - new_max[:, None])
    alpha = tl.exp2(row_max - new_max)
    row_sum = row_sum * alpha + tl.sum(p, 1)
    acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None], input_precision="ieee")
    return acc, row_sum, new_max


@triton.jit
def normalize(acc, row_sum, row_max):
    """Return rows of out and their lse2, the log2 of the sum of exp(score).

    A row that sees no key gets 0 and +inf: exp2(score - lse2) is 0 there.
    """
    sees_nothing = row_sum == 0
    out = acc * (1 / tl.where(sees_nothing, 1.0, row_sum))[:, None]
    lse2 = tl.where(sees_nothing, float("inf"), row_max + tl.log2(row_sum))
    return out, lse2


@triton.jit
def own_tile(M, heads, IS_CAUSAL: tl.constexpr, BLOCK_M: tl.constexpr):
    """Return the first query, the batch and the head of this program.

    Causal queries that see the most keys go first, so that the last programs are short.
    """
    tiles = tl.cdiv(M, BLOCK_M)
    pid = tl.program_id(0)
    pid_m = pid % tiles
    if IS_CAUSAL:
        pid_m = tiles - 1 - pid_m
    pid_bh = pid // tiles
    return pid_m * BLOCK_M, pid_bh // heads, pid_bh % heads


@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, lse2_ptr, scale, heads, heads_per_kv, M, N,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, D: tl.constexpr, IS_CAUSAL: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Each program writes BLOCK_M rows of one head of out, and their lse2.

    q_ptr: [B, heads, M, D]; k_ptr, v_ptr: [B, heads / heads_per_kv, N, D]; elements of
    a row side by side. out_ptr: [B, heads, M, D]; lse2_ptr: [B, heads, M], fp32;
    contiguous. BLOCK_D: a power of two from D on. scale: above 0, contains log2(e). The
    grid is (ceil(M / BLOCK_M) * B * heads,).
    """
    first, b, h = own_tile(M, heads, IS_CAUSAL, BLOCK_M)
    offs_m = first + tl.arange(0, BLOCK_M)
    mask_m = (offs_m < M)[:, None]
    mask_d = (tl.arange(0, BLOCK_D) < D)[None, :]
    h_kv = h // heads_per_kv
    q_ptrs = rows_of(q_ptr, b, h, offs_m, stride_qb, stride_qh, stride_qm, BLOCK_D)
    q = tl.load(q_ptrs, mask=mask_m & mask_d, other=0.0)
    acc = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    row_sum = tl.zeros((BLOCK_M,), tl.float32)
    row_max = tl.full((BLOCK_M,), LOWEST, tl.float32)
    unmasked_end, end = keys_seen(first, M, N, IS_CAUSAL, BLOCK_M, BLOCK_N)
    for EDGE in tl.static_range(2):
        for start in range(
            unmasked_end if EDGE else 0, end if EDGE else unmasked_end, BLOCK_N
        ):
            offs_n = start + tl.arange(0, BLOCK_N)
            mask = (offs_n < N)[:, None] & mask_d if EDGE else mask_d
            k_ptrs = rows_of(
                k_ptr, b, h_kv, offs_n, stride_kb, stride_kh, stride_kn, BLOCK_D
            )
            v_ptrs = rows_of(
                v_ptr, b, h_kv, offs_n, stride_vb, stride_vh, stride_vn, BLOCK_D
            )
            k = tl.load(k_ptrs, mask=mask, other=0.0)
            products = tl.dot(q, k.T, input_precision="ieee")
            if EDGE:
                products = hide(products, offs_m, offs_n, M, N, IS_CAUSAL)
            v = tl.load(v_ptrs, mask=mask, other=0.0)
            acc, row_sum, row_max = online_softmax_update(
                acc, row_sum, row_max, products, v, scale
            )
    out, lse2 = normalize(acc, row_sum, row_max)
    stride_oh = tl.cast(M, tl.int64) * D
    out_ptrs = rows_of(out_ptr, b, h, offs_m, stride_oh * heads, stride_oh, D, BLOCK_D)
    tl.store(out_ptrs, out.to(out_ptr.dtype.element_ty), mask=mask_m & mask_d)
    lse2_ptrs = lse2_ptr + (b * heads + h).to(tl.int64) * M + offs_m
    tl.store(lse2_ptrs, lse2, mask=offs_m < M)


@triton.jit
def attention_descriptor_kernel(
    q_desc, k_desc, v_desc, out_desc, lse2_ptr, scale, heads, heads_per_kv, M, N,
    IS_CAUSAL: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Each program writes BLOCK_M rows of one head of out, and their lse2.

    The copy engine (TMA) computes the addresses and masks the edges.
    q_desc, out_desc: blocks of [1, 1, BLOCK_M, BLOCK_D]; k_desc, v_desc: of
    [1, 1, BLOCK_N, BLOCK_D]; one dtype. Other arguments and the grid are those of
    attention_kernel.
    """
    first, b, h = own_tile(M, heads, IS_CAUSAL, BLOCK_M)
    offs_m = first + tl.arange(0, BLOCK_M)
    q = q_desc.load([b, h, first, 0]).reshape(BLOCK_M, BLOCK_D)
    acc = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    row_sum = tl.zeros((BLOCK_M,), tl.float32)
    row_max = tl.full((BLOCK_M,), LOWEST, tl.float32)
    unmasked_end, end = keys_seen(first, M, N, IS_CAUSAL, BLOCK_M, BLOCK_N)
    for EDGE in tl.static_range(2):
        for start in range(
            unmasked_end if EDGE else 0, end if EDGE else unmasked_end, BLOCK_N
        ):
            k = k_desc.load([b, h // heads_per_kv, start, 0]).reshape(BLOCK_N, BLOCK_D)
            products = tl.dot(q, k.T)
            if EDGE:
                offs_n = start + tl.arange(0, BLOCK_N)
                products = hide(products, offs_m, offs_n, M, N, IS_CAUSAL)
            v = v_desc.load([b, h // heads_per_kv, start, 0]).reshape(BLOCK_N, BLOCK_D)
            acc, row_sum, row_max = online_softmax_update(
                acc, row_sum, row_max, products, v, scale
            )
    out, lse2 = normalize(acc, row_sum, row_max)
    out_desc.store(
        [b, h, first, 0], out.to(out_desc.dtype).reshape(1, 1, BLOCK_M, BLOCK_D)
    )
    lse2_ptrs = lse2_ptr + (b * heads + h).to(tl.int64) * M + offs_m
    tl.store(lse2_ptrs, lse2, mask=offs_m < M)


def attention_portable(q, k, v, out, lse2, causal: bool, scale: float) -> None:
    """Write attention to out and lse2 with the kernels of this file; scale: above 0."""
    launch = launcher_for(*map(tensor_spec, (q, k, v, out, lse2)), causal)
    launch((q, k, v, out), lse2, scale * LOG2_E.value)


@functools.lru_cache(maxsize=1024)
def launcher_for(
    q: TensorSpec,
    k: TensorSpec,
    v: TensorSpec,
    out: TensorSpec,
    lse2: TensorSpec,
    causal: bool,
) -> Callable[..., None]:
    """Return the function `launch((q, k, v, out), lse2, scale)`.

    Each program computes one tile of queries. Where the copy engine can read tensors of
    these specs, the kernel for it is launched.
    """
    B, H, M, D = q.shape
    by_copy_engine = suits_descriptors(q, k, v)
    config = config_for(by_copy_engine, D, q.dtype, q.device)
    BLOCK_M, BLOCK_N = config.kwargs["BLOCK_M"], config.kwargs["BLOCK_N"]
    grid = (triton.cdiv(M, BLOCK_M) * B * H, 1, 1)
    tensors, rest = (q, k, v, out), (placeholder(lse2), 1.0)
    sizes = (H, H // k.shape[1], M, k.shape[2])
    options = {"num_warps": config.num_warps, "num_stages": config.num_stages}
    if by_copy_engine:
        constants = (*sizes, causal, BLOCK_M, BLOCK_N, padded(D))
        described = tuple(
            functools.partial(descriptor, BLOCK=rows)
            for rows in (BLOCK_M, BLOCK_N, BLOCK_N, BLOCK_M)
        )
        kernel = attention_descriptor_kernel
        return launcher(kernel, grid, tensors, rest, constants, described, **options)
    strides = (stride for t in (q, k, v) for stride in t.strides[:3])
    constants = (*sizes, *strides, D, causal, BLOCK_M, BLOCK_N, padded(D))
    return launcher(attention_kernel, grid, tensors, rest, constants, **options)


def config(
    BLOCK_M: int, BLOCK_N: int, num_warps: int, num_stages: int
) -> triton.Config:
    blocks = {"BLOCK_M": BLOCK_M, "BLOCK_N": BLOCK_N}
    return triton.Config(blocks, num_warps=num_warps, num_stages=num_stages)


BARRIERS = 2048  # bytes of shared memory that barriers need at most

# By the largest D they are for. The first that fits the shared memory is taken.
CONFIGS = {
    64: [config(128, 64, 4, 3), config(64, 64, 4, 2)],
    128: [config(128, 64, 8, 3), config(128, 32, 8, 3), config(64, 32, 4, 2)],
    256: [config(64, 64, 8, 2), config(64, 32, 8, 2), config(32, 32, 4, 1)],
}
DESCRIPTOR_CONFIGS = {
    64: [config(64, 128, 4, 2)],
    128: [config(64, 64, 4, 3)],
    256: [config(128, 64, 8, 2)],
}
SCALAR_CONFIG = config(16, 32, 4, 1)  # without tensor cores, operands lie in registers
CPU_CONFIG = config(16, 16, 4, 1)


@functools.lru_cache(maxsize=1024)
def config_for(
    described: bool, D: int, dtype: torch.dtype, device: torch.device
) -> triton.Config:
    """Return the tiles for queries of D elements on this device.

    described: whether its copy engine loads them.
    """
    if device.type != "cuda":
        return CPU_CONFIG
    if dtype == torch.float32 or torch.cuda.get_device_capability(device) < (8, 0):
        return SCALAR_CONFIG
    table = DESCRIPTOR_CONFIGS if described else CONFIGS
    configs = next(table[largest] for largest in table if largest >= D)
    return next(
        one for one in configs if shared_bytes(one, D, dtype) <= shared_limit(device)
    )


def suits_descriptors(q: TensorSpec, k: TensorSpec, v: TensorSpec) -> bool:
    """Return whether the copy engine can read q, k, v and write the result."""
    if q.shape[3] % 8 != 0 or not fetches(q.dtype, q.device):
        return False
    return all(readable(placeholder(t)) for t in (q, k, v))


def shared_bytes(config: triton.Config, D: int, dtype: torch.dtype) -> int:
    """Return the most bytes of shared memory that a program of `attention_kernel`
    needs: a tile of queries, and the stages of k and v."""
    rows = config.kwargs["BLOCK_M"] + 2 * config.num_stages * config.kwargs["BLOCK_N"]
    return rows * padded(D) * dtype.itemsize + BARRIERS
