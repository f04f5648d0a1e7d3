"""out = activation(a @ b + bias) on Hopper: one warp only fetches, two groups of four warps only multiply.

Written in Gluon, the layer below Triton, where layouts, barriers and the division of labour are the author's own.
"""

import functools
from dataclasses import dataclass

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

HALF = 64  # rows of a tile that one consumer owns
BLOCK_M = 2 * HALF
ROW_BYTES = 128  # of a block in shared memory: the widest pattern that keeps its banks free of conflicts
GROUP = 16  # rows of tiles that share the columns of b while those are in the L2 cache
DTYPES = {torch.float16: gl.float16, torch.bfloat16: gl.bfloat16, torch.float8_e4m3fn: gl.float8e4nv}


@gluon.jit
def tile_origin(tile, tiles_m, tiles_n, GROUP: gl.constexpr):
    """Return the row and the column of a tile in grouped order: down GROUP rows of tiles, then one column on."""
    per_group = GROUP * tiles_n
    first = tile // per_group * GROUP
    rows = gl.minimum(tiles_m - first, GROUP)
    return first + tile % per_group % rows, tile % per_group // rows


@gluon.jit
def activate(x, ACTIVATION: gl.constexpr):
    """Return the activation of fp32 values; x itself for None."""
    if ACTIVATION == "relu":
        x = gl.where(x < 0, 0.0, x)
    elif ACTIVATION == "leaky_relu":
        x = gl.where(x < 0, 0.01 * x, x)
    elif ACTIVATION == "gelu":
        x = gl.map_elementwise(gelu, x)
    return x


@gluon.jit
def gelu(x):
    """Return x times the share of a normal distribution that lies below x, to within 1e-7.

    The share beyond |x| is 2 to the power of a polynomial: fewer instructions than gl.erf takes, and no spills.
    """
    z = gl.minimum(gl.abs(x), 16.0)  # where nothing lies beyond, so that infinity is no case of its own
    power = -1.69039805e-6 * z + 2.50832592e-5
    power = power * z - 1.14462421e-4
    power = power * z - 3.23342850e-4
    power = power * z + 7.33338523e-3
    power = power * z - 5.27141997e-2
    power = power * z - 4.59115437e-1
    power = power * z - 1.15112326
    power = power * z - 9.99998874e-1
    return gl.where(x < 0, 0.0, x) - z * gl.exp2(power)


