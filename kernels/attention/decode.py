"""Attention for few queries, as when a text is continued: programs share out the keys.

With one program a tile of queries, few queries would keep most of the GPU idle. So each
program reads a part of the keys, and a second kernel merges the parts: it needs the
attention of each part and its lse2, the log2 of the sum of exp(score).
"""

import functools
from collections.abc import Callable

import torch
import triton
import triton.language as tl

from ..gpu import shared_limit
from ..launch import TensorSpec, launcher, tensor_spec
from .common import LOG2_E, padded

FEW = 16  # queries, at most
PROGRAMS = 2  # that a multiprocessor holds at a time
LEAST = 256  # keys of a part, at least
SECOND_AXIS = 65_535  # programs of a grid along its second axis, at most


@triton.jit
def online_softmax_update(acc, row_sum, row_max, q, k, v, hidden, scale):
    """Return acc, row_sum and row_max of a tile of queries after one more tile of keys.

    With p = exp2(score - row_max): acc is the sum of p times v, row_sum the sum of p. A
    row that has seen no key has the maximum -inf, and subtracts 0: -inf - -inf would be
    NaN.
    """
    scores = tl.where(hidden, -float("inf"), tl.dot(q, k.T) * scale)
    new_max = tl.maximum(row_max, tl.max(scores, 1))
    base = tl.where(new_max == -float("inf"), 0.0, new_max)
    p = tl.exp2(scores - base[:, None])
    alpha = tl.exp2(row_max - base)
    acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
    return acc, row_sum * alpha + tl.sum(p, 1), new_max


