"""The gradients dq, dk and dv of attention in plain Triton, for any GPU.

No weights are kept from the forward pass: each tile is computed again from q, k and
lse2, one number a row. With weights P = 2^(scale * log2(e) * q k^T - lse2), the
gradient G of the result, and delta = rowsum(G * out):

dv = P^T G    dS = P * (G v^T - delta)    dq = scale * dS k    dk = scale * dS^T q
"""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from ..gpu import is_hopper, shared_limit
from ..launch import TensorSpec, custom_op, launcher, placeholder, tensor_spec
from .common import LOG2_E, descriptor, fetches, padded, readable


def attention_backward_reference(
    grad, q, k, v, causal: bool, scale: float
) -> tuple[torch.Tensor, ...]:
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
    return grad_scores @ k_each * scale, *(
        t.unflatten(1, (heads_kv, -1)).sum(2) for t in (dk, dv)
    )


@triton.jit(do_not_specialize=["heads", "M"])
def attention_delta_kernel(
    out_ptr, grad_ptr, delta_ptr, heads, M,
    stride_ob, stride_oh, stride_om, stride_gb, stride_gh, stride_gm,
    D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Each program writes delta, the sums of out * grad, for BLOCK_M rows of one head.

    out_ptr, grad_ptr: [B, heads, M, D], elements of a row side by side; delta_ptr: [B,
    heads, M], contiguous, fp32.
    """
    tiles = tl.cdiv(M, BLOCK_M)
    pid = tl.program_id(0).to(tl.int64)
    b, h = pid // tiles // heads, pid // tiles % heads
    offs_m = pid % tiles * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, BLOCK_D)
    mask_m = offs_m < M
    mask = mask_m[:, None] & (offs_d < D)[None, :]
    out_rows = b * stride_ob + h * stride_oh + offs_m[:, None] * stride_om
    grad_rows = b * stride_gb + h * stride_gh + offs_m[:, None] * stride_gm
    out_ptrs = out_ptr + out_rows + offs_d[None, :]
    grad_ptrs = grad_ptr + grad_rows + offs_d[None, :]
    out = tl.load(out_ptrs, mask=mask, other=0.0).to(tl.float32)
    grad = tl.load(grad_ptrs, mask=mask, other=0.0).to(tl.float32)
    tl.store(
        delta_ptr + (b * heads + h) * M + offs_m, tl.sum(out * grad, 1), mask=mask_m
    )


@triton.jit
def load_rows(
    source, b, h, heads, start, length,
    D: tl.constexpr, BLOCK: tl.constexpr, BLOCK_D: tl.constexpr, FETCH: tl.constexpr,
):  # fmt: skip
    """Return BLOCK rows of one head from `start` on, [BLOCK, BLOCK_D].

    Elements past the end of the head and past D columns are 0. source: [B, heads,
    length, D]: a descriptor if FETCH, else a pointer to contiguous memory.
    """
    if FETCH:
        rows = source.load([b, h, start, 0]).reshape(BLOCK, BLOCK_D)
    else:
        offs = start + tl.arange(0, BLOCK)
        offs_d = tl.arange(0, BLOCK_D)
        head_ptr = source + (b * heads + h).to(tl.int64) * length * D
        ptrs = head_ptr + offs.to(tl.int64)[:, None] * D + offs_d[None, :]
        mask = (offs < length)[:, None] & (offs_d < D)[None, :]
        rows = tl.load(ptrs, mask=mask, other=0.0)
    return rows


@triton.jit
def store_rows(ptr, tile, b, h, heads, start, length, D: tl.constexpr):
    """Store a tile as rows of one head from `start` on; ptr: [B, heads, length, D],
    contiguous."""
    offs = start + tl.arange(0, tile.shape[0])
    offs_d = tl.arange(0, tile.shape[1])
    head_ptr = ptr + (b * heads + h).to(tl.int64) * length * D
    ptrs = head_ptr + offs.to(tl.int64)[:, None] * D + offs_d[None, :]
    mask = (offs < length)[:, None] & (offs_d < D)[None, :]
    tl.store(ptrs, tile.to(ptr.dtype.element_ty), mask=mask)


@triton.jit
def add_queries(
    dk, dv, k, v, q_source, grad_source, lse2_ptr, delta_ptr, b, h, heads,
    begin, end, M, N, start_n, scale_log2,
    D: tl.constexpr, BLOCK_M: tl.constexpr, FETCH: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Return dk and dv of a tile of keys, with the share of the queries from `begin` to
    `end` of one head added.

    Tiles of weights are transposed, [BLOCK_N, BLOCK_M]: as left factors of a product
    they can stay in registers.
    """
    BLOCK_D: tl.constexpr = k.shape[1]
    # Both products before the weights: on an H200, 8 % faster for D = 128, 5 % slower
    # for 64.
    EARLY: tl.constexpr = FETCH and BLOCK_D > 64
    first_m = (
        start_n + M - N + tl.arange(0, k.shape[0])
    )  # the first query that sees each key
    for start_m in tl.range(begin, end, BLOCK_M):
        offs_m = start_m + tl.arange(0, BLOCK_M)
        mask_m = offs_m < M
        q = load_rows(q_source, b, h, heads, start_m, M, D, BLOCK_M, BLOCK_D, FETCH)
        grad = load_rows(
            grad_source, b, h, heads, start_m, M, D, BLOCK_M, BLOCK_D, FETCH
        )
        lse2 = tl.load(lse2_ptr + offs_m, mask=mask_m, other=float("inf"))
        delta = tl.load(delta_ptr + offs_m, mask=mask_m, other=0.0)
        scores = tl.dot(k, q.T, input_precision="ieee")
        if EARLY:
            grad_weights = tl.dot(v, grad.T, input_precision="ieee")
        weights = tl.exp2(scores * scale_log2 - lse2[None, :])
        if MASKED:
            weights = tl.where(first_m[:, None] <= offs_m[None, :], weights, 0.0)
        dv = tl.dot(weights.to(grad.dtype), grad, dv, input_precision="ieee")
        if not EARLY:
            grad_weights = tl.dot(v, grad.T, input_precision="ieee")
        grad_scores = weights * (grad_weights - delta[None, :])
        dk = tl.dot(grad_scores.to(q.dtype), q, dk, input_precision="ieee")
    return dk, dv


@triton.jit(do_not_specialize=["heads_kv", "M", "N"])
def attention_dk_dv_kernel(
    q_source, k_source, v_source, grad_source, lse2_ptr, delta_ptr, dk_ptr, dv_ptr,
    scale, heads_kv, M, N,
    HEADS_PER_KV: tl.constexpr, IS_CAUSAL: tl.constexpr, D: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
    FETCH: tl.constexpr,
):  # fmt: skip
    """Each program writes dk and dv for a tile of keys of one head.

    They come from all queries of the HEADS_PER_KV heads that read these keys.

    q_source, grad_source: [B, HEADS_PER_KV * heads_kv, M, D]; k_source, v_source: [B,
    heads_kv, N, D], as `load_rows` says. lse2_ptr, delta_ptr: [B, HEADS_PER_KV *
    heads_kv, M], fp32; dk_ptr, dv_ptr: [B, heads_kv, N, D]; contiguous.
    """
    tiles = tl.cdiv(N, BLOCK_N)
    pid = tl.program_id(0)
    b, h_kv = pid // tiles // heads_kv, pid // tiles % heads_kv
    start_n = pid % tiles * BLOCK_N
    heads = heads_kv * HEADS_PER_KV
    k = load_rows(k_source, b, h_kv, heads_kv, start_n, N, D, BLOCK_N, BLOCK_D, FETCH)
    v = load_rows(v_source, b, h_kv, heads_kv, start_n, N, D, BLOCK_N, BLOCK_D, FETCH)
    dk = tl.zeros((BLOCK_N, BLOCK_D), tl.float32)
    dv = tl.zeros((BLOCK_N, BLOCK_D), tl.float32)
    scale_log2 = scale * LOG2_E
    begin, full = 0, 0
    if (
        IS_CAUSAL
    ):  # tiles from `begin` on see a key of these, and from `full` on all of them
        begin = tl.maximum(start_n + M - N, 0) // BLOCK_M * BLOCK_M
        last_needs = tl.maximum(start_n + BLOCK_N - 1 + M - N, 0)
        full = tl.minimum(tl.cdiv(last_needs, BLOCK_M) * BLOCK_M, M)
    for member in range(HEADS_PER_KV):
        h = h_kv * HEADS_PER_KV + member
        rows = (b * heads + h).to(tl.int64) * M
        for MASKED in tl.static_range(1 if IS_CAUSAL else 0, -1, -1):
            dk, dv = add_queries(
                dk, dv, k, v, q_source, grad_source, lse2_ptr + rows, delta_ptr + rows,
                b, h, heads, begin if MASKED else full, full if MASKED else M,
                M, N, start_n, scale_log2, D, BLOCK_M, FETCH, MASKED,
            )  # fmt: skip
    store_rows(dk_ptr, dk * scale, b, h_kv, heads_kv, start_n, N, D)
    store_rows(dv_ptr, dv, b, h_kv, heads_kv, start_n, N, D)


@triton.jit
def add_keys(
    dq, q, grad, lse2, delta, k_source, v_source, b, h_kv, heads_kv,
    begin, end, M, N, start_m, scale_log2,
    IS_CAUSAL: tl.constexpr, D: tl.constexpr, BLOCK_N: tl.constexpr,
    FETCH: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Return dq of a tile of queries, with the share of the keys from `begin` to `end`
    of one head added."""
    BLOCK_D: tl.constexpr = q.shape[1]
    offs_m = start_m + tl.arange(0, q.shape[0])
    for start_n in tl.range(begin, end, BLOCK_N):
        k = load_rows(
            k_source, b, h_kv, heads_kv, start_n, N, D, BLOCK_N, BLOCK_D, FETCH
        )
        v = load_rows(
            v_source, b, h_kv, heads_kv, start_n, N, D, BLOCK_N, BLOCK_D, FETCH
        )
        scores = tl.dot(q, k.T, input_precision="ieee")
        grad_weights = tl.dot(grad, v.T, input_precision="ieee")
        weights = tl.exp2(scores * scale_log2 - lse2[:, None])
        if MASKED:
            offs_n = start_n + tl.arange(0, BLOCK_N)
            mask = (offs_n < N)[None, :]
            if IS_CAUSAL:
                mask = mask & (offs_n[None, :] <= offs_m[:, None] + N - M)
            weights = tl.where(mask, weights, 0.0)
        grad_scores = weights * (grad_weights - delta[:, None])
        dq = tl.dot(grad_scores.to(k.dtype), k, dq, input_precision="ieee")
    return dq


@triton.jit(do_not_specialize=["heads_kv", "M", "N"])
def attention_dq_kernel(
    q_source, k_source, v_source, grad_source, lse2_ptr, delta_ptr, dq_ptr,
    scale, heads_kv, M, N,
    HEADS_PER_KV: tl.constexpr, IS_CAUSAL: tl.constexpr, D: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
    FETCH: tl.constexpr,
):  # fmt: skip
    """Each program writes dq for a tile of queries of one head, from all keys that they
    see.

    q_source, grad_source: [B, HEADS_PER_KV * heads_kv, M, D]; k_source, v_source: [B,
    heads_kv, N, D], as `load_rows` says. lse2_ptr, delta_ptr: [B, HEADS_PER_KV *
    heads_kv, M], fp32; dq_ptr: [B, HEADS_PER_KV * heads_kv, M, D]; contiguous.
    """
    tiles, heads = tl.cdiv(M, BLOCK_M), heads_kv * HEADS_PER_KV
    pid = tl.program_id(0)
    b, h = pid // tiles // heads, pid // tiles % heads
    # The last causal queries see the most keys: they go first.
    start_m = (tiles - 1 - pid % tiles) * BLOCK_M
    offs_m = start_m + tl.arange(0, BLOCK_M)
    mask_m = offs_m < M
    rows = (b * heads + h).to(tl.int64) * M
    lse2 = tl.load(lse2_ptr + rows + offs_m, mask=mask_m, other=float("inf"))
    delta = tl.load(delta_ptr + rows + offs_m, mask=mask_m, other=0.0)
    q = load_rows(q_source, b, h, heads, start_m, M, D, BLOCK_M, BLOCK_D, FETCH)
    grad = load_rows(grad_source, b, h, heads, start_m, M, D, BLOCK_M, BLOCK_D, FETCH)
    dq = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    seen_by_all, seen = N, N
    if IS_CAUSAL:
        seen_by_all = tl.minimum(tl.maximum(start_m + 1 + N - M, 0), N)
        seen = tl.minimum(start_m + BLOCK_M + N - M, N)
    full = seen_by_all // BLOCK_N * BLOCK_N
    for MASKED in tl.static_range(2):
        dq = add_keys(
            dq, q, grad, lse2, delta, k_source, v_source, b, h // HEADS_PER_KV,
            heads_kv, full if MASKED else 0, seen if MASKED else full, M, N, start_m,
            scale * LOG2_E, IS_CAUSAL, D, BLOCK_N, FETCH, MASKED,
        )  # fmt: skip
    store_rows(dq_ptr, dq * scale, b, h, heads, start_m, M, D)


def uninitialized(grad, q, k, v, *_) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the three gradients that are to be filled."""
    dq, dk, dv = (
        torch.empty_like(t, memory_format=torch.contiguous_format) for t in (q, k, v)
    )
    return dq, dk, dv


@custom_op(uninitialized)
def attention_backward(
    grad: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse2: torch.Tensor,
    causal: bool,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the gradients (dq, dk, dv) of q, k and v, contiguous, given the gradient
    `grad` of the attention `out`.

    q: [B, H, M, D]; k, v: [B, heads_kv, N, D]; grad, out: [B, H, M, D]; one dtype of
    `DTYPES`, D at most 256, any strides, but elements of a row of out side by side.
    lse2: [B, H, M], fp32, contiguous: the base-2 logarithm of the sum of e^(scale * q
    k^T) over the keys that a query sees, +inf where it sees none. causal: query i sees
    the keys up to i + N - M. `attention` checks all that.

    The passes are those of FlashAttention-2 (Dao, 2023, algorithm 2), but dq has a pass
    of its own: no two programs add to one element, so every run gives the same bits. On
    a Hopper GPU, fp16 and bf16 heads of 33 to 128 elements go to
    `attention_backward_hopper` instead, whose dq may differ in its last bits from run
    to run, unless torch.use_deterministic_algorithms(True) is set.
    """
    write = two_passes
    if suits_hopper(q) and not torch.are_deterministic_algorithms_enabled():
        from .hopper_backward import attention_backward_hopper as write
    return computed(write, grad, q, k, v, out, lse2, causal, scale)


def attention_backward_plain(
    grad, q, k, v, out, lse2, causal: bool, scale: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return what `attention_backward` returns, with the kernels of this file."""
    return computed(two_passes, grad, q, k, v, out, lse2, causal, scale)


def computed(
    write: Callable, grad, q, k, v, out, lse2, causal: bool, scale: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the three gradients that `write` fills."""
    dq, dk, dv = uninitialized(grad, q, k, v)
    if min(q.numel(), k.numel()) == 0:
        return dq.zero_(), dk.zero_(), dv.zero_()
    # The memory of a lazily negated tensor holds the opposite values.
    grad, q, k, v = (t.resolve_neg() for t in (grad, q, k, v))
    fetch = fetches(q.dtype, q.device)
    grad, q, k, v = (fetchable(t) if fetch else t.contiguous() for t in (grad, q, k, v))
    write(grad, q, k, v, lse2, row_sums(out, grad), dq, dk, dv, causal, scale)
    return dq, dk, dv


def two_passes(
    grad, q, k, v, lse2, delta, dq, dk, dv, causal: bool, scale: float
) -> None:
    """Write the gradients to dq, dk and dv; all tensors are laid out as the kernels
    read them."""
    tensors = (q, k, v, grad)
    tiles, fetch = tiles_for(q.shape[3], q.dtype, q.device), fetches(q.dtype, q.device)
    rows = tuple(map(tensor_spec, (lse2, delta, dq, dk, dv)))
    by_keys, by_queries = launchers_for(
        tuple(map(tensor_spec, tensors)), rows, causal, tiles, fetch
    )
    by_keys(tensors, lse2, delta, dk, dv, scale)
    by_queries(tensors, lse2, delta, dq, scale)


@functools.lru_cache(maxsize=1024)
def launchers_for(
    tensors: tuple[TensorSpec, ...],
    rest: tuple[TensorSpec, ...],
    causal: bool,
    tiles: tuple,
    fetch: bool,
) -> tuple[Callable[..., None], Callable[..., None]]:
    """Return the functions that launch both passes on tensors of these specs.

    tensors: q, k, v and grad, which the kernels read by tiles; rest: lse2, delta, dq,
    dk and dv.
    """
    (B, H, M, D), (heads_kv, N) = tensors[0].shape, tensors[1].shape[1:3]
    lse2, delta, dq, dk, dv = map(placeholder, rest)
    by_keys, by_queries = tiles
    constants = (heads_kv, M, N, H // heads_kv, causal, D)
    programs = (
        triton.cdiv(N, by_keys.BLOCK_N) * B * heads_kv,
        triton.cdiv(M, by_queries.BLOCK_M) * B * H,
    )
    return (
        by_keys.launcher(
            attention_dk_dv_kernel,
            programs[0],
            tensors,
            (lse2, delta, dk, dv, 1.0),
            constants,
            fetch,
        ),
        by_queries.launcher(
            attention_dq_kernel,
            programs[1],
            tensors,
            (lse2, delta, dq, 1.0),
            constants,
            fetch,
        ),
    )


def row_sums(out: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
    """Return delta, the sums of out * grad over the last axis: [B, H, M], fp32."""
    delta = out.new_empty(out.shape[:3], dtype=torch.float32)
    delta_launcher_for(tensor_spec(out), tensor_spec(grad), tensor_spec(delta))(
        (out, grad, delta)
    )
    return delta


@functools.lru_cache(maxsize=1024)
def delta_launcher_for(
    out: TensorSpec, grad: TensorSpec, delta: TensorSpec
) -> Callable[..., None]:
    """Return the function that launches the kernel on tensors of these specs:
    `launch((out, grad, delta))`."""
    B, H, M, D = out.shape
    BLOCK_M, BLOCK_D = 32, triton.next_power_of_2(D)
    grid = (triton.cdiv(M, BLOCK_M) * B * H, 1, 1)
    constants = (H, M, *out.strides[:3], *grad.strides[:3], D, BLOCK_M, BLOCK_D)
    return launcher(
        attention_delta_kernel, grid, (out, grad, delta), constants=constants
    )


class Tiles(NamedTuple):
    """The tiles of one pass: weights of BLOCK_M queries and BLOCK_N keys."""

    BLOCK_M: int
    BLOCK_N: int
    num_warps: int
    num_stages: int

    def described(self) -> tuple[Callable, ...]:
        """Return the functions that make the descriptors of q, k, v and grad."""
        rows = (self.BLOCK_M, self.BLOCK_N, self.BLOCK_N, self.BLOCK_M)
        return tuple(functools.partial(descriptor, BLOCK=BLOCK) for BLOCK in rows)

    def launcher(
        self, kernel, programs: int, tensors, rest, constants: tuple, fetch: bool
    ) -> Callable[..., None]:
        """Return the function that launches the kernel of a pass; `constants` end with
        D."""
        constants = (
            *constants,
            self.BLOCK_M,
            self.BLOCK_N,
            padded(constants[-1]),
            fetch,
        )
        described = self.described() if fetch else ()
        options = {"num_warps": self.num_warps, "num_stages": self.num_stages}
        return launcher(
            kernel, (programs, 1, 1), tensors, rest, constants, described, **options
        )


# Tiles of the pass by keys and of the pass by queries, by the largest D they are for.
# The largest tiles come first.
FETCHED = {
    64: [(Tiles(128, 64, 4, 2), Tiles(128, 64, 4, 3))],
    128: [(Tiles(64, 64, 4, 2), Tiles(128, 64, 8, 3))],
    256: [(Tiles(16, 64, 8, 2), Tiles(64, 64, 8, 2))],
}
LOADED = {
    64: [(Tiles(32, 64, 4, 2), Tiles(64, 64, 4, 2))],
    128: [
        (Tiles(32, 64, 8, 2), Tiles(64, 32, 4, 2)),
        (Tiles(32, 32, 4, 1), Tiles(32, 32, 4, 1)),
    ],
    256: [
        (Tiles(32, 32, 8, 1), Tiles(32, 32, 4, 1)),
        (Tiles(16, 16, 4, 1), Tiles(16, 16, 4, 1)),
    ],
}
# Without tensor cores, operands lie in registers.
SCALAR = {128: [(Tiles(16, 16, 4, 1),) * 2], 256: [(Tiles(16, 16, 8, 1),) * 2]}
CPU_TILES = Tiles(32, 64, 4, 1), Tiles(64, 32, 4, 1)


def tiles_for(D: int, dtype: torch.dtype, device: torch.device) -> tuple[Tiles, Tiles]:
    """Return the largest tiles of both passes, by keys and by queries, that fit the
    shared memory of the device.

    Raises ValueError if none do: heads of more than 128 fp32 elements are too much for
    GPUs older than Ampere.
    """
    if device.type != "cuda":
        return CPU_TILES
    if dtype == torch.float32 or torch.cuda.get_device_capability(device) < (8, 0):
        table = SCALAR
    else:
        table = FETCHED if fetches(dtype, device) else LOADED
    limit = shared_limit(device)
    for tiles in next(table[most] for most in table if most >= D):
        if shared_bytes(*tiles, D, dtype) <= limit:
            return tiles
    heads = f"heads of {D} elements of {dtype}"
    raise ValueError(
        f"the gradient of {heads} needs more than {limit:,} bytes shared memory"
    )


def shared_bytes(by_keys: Tiles, by_queries: Tiles, D: int, dtype: torch.dtype) -> int:
    """Return the most bytes of shared memory that a program of either pass needs: two
    tiles that stay, and two that change with every step."""

    def rows(own: int, streamed: int, num_stages: int) -> int:
        # A tile that is not loaded ahead lies there twice, as it is and transposed.
        return 2 * own + 2 * streamed * max(num_stages, 2)

    most = max(
        rows(by_keys.BLOCK_N, by_keys.BLOCK_M, by_keys.num_stages),
        rows(by_queries.BLOCK_M, by_queries.BLOCK_N, by_queries.num_stages),
    )
    return (
        most * padded(D) * dtype.itemsize + 2048
    )  # for two numbers a row, and the barriers


def suits_hopper(q: torch.Tensor) -> bool:
    """Return whether `attention_backward_hopper` can compute this, and faster.

    It pads shorter rows to 64 elements.
    """
    return fetches(q.dtype, q.device) and is_hopper(q.device) and 32 < q.shape[3] <= 128


def fetchable(t: torch.Tensor) -> torch.Tensor:
    """Return t, or a copy of it that TMA can read: rows at multiples of 16 bytes, each
    in one piece.

    t: [B, heads, length, D]. Rows of the copy lie further apart where 16 bytes do not
    divide their length.
    """
    if readable(t):
        return t
    unit = 16 // t.element_size()
    D = t.shape[3]
    return t.new_empty((*t.shape[:3], triton.cdiv(D, unit) * unit))[..., :D].copy_(t)
