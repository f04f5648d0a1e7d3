"""Attention's forward pass on Hopper GPUs, in Gluon: one warp loads, two groups of four
compute.

A group of warps begins the products of one tile before it computes the softmax of the
next, so that the tensor cores multiply while other units compute powers of two.
"""

import functools
from collections.abc import Callable

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_init,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from ..launch import Placeholder, TensorSpec, launcher, placeholder, tensor_spec
from .common import LOG2_E, steps

HALF = 64  # queries of a tile that one consumer computes
BLOCK_M = 2 * HALF
BLOCK_N = 128  # keys of a tile
BLOCK_D = 128  # elements of a row; shorter rows are padded with zeros
STAGES = 2
CACHED = 2**25  # bytes of keys and values that stay in the L2 cache
DTYPES = (torch.float16, torch.bfloat16)
ELEMENTS = {
    torch.float16: gl.float16,
    torch.bfloat16: gl.bfloat16,
    torch.float32: gl.float32,
}


@gluon.jit
def place(
    tile, sizes, GROUP_BH: gl.constexpr, IS_CAUSAL: gl.constexpr,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr,
):  # fmt: skip
    """Return the batch, the head and the first query of a tile of the result, and how
    many tiles of keys it needs.

    GROUP_BH heads are computed at a time: their keys and values fit the L2 cache. Of
    these, causal queries that see the most keys go first, so that the last programs are
    short.
    """
    batches, heads, heads_per_kv, M, N = sizes
    tiles_m = gl.cdiv(M, BLOCK_M)
    first_bh = tile // (GROUP_BH * tiles_m) * GROUP_BH
    present = gl.minimum(batches * heads - first_bh, GROUP_BH)
    turn = tile % (GROUP_BH * tiles_m)
    pid_m, pid_bh = turn // present, first_bh + turn % present
    keys = N
    if IS_CAUSAL:
        pid_m = tiles_m - 1 - pid_m
        keys = gl.minimum(N, (pid_m + 1) * BLOCK_M + (N - M))
    b, h = pid_bh // heads, pid_bh % heads
    return b, h, pid_m * BLOCK_M, gl.maximum(gl.cdiv(keys, BLOCK_N), 1)


