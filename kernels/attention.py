"""out = softmax(q @ k.T * scale) @ v for every head: attention that never writes its matrix of scores to memory."""

import functools
import math
from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch.autograd.function import once_differentiable

from kernels.attention_backward import DTYPES, attention_backward, descriptor, fetches, padded, shared_limit
from kernels.attention_few import attention_few, suits_few
from kernels.attention_hopper import LOG2_E, attention_hopper, readable
from kernels.launch import Looks, is_hopper, launcher, looks, opaque, stand_in

LONGEST_HEAD = 256  # elements of a head that a program holds at most

# The largest score so far of a row not begun: finite, so that subtracting it from -inf is no inf - inf.
LOWEST = tl.constexpr(torch.finfo(torch.float32).min)


def visible(M: int, N: int, device: torch.device | None = None) -> torch.Tensor:
    """Return which keys each query sees when attention is causal, [M, N]: the last query sees the last key."""
    return torch.ones(M, N, dtype=torch.bool, device=device).tril(N - M)


def attention_reference(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool = False, scale: float | None = None
) -> torch.Tensor:
    """The specification: what `attention` must return, up to the rounding of its sums."""
    return attention_eager(q.double(), k.double(), v.double(), causal, scale).to(q.dtype)


def attention_eager(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool = False, scale: float | None = None
) -> torch.Tensor:
    """Return what `attention` returns, by operations of PyTorch that write a matrix of M x N for every head."""
    if q.shape[1] != k.shape[1]:
        k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], dim=1) for t in (k, v))
    scores = q * (1 / math.sqrt(q.shape[3]) if scale is None else scale) @ k.transpose(2, 3)  # writes MN
    if not causal:
        return torch.softmax(scores, 3) @ v  # softmax reads MN and writes MN, @ reads MN
    hidden = ~visible(*scores.shape[2:], scores.device)
    weights = torch.softmax(scores.masked_fill(hidden, torch.finfo(scores.dtype).min), 3)
    # A row that sees nothing has equal weights by now.
    return weights.masked_fill(hidden, 0) @ v


@triton.jit
def rows_of(x_ptr, b, h, rows, stride_b, stride_h, stride_row, BLOCK_D: tl.constexpr):
    """Return pointers to the first BLOCK_D elements of rows of head h of batch b, [rows, BLOCK_D]."""
    # Each of the products can pass 2**31.
    head_ptr = x_ptr + b.to(tl.int64) * stride_b + h.to(tl.int64) * stride_h
    return head_ptr + rows.to(tl.int64)[:, None] * stride_row + tl.arange(0, BLOCK_D)[None, :]


@triton.jit
def hide(scores, offs_m, offs_n, M, N, IS_CAUSAL: tl.constexpr):
    """Return scores, [queries, keys], with -inf where a query does not see a key: its power will be 0."""
    seen = (offs_n < N)[None, :]
    if IS_CAUSAL:
        seen &= offs_n[None, :] <= offs_m[:, None] + (N - M)
    return tl.where(seen, scores, -float("inf"))


@triton.jit
def absorb(acc, total, top, scores, v):
    """Return what a program knows of its rows after one more tile of keys.

    acc: powers times rows of v, summed; total: sums of powers; top: the largest scores, which powers are relative to.
    """
    new_top = tl.maximum(top, tl.max(scores, 1))
    powers = tl.exp(scores - new_top[:, None])
    shrink = tl.exp(top - new_top)
    total = total * shrink + tl.sum(powers, 1)
    acc = tl.dot(powers.to(v.dtype), v, acc * shrink[:, None], input_precision="ieee")
    return acc, total, new_top


