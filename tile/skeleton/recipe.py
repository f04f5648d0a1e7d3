"""What `tile measure STEM` times. Every variant allocates its result."""

import torch

from kernels.STEM import STEM, STEM_bytes, STEM_flops
from lab.device import DEVICE
from lab.measure.recipe import Recipe, TorchCompiled, Workload

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def one_tensor(n: int, dtype: str) -> Workload:
    """A vector of n normal random numbers."""

    def make(generator: torch.Generator) -> tuple[torch.Tensor]:
        return (
            torch.randn(n, generator=generator, device=DEVICE, dtype=DTYPES[dtype]),
        )

    return Workload({"N": n}, dtype, make)


def by_torch(x: torch.Tensor) -> torch.Tensor:
    """PyTorch's own way: the peer to beat."""
    return 2 * x


RECIPE = Recipe(
    op="STEM",
    workloads=[
        one_tensor(2**exponent, dtype)
        for dtype in DTYPES
        for exponent in range(12, 29, 2)
    ],
    variants={
        "torch": by_torch,
        "torch_compile": TorchCompiled(by_torch),
        "triton": STEM,
    },
    reference=lambda x: 2 * x.double(),
    bytes=STEM_bytes,
    flops=STEM_flops,
    calls=("torch", "torch_compile", "triton"),
)
