"""out = activation(a @ b + bias) on Hopper.

One warp only fetches, and two groups of four warps only multiply. The kernel is written
in Gluon, the layer below Triton: it sets layouts and barriers, and says which warp does
what.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

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

from ..launch import (
    Placeholder,
    TensorSpec,
    launcher,
    placeholder,
    tensor_spec,
)

HALF = 64  # rows of a tile that one consumer owns
BLOCK_M = 2 * HALF
# Bytes of a row of a block in shared memory: the widest pattern in which no two threads
# want one bank.
ROW_BYTES = 128
GROUP_M = 16  # rows of tiles that share the columns of b while the L2 cache has those
# Bytes of shared memory for blocks; barriers take some of the remaining kilobyte.
SHARED = 226 * 1024
DTYPES = {
    torch.float16: gl.float16,
    torch.bfloat16: gl.bfloat16,
    torch.float8_e4m3fn: gl.float8e4nv,
    torch.float32: gl.float32,
}


@gluon.jit
def tile_origin(tile, tiles_m, tiles_n, GROUP_M: gl.constexpr):
    """Return the row and the column of a tile in grouped order.

    The order goes down GROUP_M rows of tiles, then one column on.
    """
    per_group = GROUP_M * tiles_n
    first = tile // per_group * GROUP_M
    rows = gl.minimum(tiles_m - first, GROUP_M)
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
    """Return x * Phi(x), to within 1e-7; Phi is the normal distribution's.

    Phi(-|x|) is 2 to the power of a polynomial: fewer instructions than gl.erf takes,
    and no spills.
    """
    z = gl.minimum(gl.abs(x), 16.0)  # Phi(-16) is 0, and infinity no case of its own
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
def producer(
    a_desc, b_desc, smem, bars, grid,
    ROWS: gl.constexpr, GROUP_M: gl.constexpr, BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr, A_ROWS: gl.constexpr, B_ROWS: gl.constexpr,
):  # fmt: skip
    """Fill one stage after another, each as soon as both consumers have emptied it.

    A_ROWS, B_ROWS: whether a is [M, K] and b is [K, N] in memory, row by row; else they
    lie transposed.
    """
    a_smem, b_smem = smem
    full, empty = bars
    tiles_m, tiles_n, tiles_k = grid
    STAGES: gl.constexpr = full.type.shape[0]
    BYTES: gl.constexpr = 2 * a_desc.block_type.nbytes + b_desc.block_type.nbytes
    step = 0
    for tile in range(gl.program_id(0), tiles_m * tiles_n, gl.num_programs(0)):
        pid_m, pid_n = tile_origin(tile, tiles_m, tiles_n, GROUP_M)
        for k in range(0, tiles_k * BLOCK_K, BLOCK_K):
            stage = step % STAGES
            bar = full.index(stage)
            mbarrier.wait(empty.index(stage), ((step // STAGES) & 1) ^ 1)
            mbarrier.expect(bar, BYTES)
            for part in gl.static_range(2):
                row, target = (2 * pid_m + part) * ROWS, a_smem.index(2 * stage + part)
                origin = [row, k] if A_ROWS else [k, row]
                tma.async_copy_global_to_shared(a_desc, origin, bar, target)
            column, target = pid_n * BLOCK_N, b_smem.index(stage)
            origin = [k, column] if B_ROWS else [column, k]
            tma.async_copy_global_to_shared(b_desc, origin, bar, target)
            step += 1


@gluon.jit
def consumer(
    out_desc, bias_ptr, N, smem, out_smem, bars, grid,
    PART: gl.constexpr, GROUP_M: gl.constexpr,
    A_ROWS: gl.constexpr, B_ROWS: gl.constexpr, ACTIVATION: gl.constexpr,
):  # fmt: skip
    """Multiply half of the rows of each tile: those of PART 0 or 1.

    One product is always under way while the next is prepared.
    """
    a_smem, b_smem = smem
    full, empty = bars
    tiles_m, tiles_n, tiles_k = grid
    STAGES: gl.constexpr = full.type.shape[0]
    BLOCK_N: gl.constexpr = out_desc.block_type.shape[1]
    ROWS: gl.constexpr = out_desc.block_type.shape[0]
    INSTRUCTION: gl.constexpr = [16, BLOCK_N, 256 // a_smem.dtype.primitive_bitwidth]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], INSTRUCTION)
    columns: gl.constexpr = gl.SliceLayout(0, layout)
    out_tile = out_smem.index(PART)
    step = 0
    for tile in range(gl.program_id(0), tiles_m * tiles_n, gl.num_programs(0)):
        pid_m, pid_n = tile_origin(tile, tiles_m, tiles_n, GROUP_M)
        acc = gl.zeros((ROWS, BLOCK_N), gl.float32, layout)
        if (
            bias_ptr is not None
        ):  # to start from it costs nothing after the last product
            offs_n = pid_n * BLOCK_N + gl.arange(0, BLOCK_N, layout=columns)
            bias = gl.load(bias_ptr + offs_n, mask=offs_n < N, other=0.0)
            acc += bias.to(gl.float32)[None, :]
        acc = warpgroup_mma_init(acc)
        for k in range(tiles_k):
            stage = step % STAGES
            mbarrier.wait(full.index(stage), (step // STAGES) & 1)
            a, b = a_smem.index(2 * stage + PART), b_smem.index(stage)
            a = a if A_ROWS else a.permute((1, 0))
            b = b if B_ROWS else b.permute((1, 0))
            acc = warpgroup_mma(a, b, acc, is_async=True)
            acc = warpgroup_mma_wait(num_outstanding=1, deps=(acc,))
            if k > 0:  # the product before is done, and its stage may be filled again
                mbarrier.arrive(empty.index((step + STAGES - 1) % STAGES), count=1)
            acc = warpgroup_mma_init(acc)
            step += 1
        acc = warpgroup_mma_wait(num_outstanding=0, deps=(acc,))
        mbarrier.arrive(empty.index((step + STAGES - 1) % STAGES), count=1)
        tma.store_wait(0)
        out_tile.store(activate(acc, ACTIVATION).to(out_desc.dtype))
        fence_async_shared()
        origin = [(2 * pid_m + PART) * ROWS, pid_n * BLOCK_N]
        tma.async_copy_shared_to_global(out_desc, origin, out_tile)
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["bias_ptr", "N", "tiles_m", "tiles_n", "tiles_k"])
def matmul_hopper_kernel(
    a_desc, b_desc, out_desc, bias_ptr, N, tiles_m, tiles_n, tiles_k,
    GROUP_M: gl.constexpr, BLOCK_K: gl.constexpr, STAGES: gl.constexpr,
    A_ROWS: gl.constexpr, B_ROWS: gl.constexpr, ACTIVATION: gl.constexpr,
):  # fmt: skip
    """Each program of P takes every P-th tile of out.

    It hands the three parts of the work to warps of their own.
    a_desc: blocks of 64 rows; b_desc, out_desc: blocks of BLOCK_N columns; bias_ptr:
    [N], contiguous, or None.
    """
    ROWS: gl.constexpr = out_desc.block_type.shape[0]
    BLOCK_N: gl.constexpr = out_desc.block_type.shape[1]
    A_SHAPE: gl.constexpr = [2 * STAGES] + a_desc.block_type.shape
    B_SHAPE: gl.constexpr = [STAGES] + b_desc.block_type.shape
    OUT_SHAPE: gl.constexpr = [2] + out_desc.block_type.shape
    BARRIER: gl.constexpr = mbarrier.MBarrierLayout()
    a_smem = gl.allocate_shared_memory(a_desc.dtype, A_SHAPE, a_desc.layout)
    b_smem = gl.allocate_shared_memory(b_desc.dtype, B_SHAPE, b_desc.layout)
    out_smem = gl.allocate_shared_memory(out_desc.dtype, OUT_SHAPE, out_desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], BARRIER)
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], BARRIER)
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=2)
    fence_async_shared()
    smem, bars, grid = (a_smem, b_smem), (full, empty), (tiles_m, tiles_n, tiles_k)
    gl.warp_specialize(
        [
            (consumer, (
                out_desc, bias_ptr, N, smem, out_smem, bars, grid,
                0, GROUP_M, A_ROWS, B_ROWS, ACTIVATION,
            )),
            (consumer, (
                out_desc, bias_ptr, N, smem, out_smem, bars, grid,
                1, GROUP_M, A_ROWS, B_ROWS, ACTIVATION,
            )),
            (producer, (
                a_desc, b_desc, smem, bars, grid,
                ROWS, GROUP_M, BLOCK_N, BLOCK_K, A_ROWS, B_ROWS,
            )),
        ],
        [4, 1],  # warps of the second and third part
        [240, 24],  # registers of each of their threads: consumers need most of them
    )  # fmt: skip


def matmul_hopper(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str | None = None,
) -> torch.Tensor:
    """Return activation(a @ b + bias), [M, N], contiguous.

    Its dtype is that of a, or bfloat16 where that has 8 bits.
    a: [M, K]; b: [K, N]; not empty, one dtype of `DTYPES`, on a Hopper GPU; bias: [N],
    contiguous, or None; activation: None, "relu", "leaky_relu" or "gelu". `matmul`
    checks all that.

    The copy engine (TMA) reads matrices whose rows or columns lie one after the other
    and start at multiples of 16 bytes. Others are copied first, as are 8-bit and fp32
    ones unless K is the contiguous axis of both, which is how the tensor cores want
    them; and where 8 does not divide N, the result is copied out of a wider one.
    fp32 is multiplied as TF32: rounded to 10 bits of mantissa.
    Sums of 8-bit products keep some 14 bits on their way, as in torch._scaled_mm with
    use_fast_accum=True.
    """
    bias_spec = None if bias is None else tensor_spec(bias)
    product = product_for(tensor_spec(a), tensor_spec(b), bias_spec, activation)
    return product(a, b, bias)


class Rows(NamedTuple):
    """A matrix as the copy engine reads it: row by row as memory lies.

    Those may be the rows of the matrix, or its columns.
    """

    axis: int  # of the matrix, along which these rows run
    shape: tuple[int, int]
    strides: tuple[int, int]
    copied: bool  # whether the matrix must first be copied to lie like this


def rows_of(t: TensorSpec, along: tuple[int, ...]) -> Rows:
    """Return how TMA reads a matrix.

    along: the axes that may be contiguous, the preferred one first.
    """
    unit = 16 // t.dtype.itemsize
    for axis in along:
        shape, strides = t.shape, t.strides
        if axis == 0:
            shape, strides = shape[::-1], strides[::-1]
        fits = strides[1] == 1 and strides[0] >= shape[1] and strides[0] % unit == 0
        if fits and t.aligned:
            return Rows(axis, pair(shape), pair(strides), copied=False)
    axis = next((axis for axis in along if t.strides[axis] == 1), along[0])
    rows, columns = t.shape if axis == 1 else t.shape[::-1]
    return Rows(axis, (rows, columns), (round_up(columns, unit), 1), copied=True)


def pair(numbers: tuple[int, ...]) -> tuple[int, int]:
    """Return two numbers as a plain tuple."""
    first, second = numbers
    return first, second


def fetchable(t: torch.Tensor, rows: Rows) -> torch.Tensor:
    """Return t, or a copy of it, that TMA can read as `rows` says."""
    if not rows.copied:
        return t
    wide = t.new_empty((rows.shape[0], rows.strides[0]))
    return wide[:, : rows.shape[1]].copy_(t if rows.axis == 1 else t.t())


@dataclass(frozen=True, eq=False)
class Product:
    """How matrices of given specs are multiplied.

    It holds all that does not depend on where they lie.
    """

    a_rows: Rows
    b_rows: Rows
    columns: int  # of the result
    wide: tuple[int, int]  # its shape in memory that the copy engine can write
    dtype: torch.dtype
    launch: Callable[..., None]

    def __call__(
        self, a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        """Return the product of two matrices of these specs."""
        a, b = fetchable(a, self.a_rows), fetchable(b, self.b_rows)
        out = a.new_empty(*self.wide, dtype=self.dtype)
        self.launch((a, b, out), bias)
        if self.columns == self.wide[1]:
            return out
        return out[:, : self.columns].contiguous()


@functools.lru_cache(maxsize=1024)
def product_for(
    a: TensorSpec, b: TensorSpec, bias: TensorSpec | None, activation: str | None
) -> Product:
    """Return the product of matrices of these specs."""
    (M, K), N = a.shape, b.shape[1]
    # The tensor cores can turn blocks of 16-bit numbers around; of others they want K
    # to be the contiguous axis.
    turned = a.dtype.itemsize == 2
    a_rows = rows_of(a, (1, 0) if turned else (1,))
    b_rows = rows_of(b, (1, 0) if turned else (0,))
    a_by_rows, b_by_rows = a_rows.axis == 1, b_rows.axis == 1
    dtype = torch.bfloat16 if a.dtype.itemsize == 1 else a.dtype
    wide = M, round_up(N, 8)
    sms = torch.cuda.get_device_properties(a.device).multi_processor_count
    BLOCK_N, STAGES = tile_shape(M, N, dtype.itemsize, sms)
    BLOCK_K = ROW_BYTES // a.dtype.itemsize
    tiles_m, tiles_n = triton.cdiv(M, BLOCK_M), triton.cdiv(N, BLOCK_N)
    tiles_k = triton.cdiv(K, BLOCK_K)
    tensors = (
        TensorSpec(a_rows.shape, a_rows.strides, a.dtype, a.device, aligned=True),
        TensorSpec(b_rows.shape, b_rows.strides, b.dtype, b.device, aligned=True),
        TensorSpec(wide, (wide[1], 1), dtype, a.device, aligned=True),
    )
    # Tensor cores cut off what TF32 lacks of an fp32 number; rounding it on the way
    # more than halves the error.
    rounded = a.dtype == torch.float32
    a_block = (HALF, BLOCK_K) if a_by_rows else (BLOCK_K, HALF)
    b_block = (BLOCK_K, BLOCK_N) if b_by_rows else (BLOCK_N, BLOCK_K)
    described = (
        functools.partial(descriptor, block=a_block, rounded=rounded),
        functools.partial(descriptor, block=b_block, rounded=rounded),
        functools.partial(descriptor, block=(HALF, BLOCK_N)),
    )
    sizes = N, tiles_m, tiles_n, tiles_k
    launch = launcher(
        matmul_hopper_kernel,
        (min(sms, tiles_m * tiles_n), 1, 1),
        tensors,
        (placeholder(bias),),
        (*sizes, GROUP_M, BLOCK_K, STAGES, a_by_rows, b_by_rows, activation),
        described,
        num_warps=4,
    )
    return Product(a_rows, b_rows, N, wide, dtype, launch)


def tile_shape(M: int, N: int, itemsize: int, sms: int) -> tuple[int, int]:
    """Return BLOCK_N and STAGES.

    BLOCK_N is that of the widest tile that leaves few multiprocessors idle; STAGES is
    as many as fit. itemsize: bytes of an element of the result, of which a whole tile
    waits in shared memory to be stored.
    """
    for BLOCK_N in (256, 128):
        STAGES = stages_for(BLOCK_N, itemsize)
        tiles = triton.cdiv(M, BLOCK_M) * triton.cdiv(N, BLOCK_N)
        if tiles >= 0.75 * sms and BLOCK_N < 2 * N and STAGES >= 3:
            return BLOCK_N, STAGES
    return 64, stages_for(64, itemsize)


def stages_for(BLOCK_N: int, itemsize: int) -> int:
    """Return how many stages fit the shared memory beside a tile of the result."""
    left = SHARED - BLOCK_M * BLOCK_N * itemsize
    return left // ((BLOCK_M + BLOCK_N) * ROW_BYTES)


def descriptor(
    t: torch.Tensor | Placeholder, block: tuple[int, int], rounded: bool = False
) -> TensorDescriptor:
    """Return what TMA has to know to move blocks of a matrix.

    rounded: whether it rounds fp32 numbers to TF32.
    """
    layout = gl.NVMMASharedLayout.get_default_for(list(block), DTYPES[t.dtype])
    made = TensorDescriptor(t, list(t.shape), list(t.stride()), list(block), layout)
    made.round_f32_to_tf32 = rounded
    return made


def round_up(number: int, unit: int) -> int:
    """Return the smallest multiple of unit that is not less than number."""
    return triton.cdiv(number, unit) * unit
