"""What `tile measure bias_gelu` times: a bias and GeLU, as a feed-forward layer has them after its first product."""

import torch
import torch.nn.functional as F

from kernels.gelu import bias_gelu, bias_gelu_bytes, bias_gelu_flops, bias_gelu_reference
from lab.device import DEVICE
from lab.measure.recipe import Recipe, TorchCompiled, Workload


def layer(M: int, N: int) -> Workload:
    """M rows of N normal random numbers and a bias."""

    def make(generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        options = {"generator": generator, "device": DEVICE, "dtype": torch.bfloat16}
        return torch.randn(M, N, **options), torch.randn(N, **options)

    return Workload({"M": M, "N": N}, "bf16", make)


def eager(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Two operations of PyTorch, with the rounded sum in memory between them."""
    return F.gelu(x + bias)


RECIPE = Recipe(
    op="bias_gelu",
    workloads=[layer(8, 512), layer(4096, 4096), layer(16384, 16384), layer(65536, 4095)],
    variants={"torch": eager, "torch_compile": TorchCompiled(eager), "triton": bias_gelu},
    reference=lambda x, bias: bias_gelu_reference(x.double(), bias.double()),
    bytes=bias_gelu_bytes,
    flops=bias_gelu_flops,
    calls=("torch", "torch_compile", "triton"),
)