@triton.jit
def attention_part_kernel(
    q_ptr, k_ptr, v_ptr, part_ptr, lse2_ptr, scale, heads_kv, heads_per_kv, M, N,
    keys_per_part, stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, D: tl.constexpr, IS_CAUSAL: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Each program writes the attention of BLOCK_M rows to one part of the keys, and
    its lse2.

    Rows are the queries of all heads_per_kv heads that read one head of keys: these
    keys are loaded once. A part has keys_per_part keys. q_ptr: [B, heads_kv *
    heads_per_kv, M, D]; k_ptr, v_ptr: [B, heads_kv, N, D]; elements of a row side by
    side. part_ptr: [parts, B, heads_kv, heads_per_kv * M, D]; lse2_ptr: [parts, B,
    heads_kv, heads_per_kv * M]; fp32, contiguous. scale contains log2(e). The grid is
    (parts, B * heads_kv, ceil(heads_per_kv * M / BLOCK_M)).
    """
    part, bh = tl.program_id(0), tl.program_id(1)
    b, h_kv = (bh // heads_kv).to(tl.int64), (bh % heads_kv).to(tl.int64)
    rows = tl.program_id(2) * BLOCK_M + tl.arange(0, BLOCK_M)
    # Widen before multiplying: a query times its stride can pass 2**31.
    head, query = h_kv * heads_per_kv + rows // M, (rows % M).to(tl.int64)
    offs_d = tl.arange(0, BLOCK_D)
    mask_m, mask_d = (rows < heads_per_kv * M)[:, None], (offs_d < D)[None, :]
    q_offsets = b * stride_qb + head * stride_qh + query * stride_qm
    q_ptrs = q_ptr + q_offsets[:, None] + offs_d[None, :]
    q = tl.load(q_ptrs, mask=mask_m & mask_d, other=0.0)
    # Each row sees the keys before this one.
    seen = query + (N - M) + 1 if IS_CAUSAL else query * 0 + N
    acc = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    row_sum = tl.zeros((BLOCK_M,), tl.float32)
    row_max = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    first_key = part * keys_per_part
    for start in range(first_key, tl.minimum(first_key + keys_per_part, N), BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = (offs_n < N)[:, None] & mask_d
        offsets = offs_n.to(tl.int64)[:, None]
        k_offsets = b * stride_kb + h_kv * stride_kh + offsets * stride_kn
        v_offsets = b * stride_vb + h_kv * stride_vh + offsets * stride_vn
        k = tl.load(k_ptr + k_offsets + offs_d[None, :], mask, other=0.0)
        v = tl.load(v_ptr + v_offsets + offs_d[None, :], mask, other=0.0)
        hidden = offs_n[None, :] >= seen[:, None]
        acc, row_sum, row_max = online_softmax_update(
            acc, row_sum, row_max, q, k, v, hidden, scale
        )
    out = acc / tl.where(row_sum == 0, 1.0, row_sum)[:, None]
    first = (part * tl.num_programs(1) + bh).to(tl.int64) * heads_per_kv * M + rows
    tl.store(part_ptr + first[:, None] * D + offs_d[None, :], out, mask=mask_m & mask_d)
    lse2 = row_max + tl.log2(row_sum)  # -inf where no key was seen
    tl.store(lse2_ptr + first, lse2, mask=rows < heads_per_kv * M)


@triton.jit(do_not_specialize=["parts"])
def attention_merge_kernel(
    part_ptr, part_lse2_ptr, out_ptr, lse2_ptr, parts,
    D: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Each program writes one row: the mean of its parts, weighted by exp2(lse2).

    part_ptr: [parts, rows, D]; part_lse2_ptr: [parts, rows]; lse2_ptr: [rows]; fp32.
    out_ptr: [rows, D]. All are contiguous. The grid is (rows,).
    """
    row, rows = tl.program_id(0).to(tl.int64), tl.num_programs(0)
    offs_d = tl.arange(0, BLOCK_D)
    mask_d = (offs_d < D)[None, :]
    acc = tl.zeros((BLOCK_D,), tl.float32)
    row_sum, row_max = 0.0, -float("inf")
    for start in range(0, parts, BLOCK_P):
        offs_p = start + tl.arange(0, BLOCK_P)
        mask_p = offs_p < parts
        offsets = offs_p.to(tl.int64) * rows + row
        lse2 = tl.load(part_lse2_ptr + offsets, mask=mask_p, other=-float("inf"))
        part_ptrs = part_ptr + offsets[:, None] * D + offs_d[None, :]
        part = tl.load(part_ptrs, mask=mask_p[:, None] & mask_d, other=0.0)
        new_max = tl.maximum(row_max, tl.max(lse2, 0))
        base = tl.where(new_max == -float("inf"), 0.0, new_max)
        weights, alpha = tl.exp2(lse2 - base), tl.exp2(row_max - base)
        acc = acc * alpha + tl.sum(part * weights[:, None], 0)
        row_sum = row_sum * alpha + tl.sum(weights, 0)
        row_max = new_max
    sees_nothing = row_sum == 0
    out = acc / tl.where(sees_nothing, 1.0, row_sum)
    lse2 = tl.where(sees_nothing, float("inf"), row_max + tl.log2(row_sum))
    tl.store(out_ptr + row * D + offs_d, out.to(out_ptr.dtype.element_ty), offs_d < D)
    tl.store(lse2_ptr + row, lse2)


def attention_decode(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse2: torch.Tensor,
    causal: bool,
    scale: float,
) -> None:
    """Write attention to out, [B, H, M, D], and its lse2, [B, H, M], fp32.

    q: [B, H, M, D]; k, v: [B, H_kv, N, D]; not empty, fp16 or bf16, on one
    GPU; M is small. Elements of a row lie side by side. out and lse2 are contiguous.
    A query that sees no key gets 0 and the lse2 +inf. scale: any. `attention` checks
    all that.

    Source: T. Dao, D. Haziza, F. Massa and G. Sizov, "Flash-Decoding for long-context
    inference", 2023.
    """
    begin, merge, shape = launchers_for(*map(tensor_spec, (q, k, v, out, lse2)), causal)
    parts = torch.empty(shape, dtype=torch.float32, device=q.device)
    part_lse2 = torch.empty(shape[:-1], dtype=torch.float32, device=q.device)
    begin((q, k, v, parts, part_lse2), scale * LOG2_E.value)
    merge((parts, part_lse2, out, lse2))


def suits_decode(q: TensorSpec, k: TensorSpec) -> bool:
    """Return whether these queries are few, and `attention_decode` can serve them.

    It needs tensor cores, and at least one key.
    """
    if (
        q.device.type != "cuda"
        or q.dtype == torch.float32
        or torch.cuda.get_device_capability(q.device) < (8, 0)
    ):
        return False
    B, H_kv, N, _ = k.shape
    return q.shape[2] <= FEW and N > 0 and B * H_kv <= SECOND_AXIS


@functools.lru_cache(maxsize=1024)
def launchers_for(
    q: TensorSpec,
    k: TensorSpec,
    v: TensorSpec,
    out: TensorSpec,
    lse2: TensorSpec,
    causal: bool,
) -> tuple[Callable[..., None], Callable[..., None], tuple[int, ...]]:
    """Return the functions that launch both kernels, and the shape of the parts."""
    (B, H, M, D), (H_kv, N) = q.shape, k.shape[1:3]
    rows = H // H_kv * M
    blocks = tile_shape(rows, D)
    BLOCK_M, _, BLOCK_D = blocks
    tiles = triton.cdiv(rows, BLOCK_M)
    keys = keys_of_a_part(N, B * H_kv * tiles, q.device)
    parts = triton.cdiv(N, keys)
    shape = (parts, B, H_kv, rows, D)
    strides = (stride for t in (q, k, v) for stride in t.strides[:3])
    part, part_lse2 = (
        TensorSpec(s, (), torch.float32, q.device, aligned=True)
        for s in (shape, shape[:-1])
    )
    begin = launcher(
        attention_part_kernel,
        (parts, B * H_kv, tiles),
        (q, k, v, part, part_lse2),
        rest=(1.0,),
        constants=(H_kv, H // H_kv, M, N, keys, *strides, D, causal, *blocks),
        num_warps=4,
        num_stages=stages_for(*blocks, q.device),
    )
    merge = launcher(
        attention_merge_kernel,
        (B * H * M, 1, 1),
        (part, part_lse2, out, lse2),
        constants=(parts, D, min(32, triton.next_power_of_2(parts)), BLOCK_D),
    )
    return begin, merge, shape


def tile_shape(rows: int, D: int) -> tuple[int, int, int]:
    """Return BLOCK_M, BLOCK_N, BLOCK_D for `rows` that read one head of keys."""
    BLOCK_D = padded(D)
    most, BLOCK_N = (64, 64) if BLOCK_D <= 128 else (32, 32)
    return min(most, max(16, triton.next_power_of_2(rows))), BLOCK_N, BLOCK_D


def keys_of_a_part(N: int, programs: int, device: torch.device) -> int:
    """Return how many keys a program reads. With all keys it would take `programs`."""
    if device.type != "cuda":
        return LEAST
    sms = torch.cuda.get_device_properties(device).multi_processor_count
    # All programs at a time. If they are too many, two parts: they do not end together.
    parts = min(max(PROGRAMS * sms // programs, 2), triton.cdiv(N, LEAST))
    return triton.cdiv(triton.cdiv(N, parts), 64) * 64


def stages_for(BLOCK_M: int, BLOCK_N: int, BLOCK_D: int, device: torch.device) -> int:
    """Return how many tiles of keys and values are loaded ahead.

    Two programs must fit the shared memory of a multiprocessor.
    """
    if device.type != "cuda":
        return 1
    return max(
        1,
        min(
            4,
            (shared_limit(device) // 2 - 2 * BLOCK_M * BLOCK_D)
            // (4 * BLOCK_N * BLOCK_D),
        ),
    )
