"""out = softmax(q @ k.T * scale) @ v on Hopper: one warp only fetches, two groups of four warps multiply and weigh.

Written in Gluon, as matmul_hopper. A group of warps begins the products of a tile before it weighs the scores of the
next one, so that the tensor cores multiply while the other units raise powers of two.
"""

import functools
import math
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

from kernels.launch import Looks, Placed, launcher, looks, stand_in

HALF = 64  # queries of a tile that one consumer owns
BLOCK_M = 2 * HALF
BLOCK_N = 128  # keys of a tile
BLOCK_D = 128  # elements of a row: shorter ones are filled up with zeros
STAGES = 2
LOG2_E = 1.4426950408889634
CACHED = 2**25  # bytes of keys and values that stay in the L2 cache together
DTYPES = (torch.float16, torch.bfloat16)
ELEMENTS = {torch.float16: gl.float16, torch.bfloat16: gl.bfloat16, torch.float32: gl.float32}


@gluon.jit
def place(tile, sizes, GROUP: gl.constexpr, IS_CAUSAL: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr):
    """Return the batch, the head and the first query of a tile of the result, and its number of tiles of keys.

    GROUP heads, whose keys and values fit the L2 cache together, are under way at a time. Of these, causal rows that
    see most go first, so that the last programs to end are short ones.
    """
    B, H, SHARE, M, N = sizes
    tiles_m = gl.cdiv(M, BLOCK_M)
    first_bh = tile // (GROUP * tiles_m) * GROUP
    present = gl.minimum(B * H - first_bh, GROUP)
    turn = tile % (GROUP * tiles_m)
    pid_m, pid_bh = turn // present, first_bh + turn % present
    keys = N
    if IS_CAUSAL:
        pid_m = tiles_m - 1 - pid_m
        keys = gl.minimum(N, (pid_m + 1) * BLOCK_M + (N - M))
    return pid_bh // H, pid_bh % H, pid_m * BLOCK_M, gl.maximum(gl.cdiv(keys, BLOCK_N), 1)


