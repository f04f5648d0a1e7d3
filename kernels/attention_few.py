"""out = softmax(q @ k.T * scale) @ v for few queries, as when a text is continued: the keys are shared out.

A tile of queries is one program's work, and few queries are few tiles: most of the GPU would look on while a handful of
programs read all keys. So many programs read a part of them each, and their results are merged: of each part what is
needed is its attention and the logarithm of its sum of powers.
"""

import functools
from collections.abc import Callable

import torch
import triton
import triton.language as tl

from kernels.attention_backward import padded, shared_limit
from kernels.attention_hopper import DTYPES, LOG2_E
from kernels.launch import Looks, launcher, looks

FEW = 16  # queries
PROGRAMS = 2  # that a multiprocessor holds at a time
LEAST = 256  # keys of a part
SECOND_AXIS = 65_535  # programs that a grid may have along its second axis


@triton.jit
def absorb_keys(acc, total, top, q, k, v, hidden, scale):
    """Return what a program knows of its rows after one more tile of keys: sums, relative to the largest scores.

    A row that has seen nothing has a `top` of -inf, and is measured from 0: -inf from -inf would be NaN.
    """
    scores = tl.where(hidden, -float("inf"), tl.dot(q, k.T) * scale)
    new_top = tl.maximum(top, tl.max(scores, 1))
    base = tl.where(new_top == -float("inf"), 0.0, new_top)
    powers = tl.exp2(scores - base[:, None])
    shrink = tl.exp2(top - base)
    acc = tl.dot(powers.to(v.dtype), v, acc * shrink[:, None])
    return acc, total * shrink + tl.sum(powers, 1), new_top


