"""What `tile measure vector_add` times. Every variant allocates its result, as it does for whoever calls it."""

import torch
import triton

from kernels.ladders.vector_add import vector_add_plain
from kernels.vector_add import BLOCK, vector_add, vector_add_bytes, vector_add_flops, vector_add_kernel
from lab.device import DEVICE
from lab.measure.recipe import Recipe, TorchCompiled, Unavailable, Workload

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def two_vectors(n: int, dtype: str) -> Workload:
    """Two vectors of n normal random numbers."""

    def make(generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        options = {"generator": generator, "device": DEVICE, "dtype": DTYPES[dtype]}
        return torch.randn(n, **options), torch.randn(n, **options)

    return Workload({"N": n}, dtype, make)


def one_program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The whole vector as the share of a single program, with as many threads as a program can have."""
    if x.numel() > 2**16:
        raise Unavailable("one program cannot hold more than 65,536 elements in its registers")
    out = torch.empty_like(x)
    vector_add_kernel[(1,)](x, y, out, x.numel(), BLOCK=triton.next_power_of_2(x.numel()), num_warps=32)
    return out


def one_launch(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """An odd size without a second launch for its tail: every load is one element wide."""
    if x.numel() % 16 == 0:
        raise Unavailable("where 16 divides the size, vector_add itself makes one launch")
    out = torch.empty_like(x)
    vector_add_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, y, out, x.numel(), BLOCK=BLOCK)
    return out


def plain(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The first kernel of the chapter, by Triton's own launch."""
    if x.numel() > 2**16:
        raise Unavailable("what a launch costs shows in small vectors")
    return vector_add_plain(x, y)


SIZES = [2**exponent for exponent in range(12, 29, 2)] + [2**28 - 1]

RECIPE = Recipe(
    op="vector_add",
    workloads=[two_vectors(n, dtype) for dtype in DTYPES for n in SIZES],
    variants={
        "torch": torch.add,
        "torch_compile": TorchCompiled(torch.add),
        "triton": vector_add,
        "plain": plain,
        "one_program": one_program,
        "one_launch": one_launch,
    },
    reference=lambda x, y: x.double() + y.double(),
    bytes=vector_add_bytes,
    flops=vector_add_flops,
    calls=("torch", "torch_compile", "plain", "triton"),
)
