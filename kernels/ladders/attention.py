"""The first rungs of attention: one loop over all keys, then two loops for causal
attention."""

import triton
import triton.language as tl

from ..attention.forward import LOWEST, hide, keys_seen, rows_of


@triton.jit
def online_softmax_update(acc, row_sum, row_max, scores, v):
    """Return acc, row_sum and row_max of a tile of queries after one more tile of keys.

    With p = exp(scores - row_max): acc is the sum of p times v, row_sum the sum of p.
    """
    new_max = tl.maximum(row_max, tl.max(scores, 1))
    p = tl.exp(scores - new_max[:, None])
    alpha = tl.exp(row_max - new_max)
    row_sum = row_sum * alpha + tl.sum(p, 1)
    acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None], input_precision="ieee")
    return acc, row_sum, new_max


@triton.jit
def attention_tile_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, scale, heads, M, N,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    D: tl.constexpr, IS_CAUSAL: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Each program writes BLOCK_M rows of one head of out, in one loop over all keys.

    q_ptr, out_ptr: [B, heads, M, D]; k_ptr, v_ptr: [B, heads, N, D]; one dtype;
    elements of a row side by side. D: a power of two from 16 on. The grid is (ceil(M /
    BLOCK_M), B * heads).
    """
    pid_m, pid_bh = tl.program_id(0), tl.program_id(1)
    b, h = pid_bh // heads, pid_bh % heads
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    mask_m = (offs_m < M)[:, None]
    q_ptrs = rows_of(q_ptr, b, h, offs_m, stride_qb, stride_qh, stride_qm, D)
    q = tl.load(q_ptrs, mask=mask_m, other=0.0)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    row_sum = tl.zeros((BLOCK_M,), tl.float32)
    row_max = tl.full((BLOCK_M,), LOWEST, tl.float32)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask_n = (offs_n < N)[:, None]
        k_ptrs = rows_of(k_ptr, b, h, offs_n, stride_kb, stride_kh, stride_kn, D)
        v_ptrs = rows_of(v_ptr, b, h, offs_n, stride_vb, stride_vh, stride_vn, D)
        k = tl.load(k_ptrs, mask=mask_n, other=0.0)
        v = tl.load(v_ptrs, mask=mask_n, other=0.0)
        scores = tl.dot(q, k.T, input_precision="ieee") * scale  # [BLOCK_M, BLOCK_N]
        scores = hide(scores, offs_m, offs_n, M, N, IS_CAUSAL)
        acc, row_sum, row_max = online_softmax_update(acc, row_sum, row_max, scores, v)
    # A row that sees no key has the sum 0.
    out = acc * (1 / tl.where(row_sum == 0, 1.0, row_sum))[:, None]
    out_ptrs = rows_of(out_ptr, b, h, offs_m, stride_ob, stride_oh, stride_om, D)
    tl.store(out_ptrs, out.to(out_ptr.dtype.element_ty), mask=mask_m)


@triton.jit
def attention_causal_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, scale, heads, M, N,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    D: tl.constexpr, IS_CAUSAL: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Each program loops over the keys that all its rows see, without a mask, then over
    those that some of its rows see, with one.

    Arguments and grid are those of attention_tile_kernel.
    """
    pid_m, pid_bh = tl.program_id(0), tl.program_id(1)
    b, h = pid_bh // heads, pid_bh % heads
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    mask_m = (offs_m < M)[:, None]
    q_ptrs = rows_of(q_ptr, b, h, offs_m, stride_qb, stride_qh, stride_qm, D)
    q = tl.load(q_ptrs, mask=mask_m, other=0.0)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    row_sum = tl.zeros((BLOCK_M,), tl.float32)
    row_max = tl.full((BLOCK_M,), LOWEST, tl.float32)
    unmasked_end, end = keys_seen(pid_m * BLOCK_M, M, N, IS_CAUSAL, BLOCK_M, BLOCK_N)
    for EDGE in tl.static_range(2):
        for start in range(
            unmasked_end if EDGE else 0, end if EDGE else unmasked_end, BLOCK_N
        ):
            offs_n = start + tl.arange(0, BLOCK_N)
            mask_n = (offs_n < N)[:, None] if EDGE else None
            other = 0.0 if EDGE else None
            k_ptrs = rows_of(k_ptr, b, h, offs_n, stride_kb, stride_kh, stride_kn, D)
            v_ptrs = rows_of(v_ptr, b, h, offs_n, stride_vb, stride_vh, stride_vn, D)
            k = tl.load(k_ptrs, mask=mask_n, other=other)
            v = tl.load(v_ptrs, mask=mask_n, other=other)
            scores = tl.dot(q, k.T, input_precision="ieee") * scale
            if EDGE:
                scores = hide(scores, offs_m, offs_n, M, N, IS_CAUSAL)
            acc, row_sum, row_max = online_softmax_update(
                acc, row_sum, row_max, scores, v
            )
    out = acc * (1 / tl.where(row_sum == 0, 1.0, row_sum))[:, None]
    out_ptrs = rows_of(out_ptr, b, h, offs_m, stride_ob, stride_oh, stride_om, D)
    tl.store(out_ptrs, out.to(out_ptr.dtype.element_ty), mask=mask_m)
