"""dq, dk, dv of attention, with every tile of weights computed again from q, k and one number a row.

With weights P = 2^(scale * log2(e) * q k^T - lse), the gradient G of the result, and delta = rowsum(G * out):
    dv = P^T G    dS = P * (G v^T - delta)    dq = scale * dS k    dk = scale * dS^T q
"""

import math
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def attention_backward_reference(grad, q, k, v, causal: bool, scale: float) -> tuple[torch.Tensor, ...]:
    """The specification: what `attention_backward` must return, but in float64."""
    grad, q, k, v = (t.double() for t in (grad, q, k, v))
    (_, H, M, _), (_, heads_kv, N, _) = q.shape, k.shape
    k_each, v_each = (t.repeat_interleave(H // heads_kv, 1) for t in (k, v))
    scores = scale * q @ k_each.mT
    if causal:
        hidden = torch.ones(M, N, dtype=torch.bool, device=q.device).triu(1 + N - M)
        scores = scores.masked_fill(hidden, -math.inf)
    weights = torch.softmax(scores, -1).nan_to_num(0)  # NaN in a row that sees nothing
    delta = ((weights @ v_each) * grad).sum(-1, keepdim=True)
    grad_scores = weights * (grad @ v_each.mT - delta)
    dk, dv = grad_scores.mT @ q * scale, weights.mT @ grad
    return grad_scores @ k_each * scale, *(t.unflatten(1, (heads_kv, -1)).sum(2) for t in (dk, dv))


@triton.jit
def attention_delta_kernel(
    out_ptr, grad_ptr, delta_ptr, H, M, stride_ob, stride_oh, stride_om, stride_gb, stride_gh, stride_gm,
    D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Each program writes delta, the sums of out * grad, for BLOCK_M rows of one head.

    out_ptr, grad_ptr: [B, H, M, D], elements of a row side by side; delta_ptr: [B, H, M], contiguous, fp32.
    """
    tiles = tl.cdiv(M, BLOCK_M)
    pid = tl.program_id(0).to(tl.int64)
    b, h = pid // tiles // H, pid // tiles % H
    offs_m = pid % tiles * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, BLOCK_D)
    mask_m = offs_m < M
    mask = mask_m[:, None] & (offs_d < D)[None, :]
    out_ptrs = out_ptr + b * stride_ob + h * stride_oh + offs_m[:, None] * stride_om + offs_d[None, :]
    grad_ptrs = grad_ptr + b * stride_gb + h * stride_gh + offs_m[:, None] * stride_gm + offs_d[None, :]
    out = tl.load(out_ptrs, mask=mask, other=0.0).to(tl.float32)
    grad = tl.load(grad_ptrs, mask=mask, other=0.0).to(tl.float32)
    tl.store(delta_ptr + (b * H + h) * M + offs_m, tl.sum(out * grad, 1), mask=mask_m)


@triton.jit
def add_queries(
    dk, dv, k, v, q_desc, grad_desc, lse_ptr, delta_ptr, b, h, begin, end, M, N, start_n, scale_log2,
    MASKED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Return dk and dv of one tile of keys with what the queries of one head from begin to end add to them.

    Tiles of weights are transposed, [BLOCK_N, BLOCK_M]: so they are left factors, which may stay in registers.
    """
    BLOCK_M: tl.constexpr = q_desc.block_shape[2]
    BLOCK_D: tl.constexpr = q_desc.block_shape[3]
    offs_n = start_n + tl.arange(0, k.shape[0])
    for start_m in tl.range(begin, end, BLOCK_M):
        offs_m = start_m + tl.arange(0, BLOCK_M)
        mask_m = offs_m < M
        q = q_desc.load([b, h, start_m, 0]).reshape(BLOCK_M, BLOCK_D)
        grad = grad_desc.load([b, h, start_m, 0]).reshape(BLOCK_M, BLOCK_D)
        lse = tl.load(lse_ptr + offs_m, mask=mask_m, other=float("inf"))
        delta = tl.load(delta_ptr + offs_m, mask=mask_m, other=0.0)
        scores = tl.dot(k, q.T, input_precision=PRECISION)
        weights = tl.exp2(scores * scale_log2 - lse[None, :])
        if MASKED:
            weights = tl.where(offs_n[:, None] <= offs_m[None, :] + N - M, weights, 0.0)
        dv = tl.dot(weights.to(grad.dtype), grad, dv, input_precision=PRECISION)
        grad_weights = tl.dot(v, grad.T, input_precision=PRECISION)
        grad_scores = weights * (grad_weights - delta[None, :])
        dk = tl.dot(grad_scores.to(q.dtype), q, dk, input_precision=PRECISION)
    return dk, dv


@triton.jit
def attention_dk_dv_kernel(
    q_desc, k_desc, v_desc, grad_desc, lse_ptr, delta_ptr, dk_ptr, dv_ptr, heads_kv, M, N, scale,
    GROUP: tl.constexpr, IS_CAUSAL: tl.constexpr, D: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Each program writes dk and dv for a tile of keys of one head, from all queries of the GROUP heads that read it.

    q_desc, grad_desc: [B, H, M, D] in blocks of BLOCK_M rows; k_desc, v_desc: [B, heads_kv, N, D], of BLOCK_N rows.
    lse_ptr, delta_ptr: [B, H, M], fp32; dk_ptr, dv_ptr: [B, heads_kv, N, D]; contiguous.
    """
    BLOCK_M: tl.constexpr = q_desc.block_shape[2]
    BLOCK_N: tl.constexpr = k_desc.block_shape[2]
    BLOCK_D: tl.constexpr = k_desc.block_shape[3]
    tiles = tl.cdiv(N, BLOCK_N)
    pid = tl.program_id(0)
    b, head = pid // tiles // heads_kv, pid // tiles % heads_kv
    start_n = pid % tiles * BLOCK_N
    k = k_desc.load([b, head, start_n, 0]).reshape(BLOCK_N, BLOCK_D)
    v = v_desc.load([b, head, start_n, 0]).reshape(BLOCK_N, BLOCK_D)
    dk = tl.zeros((BLOCK_N, BLOCK_D), tl.float32)
    dv = tl.zeros((BLOCK_N, BLOCK_D), tl.float32)
    scale_log2 = scale * 1.4426950408889634
    for member in range(GROUP):
        h = head * GROUP + member
        rows = (b * heads_kv * GROUP + h).to(tl.int64) * M
        full = 0  # the first query tile that sees every key of this one
        if IS_CAUSAL:
            begin = tl.maximum(start_n + M - N, 0) // BLOCK_M * BLOCK_M
            full = tl.cdiv(tl.maximum(start_n + BLOCK_N - 1 + M - N, 0), BLOCK_M) * BLOCK_M
            dk, dv = add_queries(
                dk, dv, k, v, q_desc, grad_desc, lse_ptr + rows, delta_ptr + rows, b, h, begin, tl.minimum(full, M),
                M, N, start_n, scale_log2, True, PRECISION,
            )  # fmt: skip
        dk, dv = add_queries(
            dk, dv, k, v, q_desc, grad_desc, lse_ptr + rows, delta_ptr + rows, b, h, full, M,
            M, N, start_n, scale_log2, False, PRECISION,
        )  # fmt: skip
    store_rows(dk_ptr, dk * scale, b * heads_kv + head, start_n, N, D)
    store_rows(dv_ptr, dv, b * heads_kv + head, start_n, N, D)


@triton.jit
def add_keys(
    dq, q, grad, lse, delta, k_desc, v_desc, b, head, begin, end, M, N, start_m, scale_log2,
    MASKED: tl.constexpr, IS_CAUSAL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Return dq of one tile of queries with what the keys from begin to end add to it."""
    BLOCK_N: tl.constexpr = k_desc.block_shape[2]
    BLOCK_D: tl.constexpr = k_desc.block_shape[3]
    offs_m = start_m + tl.arange(0, q.shape[0])
    for start_n in tl.range(begin, end, BLOCK_N):
        k = k_desc.load([b, head, start_n, 0]).reshape(BLOCK_N, BLOCK_D)
        v = v_desc.load([b, head, start_n, 0]).reshape(BLOCK_N, BLOCK_D)
        scores = tl.dot(q, k.T, input_precision=PRECISION)
        grad_weights = tl.dot(grad, v.T, input_precision=PRECISION)
        weights = tl.exp2(scores * scale_log2 - lse[:, None])
        if MASKED:
            offs_n = start_n + tl.arange(0, BLOCK_N)
            mask = (offs_n < N)[None, :]
            if IS_CAUSAL:
                mask = mask & (offs_n[None, :] <= offs_m[:, None] + N - M)
            weights = tl.where(mask, weights, 0.0)
        grad_scores = weights * (grad_weights - delta[:, None])
        dq = tl.dot(grad_scores.to(k.dtype), k, dq, input_precision=PRECISION)
    return dq


@triton.jit
def attention_dq_kernel(
    q_desc, k_desc, v_desc, grad_desc, lse_ptr, delta_ptr, dq_ptr, H, M, N, scale,
    GROUP: tl.constexpr, IS_CAUSAL: tl.constexpr, D: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Each program writes dq for a tile of queries of one head, from all keys that they see.

    q_desc, grad_desc: [B, H, M, D] in blocks of BLOCK_M rows; k_desc, v_desc: [B, H // GROUP, N, D], of BLOCK_N rows.
    lse_ptr, delta_ptr: [B, H, M], fp32; dq_ptr: [B, H, M, D]; contiguous.
    """
    BLOCK_M: tl.constexpr = q_desc.block_shape[2]
    BLOCK_N: tl.constexpr = k_desc.block_shape[2]
    BLOCK_D: tl.constexpr = q_desc.block_shape[3]
    tiles = tl.cdiv(M, BLOCK_M)
    pid = tl.program_id(0)
    b, h = pid // tiles // H, pid // tiles % H
    # The last queries see the most keys where not all see all: they go first.
    start_m = (tiles - 1 - pid % tiles) * BLOCK_M
    offs_m = start_m + tl.arange(0, BLOCK_M)
    mask_m = offs_m < M
    rows = (b * H + h).to(tl.int64) * M
    lse = tl.load(lse_ptr + rows + offs_m, mask=mask_m, other=float("inf"))
    delta = tl.load(delta_ptr + rows + offs_m, mask=mask_m, other=0.0)
    q = q_desc.load([b, h, start_m, 0]).reshape(BLOCK_M, BLOCK_D)
    grad = grad_desc.load([b, h, start_m, 0]).reshape(BLOCK_M, BLOCK_D)
    dq = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    scale_log2 = scale * 1.4426950408889634
    end, seen = N, N  # how many keys any of the queries sees, and how many all of them see
    if IS_CAUSAL:
        end = tl.minimum(start_m + BLOCK_M + N - M, N)
        seen = tl.minimum(tl.maximum(start_m + 1 + N - M, 0), N)
    full = seen // BLOCK_N * BLOCK_N
    dq = add_keys(
        dq, q, grad, lse, delta, k_desc, v_desc, b, h // GROUP, 0, full, M, N, start_m, scale_log2,
        False, IS_CAUSAL, PRECISION,
    )  # fmt: skip
    dq = add_keys(
        dq, q, grad, lse, delta, k_desc, v_desc, b, h // GROUP, full, end, M, N, start_m, scale_log2,
        True, IS_CAUSAL, PRECISION,
    )  # fmt: skip
    store_rows(dq_ptr, dq * scale, b * H + h, start_m, M, D)


@triton.jit
def store_rows(ptr, tile, head, start, length, D: tl.constexpr):
    """Store a tile's rows from `start` on into one head of a contiguous [heads, length, D]."""
    offs = start + tl.arange(0, tile.shape[0])
    offs_d = tl.arange(0, tile.shape[1])
    mask = (offs < length)[:, None] & (offs_d < D)[None, :]
    ptrs = ptr + (head.to(tl.int64) * length + offs)[:, None] * D + offs_d[None, :]
    tl.store(ptrs, tile.to(ptr.dtype.element_ty), mask=mask)


def attention_backward(
    grad: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    causal: bool,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the gradients (dq, dk, dv) of q, k and v, contiguous, given the gradient `grad` of the attention `out`.

    q: [B, H, M, D]; k, v: [B, heads_kv, N, D]; grad, out: [B, H, M, D]; one dtype of `DTYPES`, D at most 256, any
    strides but for out, whose rows lie side by side. lse: [B, H, M], fp32, contiguous: the base-2 logarithm of the sum
    of e^(scale * q k^T) over the keys that a query sees, +inf where it sees none. causal: query i sees the keys up to
    i + N - M. `kernels.attention` sees to all that.

    The passes are those of FlashAttention-2 (Dao, 2023, algorithm 2) but for dq, which has a pass of its own: no two
    programs add to one element, so every run gives the same bits.
    """
    (B, H, M, D), (_, heads_kv, N, _) = q.shape, k.shape
    dq, dk, dv = (torch.empty_like(t, memory_format=torch.contiguous_format) for t in (q, k, v))
    if min(q.numel(), k.numel()) == 0:
        return dq.zero_(), dk.zero_(), dv.zero_()
    grad, q, k, v = (fetchable(t) for t in (grad, q, k, v))
    constants = {"GROUP": H // heads_kv, "IS_CAUSAL": causal, "D": D, "PRECISION": "ieee"}
    pass_k, pass_q = tiles_for(D, q.dtype, shared_limit(q.device))
    with torch.cuda.device_of(q):
        delta = row_sums(out, grad)
        attention_dk_dv_kernel[(triton.cdiv(N, pass_k.BLOCK_N) * B * heads_kv,)](
            *pass_k.descriptors(q, k, v, grad), lse, delta, dk, dv, heads_kv, M, N, scale, **constants, **pass_k.options
        )
        attention_dq_kernel[(triton.cdiv(M, pass_q.BLOCK_M) * B * H,)](
            *pass_q.descriptors(q, k, v, grad), lse, delta, dq, H, M, N, scale, **constants, **pass_q.options
        )
    return dq, dk, dv


def row_sums(out: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
    """Return delta, the sums of out * grad over the last axis: [B, H, M], fp32."""
    B, H, M, D = out.shape
    delta = out.new_empty((B, H, M), dtype=torch.float32)
    BLOCK_M, BLOCK_D = 32, triton.next_power_of_2(D)
    attention_delta_kernel[(triton.cdiv(M, BLOCK_M) * B * H,)](
        out, grad, delta, H, M, *out.stride()[:3], *grad.stride()[:3], D=D, BLOCK_M=BLOCK_M, BLOCK_D=BLOCK_D
    )
    return delta


class Tiles(NamedTuple):
    """How one pass is cut up: a tile of weights is BLOCK_M queries by BLOCK_N keys."""

    BLOCK_M: int
    BLOCK_N: int
    num_warps: int
    num_stages: int

    @property
    def options(self) -> dict[str, int]:
        """The options of a launch."""
        return {"num_warps": self.num_warps, "num_stages": self.num_stages}

    def descriptors(self, *tensors: torch.Tensor) -> list[TensorDescriptor]:
        """Return what the kernel reads q, k, v and grad through: blocks of as many rows as a tile has of them."""
        rows = (self.BLOCK_M, self.BLOCK_N, self.BLOCK_N, self.BLOCK_M)
        return [descriptor(t, BLOCK) for t, BLOCK in zip(tensors, rows, strict=True)]


def tiles_for(D: int, dtype: torch.dtype, limit: int) -> tuple[Tiles, Tiles]:
    """Return the tiles of the two passes for heads of D elements, where one program has `limit` bytes of memory."""
    if limit == 2**63:
        return Tiles(16, 32, 4, 1), Tiles(32, 16, 4, 1)
    return Tiles(64, 64, 4, 2), Tiles(128, 64, 8, 3)


def shared_limit(device: torch.device) -> int:
    """Return the bytes of shared memory that one program may have; without a GPU there is no limit."""
    if device.type != "cuda":
        return 2**63
    return torch.cuda.get_device_properties(device).shared_memory_per_block_optin


def padded(D: int) -> int:
    """Return how many elements a row of a block has: a power of two that tensor cores take."""
    return max(16, triton.next_power_of_2(D))


def fetchable(t: torch.Tensor) -> torch.Tensor:
    """Return t, or a copy of it that TMA can read: rows at multiples of 16 bytes, each in one piece.

    t: [B, heads, length, D]. Rows of the copy lie further apart where 16 bytes do not divide their length.
    """
    unit = 16 // t.element_size()
    apart = all(
        stride > 0 and stride % unit == 0 for stride, size in zip(t.stride()[:3], t.shape, strict=False) if size > 1
    )
    if apart and t.data_ptr() % 16 == 0 and (t.stride(3) == 1 or t.shape[3] == 1):
        return t
    D = t.shape[3]
    return t.new_empty((*t.shape[:3], triton.cdiv(D, unit) * unit))[..., :D].copy_(t)


def descriptor(t: torch.Tensor, BLOCK: int) -> TensorDescriptor:
    """Return what the kernels read t through, BLOCK rows of one head at a time; past its end they read zeros.

    t: [B, heads, length, D], fetchable. The stride of an axis of one element means nothing, and may be any number.
    """
    strides = [stride if size > 1 else 16 for stride, size in zip(t.stride()[:3], t.shape, strict=False)]
    return TensorDescriptor(t, list(t.shape), [*strides, 1], [1, 1, BLOCK, padded(t.shape[3])])
