"""What `tile measure matmul_fp32` times: 32-bit matrices, in full precision and as TF32, by one setting for all."""

import torch

from kernels.matmul import matmul, matmul_bytes, matmul_flops
from lab.bench import Recipe, Workload
from lab.device import DEVICE

SETTINGS = {"fp32": "highest", "tf32": "high"}


def product(size: int, dtype: str) -> Workload:
    """Two square matrices of normal random numbers, to be multiplied as torch is told to."""

    def make(generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        torch.set_float32_matmul_precision(SETTINGS[dtype])
        a, b = torch.randn(2, size, size, generator=generator, device=DEVICE)
        return a, b

    return Workload({"M": size, "N": size, "K": size}, dtype, make)


RECIPE = Recipe(
    op="matmul_fp32",
    workloads=[product(2048, "fp32"), product(4096, "tf32")],
    variants={"torch": torch.mm, "triton": matmul},
    reference=lambda a, b: a.double() @ b.double(),
    bytes=matmul_bytes,
    flops=matmul_flops,
)