@gluon.jit
def fetch(
    q_desc, k_desc, v_desc, smem, bars, sizes,
    GROUP: gl.constexpr, IS_CAUSAL: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr,
):  # fmt: skip
    """The producer: for every tile bring the queries, then stage after stage, each as soon as both consumers have
    emptied it. It runs ahead of them, into the next tile of the program.

    A stage holds the keys of one tile and the values of the one before, which are multiplied side by side; tiles come
    from the last to the first. What the first and the last stage have too much lies outside the head: the copy engine
    fills it with zeros.
    """
    q_smem, k_smem, v_smem, out_smem = smem
    q_full, q_empty, full, empty = bars
    B, H, SHARE, M, N = sizes
    STAGES: gl.constexpr = full.type.shape[0]
    step, turn = 0, 0
    for tile in range(gl.program_id(0), gl.cdiv(M, BLOCK_M) * B * H, gl.num_programs(0)):
        b, h, first, tiles = place(tile, sizes, GROUP, IS_CAUSAL, BLOCK_M, BLOCK_N)
        mbarrier.wait(q_empty.index(0), turn ^ 1)
        mbarrier.expect(q_full.index(0), 2 * q_desc.block_type.nbytes)
        for part in gl.static_range(2):
            row = first + part * (BLOCK_M // 2)
            tma.async_copy_global_to_shared(q_desc, [b, h, row, 0], q_full.index(0), q_smem.index(part))
        for start in range((tiles - 1) * BLOCK_N, -BLOCK_N - 1, -BLOCK_N):
            stage = step % STAGES
            bar = full.index(stage)
            mbarrier.wait(empty.index(stage), ((step // STAGES) & 1) ^ 1)
            mbarrier.expect(bar, k_desc.block_type.nbytes + v_desc.block_type.nbytes)
            tma.async_copy_global_to_shared(k_desc, [b, h // SHARE, start, 0], bar, k_smem.index(stage))
            tma.async_copy_global_to_shared(v_desc, [b, h // SHARE, start + BLOCK_N, 0], bar, v_smem.index(stage))
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
def begin_sum(powers, acc, v_smem, step):
    """Begin to add the values of a stage, times their powers, to acc."""
    STAGES: gl.constexpr = v_smem.type.shape[0]
    BLOCK_N: gl.constexpr = v_smem.type.shape[3]
    BLOCK_D: gl.constexpr = v_smem.type.shape[4]
    v = v_smem.index(step % STAGES).reshape([BLOCK_N, BLOCK_D])
    return warpgroup_mma(powers, v, warpgroup_mma_init(acc), is_async=True)


@gluon.jit
def hide(scores, first, start, M, N, IS_CAUSAL: gl.constexpr, layout: gl.constexpr):
    """Return scores, [queries, keys], with -inf where a query does not see a key: its power will be 0."""
    offs_n = start + gl.arange(0, scores.shape[1], layout=gl.SliceLayout(0, layout))
    seen = (offs_n < N)[None, :]
    if IS_CAUSAL:
        offs_m = first + gl.arange(0, scores.shape[0], layout=gl.SliceLayout(1, layout))
        seen = seen & (offs_n[None, :] <= (offs_m + (N - M))[:, None])
    return gl.where(seen, scores, -float("inf"))


@gluon.jit
def weigh(scores, total, top, scale, dtype: gl.constexpr, layout: gl.constexpr):
    """Return the powers of one more tile, in `layout`, the sums of powers and the largest scores so far, and the factor
    by which older powers shrink."""
    new_top = gl.maximum(top, gl.max(scores, 1))
    # A row that has seen nothing yet is measured from 0: -inf from -inf would be NaN.
    base = gl.where(new_top == -float("inf"), 0.0, new_top) * scale
    shrink = gl.exp2(top * scale - base)
    powers = gl.exp2(scores * scale - base[:, None])
    return gl.convert_layout(powers.to(dtype), layout), total * shrink + gl.sum(powers, 1), new_top, shrink


@gluon.jit
def attend(
    out_desc, lse_ptr, smem, bars, sizes, scale,
    PART: gl.constexpr, GROUP: gl.constexpr, IS_CAUSAL: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr,
):  # fmt: skip
    """A consumer: of every tile half the queries, PART 0 or 1, against all keys that they see."""
    q_smem, k_smem, v_smem, out_smem = smem
    q_full, q_empty, full, empty = bars
    B, H, SHARE, M, N = sizes
    STAGES: gl.constexpr = full.type.shape[0]
    ROWS: gl.constexpr = BLOCK_M // 2
    BLOCK_D: gl.constexpr = v_smem.type.shape[4]
    dtype: gl.constexpr = v_smem.dtype
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_D, 16])
    p_layout: gl.constexpr = gl.DotOperandLayout(0, layout, 2)  # powers go from accumulator to operand in registers
    done, turn = 0, 0  # stages that are used up; which of two turns this is, for q_full
    for tile in range(gl.program_id(0), gl.cdiv(M, BLOCK_M) * B * H, gl.num_programs(0)):
        b, h, first, tiles = place(tile, sizes, GROUP, IS_CAUSAL, BLOCK_M, BLOCK_N)
        first += PART * ROWS
        by_all = gl.minimum(N, gl.maximum(first + 1 + (N - M), 0)) if IS_CAUSAL else N  # keys all these queries see
        top = gl.full((ROWS,), -float("inf"), gl.float32, gl.SliceLayout(1, s_layout))
        total = gl.zeros((ROWS,), gl.float32, gl.SliceLayout(1, s_layout))
        acc = gl.zeros((ROWS, BLOCK_D), gl.float32, layout)

        mbarrier.wait(q_full.index(0), turn)
        mbarrier.wait(full.index(done % STAGES), (done // STAGES) & 1)
        scores = warpgroup_mma_wait(0, deps=(begin_scores(q_smem, k_smem, done, PART, s_layout),))
        scores = hide(scores, first, (tiles - 1) * BLOCK_N, M, N, IS_CAUSAL, s_layout)
        powers, total, top, shrink = weigh(scores, total, top, scale, dtype, p_layout)
        mbarrier.arrive(empty.index(done % STAGES), count=1)
        mbarrier.wait(full.index((done + 1) % STAGES), ((done + 1) // STAGES) & 1)
        last = done + tiles
        for step in range(done + 1, last):
            scores = begin_scores(q_smem, k_smem, step, PART, s_layout)
            acc = begin_sum(powers, acc, v_smem, step)
            scores = warpgroup_mma_wait(1, deps=(scores,))
            start = (last - 1 - step) * BLOCK_N
            if start + BLOCK_N > by_all:
                scores = hide(scores, first, start, M, N, IS_CAUSAL, s_layout)
            new_powers, total, top, shrink = weigh(scores, total, top, scale, dtype, p_layout)
            # To wait for the next stage here also keeps the compiler from taking the powers after the sum has ended.
            mbarrier.wait(full.index((step + 1) % STAGES), ((step + 1) // STAGES) & 1)
            # A sum ends in the turn of the loop that began it: the compiler guards the powers it reads no further.
            acc = warpgroup_mma_wait(0, deps=(acc,))
            mbarrier.arrive(empty.index(step % STAGES), count=1)
            acc *= gl.convert_layout(shrink, gl.SliceLayout(1, layout))[:, None]
            powers = new_powers
        mbarrier.arrive(q_empty.index(0), count=1)
        acc = warpgroup_mma_wait(0, deps=(begin_sum(powers, acc, v_smem, last),))
        mbarrier.arrive(empty.index(last % STAGES), count=1)
        done = last + 1
        turn ^= 1

        blind = total == 0
        acc *= gl.convert_layout(1 / gl.where(blind, 1.0, total), gl.SliceLayout(1, layout))[:, None]
        tma.store_wait(0)
        out_smem.index(PART).reshape([ROWS, BLOCK_D]).store(acc.to(dtype))
        fence_async_shared()
        tma.async_copy_shared_to_global(out_desc, [b, h, first, 0], out_smem.index(PART))
        offs_m = first + gl.arange(0, ROWS, layout=gl.SliceLayout(1, s_layout))
        lse = gl.where(blind, float("inf"), top * scale + gl.log2(total))
        gl.store(lse_ptr + (b * H + h).to(gl.int64) * M + offs_m, lse, mask=offs_m < M)
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["scale", "B", "H", "SHARE", "M", "N"])
def attention_hopper_kernel(
    q_desc, k_desc, v_desc, out_desc, lse_ptr, scale, B, H, SHARE, M, N,
    GROUP: gl.constexpr, IS_CAUSAL: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """Each program writes every so many-th tile of queries of out and lse; its three parts have warps of their own.

    q_desc, out_desc: blocks of half a tile of queries, [1, 1, 64, BLOCK_D]; k_desc, v_desc: [1, 1, BLOCK_N, BLOCK_D];
    lse_ptr: [B, H, M], fp32, contiguous. SHARE: heads of q for each of k. scale is above 0 and contains log2(e).
    The grid has at most as many programs as there are tiles, ceil(M / 128) * B * H.
    """
    BLOCK_M: gl.constexpr = 2 * q_desc.block_type.shape[2]
    BLOCK_N: gl.constexpr = k_desc.block_type.shape[2]
    q_smem = gl.allocate_shared_memory(q_desc.dtype, [2] + q_desc.block_type.shape, q_desc.layout)
    k_smem = gl.allocate_shared_memory(k_desc.dtype, [STAGES] + k_desc.block_type.shape, k_desc.layout)
    v_smem = gl.allocate_shared_memory(v_desc.dtype, [STAGES] + v_desc.block_type.shape, v_desc.layout)
    out_smem = gl.allocate_shared_memory(out_desc.dtype, [2] + out_desc.block_type.shape, out_desc.layout)
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
    smem, bars, sizes = (q_smem, k_smem, v_smem, out_smem), (q_full, q_empty, full, empty), (B, H, SHARE, M, N)
    gl.warp_specialize(
        [
            (attend, (out_desc, lse_ptr, smem, bars, sizes, scale, 0, GROUP, IS_CAUSAL, BLOCK_M, BLOCK_N)),
            (attend, (out_desc, lse_ptr, smem, bars, sizes, scale, 1, GROUP, IS_CAUSAL, BLOCK_M, BLOCK_N)),
            (fetch, (q_desc, k_desc, v_desc, smem, bars, sizes, GROUP, IS_CAUSAL, BLOCK_M, BLOCK_N)),
        ],
        [4, 1],  # warps of the second and third part
        [240, 24],  # registers of each of their threads: who only fetches leaves his to who multiplies
    )


def attention_hopper(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor, lse: torch.Tensor, causal: bool, scale: float
) -> None:
    """Write attention to out, [B, H, M, D], and to lse, [B, H, M], fp32, the log2 of the sum of powers of each query.

    q: [B, H, M, D]; k, v: [B, H_kv, N, D]; not empty, one dtype of `DTYPES`, on the current device, a Hopper GPU; D is
    at most `BLOCK_D`. Elements of a row lie side by side, and all rows start at multiples of 16 bytes. out and lse are
    contiguous; lse is +inf and out 0 where a query sees no key. scale: above 0. `kernels.attention.attention` sees to
    all that.

    Source: J. Shah and others, "FlashAttention-3: Fast and Accurate Attention with Asynchrony and Low-precision",
    arXiv 2407.08608, section 3.
    """
    launch = launcher_for(*map(looks, (q, k, v, out, lse)), causal)
    launch((q, k, v, out), lse, scale * LOG2_E)


@functools.lru_cache(maxsize=1024)
def launcher_for(q: Looks, k: Looks, v: Looks, out: Looks, lse: Looks, causal: bool) -> Callable[..., None]:
    """Return the function that launches the kernel on tensors of these looks: `launch((q, k, v, out), lse, scale)`."""
    (B, H, M, _), (H_kv, N) = q.shape, k.shape[1:3]
    # A power of two, of which there are few: the kernel is compiled for each.
    group = max(1, triton.next_power_of_2(CACHED // (2 * N * BLOCK_D * k.dtype.itemsize) + 1) // 2)
    tiles = triton.cdiv(M, BLOCK_M) * B * H
    # Tiles of equal length go to programs that stay, so that one begins while the one before is written. Of causal ones
    # each has its own: the GPU then gives the next to whoever is free.
    programs = tiles if causal else min(tiles, torch.cuda.get_device_properties(q.device).multi_processor_count)
    constants = (B, H, H // H_kv, M, N, min(group, 32), causal, STAGES)
    described = (functools.partial(descriptor, rows=rows) for rows in (HALF, BLOCK_N, BLOCK_N, HALF))
    rest = (stand_in(lse), 1.0)
    grid = (programs, 1, 1)
    return launcher(attention_hopper_kernel, grid, (q, k, v, out), rest, constants, tuple(described), num_warps=4)


def readable(t: torch.Tensor | Placed) -> bool:
    """Return whether the copy engine can read t, [B, heads, length, D]: rows at multiples of 16 bytes, in one piece."""
    unit = 16 // t.dtype.itemsize
    apart = all(step > 0 and step % unit == 0 for step in steps(t))
    return math.prod(t.shape) > 0 and apart and t.data_ptr() % 16 == 0 and (t.stride()[3] == 1 or t.shape[3] == 1)


def steps(t: torch.Tensor | Placed) -> list[int]:
    """Return all strides but the last. That of an axis of one element means nothing, and is replaced by a valid one."""
    return [stride if size > 1 else 16 for stride, size in zip(t.stride()[:3], t.shape, strict=False)]


def descriptor(t: torch.Tensor | Placed, rows: int, columns: int = BLOCK_D) -> TensorDescriptor:
    """Return what the copy engine has to know to move blocks of so many rows of one head of t, which is `readable`."""
    block = [1, 1, rows, columns]
    layout = gl.NVMMASharedLayout.get_default_for(block, ELEMENTS[t.dtype])
    return TensorDescriptor(t, list(t.shape), [*steps(t), 1], block, layout)
