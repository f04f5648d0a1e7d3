"""The gradients dq, dk and dv of attention on Hopper GPUs, in Gluon, in one pass.

A tile of weights takes five products; in two passes it takes seven. As in `hopper`, a
producer loads and two consumers compute. A program has a tile of keys and loops over
the queries: dk and dv stay in registers, and the copy engine adds its share of dq to
memory.
"""

import functools
from collections.abc import Callable

import torch
import triton
from triton._C.libtriton import ir
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language._core import builtin
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_init,
    warpgroup_mma_wait,
)

from ..launch import TensorSpec, launcher, placeholder, tensor_spec
from .common import LOG2_E
from .hopper import blocks_of, descriptor

HALF = 64  # keys of a tile that one consumer computes
BLOCK_N = 2 * HALF
STAGES = 2
BLOCK_MS = {64: 128, 128: 64}  # queries of a tile, by the elements of a row


@builtin
def add_shared_to_global(tensor_desc, coord, src, _semantic=None):
    """Begin to add a block of shared memory to a block of a tensor, by the copy engine.

    Gluon offers no function for it.
    """
    coord = _semantic._convert_to_ir_values(coord, require_i64=False)
    _semantic.builder.create_async_tma_reduce(
        ir.DESCRIPTOR_REDUCE_KIND.ADD, tensor_desc.handle, coord, src.handle
    )


@gluon.jit
def own_tile(
    sizes, IS_CAUSAL: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr
):
    """Return the batch, the head and the first key of this program, the first query
    that sees any of its keys, and the number of tiles of queries from there on."""
    heads_kv, heads_per_kv, M, N = sizes
    tiles_n = gl.cdiv(N, BLOCK_N)
    bh, first_n = gl.program_id(0) // tiles_n, gl.program_id(0) % tiles_n * BLOCK_N
    first_m = 0
    if IS_CAUSAL:
        first_m = gl.maximum(first_n + (M - N), 0) // BLOCK_M * BLOCK_M
    return (
        bh // heads_kv,
        bh % heads_kv,
        first_n,
        first_m,
        gl.cdiv(M - first_m, BLOCK_M),
    )