@gluon.jit
def producer(
    q_desc, k_desc, v_desc, smem, bars, sizes, GROUP_BH: gl.constexpr,
    IS_CAUSAL: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr,
):  # fmt: skip
    """Load the queries of every tile, then fill stage after stage.

    A stage is filled again as soon as both consumers have read it. The producer runs
    ahead of them, into the next tile of the program. A stage holds the keys of one tile
    and the values of the tile before it, which are multiplied at the same time; tiles
    come from the last to the first. The first and the last stage have one block too
    many: it lies outside the head, and the copy engine fills it with zeros.
    """
    q_smem, k_smem, v_smem, out_smem = smem
    q_full, q_empty, full, empty = bars
    batches, heads, heads_per_kv, M, N = sizes
    STAGES: gl.constexpr = full.type.shape[0]
    step, turn = 0, 0
    for tile in range(
        gl.program_id(0), gl.cdiv(M, BLOCK_M) * batches * heads, gl.num_programs(0)
    ):
        b, h, first, tiles = place(tile, sizes, GROUP_BH, IS_CAUSAL, BLOCK_M, BLOCK_N)
        mbarrier.wait(q_empty.index(0), turn ^ 1)
        mbarrier.expect(q_full.index(0), 2 * q_desc.block_type.nbytes)
        for part in gl.static_range(2):
            row = first + part * (BLOCK_M // 2)
            tma.async_copy_global_to_shared(
                q_desc, [b, h, row, 0], q_full.index(0), q_smem.index(part)
            )
        for start in range((tiles - 1) * BLOCK_N, -BLOCK_N - 1, -BLOCK_N):
            stage = step % STAGES
            bar = full.index(stage)
            mbarrier.wait(empty.index(stage), ((step // STAGES) & 1) ^ 1)
            mbarrier.expect(bar, k_desc.block_type.nbytes + v_desc.block_type.nbytes)
            h_kv = h // heads_per_kv
            tma.async_copy_global_to_shared(
                k_desc, [b, h_kv, start, 0], bar, k_smem.index(stage)
            )
            tma.async_copy_global_to_shared(
                v_desc, [b, h_kv, start + BLOCK_N, 0], bar, v_smem.index(stage)
            )
            step += 1
        turn ^= 1


@gluon.jit
def begin_scores(q_smem, k_smem, step, PART: gl.constexpr, layout: gl.constexpr):
    """Begin to multiply the queries of a consumer with the keys of a stage."""
    ROWS: gl.constexpr = q_smem.type.shape[3]
    STAGES: gl.constexpr = k_smem.type.shape[0]
    BLOCK_N: gl.constexpr = k_smem.type.shape[3]
    BLOCK_D: gl.constexpr = k_smem.type.shape[4]
    q = q_smem.index(PART).reshape([ROWS, BLOCK_D])
    k = k_smem.index(step % STAGES).reshape([BLOCK_N, BLOCK_D])
    scores = warpgroup_mma_init(gl.zeros((ROWS, BLOCK_N), gl.float32, layout))
    return warpgroup_mma(q, k.permute((1, 0)), scores, use_acc=False, is_async=True)


@gluon.jit
def begin_sum(p, acc, v_smem, step):
    """Begin to add the product of p and the values of a stage to acc."""
    STAGES: gl.constexpr = v_smem.type.shape[0]
    BLOCK_N: gl.constexpr = v_smem.type.shape[3]
    BLOCK_D: gl.constexpr = v_smem.type.shape[4]
    v = v_smem.index(step % STAGES).reshape([BLOCK_N, BLOCK_D])
    return warpgroup_mma(p, v, warpgroup_mma_init(acc), is_async=True)


@gluon.jit
def hide(scores, first, start, M, N, IS_CAUSAL: gl.constexpr, layout: gl.constexpr):
    """Return scores, [queries, keys], with -inf where a query does not see a key."""
    offs_n = start + gl.arange(0, scores.shape[1], layout=gl.SliceLayout(0, layout))
    seen = (offs_n < N)[None, :]
    if IS_CAUSAL:
        offs_m = first + gl.arange(0, scores.shape[0], layout=gl.SliceLayout(1, layout))
        seen = seen & (offs_n[None, :] <= (offs_m + (N - M))[:, None])
    return gl.where(seen, scores, -float("inf"))


@gluon.jit
def online_softmax_update(
    scores, row_sum, row_max, scale, dtype: gl.constexpr, layout: gl.constexpr
):
    """Return p of one more tile, in `layout`, the new row_sum and row_max, and alpha,
    the factor for all that was summed before."""
    new_max = gl.maximum(row_max, gl.max(scores, 1))
    # A row that has seen no key subtracts 0: -inf - -inf would be NaN.
    base = gl.where(new_max == -float("inf"), 0.0, new_max) * scale
    alpha = gl.exp2(row_max * scale - base)
    p = gl.exp2(scores * scale - base[:, None])
    row_sum = row_sum * alpha + gl.sum(p, 1)
    return gl.convert_layout(p.to(dtype), layout), row_sum, new_max, alpha


@gluon.jit
def consumer(
    out_desc, lse2_ptr, smem, bars, sizes, scale,
    PART: gl.constexpr, GROUP_BH: gl.constexpr, IS_CAUSAL: gl.constexpr,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr,
):  # fmt: skip
    """Compute half the queries of every tile, PART 0 or 1, with all keys that they
    see."""
    q_smem, k_smem, v_smem, out_smem = smem
    q_full, q_empty, full, empty = bars
    batches, heads, heads_per_kv, M, N = sizes
    STAGES: gl.constexpr = full.type.shape[0]
    ROWS: gl.constexpr = BLOCK_M // 2
    BLOCK_D: gl.constexpr = v_smem.type.shape[4]
    dtype: gl.constexpr = v_smem.dtype
    s_layout: gl.constexpr = gl.NVMMADistributedLayout(
        [3, 0], [4, 1], [16, BLOCK_N, 16]
    )
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_D, 16])
    p_layout: gl.constexpr = gl.DotOperandLayout(0, layout, 2)  # p stays in registers
    done, turn = 0, 0  # stages that were read; the phase of q_full
    for tile in range(
        gl.program_id(0), gl.cdiv(M, BLOCK_M) * batches * heads, gl.num_programs(0)
    ):
        b, h, first, tiles = place(tile, sizes, GROUP_BH, IS_CAUSAL, BLOCK_M, BLOCK_N)
        first += PART * ROWS
        # All these queries see the keys before it.
        unmasked_end = (
            gl.minimum(N, gl.maximum(first + 1 + (N - M), 0)) if IS_CAUSAL else N
        )
        row_layout: gl.constexpr = gl.SliceLayout(1, s_layout)
        row_max = gl.full((ROWS,), -float("inf"), gl.float32, row_layout)
        row_sum = gl.zeros((ROWS,), gl.float32, row_layout)
        acc = gl.zeros((ROWS, BLOCK_D), gl.float32, layout)

        mbarrier.wait(q_full.index(0), turn)
        mbarrier.wait(full.index(done % STAGES), (done // STAGES) & 1)
        scores = begin_scores(q_smem, k_smem, done, PART, s_layout)
        scores = warpgroup_mma_wait(0, deps=(scores,))
        scores = hide(scores, first, (tiles - 1) * BLOCK_N, M, N, IS_CAUSAL, s_layout)
        p, row_sum, row_max, alpha = online_softmax_update(
            scores, row_sum, row_max, scale, dtype, p_layout
        )
        mbarrier.arrive(empty.index(done % STAGES), count=1)
        mbarrier.wait(full.index((done + 1) % STAGES), ((done + 1) // STAGES) & 1)
        last = done + tiles
        for step in range(done + 1, last):
            scores = begin_scores(q_smem, k_smem, step, PART, s_layout)
            acc = begin_sum(p, acc, v_smem, step)
            scores = warpgroup_mma_wait(1, deps=(scores,))
            start = (last - 1 - step) * BLOCK_N
            if start + BLOCK_N > unmasked_end:
                scores = hide(scores, first, start, M, N, IS_CAUSAL, s_layout)
            new_p, row_sum, row_max, alpha = online_softmax_update(
                scores, row_sum, row_max, scale, dtype, p_layout
            )
            # To wait for the next stage here also keeps the compiler from computing p
            # after the sum has ended.
            mbarrier.wait(full.index((step + 1) % STAGES), ((step + 1) // STAGES) & 1)
            # The sum must end in the iteration that began it: only until then does the
            # compiler keep the registers of p.
            acc = warpgroup_mma_wait(0, deps=(acc,))
            mbarrier.arrive(empty.index(step % STAGES), count=1)
            acc *= gl.convert_layout(alpha, gl.SliceLayout(1, layout))[:, None]
            p = new_p
        mbarrier.arrive(q_empty.index(0), count=1)
        acc = begin_sum(p, acc, v_smem, last)
        acc = warpgroup_mma_wait(0, deps=(acc,))
        mbarrier.arrive(empty.index(last % STAGES), count=1)
        done = last + 1
        turn ^= 1

        sees_nothing = row_sum == 0
        factor = 1 / gl.where(sees_nothing, 1.0, row_sum)
        acc *= gl.convert_layout(factor, gl.SliceLayout(1, layout))[:, None]
        tma.store_wait(0)
        out_smem.index(PART).reshape([ROWS, BLOCK_D]).store(acc.to(dtype))
        fence_async_shared()
        tma.async_copy_shared_to_global(
            out_desc, [b, h, first, 0], out_smem.index(PART)
        )
        offs_m = first + gl.arange(0, ROWS, layout=row_layout)
        lse2 = gl.where(sees_nothing, float("inf"), row_max * scale + gl.log2(row_sum))
        mask = offs_m < M
        gl.store(lse2_ptr + (b * heads + h).to(gl.int64) * M + offs_m, lse2, mask=mask)
    tma.store_wait(0)


@gluon.jit
def blocks_of(desc, count: gl.constexpr):
    """Return shared memory for `count` blocks of a descriptor."""
    shape: gl.constexpr = [count] + desc.block_type.shape
    return gl.allocate_shared_memory(desc.dtype, shape, desc.layout)


@gluon.jit(do_not_specialize=["scale", "batches", "heads", "heads_per_kv", "M", "N"])
def attention_hopper_kernel(
    q_desc, k_desc, v_desc, out_desc, lse2_ptr, scale,
    batches, heads, heads_per_kv, M, N,
    GROUP_BH: gl.constexpr, IS_CAUSAL: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """Each program writes the tiles pid, pid + programs, … of out and lse2.

    A producer and two consumers have warps of their own. q_desc, out_desc: blocks of
    half a tile of queries, [1, 1, 64, BLOCK_D]; k_desc, v_desc: of [1, 1, BLOCK_N,
    BLOCK_D]; lse2_ptr: [batches, heads, M], fp32, contiguous. heads_per_kv: heads of q
    for each of k. scale: above 0, contains log2(e). The grid has at most one program
    for each of the ceil(M / 128) * batches * heads tiles.
    """
    BLOCK_M: gl.constexpr = 2 * q_desc.block_type.shape[2]
    BLOCK_N: gl.constexpr = k_desc.block_type.shape[2]
    q_smem = blocks_of(q_desc, 2)
    k_smem = blocks_of(k_desc, STAGES)
    v_smem = blocks_of(v_desc, STAGES)
    out_smem = blocks_of(out_desc, 2)
    q_full = gl.allocate_shared_memory(gl.int64, [1, 1], mbarrier.MBarrierLayout())
    q_empty = gl.allocate_shared_memory(gl.int64, [1, 1], mbarrier.MBarrierLayout())
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    mbarrier.init(q_full.index(0), count=1)
    mbarrier.init(q_empty.index(0), count=2)
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=2)
    fence_async_shared()
    smem = (q_smem, k_smem, v_smem, out_smem)
    bars = (q_full, q_empty, full, empty)
    sizes = (batches, heads, heads_per_kv, M, N)
    gl.warp_specialize(
        [
            (consumer, (out_desc, lse2_ptr, smem, bars, sizes, scale, 0, GROUP_BH,
                        IS_CAUSAL, BLOCK_M, BLOCK_N)),
            (consumer, (out_desc, lse2_ptr, smem, bars, sizes, scale, 1, GROUP_BH,
                        IS_CAUSAL, BLOCK_M, BLOCK_N)),
            (producer, (q_desc, k_desc, v_desc, smem, bars, sizes, GROUP_BH,
                        IS_CAUSAL, BLOCK_M, BLOCK_N)),
        ],
        [4, 1],  # warps of the second consumer and of the producer
        [240, 24],  # registers of each of their threads
    )  # fmt: skip


def attention_hopper(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse2: torch.Tensor,
    causal: bool,
    scale: float,
) -> None:
    """Write attention to out, [B, H, M, D], and its lse2, [B, H, M], fp32.

    q: [B, H, M, D]; k, v: [B, H_kv, N, D]; not empty, one dtype of `DTYPES`, on a
    Hopper GPU; D is at most `BLOCK_D`. Elements of a row lie side by side, and all rows
    start at multiples of 16 bytes. out and lse2 are contiguous. A query that sees no
    key gets 0 and the lse2 +inf. scale: above 0. `attention` checks all that.

    Source: J. Shah and others, "FlashAttention-3: Fast and Accurate Attention with
    Asynchrony and Low-precision", arXiv 2407.08608, section 3.
    """
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
    """Return the function that launches the kernel: `launch((q, k, v, out), lse2,
    scale)`."""
    (B, H, M, _), (H_kv, N) = q.shape, k.shape[1:3]
    # A power of two, of which there are few: the kernel is compiled for each.
    heads_cached = CACHED // (2 * N * BLOCK_D * k.dtype.itemsize)
    group = max(1, triton.next_power_of_2(heads_cached + 1) // 2)
    tiles = triton.cdiv(M, BLOCK_M) * B * H
    # Tiles of equal length: persistent programs begin one tile while they write the
    # last. Causal tiles differ: one program each, so that an idle multiprocessor gets
    # the next.
    sms = torch.cuda.get_device_properties(q.device).multi_processor_count
    programs = tiles if causal else min(tiles, sms)
    constants = (B, H, H // H_kv, M, N, min(group, 32), causal, STAGES)
    rows_of_blocks = (HALF, BLOCK_N, BLOCK_N, HALF)
    return launcher(
        attention_hopper_kernel,
        (programs, 1, 1),
        (q, k, v, out),
        rest=(placeholder(lse2), 1.0),
        constants=constants,
        described=tuple(
            functools.partial(descriptor, rows=rows) for rows in rows_of_blocks
        ),
        num_warps=4,
    )


def descriptor(
    t: torch.Tensor | Placeholder, rows: int, columns: int = BLOCK_D
) -> TensorDescriptor:
    """Return the descriptor of t, [B, heads, length, D], `readable`, for blocks of one
    head."""
    block = [1, 1, rows, columns]
    layout = gl.NVMMASharedLayout.get_default_for(block, ELEMENTS[t.dtype])
    return TensorDescriptor(t, list(t.shape), [*steps(t), 1], block, layout)