@triton.jit
def attention_part_kernel(
    q_ptr, k_ptr, v_ptr, part_ptr, lse_ptr, scale, H_kv, SHARE, M, N, KEYS,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn, stride_vb, stride_vh, stride_vn,
    D: tl.constexpr, IS_CAUSAL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Each program writes the attention of BLOCK_M rows to KEYS of the keys, and the log2 of its sums of powers.

    Rows are the queries of all SHARE heads that read one head of keys, so that these keys are loaded once.
    q_ptr: [B, H_kv * SHARE, M, D]; k_ptr, v_ptr: [B, H_kv, N, D]; elements of a row lie side by side.
    part_ptr: [parts, B, H_kv, SHARE * M, D] and lse_ptr: [parts, B, H_kv, SHARE * M], fp32, contiguous.
    scale contains log2(e). The grid is (parts, B * H_kv, ceil(SHARE * M / BLOCK_M)).
    """
    part, bh = tl.program_id(0), tl.program_id(1)
    b, h_kv = (bh // H_kv).to(tl.int64), (bh % H_kv).to(tl.int64)
    rows = tl.program_id(2) * BLOCK_M + tl.arange(0, BLOCK_M)
    head, query = h_kv * SHARE + rows // M, rows % M
    offs_d = tl.arange(0, BLOCK_D)
    mask_m, mask_d = (rows < SHARE * M)[:, None], (offs_d < D)[None, :]
    q_ptrs = q_ptr + (b * stride_qb + head * stride_qh + query * stride_qm)[:, None] + offs_d[None, :]
    q = tl.load(q_ptrs, mask=mask_m & mask_d, other=0.0)
    seen = query + (N - M) + 1 if IS_CAUSAL else query * 0 + N  # the keys that each row sees are the first so many
    acc = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    top = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    for start in range(part * KEYS, tl.minimum(part * KEYS + KEYS, N), BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = (offs_n < N)[:, None] & mask_d
        offsets = offs_n.to(tl.int64)[:, None]
        k = tl.load(k_ptr + b * stride_kb + h_kv * stride_kh + offsets * stride_kn + offs_d[None, :], mask, other=0.0)
        v = tl.load(v_ptr + b * stride_vb + h_kv * stride_vh + offsets * stride_vn + offs_d[None, :], mask, other=0.0)
        acc, total, top = absorb_keys(acc, total, top, q, k, v, offs_n[None, :] >= seen[:, None], scale)
    out = acc / tl.where(total == 0, 1.0, total)[:, None]
    first = (part * tl.num_programs(1) + bh).to(tl.int64) * SHARE * M + rows
    tl.store(part_ptr + first[:, None] * D + offs_d[None, :], out, mask=mask_m & mask_d)
    tl.store(lse_ptr + first, top + tl.log2(total), mask=rows < SHARE * M)  # -inf where nothing was seen


@triton.jit(do_not_specialize=["PARTS"])
def attention_merge_kernel(
    part_ptr, part_lse_ptr, out_ptr, lse_ptr, PARTS, D: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_D: tl.constexpr
):
    """Each program writes one row: the mean of its parts, weighted by their sums of powers.

    part_ptr: [PARTS, rows, D] and part_lse_ptr: [PARTS, rows], fp32; out_ptr: [rows, D]; lse_ptr: [rows], fp32;
    contiguous. The grid is (rows,).
    """
    row, rows = tl.program_id(0).to(tl.int64), tl.num_programs(0)
    offs_d = tl.arange(0, BLOCK_D)
    mask_d = (offs_d < D)[None, :]
    acc = tl.zeros((BLOCK_D,), tl.float32)
    total, top = 0.0, -float("inf")
    for start in range(0, PARTS, BLOCK_P):
        offs_p = start + tl.arange(0, BLOCK_P)
        mask_p = offs_p < PARTS
        offsets = offs_p.to(tl.int64) * rows + row
        lse = tl.load(part_lse_ptr + offsets, mask=mask_p, other=-float("inf"))
        parts = tl.load(part_ptr + offsets[:, None] * D + offs_d[None, :], mask=mask_p[:, None] & mask_d, other=0.0)
        new_top = tl.maximum(top, tl.max(lse, 0))
        base = tl.where(new_top == -float("inf"), 0.0, new_top)
        weights, shrink = tl.exp2(lse - base), tl.exp2(top - base)
        acc = acc * shrink + tl.sum(parts * weights[:, None], 0)
        total = total * shrink + tl.sum(weights, 0)
        top = new_top
    blind = total == 0
    tl.store(out_ptr + row * D + offs_d, (acc / tl.where(blind, 1.0, total)).to(out_ptr.dtype.element_ty), offs_d < D)
    tl.store(lse_ptr + row, tl.where(blind, float("inf"), top + tl.log2(total)))


def attention_few(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor, lse: torch.Tensor, causal: bool, scale: float
) -> None:
    """Write attention to out, [B, H, M, D], and to lse, [B, H, M], fp32, the log2 of the sum of powers of each query.

    q: [B, H, M, D]; k, v: [B, H_kv, N, D]; not empty, fp16 or bf16, on the current device; M is small. Elements of a
    row lie side by side. out and lse are contiguous; lse is +inf and out 0 where a query sees no key. scale: any.
    `kernels.attention.attention` sees to all that.

    Source: T. Dao, D. Haziza, F. Massa and G. Sizov, "Flash-Decoding for long-context inference", 2023.
    """
    begin, merge, shape = launchers_for(*map(looks, (q, k, v, out, lse)), causal)
    parts = torch.empty(shape, dtype=torch.float32, device=q.device)
    part_lse = torch.empty(shape[:-1], dtype=torch.float32, device=q.device)
    begin((q, k, v, parts, part_lse), scale * LOG2_E)
    merge((parts, part_lse, out, lse))


def suits_few(q: Looks, k: Looks) -> bool:
    """Return whether these queries are few, and `attention_few` can serve them: it needs tensor cores, and some key."""
    if q.device.type != "cuda" or q.dtype not in DTYPES or torch.cuda.get_device_capability(q.device) < (8, 0):
        return False
    B, H_kv, N, _ = k.shape
    return q.shape[2] <= FEW and N > 0 and B * H_kv <= SECOND_AXIS


@functools.lru_cache(maxsize=1024)
def launchers_for(
    q: Looks, k: Looks, v: Looks, out: Looks, lse: Looks, causal: bool
) -> tuple[Callable[..., None], Callable[..., None], tuple[int, ...]]:
    """Return the functions that launch both kernels on tensors of these looks, and the shape of the parts."""
    (B, H, M, D), (H_kv, N) = q.shape, k.shape[1:3]
    rows = H // H_kv * M
    BLOCK_M, BLOCK_N, BLOCK_D = tile_shape(rows, D)
    tiles = triton.cdiv(rows, BLOCK_M)
    keys = keys_of_a_part(N, B * H_kv * tiles, q.device)
    parts = triton.cdiv(N, keys)
    shape = (parts, B, H_kv, rows, D)
    strides = (stride for t in (q, k, v) for stride in t.strides[:3])
    constants = (H_kv, H // H_kv, M, N, keys, *strides, D, causal, BLOCK_M, BLOCK_N, BLOCK_D)
    stages = {"num_warps": 4, "num_stages": stages_for(BLOCK_M, BLOCK_N, BLOCK_D, q.device)}
    part, part_lse = (Looks(s, (), torch.float32, q.device, aligned=True) for s in (shape, shape[:-1]))
    begin = launcher(
        attention_part_kernel, (parts, B * H_kv, tiles), (q, k, v, part, part_lse), (1.0,), constants, **stages
    )
    merged = (parts, D, min(32, triton.next_power_of_2(parts)), BLOCK_D)
    merge = launcher(attention_merge_kernel, (B * H * M, 1, 1), (part, part_lse, out, lse), constants=merged)
    return begin, merge, shape


def tile_shape(rows: int, D: int) -> tuple[int, int, int]:
    """Return BLOCK_M, BLOCK_N and BLOCK_D for so many rows that read one head of keys."""
    BLOCK_D = padded(D)
    most, BLOCK_N = (64, 64) if BLOCK_D <= 128 else (32, 32)
    return min(most, max(16, triton.next_power_of_2(rows))), BLOCK_N, BLOCK_D


def keys_of_a_part(N: int, programs: int, device: torch.device) -> int:
    """Return how many keys a program reads, where `programs` would read them if each read all."""
    if device.type != "cuda":
        return LEAST
    at_a_time = PROGRAMS * torch.cuda.get_device_properties(device).multi_processor_count
    # All at a time; or if they are too many for that, halves, since programs do not end together.
    parts = min(max(at_a_time // programs, 2), triton.cdiv(N, LEAST))
    return triton.cdiv(triton.cdiv(N, parts), 64) * 64


def stages_for(BLOCK_M: int, BLOCK_N: int, BLOCK_D: int, device: torch.device) -> int:
    """Return how many tiles of keys and values are loaded ahead: as many as let two programs share a multiprocessor."""
    if device.type != "cuda":
        return 1
    return max(1, min(4, (shared_limit(device) // 2 - 2 * BLOCK_M * BLOCK_D) // (4 * BLOCK_N * BLOCK_D)))
