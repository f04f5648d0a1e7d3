"""What `tile measure softmax_gradient` times: the softmax of a training step, forward and backward."""

import torch

from kernels.softmax import softmax, softmax_bytes, softmax_flops
from lab.device import DEVICE
from lab.measure.recipe import Recipe, Unavailable, Workload


def rows_and_gradient(M: int, N: int) -> Workload:
    """M rows of N normal random numbers, and as many that stand for the gradient of the result."""

    def make(generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        options = {"generator": generator, "device": DEVICE, "dtype": torch.bfloat16}
        return torch.randn(M, N, **options).requires_grad_(), torch.randn(M, N, **options)

    return Workload({"M": M, "N": N}, "bf16", make)


def both_ways(function):
    """Return the function that goes forward through `function` and back to the gradient of its input."""
    return lambda x, grad: torch.autograd.grad(function(x), x, grad)[0]


def liger(x: torch.Tensor) -> torch.Tensor:
    """Liger's Triton kernel, which holds a row in one block, or refuses it."""
    from liger_kernel.ops.softmax import LigerSoftmaxFunction

    if x.shape[1] > 65536:
        raise Unavailable("it takes rows of at most 65,536 elements")
    return LigerSoftmaxFunction.apply(x)


def reference(x: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
    """The gradient of x, in float64."""
    y, grad = torch.softmax(x.detach().double(), 1), grad.double()
    return y * (grad - (y * grad).sum(1, keepdim=True))


RECIPE = Recipe(
    op="softmax_gradient",
    workloads=[rows_and_gradient(M, N) for M, N in [(131072, 256), (32768, 1024), (4096, 12672)]],
    variants={
        "torch": both_ways(lambda x: torch.softmax(x, 1)),
        "liger": both_ways(liger),
        "triton": both_ways(softmax),
    },
    reference=reference,
    # forward two elements, backward three
    bytes=lambda x, grad: softmax_bytes(x) * 5 // 2,
    flops=lambda x, grad: softmax_flops(x) + 4 * x.numel(),
)
