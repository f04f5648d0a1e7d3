"""What `tile measure matmul_gelu` times: bias and GeLU applied inside the product, and after it."""

import torch

from kernels.matmul import matmul, matmul_bytes, matmul_flops
from lab.device import DEVICE
from lab.measure.recipe import Recipe, Workload

gelu = torch.nn.functional.gelu


def layer(size: int) -> Workload:
    """One layer of a network: square matrices and a bias of normal random numbers."""

    def make(generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        options = {"generator": generator, "device": DEVICE, "dtype": torch.bfloat16}
        return tuple(torch.randn(*shape, **options) for shape in ((size, size), (size, size), (size,)))

    return Workload({"M": size, "N": size, "K": size}, "bf16", make)


def unfused(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """The product with its bias from cuBLAS, then one more pass over memory."""
    return gelu(torch.addmm(bias, a, b))


RECIPE = Recipe(
    op="matmul_gelu",
    workloads=[layer(size) for size in (1024, 2048, 4096, 8192)],
    variants={
        "torch": unfused,
        "triton": lambda a, b, bias: matmul(a, b, bias, "gelu"),
    },
    reference=lambda a, b, bias: gelu(a.double() @ b.double() + bias.double()),
    bytes=matmul_bytes,
    flops=matmul_flops,
)