@gluon.jit
def producer(
    sources, smem, bars, sizes,
    IS_CAUSAL: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr,
):  # fmt: skip
    """Load the keys and values, then fill stage after stage.

    A stage is filled again as soon as both consumers have read it. It holds a tile of
    queries, its gradients, and two numbers for each query, which the copy engine cannot
    load. The consumers begin the next scores early, so one stage more is filled than
    there are tiles; it is not used.
    """
    q_desc, k_desc, v_desc, grad_desc, lse2_ptr, delta_ptr = sources
    q_smem, k_smem, v_smem, grad_smem, lse2_smem, delta_smem, ds_smem, dq_smem = smem
    kv_full, full, empty, ds_full = bars
    heads_kv, heads_per_kv, M, N = sizes
    STAGES: gl.constexpr = full.type.shape[0]
    line: gl.constexpr = gl.BlockedLayout([BLOCK_M // 32], [32], [1], [0])
    b, h_kv, first_n, first_m, tiles = own_tile(sizes, IS_CAUSAL, BLOCK_M, BLOCK_N)
    mbarrier.expect(kv_full.index(0), 4 * k_desc.block_type.nbytes)
    for part in gl.static_range(2):
        key = first_n + part * (BLOCK_N // 2)
        tma.async_copy_global_to_shared(
            k_desc, [b, h_kv, key, 0], kv_full.index(0), k_smem.index(part)
        )
        tma.async_copy_global_to_shared(
            v_desc, [b, h_kv, key, 0], kv_full.index(0), v_smem.index(part)
        )
    for step in range(heads_per_kv * tiles + 1):
        h = h_kv * heads_per_kv + step // tiles
        start = first_m + step % tiles * BLOCK_M
        stage = step % STAGES
        bar = full.index(stage)
        mbarrier.wait(empty.index(stage), ((step // STAGES) & 1) ^ 1)
        mbarrier.expect(bar, q_desc.block_type.nbytes + grad_desc.block_type.nbytes)
        tma.async_copy_global_to_shared(
            q_desc, [b, h, start, 0], bar, q_smem.index(stage)
        )
        tma.async_copy_global_to_shared(
            grad_desc, [b, h, start, 0], bar, grad_smem.index(stage)
        )
        offs_m = start + gl.arange(0, BLOCK_M, layout=line)
        rows = (b * heads_kv * heads_per_kv + h).to(gl.int64) * M
        mask = (offs_m < M) & (step < heads_per_kv * tiles)
        lse2 = gl.load(lse2_ptr + rows + offs_m, mask=mask, other=float("inf"))
        lse2_smem.index(stage).store(lse2)
        delta = gl.load(delta_ptr + rows + offs_m, mask=mask, other=0.0)
        delta_smem.index(stage).store(delta)
        mbarrier.arrive(bar, count=1)


@gluon.jit
def tile_of(smem, i):
    """Return one of the blocks of a head in shared memory as a matrix."""
    ROWS: gl.constexpr = smem.type.shape[3]
    COLUMNS: gl.constexpr = smem.type.shape[4]
    return smem.index(i).reshape([ROWS, COLUMNS])


@gluon.jit
def begin(a, b, layout: gl.constexpr):
    """Begin to multiply two matrices in shared memory."""
    ROWS: gl.constexpr = a.type.shape[0]
    COLUMNS: gl.constexpr = b.type.shape[1]
    zero = gl.zeros((ROWS, COLUMNS), gl.float32, layout)
    return warpgroup_mma(a, b, warpgroup_mma_init(zero), use_acc=False, is_async=True)


@gluon.jit
def begin_to_add(acc, a, b):
    """Begin to add the product of a matrix in registers and one in shared memory to
    acc."""
    return warpgroup_mma(a, b, warpgroup_mma_init(acc), is_async=True)


@gluon.jit
def begin_dq(
    ds_smem, k_smem, turn, ROW: gl.constexpr, COLUMN: gl.constexpr, layout: gl.constexpr
):
    """Begin to compute 64 x 64 elements of dq: the gradients of the scores of both
    consumers times their keys."""
    ds = ds_smem.index(2 * turn).slice(ROW, 64, dim=1).permute((1, 0))
    dq = begin(ds, tile_of(k_smem, 0).slice(COLUMN, 64, dim=1), layout)
    ds = ds_smem.index(2 * turn + 1).slice(ROW, 64, dim=1).permute((1, 0))
    k = tile_of(k_smem, 1).slice(COLUMN, 64, dim=1)
    return warpgroup_mma(ds, k, dq, is_async=True)


@gluon.jit
def store_rows(ptr, tile, bh, first, length, D: gl.constexpr, layout: gl.constexpr):
    """Store a tile as rows of one head; ptr: [B * heads, length, D], contiguous."""
    offs = first + gl.arange(0, tile.shape[0], layout=gl.SliceLayout(1, layout))
    offs_d = gl.arange(0, tile.shape[1], layout=gl.SliceLayout(0, layout))
    ptrs = ptr + (bh.to(gl.int64) * length + offs)[:, None] * D + offs_d[None, :]
    mask = (offs < length)[:, None] & (offs_d < D)[None, :]
    gl.store(ptrs, tile.to(ptr.dtype.element_ty), mask=mask)


@gluon.jit
def consumer(
    results, smem, bars, sizes, scale, scale_log2,
    PART: gl.constexpr, IS_CAUSAL: gl.constexpr, D: gl.constexpr,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr,
):  # fmt: skip
    """Compute half a tile of keys, PART 0 or 1, with all queries that see any of the
    tile.

    Tiles of weights are transposed, [keys, queries]: as left factors of a product they
    can stay in registers. For dq each consumer also needs the gradients of the other's
    scores, and computes 64 x 64 elements.
    """
    dq_desc, dk_ptr, dv_ptr = results
    q_smem, k_smem, v_smem, grad_smem, lse2_smem, delta_smem, ds_smem, dq_smem = smem
    kv_full, full, empty, ds_full = bars
    heads_kv, heads_per_kv, M, N = sizes
    STAGES: gl.constexpr = full.type.shape[0]
    ROWS: gl.constexpr = BLOCK_N // 2
    BLOCK_D: gl.constexpr = q_smem.type.shape[4]
    dtype: gl.constexpr = q_smem.dtype
    s_layout: gl.constexpr = gl.NVMMADistributedLayout(
        [3, 0], [4, 1], [16, BLOCK_M, 16]
    )
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_D, 16])
    dq_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    left: gl.constexpr = gl.DotOperandLayout(0, layout, 2)  # a left factor in registers
    by_query: gl.constexpr = gl.SliceLayout(0, s_layout)
    dq_row: gl.constexpr = PART * (BLOCK_M - 64)
    dq_column: gl.constexpr = PART * (BLOCK_D - 64)
    b, h_kv, first_n, first_m, tiles = own_tile(sizes, IS_CAUSAL, BLOCK_M, BLOCK_N)
    first_n += PART * ROWS
    offs_n = first_n + gl.arange(0, ROWS, layout=gl.SliceLayout(1, s_layout))
    # The first query that sees each key, and the first that sees all of them. No query
    # sees keys past the last one.
    if IS_CAUSAL:
        seen_from, all_seen_from = offs_n + (M - N), first_n + ROWS - 1 + (M - N)
    else:
        seen_from = gl.where(offs_n < N, 0, M)
        all_seen_from = gl.where(first_n + ROWS <= N, 0, M)
    k, v = tile_of(k_smem, PART), tile_of(v_smem, PART)
    dk = gl.zeros((ROWS, BLOCK_D), gl.float32, layout)
    dv = gl.zeros((ROWS, BLOCK_D), gl.float32, layout)

    mbarrier.wait(kv_full.index(0), 0)
    mbarrier.wait(full.index(0), 0)
    scores = begin(k, tile_of(q_smem, 0).permute((1, 0)), s_layout)
    scores = warpgroup_mma_wait(0, deps=(scores,))
    for step in range(heads_per_kv * tiles):
        start = first_m + step % tiles * BLOCK_M
        stage, turn = step % STAGES, step % 2
        q, grad = tile_of(q_smem, stage), tile_of(grad_smem, stage)
        grad_weights = begin(v, grad.permute((1, 0)), s_layout)
        lse2 = lse2_smem.index(stage).load(by_query)
        weights = gl.exp2(scores * scale_log2 - lse2[None, :])
        if start < all_seen_from:
            offs_m = start + gl.arange(0, BLOCK_M, layout=by_query)
            weights = gl.where(seen_from[:, None] <= offs_m[None, :], weights, 0.0)
        dv = begin_to_add(dv, gl.convert_layout(weights.to(dtype), left), grad)
        grad_weights = warpgroup_mma_wait(1, deps=(grad_weights,))
        delta = delta_smem.index(stage).load(by_query)
        grad_scores = (weights * (grad_weights - delta[None, :])).to(dtype)
        dk = begin_to_add(dk, gl.convert_layout(grad_scores, left), q)
        ds_smem.index(2 * turn + PART).store(grad_scores)
        fence_async_shared()
        mbarrier.arrive(ds_full.index(turn), count=1)
        mbarrier.wait(ds_full.index(turn), (step // 2) & 1)
        dq = begin_dq(ds_smem, k_smem, turn, dq_row, dq_column, dq_layout)
        dk, dv = warpgroup_mma_wait(2, deps=(dk, dv))  # dq is two products
        mbarrier.arrive(empty.index(stage), count=1)
        # The next scores begin before dq is stored, so that the tensor cores do not
        # wait.
        following = (step + 1) % STAGES
        mbarrier.wait(full.index(following), ((step + 1) // STAGES) & 1)
        scores = begin(k, tile_of(q_smem, following).permute((1, 0)), s_layout)
        dq = warpgroup_mma_wait(1, deps=(dq,))
        tma.store_wait(0)
        dq_smem.index(PART).reshape([64, 64]).store(dq * scale)
        fence_async_shared()
        h = h_kv * heads_per_kv + step // tiles
        place = [b, h, start + dq_row, dq_column]
        add_shared_to_global(dq_desc, place, dq_smem.index(PART))
        scores = warpgroup_mma_wait(0, deps=(scores,))
    store_rows(dk_ptr, dk * scale, b * heads_kv + h_kv, first_n, N, D, layout)
    store_rows(dv_ptr, dv, b * heads_kv + h_kv, first_n, N, D, layout)
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["scale", "scale_log2", "heads_kv", "M", "N"])
def attention_backward_hopper_kernel(
    q_desc, k_desc, v_desc, grad_desc, dq_desc, lse2_ptr, delta_ptr, dk_ptr, dv_ptr,
    scale, scale_log2, heads_kv, heads_per_kv, M, N,
    IS_CAUSAL: gl.constexpr, D: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """Each program writes dk and dv of a tile of keys of one head, and adds to dq.

    q_desc, grad_desc: blocks of a tile of queries, [1, 1, BLOCK_M, BLOCK_D]; k_desc,
    v_desc: of half a tile of keys, [1, 1, 64, BLOCK_D]; dq_desc: of [1, 1, 64, 64],
    fp32. lse2_ptr, delta_ptr: [B, heads, M], fp32; dk_ptr, dv_ptr: [B, heads_kv, N, D];
    contiguous. heads_per_kv: heads of q for each of k. scale_log2 contains log2(e). The
    grid is (ceil(N / BLOCK_N) * B * heads_kv,).
    """
    BLOCK_M: gl.constexpr = q_desc.block_type.shape[2]
    BLOCK_N: gl.constexpr = 2 * k_desc.block_type.shape[2]
    dtype: gl.constexpr = q_desc.dtype
    q_smem, k_smem = blocks_of(q_desc, STAGES), blocks_of(k_desc, 2)
    v_smem, grad_smem = blocks_of(v_desc, 2), blocks_of(grad_desc, STAGES)
    plain: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    lse2_smem = gl.allocate_shared_memory(gl.float32, [STAGES, BLOCK_M], plain)
    delta_smem = gl.allocate_shared_memory(gl.float32, [STAGES, BLOCK_M], plain)
    ds_shape: gl.constexpr = [BLOCK_N // 2, BLOCK_M]
    ds_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for(ds_shape, dtype)
    ds_smem = gl.allocate_shared_memory(
        dtype, [4] + ds_shape, ds_layout
    )  # 2 turns, 2 halves
    dq_smem = blocks_of(dq_desc, 2)
    kv_full = gl.allocate_shared_memory(gl.int64, [1, 1], mbarrier.MBarrierLayout())
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    ds_full = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    mbarrier.init(kv_full.index(0), count=1)
    for stage in gl.static_range(STAGES):
        mbarrier.init(
            full.index(stage), count=2
        )  # the copy engine and the producer's stores
        mbarrier.init(empty.index(stage), count=2)
    for turn in gl.static_range(2):
        mbarrier.init(ds_full.index(turn), count=2)
    fence_async_shared()
    smem = (q_smem, k_smem, v_smem, grad_smem, lse2_smem, delta_smem, ds_smem, dq_smem)
    bars, sizes = (kv_full, full, empty, ds_full), (heads_kv, heads_per_kv, M, N)
    sources = (q_desc, k_desc, v_desc, grad_desc, lse2_ptr, delta_ptr)
    results = (dq_desc, dk_ptr, dv_ptr)
    gl.warp_specialize(
        [
            (consumer, (results, smem, bars, sizes, scale, scale_log2, 0,
                        IS_CAUSAL, D, BLOCK_M, BLOCK_N)),
            (consumer, (results, smem, bars, sizes, scale, scale_log2, 1,
                        IS_CAUSAL, D, BLOCK_M, BLOCK_N)),
            (producer, (sources, smem, bars, sizes, IS_CAUSAL, BLOCK_M, BLOCK_N)),
        ],
        [4, 1],  # warps of the second consumer and of the producer
        [240, 24],  # registers of each of their threads
    )  # fmt: skip


def attention_backward_hopper(
    grad: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    lse2: torch.Tensor,
    delta: torch.Tensor,
    dq: torch.Tensor,
    dk: torch.Tensor,
    dv: torch.Tensor,
    causal: bool,
    scale: float,
) -> None:
    """Write the gradients of attention to dq, dk and dv; `grad` is that of its result.

    q, grad: [B, H, M, D]; k, v: [B, H_kv, N, D]; not empty, fp16 or bf16, on a Hopper
    GPU; D is at most 128. Elements of a row lie side by side, and all rows start at
    multiples of 16 bytes. lse2, delta: [B, H, M], fp32, contiguous; dq, dk, dv: as q, k
    and v, but contiguous. `attention_backward`, which says what lse2 and delta are,
    checks all that. Programs add to dq in the order in which they come: its last bits
    may differ from run to run.

    Source: J. Shah and others, "FlashAttention-3: Fast and Accurate Attention with
    Asynchrony and Low-precision", arXiv 2407.08608, appendix B.1.
    """
    # The copy engine writes rows at multiples of 16 bytes.
    D, wide = q.shape[3], triton.cdiv(q.shape[3], 4) * 4
    sums = torch.zeros((*q.shape[:3], wide), dtype=torch.float32, device=q.device)[
        ..., :D
    ]
    tensors, rest = (q, k, v, grad, sums), (lse2, delta, dk, dv)
    specs = tuple(map(tensor_spec, tensors)), tuple(map(tensor_spec, rest))
    launch = launcher_for(*specs, causal)
    launch(tensors, *rest, scale, scale * LOG2_E.value)
    dq.copy_(sums)


@functools.lru_cache(maxsize=1024)
def launcher_for(
    tensors: tuple[TensorSpec, ...], rest: tuple[TensorSpec, ...], causal: bool
) -> Callable[..., None]:
    """Return the function that launches the kernel: `launch(tensors, *rest, scale,
    scale_log2)`.

    tensors: q, k, v, grad and dq, for the copy engine; rest: lse2, delta, dk and dv.
    """
    (B, H, M, D), (H_kv, N) = tensors[0].shape, tensors[1].shape[1:3]
    BLOCK_D = 64 if D <= 64 else 128
    BLOCK_M = BLOCK_MS[BLOCK_D]
    queries, keys = (BLOCK_M, BLOCK_D), (HALF, BLOCK_D)
    blocks = (queries, keys, keys, queries, (64, 64))
    return launcher(
        attention_backward_hopper_kernel,
        (triton.cdiv(N, BLOCK_N) * B * H_kv, 1, 1),
        tensors,
        rest=(*map(placeholder, rest), 1.0, 1.0),
        constants=(H_kv, H // H_kv, M, N, causal, D, STAGES),
        described=tuple(
            functools.partial(descriptor, rows=rows, columns=columns)
            for rows, columns in blocks
        ),
        num_warps=4,
    )
