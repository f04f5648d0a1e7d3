"""What `tile measure matmul` times: every size beside cuBLAS, and at one size the ladder from the first kernel on."""

from collections.abc import Callable

import torch
import triton
from triton.tools.tensor_descriptor import TensorDescriptor

from kernels.ladders.matmul import (
    matmul_autotuned_kernel,
    matmul_element_kernel,
    matmul_increment_kernel,
    matmul_persistent_kernel,
    matmul_tile_kernel,
)
from kernels.matmul import matmul, matmul_bytes, matmul_flops, matmul_kernel
from lab.device import DEVICE
from lab.measure.recipe import Recipe, Unavailable, Workload

DTYPES = {
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp8": torch.float8_e4m3fn,
    "tf32": torch.float32,
    "fp32": torch.float32,
}
K_LAST = ("fp8", "tf32")  # of these, tensor cores want K to be the contiguous axis of both matrices
FIRST_RUNG = 1024  # the size at which one element a program is timed: at larger ones it takes minutes
LADDER = 4096  # the size at which all other rungs are
CACHE = (8192, 16384)  # sizes at which the order of the tiles is
FIRST = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 32, "num_warps": 4, "num_stages": 1}
PIPELINED = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "num_warps": 8, "num_stages": 3}


def product(M: int, N: int, K: int, dtype: str) -> Workload:
    """Two matrices of normal random numbers, b as a layer's weights where the tensor cores want it so.

    How float32 is multiplied is a setting of PyTorch's, which all variants follow.
    """

    def make(generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        torch.set_float32_matmul_precision("high" if dtype == "tf32" else "highest")
        options = {"generator": generator, "device": DEVICE}
        a, b = torch.randn(M, K, **options), torch.randn(N, K, **options).t()
        return a.to(DTYPES[dtype]), (b if dtype in K_LAST else b.contiguous()).to(DTYPES[dtype])

    return Workload({"M": M, "N": N, "K": K}, dtype, make)


def cublas(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """PyTorch's own product, which cuBLAS computes."""
    if a.dtype != torch.float8_e4m3fn:
        return torch.mm(a, b)
    one = torch.ones((), device=a.device)
    return torch._scaled_mm(a, b, one, one, out_dtype=torch.bfloat16, use_fast_accum=True)


def rung(run: Callable, sizes: tuple[int, ...] = (LADDER,)) -> Callable:
    """Return a variant that allocates its result and exists only for square bf16 matrices of these sizes."""

    def variant(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        (M, K), N = a.shape, b.shape[1]
        if a.dtype != torch.bfloat16 or not M == N == K or M not in sizes:
            raise Unavailable("the ladder is climbed at other sizes")
        out = a.new_empty((M, N))
        run(a, b, out, (M, N, K), (*a.stride(), *b.stride(), *out.stride()))
        return out

    return variant


def grid_of(out: torch.Tensor) -> Callable:
    """Return the grid: a program for every tile."""
    return lambda meta: (triton.cdiv(out.shape[0], meta["BLOCK_M"]) * triton.cdiv(out.shape[1], meta["BLOCK_N"]),)


def element(a, b, out, sizes, strides):
    matmul_element_kernel[(out.numel(),)](a, b, out, *sizes[1:], *strides, BLOCK_K=1024)


def tile(a, b, out, sizes, strides):
    matmul_tile_kernel[grid_of(out)](a, b, out, *sizes, *strides, **FIRST)


def increment(a, b, out, sizes, strides):
    matmul_increment_kernel[grid_of(out)](a, b, out, *sizes, *strides, **FIRST)


def ordered(group: int, options: dict) -> Callable:
    """Return a run of the portable kernel with its tiles in groups of this many rows."""
    options = {**options, "GROUP_M": group, "ACTIVATION": None, "PRECISION": "tf32"}
    return lambda a, b, out, sizes, strides: matmul_kernel[grid_of(out)](a, b, None, out, *sizes, *strides, **options)


def autotuned(a, b, out, sizes, strides):
    options = {"GROUP_M": 8, "ACTIVATION": None, "PRECISION": "tf32"}
    matmul_autotuned_kernel[grid_of(out)](a, b, None, out, *sizes, *strides, **options)


def persistent(a, b, out, sizes, strides):
    blocks = ([128, 64], [64, 256], [128, 256])
    descriptors = [TensorDescriptor.from_tensor(t, block) for t, block in zip((a, b, out), blocks, strict=True)]
    programs = torch.cuda.get_device_properties(DEVICE).multi_processor_count
    matmul_persistent_kernel[(programs,)](*descriptors, *sizes, **PIPELINED, GROUP_M=8)


SQUARES = {
    "bf16": (256, 512, 1024, 2048, 4096, 8192, 16384),
    "fp16": (1024, 2048, 4096, 8192, 16384),
    "fp8": (1024, 2048, 4096, 8192),
    "tf32": (1024, 4096),
    "fp32": (1024, 4096),
}

RECIPE = Recipe(
    op="matmul",
    workloads=[
        *(product(size, size, size, dtype) for dtype, sizes in SQUARES.items() for size in sizes),
        product(4096, 4097, 4095, "bf16"),
        product(16, 4096, 4096, "bf16"),
        product(1, 4096, 4096, "bf16"),
    ],
    variants={
        "torch": cublas,
        "element": rung(element, (FIRST_RUNG,)),
        "tile": rung(tile, (FIRST_RUNG, LADDER)),
        "increment": rung(increment),
        "grouped": rung(ordered(8, FIRST)),
        "row_by_row": rung(ordered(1, PIPELINED), (LADDER, *CACHE)),
        "pipelined": rung(ordered(8, PIPELINED), (LADDER, *CACHE)),
        "autotuned": rung(autotuned),
        "persistent": rung(persistent, (FIRST_RUNG, 2048, LADDER, *CACHE)),
        "triton": matmul,
    },
    reference=lambda a, b: a.double() @ b.double(),
    bytes=matmul_bytes,
    flops=matmul_flops,
    calls=("torch", "persistent", "triton"),
)