@triton.jit
def attention_tile_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, scale, H, M, N,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn, stride_vb, stride_vh, stride_vn,
    stride_ob, stride_oh, stride_om,
    D: tl.constexpr, IS_CAUSAL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Each program writes BLOCK_M rows of one head of out, in one loop over all keys, BLOCK_N at a time.

    q_ptr, out_ptr: [B, H, M, D]; k_ptr, v_ptr: [B, H, N, D]; one dtype; elements of a row lie side by side; D is a
    power of two from 16 on. The grid is (ceil(M / BLOCK_M), B * H).
    """
    pid_m, pid_bh = tl.program_id(0), tl.program_id(1)
    b, h = pid_bh // H, pid_bh % H
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    mask_m = (offs_m < M)[:, None]
    q = tl.load(rows_of(q_ptr, b, h, offs_m, stride_qb, stride_qh, stride_qm, D), mask=mask_m, other=0.0)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    top = tl.full((BLOCK_M,), LOWEST, tl.float32)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask_n = (offs_n < N)[:, None]
        k = tl.load(rows_of(k_ptr, b, h, offs_n, stride_kb, stride_kh, stride_kn, D), mask=mask_n, other=0.0)
        v = tl.load(rows_of(v_ptr, b, h, offs_n, stride_vb, stride_vh, stride_vn, D), mask=mask_n, other=0.0)
        scores = tl.dot(q, k.T, input_precision="ieee") * scale  # [BLOCK_M, BLOCK_N]
        scores = hide(scores, offs_m, offs_n, M, N, IS_CAUSAL)
        acc, total, top = absorb(acc, total, top, scores, v)
    out = acc * (1 / tl.where(total == 0, 1.0, total))[:, None]  # a row that sees nothing has no sum to divide by
    out_ptrs = rows_of(out_ptr, b, h, offs_m, stride_ob, stride_oh, stride_om, D)
    tl.store(out_ptrs, out.to(out_ptr.dtype.element_ty), mask=mask_m)


@triton.jit
def keys_seen(first, M, N, IS_CAUSAL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Return where the tiles end that all BLOCK_M queries from `first` on see whole, and where the last key seen is.

    Between the two lies the diagonal, or the last tile of all.
    """
    by_all, by_any = N, N
    if IS_CAUSAL:
        by_all = tl.minimum(N, tl.maximum(0, first + 1 + (N - M)))
        by_any = tl.minimum(N, tl.maximum(0, first + BLOCK_M + (N - M)))
    return by_all // BLOCK_N * BLOCK_N, by_any