@gluon.jit
def fetch(
    a_desc, b_desc, smem, bars, grid,
    ROWS: gl.constexpr, GROUP: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, A_ROWS: gl.constexpr,
    B_ROWS: gl.constexpr,
):  # fmt: skip
    """The producer: fill one stage after another, each as soon as both consumers have emptied it.

    A_ROWS, B_ROWS: whether a is [M, K] and b is [K, N] in memory, row by row; else they lie transposed.
    """
    a_smem, b_smem = smem
    full, empty = bars
    tiles_m, tiles_n, tiles_k = grid
    STAGES: gl.constexpr = full.type.shape[0]
    step = 0
    for tile in range(gl.program_id(0), tiles_m * tiles_n, gl.num_programs(0)):
        pid_m, pid_n = tile_origin(tile, tiles_m, tiles_n, GROUP)
        for k in range(0, tiles_k * BLOCK_K, BLOCK_K):
            stage = step % STAGES
            bar = full.index(stage)
            mbarrier.wait(empty.index(stage), ((step // STAGES) & 1) ^ 1)
            mbarrier.expect(bar, 2 * a_desc.block_type.nbytes + b_desc.block_type.nbytes)
            for part in gl.static_range(2):
                row, target = (2 * pid_m + part) * ROWS, a_smem.index(2 * stage + part)
                tma.async_copy_global_to_shared(a_desc, [row, k] if A_ROWS else [k, row], bar, target)
            column = pid_n * BLOCK_N
            tma.async_copy_global_to_shared(b_desc, [k, column] if B_ROWS else [column, k], bar, b_smem.index(stage))
            step += 1


@gluon.jit
def multiply(
    out_desc, bias_ptr, N, smem, out_smem, bars, grid,
    PART: gl.constexpr, GROUP: gl.constexpr, A_ROWS: gl.constexpr, B_ROWS: gl.constexpr, ACTIVATION: gl.constexpr,
):  # fmt: skip
    """A consumer: rows of half a tile, PART 0 or 1. One product is always under way while the next is prepared."""
    a_smem, b_smem = smem
    full, empty = bars
    tiles_m, tiles_n, tiles_k = grid
    STAGES: gl.constexpr = full.type.shape[0]
    BLOCK_N: gl.constexpr = out_desc.block_type.shape[1]
    ROWS: gl.constexpr = out_desc.block_type.shape[0]
    INSTRUCTION: gl.constexpr = [16, BLOCK_N, 256 // a_smem.dtype.primitive_bitwidth]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], INSTRUCTION)
    out_tile = out_smem.index(PART)
    step = 0
    for tile in range(gl.program_id(0), tiles_m * tiles_n, gl.num_programs(0)):
        pid_m, pid_n = tile_origin(tile, tiles_m, tiles_n, GROUP)
        acc = gl.zeros((ROWS, BLOCK_N), gl.float32, layout)
        if bias_ptr is not None:  # the sum starts from it, which costs nothing after the last product
            offs_n = pid_n * BLOCK_N + gl.arange(0, BLOCK_N, layout=gl.SliceLayout(0, layout))
            acc += gl.load(bias_ptr + offs_n, mask=offs_n < N, other=0.0).to(gl.float32)[None, :]
        acc = warpgroup_mma_init(acc)
        for k in range(tiles_k):
            stage = step % STAGES
            mbarrier.wait(full.index(stage), (step // STAGES) & 1)
            a = a_smem.index(2 * stage + PART) if A_ROWS else a_smem.index(2 * stage + PART).permute((1, 0))
            b = b_smem.index(stage) if B_ROWS else b_smem.index(stage).permute((1, 0))
            acc = warpgroup_mma(a, b, acc, is_async=True)
            acc = warpgroup_mma_wait(num_outstanding=1, deps=(acc,))
            if k > 0:  # the product before this one is done, and its stage may be filled again
                mbarrier.arrive(empty.index((step + STAGES - 1) % STAGES), count=1)
            acc = warpgroup_mma_init(acc)
            step += 1
        acc = warpgroup_mma_wait(num_outstanding=0, deps=(acc,))
        mbarrier.arrive(empty.index((step + STAGES - 1) % STAGES), count=1)
        tma.store_wait(0)
        out_tile.store(activate(acc, ACTIVATION).to(out_desc.dtype))
        fence_async_shared()
        tma.async_copy_shared_to_global(out_desc, [(2 * pid_m + PART) * ROWS, pid_n * BLOCK_N], out_tile)
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["bias_ptr", "N", "tiles_m", "tiles_n", "tiles_k"])
def matmul_hopper_kernel(
    a_desc, b_desc, out_desc, bias_ptr, N, tiles_m, tiles_n, tiles_k,
    GROUP: gl.constexpr, BLOCK_K: gl.constexpr, STAGES: gl.constexpr,
    A_ROWS: gl.constexpr, B_ROWS: gl.constexpr, ACTIVATION: gl.constexpr,
):  # fmt: skip
    """Each program takes every so many-th tile of out, and hands its three parts to warps of their own.

    a_desc: blocks of 64 rows; b_desc, out_desc: blocks of BLOCK_N columns; bias_ptr: [N], contiguous, or None.
    """
    ROWS: gl.constexpr = out_desc.block_type.shape[0]
    BLOCK_N: gl.constexpr = out_desc.block_type.shape[1]
    a_smem = gl.allocate_shared_memory(a_desc.dtype, [2 * STAGES] + a_desc.block_type.shape, a_desc.layout)
    b_smem = gl.allocate_shared_memory(b_desc.dtype, [STAGES] + b_desc.block_type.shape, b_desc.layout)
    out_smem = gl.allocate_shared_memory(out_desc.dtype, [2] + out_desc.block_type.shape, out_desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=2)
    fence_async_shared()
    smem, bars, grid = (a_smem, b_smem), (full, empty), (tiles_m, tiles_n, tiles_k)
    gl.warp_specialize(
        [
            (multiply, (out_desc, bias_ptr, N, smem, out_smem, bars, grid, 0, GROUP, A_ROWS, B_ROWS, ACTIVATION)),
            (multiply, (out_desc, bias_ptr, N, smem, out_smem, bars, grid, 1, GROUP, A_ROWS, B_ROWS, ACTIVATION)),
            (fetch, (a_desc, b_desc, smem, bars, grid, ROWS, GROUP, BLOCK_N, BLOCK_K, A_ROWS, B_ROWS)),
        ],
        [4, 1],  # warps of the second and third part
        [240, 24],  # registers of each of their threads: who only fetches leaves his to who multiplies
    )


def matmul_hopper(
    a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None = None, activation: str | None = None
) -> torch.Tensor:
    """Return activation(a @ b + bias), [M, N], contiguous: in the dtype of a, or in bfloat16 where that has 8 bits.

    a: [M, K]; b: [K, N]; not empty, one dtype of `DTYPES`, on the current device, a Hopper GPU; bias: [N], contiguous,
    or None; activation: None, "relu", "leaky_relu" or "gelu". `kernels.matmul.matmul` sees to all that.

    The copy engine (TMA) reads matrices whose rows or columns lie one after the other and start at multiples of 16
    bytes. Others are copied first, as are 8-bit ones unless K is the contiguous axis of both, which is how the tensor
    cores want them; and where 8 does not divide N, the result is copied out of a wider one.
    Sums of 8-bit products keep some 14 bits on their way, as in torch._scaled_mm with use_fast_accum=True.
    """
    (M, K), N, bits8 = a.shape, b.shape[1], a.dtype.itemsize == 1
    a_rows, a_by_rows = fetchable(a, (1,) if bits8 else (1, 0))
    b_rows, b_by_rows = fetchable(b, (0,) if bits8 else (1, 0))
    out = a.new_empty((M, round_up(N, 8)), dtype=torch.bfloat16 if bits8 else a.dtype)
    plan = plan_for(M, N, K, a.dtype, a_by_rows, b_by_rows, activation, a.device)
    arguments = (
        descriptor(a_rows.data_ptr(), a.dtype, a_rows.shape, a_rows.stride(), plan.a_block),
        descriptor(b_rows.data_ptr(), b.dtype, b_rows.shape, b_rows.stride(), plan.b_block),
        descriptor(out.data_ptr(), out.dtype, out.shape, out.stride(), plan.out_block),
        bias,
        N,
        *plan.constants,
    )
    # At every launch Triton works out which compiled kernel the arguments call for; for ours this pair decides it.
    kind = plan.kind, None if bias is None else bias.dtype
    if kind in COMPILED:
        COMPILED[kind][plan.grid](*arguments)
    else:
        COMPILED[kind] = matmul_hopper_kernel[plan.grid](*arguments, num_warps=4)
    return out if out.shape[1] == N else out[:, :N].contiguous()


COMPILED: dict = {}


def fetchable(t: torch.Tensor, along: tuple[int, ...]) -> tuple[torch.Tensor, bool]:
    """Return t or a copy as TMA reads it, row by row as memory lies, and whether these are rows of t, not its columns.

    along: the axes of t that may be contiguous, the preferred one first.
    """
    for axis in along:
        rows = t if axis == 1 else t.t()
        stride_row, stride_column = rows.stride()
        aligned = stride_row * t.element_size() % 16 == 0 and t.data_ptr() % 16 == 0
        if stride_column == 1 and stride_row >= rows.shape[1] and aligned:
            return rows, axis == 1
    axis = next((axis for axis in along if t.stride(axis) == 1), along[0])
    rows = t if axis == 1 else t.t()
    wide = rows.new_empty((rows.shape[0], round_up(rows.shape[1], 16 // t.element_size())))
    return wide[:, : rows.shape[1]].copy_(rows), axis == 1


@dataclass(frozen=True)
class Plan:
    """How products of one shape and layout are cut up: all that does not depend on where the matrices lie."""

    a_block: tuple[int, int]
    b_block: tuple[int, int]
    out_block: tuple[int, int]
    grid: tuple[int, int, int]
    constants: tuple  # the arguments of the kernel after N
    kind: tuple  # what the compiled kernel depends on, but for the bias


@functools.lru_cache(maxsize=1024)
def plan_for(M, N, K, dtype, a_by_rows: bool, b_by_rows: bool, activation: str | None, device: torch.device) -> Plan:
    """Return the plan of a product: a function of what stands here alone, so that no call has to try anything out."""
    sms = torch.cuda.get_device_properties(device).multi_processor_count
    BLOCK_N, STAGES = tile_shape(M, N, sms)
    BLOCK_K = ROW_BYTES // dtype.itemsize
    tiles_m, tiles_n, tiles_k = triton.cdiv(M, BLOCK_M), triton.cdiv(N, BLOCK_N), triton.cdiv(K, BLOCK_K)
    constants = (GROUP, BLOCK_K, STAGES, a_by_rows, b_by_rows, activation)
    return Plan(
        a_block=(HALF, BLOCK_K) if a_by_rows else (BLOCK_K, HALF),
        b_block=(BLOCK_K, BLOCK_N) if b_by_rows else (BLOCK_N, BLOCK_K),
        out_block=(HALF, BLOCK_N),
        grid=(min(sms, tiles_m * tiles_n), 1, 1),
        constants=(tiles_m, tiles_n, tiles_k, *constants),
        kind=(device, dtype, BLOCK_N, *constants),
    )


def tile_shape(M: int, N: int, sms: int) -> tuple[int, int]:
    """Return BLOCK_N and STAGES: the widest tile that leaves few multiprocessors idle, with as many stages as fit."""
    tiles_m = triton.cdiv(M, BLOCK_M)
    for BLOCK_N, STAGES in ((256, 3), (128, 6)):
        if tiles_m * triton.cdiv(N, BLOCK_N) >= 0.75 * sms and BLOCK_N < 2 * N:
            return BLOCK_N, STAGES
    return 64, 8


@dataclass(frozen=True)
class Address:
    """Stands for a tensor in a descriptor: descriptors are kept, and must not keep memory from being freed."""

    pointer: int
    dtype: torch.dtype

    def data_ptr(self) -> int:
        """Return the address, as a tensor does."""
        return self.pointer


@functools.lru_cache(maxsize=1024)
def descriptor(pointer: int, dtype: torch.dtype, shape: tuple, strides: tuple, block: tuple) -> TensorDescriptor:
    """Return what TMA has to know to move blocks of a matrix; made once for each place and layout."""
    layout = gl.NVMMASharedLayout.get_default_for(list(block), DTYPES[dtype])
    return TensorDescriptor(Address(pointer, dtype), list(shape), list(strides), list(block), layout)


def round_up(number: int, unit: int) -> int:
    """Return the smallest multiple of unit that is not less than number."""
    return triton.cdiv(number, unit) * unit