@triton.jit
def attention_causal_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, scale, H, M, N,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn, stride_vb, stride_vh, stride_vn,
    stride_ob, stride_oh, stride_om,
    D: tl.constexpr, IS_CAUSAL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Each program loops over the tiles that all its rows see, with no mask, then over those that some of them see.

    Arguments and grid are those of attention_tile_kernel.
    """
    pid_m, pid_bh = tl.program_id(0), tl.program_id(1)
    b, h = pid_bh // H, pid_bh % H
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    mask_m = (offs_m < M)[:, None]
    q = tl.load(rows_of(q_ptr, b, h, offs_m, stride_qb, stride_qh, stride_qm, D), mask=mask_m, other=0.0)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    top = tl.full((BLOCK_M,), LOWEST, tl.float32)
    by_all, by_any = keys_seen(pid_m * BLOCK_M, M, N, IS_CAUSAL, BLOCK_M, BLOCK_N)
    for EDGE in tl.static_range(2):
        for start in range(by_all if EDGE else 0, by_any if EDGE else by_all, BLOCK_N):
            offs_n = start + tl.arange(0, BLOCK_N)
            mask_n = (offs_n < N)[:, None] if EDGE else None
            other = 0.0 if EDGE else None
            k = tl.load(rows_of(k_ptr, b, h, offs_n, stride_kb, stride_kh, stride_kn, D), mask=mask_n, other=other)
            v = tl.load(rows_of(v_ptr, b, h, offs_n, stride_vb, stride_vh, stride_vn, D), mask=mask_n, other=other)
            scores = tl.dot(q, k.T, input_precision="ieee") * scale
            if EDGE:
                scores = hide(scores, offs_m, offs_n, M, N, IS_CAUSAL)
            acc, total, top = absorb(acc, total, top, scores, v)
    out = acc * (1 / tl.where(total == 0, 1.0, total))[:, None]
    out_ptrs = rows_of(out_ptr, b, h, offs_m, stride_ob, stride_oh, stride_om, D)
    tl.store(out_ptrs, out.to(out_ptr.dtype.element_ty), mask=mask_m)


@triton.jit
def absorb_exp2(acc, total, top, products, v, scale):
    """Return what `absorb` returns with powers of two throughout.

    products: q @ k.T; scale: what makes scores of them, times log2(e): one instruction multiplies by it and subtracts.
    """
    new_top = tl.maximum(top, tl.max(products, 1) * scale)
    powers = tl.exp2(products * scale - new_top[:, None])
    shrink = tl.exp2(top - new_top)
    total = total * shrink + tl.sum(powers, 1)
    acc = tl.dot(powers.to(v.dtype), v, acc * shrink[:, None], input_precision="ieee")
    return acc, total, new_top


@triton.jit
def results(acc, total, top):
    """Return rows of out, and the log2 of the sum of their powers: 0 and +inf for a row that has seen nothing.

    With that infinity, exp2(score - lse) is 0 there.
    """
    blind = total == 0
    return acc * (1 / tl.where(blind, 1.0, total))[:, None], tl.where(blind, float("inf"), top + tl.log2(total))


@triton.jit
def own_tile(M, H, IS_CAUSAL: tl.constexpr, BLOCK_M: tl.constexpr):
    """Return the first query, the batch and the head of this program; of a head, causal rows that see most go first."""
    tiles = tl.cdiv(M, BLOCK_M)
    pid = tl.program_id(0)
    pid_m = pid % tiles
    if IS_CAUSAL:
        pid_m = tiles - 1 - pid_m
    pid_bh = pid // tiles
    return pid_m * BLOCK_M, pid_bh // H, pid_bh % H


@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, scale, H, GROUP, M, N,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn, stride_vb, stride_vh, stride_vn,
    D: tl.constexpr, IS_CAUSAL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Each program writes BLOCK_M rows of one head of out, and the log2 of the sum of their powers.

    q_ptr: [B, H, M, D]; k_ptr, v_ptr: [B, H / GROUP, N, D]; elements of a row lie side by side; out_ptr: [B, H, M, D]
    and lse_ptr: [B, H, M], fp32, contiguous. BLOCK_D is a power of two from D on, scale is above 0 and contains
    log2(e). The grid is (ceil(M / BLOCK_M) * B * H,).
    """
    first, b, h = own_tile(M, H, IS_CAUSAL, BLOCK_M)
    offs_m = first + tl.arange(0, BLOCK_M)
    mask_m, mask_d = (offs_m < M)[:, None], (tl.arange(0, BLOCK_D) < D)[None, :]
    q_ptrs = rows_of(q_ptr, b, h, offs_m, stride_qb, stride_qh, stride_qm, BLOCK_D)
    q = tl.load(q_ptrs, mask=mask_m & mask_d, other=0.0)
    acc = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    top = tl.full((BLOCK_M,), LOWEST, tl.float32)
    by_all, by_any = keys_seen(first, M, N, IS_CAUSAL, BLOCK_M, BLOCK_N)
    for EDGE in tl.static_range(2):
        for start in range(by_all if EDGE else 0, by_any if EDGE else by_all, BLOCK_N):
            offs_n = start + tl.arange(0, BLOCK_N)
            mask = (offs_n < N)[:, None] & mask_d if EDGE else mask_d
            k_ptrs = rows_of(k_ptr, b, h // GROUP, offs_n, stride_kb, stride_kh, stride_kn, BLOCK_D)
            v_ptrs = rows_of(v_ptr, b, h // GROUP, offs_n, stride_vb, stride_vh, stride_vn, BLOCK_D)
            products = tl.dot(q, tl.load(k_ptrs, mask=mask, other=0.0).T, input_precision="ieee")
            if EDGE:
                products = hide(products, offs_m, offs_n, M, N, IS_CAUSAL)
            acc, total, top = absorb_exp2(acc, total, top, products, tl.load(v_ptrs, mask=mask, other=0.0), scale)
    out, lse = results(acc, total, top)
    out_ptrs = rows_of(out_ptr, b, h, offs_m, tl.cast(M, tl.int64) * D * H, tl.cast(M, tl.int64) * D, D, BLOCK_D)
    tl.store(out_ptrs, out.to(out_ptr.dtype.element_ty), mask=mask_m & mask_d)
    tl.store(lse_ptr + (b * H + h).to(tl.int64) * M + offs_m, lse, mask=offs_m < M)


@triton.jit
def attention_descriptor_kernel(
    q_desc, k_desc, v_desc, out_desc, lse_ptr, scale, H, GROUP, M, N,
    IS_CAUSAL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Each program writes BLOCK_M rows of one head of out; the copy engine (TMA) finds addresses and masks the edges.

    q_desc, out_desc: blocks of [1, 1, BLOCK_M, BLOCK_D]; k_desc, v_desc: [1, 1, BLOCK_N, BLOCK_D]; one dtype. Other
    arguments and the grid are those of attention_kernel.
    """
    first, b, h = own_tile(M, H, IS_CAUSAL, BLOCK_M)
    offs_m = first + tl.arange(0, BLOCK_M)
    q = q_desc.load([b, h, first, 0]).reshape(BLOCK_M, BLOCK_D)
    acc = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    top = tl.full((BLOCK_M,), LOWEST, tl.float32)
    by_all, by_any = keys_seen(first, M, N, IS_CAUSAL, BLOCK_M, BLOCK_N)
    for EDGE in tl.static_range(2):
        for start in range(by_all if EDGE else 0, by_any if EDGE else by_all, BLOCK_N):
            k = k_desc.load([b, h // GROUP, start, 0]).reshape(BLOCK_N, BLOCK_D)
            products = tl.dot(q, k.T)
            if EDGE:
                products = hide(products, offs_m, start + tl.arange(0, BLOCK_N), M, N, IS_CAUSAL)
            v = v_desc.load([b, h // GROUP, start, 0]).reshape(BLOCK_N, BLOCK_D)
            acc, total, top = absorb_exp2(acc, total, top, products, v, scale)
    out, lse = results(acc, total, top)
    out_desc.store([b, h, first, 0], out.to(out_desc.dtype).reshape(1, 1, BLOCK_M, BLOCK_D))
    tl.store(lse_ptr + (b * H + h).to(tl.int64) * M + offs_m, lse, mask=offs_m < M)


def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool = False, scale: float | None = None
) -> torch.Tensor:
    """Return softmax(q @ k.T * scale) @ v for every head: [B, H, M, D], contiguous, of the dtype of q.

    q: [B, H, M, D]; k, v: [B, H_kv, N, D]; fp16, bf16 or fp32, one dtype, one device. H is a multiple of H_kv: query
    head h reads key head h // (H // H_kv). M, N: any lengths. D: 1 to 256. Any strides, of which the last is copied
    away unless it is 1. Scores and sums are kept in fp32; the gradient works them out anew.
    causal: query i sees the keys j <= i + N - M, so that the last query sees the last key. A query that sees no key
    gives 0, and has the gradient 0.
    scale: any finite number; 1 / sqrt(D) by default.
    On a GPU, up to 16 fp16 or bf16 queries go to `attention_few`, which shares out the keys.
    On a Hopper GPU, fp16 and bf16 rows of 72 to 128 elements that its copy engine can read go to `attention_hopper`,
    and gradients of 33 to 128 to `attention_backward_hopper`: the last bits of that of q may vary between runs, unless
    torch.use_deterministic_algorithms(True) is set.

    Source: T. Dao, "FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning", arXiv
    2307.08691, section 3. Raises TypeError for anything but tensors, a truth value and a number, and ValueError for
    shapes, dtypes or devices that do not go together.
    """
    check_inputs(q, k, v, causal, scale)
    scale = 1 / math.sqrt(q.shape[3]) if scale is None else float(scale)
    if scale <= 0:
        # The kernels scale the largest product, which is the largest score where the scale is positive only.
        q, scale = (-q, -scale) if scale < 0 else (q * 0, 1.0)
    return Attention.apply(q, k, v, causal, scale)


class Attention(torch.autograd.Function):
    """`attention` as autograd sees it."""

    @staticmethod
    def forward(ctx, q, k, v, causal: bool, scale: float) -> torch.Tensor:
        """Return attention, and keep what its gradient cannot work out anew: nothing as large as the scores."""
        q, k, v = map(laid_out, (q, k, v))
        out, lse = attention_forward(q, k, v, causal, scale)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.causal, ctx.scale = causal, scale
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Return the gradients of q, k and v."""
        return *attention_backward(grad, *ctx.saved_tensors, ctx.causal, ctx.scale), None, None


def uninitialized(q: torch.Tensor, *_) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the two results that attention of these queries fills."""
    return q.new_empty(q.shape), q.new_empty(q.shape[:3], dtype=torch.float32)


@opaque(uninitialized)
def attention_forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return attention and, [B, H, M] in fp32, the log2 of the sum of powers of each query: +inf where it sees no key.

    q, k, v: as `attention` takes them, with elements of a row side by side; scale: above 0.
    """
    return computed(writer_for(*map(looks, (q, k, v))), q, k, v, causal, scale)


@functools.lru_cache(maxsize=1024)
def writer_for(q: Looks, k: Looks, v: Looks) -> Callable[..., None]:
    """Return the function that writes attention of tensors of these looks soonest."""
    if suits_few(q, k):
        return attention_few
    return attention_hopper if suits_hopper(q, k, v) else attention_portable


def attention_plain(q, k, v, causal: bool, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what `attention_forward` returns, by the kernels of this file, on any GPU."""
    return computed(attention_portable, q, k, v, causal, scale)


def computed(write: Callable, q, k, v, causal: bool, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the two results that `write` fills."""
    out, lse = uninitialized(q)
    if out.numel() > 0:
        with torch.cuda.device_of(q):
            write(q, k, v, out, lse, causal, scale)
    return out, lse


def attention_portable(q, k, v, out, lse, causal: bool, scale: float) -> None:
    """Write attention to out and lse by the kernels of this file."""
    launch = launcher_for(*map(looks, (q, k, v, out, lse)), causal)
    launch((q, k, v, out), lse, scale * LOG2_E)


@functools.lru_cache(maxsize=1024)
def launcher_for(q: Looks, k: Looks, v: Looks, out: Looks, lse: Looks, causal: bool) -> Callable[..., None]:
    """Return the function that launches one program for each tile of queries: `launch((q, k, v, out), lse, scale)`.

    Where the copy engine can read tensors of these looks, it launches the kernel for it.
    """
    B, H, M, D = q.shape
    by_copy_engine = suits_descriptors(q, k, v)
    config = config_for(by_copy_engine, D, q.dtype, q.device)
    BLOCK_M, BLOCK_N = config.kwargs["BLOCK_M"], config.kwargs["BLOCK_N"]
    grid = (triton.cdiv(M, BLOCK_M) * B * H, 1, 1)
    tensors, rest = (q, k, v, out), (stand_in(lse), 1.0)
    sizes = (H, H // k.shape[1], M, k.shape[2])
    options = {"num_warps": config.num_warps, "num_stages": config.num_stages}
    if by_copy_engine:
        constants = (*sizes, causal, BLOCK_M, BLOCK_N, padded(D))
        described = tuple(functools.partial(descriptor, BLOCK=rows) for rows in (BLOCK_M, BLOCK_N, BLOCK_N, BLOCK_M))
        return launcher(attention_descriptor_kernel, grid, tensors, rest, constants, described, **options)
    strides = (stride for t in (q, k, v) for stride in t.strides[:3])
    constants = (*sizes, *strides, D, causal, BLOCK_M, BLOCK_N, padded(D))
    return launcher(attention_kernel, grid, tensors, rest, constants, **options)


def config(BLOCK_M: int, BLOCK_N: int, num_warps: int, num_stages: int) -> triton.Config:
    return triton.Config({"BLOCK_M": BLOCK_M, "BLOCK_N": BLOCK_N}, num_warps=num_warps, num_stages=num_stages)


BARRIERS = 2048  # bytes of shared memory, at most, through which the threads of a program wait for one another

# By the largest D they are for; of each list, a GPU takes the first that fits its shared memory.
CONFIGS = {
    64: [config(128, 64, 4, 3), config(64, 64, 4, 2)],
    128: [config(128, 64, 8, 3), config(128, 32, 8, 3), config(64, 32, 4, 2)],
    256: [config(64, 64, 8, 2), config(64, 32, 8, 2), config(32, 32, 4, 1)],
}
DESCRIPTOR_CONFIGS = {64: [config(64, 128, 4, 2)], 128: [config(64, 64, 4, 3)], 256: [config(128, 64, 8, 2)]}
SCALAR_CONFIG = config(16, 32, 4, 1)  # without tensor cores, a program holds its operands in registers
CPU_CONFIG = config(16, 16, 4, 1)


@functools.lru_cache(maxsize=1024)
def config_for(described: bool, D: int, dtype: torch.dtype, device: torch.device) -> triton.Config:
    """Return how queries of D elements are shared out on this device. described: whether its copy engine loads."""
    if device.type != "cuda":
        return CPU_CONFIG
    if dtype == torch.float32 or torch.cuda.get_device_capability(device) < (8, 0):
        return SCALAR_CONFIG
    table = DESCRIPTOR_CONFIGS if described else CONFIGS
    configs = next(table[largest] for largest in table if largest >= D)
    return next(one for one in configs if shared_bytes(one, D, dtype) <= shared_limit(device))


def suits_hopper(q: Looks, k: Looks, v: Looks) -> bool:
    """Return whether `attention_hopper` can compute this and is the faster: of short rows, four warps do more alone."""
    return suits_descriptors(q, k, v) and is_hopper(q.device) and 64 < q.shape[3] <= 128


def suits_descriptors(q: Looks, k: Looks, v: Looks) -> bool:
    """Return whether the GPU has a copy engine that can read q, k, v and write the result."""
    return q.shape[3] % 8 == 0 and fetches(q.dtype, q.device) and all(readable(stand_in(t)) for t in (q, k, v))


def shared_bytes(config: triton.Config, D: int, dtype: torch.dtype) -> int:
    """Return the most shared memory that a program of `attention_kernel` may need: queries, and stages of k and v."""
    rows = config.kwargs["BLOCK_M"] + 2 * config.num_stages * config.kwargs["BLOCK_N"]
    return rows * padded(D) * dtype.itemsize + BARRIERS


def laid_out(x: torch.Tensor) -> torch.Tensor:
    """Return x with the elements of a row side by side: x itself, or a copy."""
    x = x.resolve_neg()
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def check_inputs(q, k, v, causal, scale) -> None:
    """Raise TypeError or ValueError, naming what is wrong, unless `attention` can take these arguments."""
    for name, t in {"q": q, "k": k, "v": v}.items():
        if not isinstance(t, torch.Tensor):
            raise TypeError(f"attention takes tensors, and {name} is a {type(t).__name__}")
        if t.layout != torch.strided:
            raise ValueError(f"attention takes dense tensors, and {name} is {t.layout}")
        if t.device != q.device:
            raise ValueError(f"q, k and v must be on one device, and q is on {q.device}, {name} on {t.device}")
        if t.dtype != q.dtype or t.dtype not in DTYPES:
            wanted = ", ".join(map(str, DTYPES))
            raise ValueError(f"q, k and v must have one dtype of {wanted}, and {name} has {t.dtype}, q {q.dtype}")
    if q.dim() != 4 or k.dim() != 4 or k.shape != v.shape or (q.shape[0], q.shape[3]) != (k.shape[0], k.shape[3]):
        shapes = f"{tuple(q.shape)}, {tuple(k.shape)} and {tuple(v.shape)}"
        raise ValueError(f"q, k and v must be [B, H, M, D], [B, H_kv, N, D] and [B, H_kv, N, D], not {shapes}")
    if q.shape[1] != k.shape[1] and (k.shape[1] == 0 or q.shape[1] % k.shape[1] != 0):
        raise ValueError(f"the {q.shape[1]} heads of q must be a multiple of the {k.shape[1]} heads of k and v")
    if not 1 <= q.shape[3] <= LONGEST_HEAD:
        raise ValueError(f"a head must have 1 to {LONGEST_HEAD} elements, not {q.shape[3]}")
    if not isinstance(causal, bool):
        raise TypeError(f"causal must be True or False, not a {type(causal).__name__}")
    if scale is not None and (not isinstance(scale, (int, float)) or isinstance(scale, bool)):
        raise TypeError(f"scale must be a number or None, not a {type(scale).__name__}")
    if scale is not None and not math.isfinite(scale):
        raise ValueError(f"scale must be finite, not {scale}")


def attention_bytes(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool = False, scale: float | None = None
) -> int:
    """Return the bytes that must cross memory once: q, k and v read, the result written."""
    return (2 * q.numel() + k.numel() + v.numel()) * q.element_size()


def attention_flops(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool = False, scale: float | None = None
) -> int:
    """Return the floating-point operations of both products: four for each pair that is seen and each of D."""
    B, H, M, D = q.shape
    N = k.shape[2]
    seen = min(M, N)  # queries with at least one key to see
    pairs = seen * (N - seen) + seen * (seen + 1) // 2 if causal else M * N
    return 4 * B * H * pairs * D
