"""What `tile measure attention_gradient` times: the way back of attention; forward goes before the clock runs."""

from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from kernels.attention import attention, attention_bytes, attention_flops, attention_forward
from kernels.attention.backward import attention_backward_plain, attention_backward_reference
from lab.device import DEVICE
from lab.measure.recipe import Recipe, Workload


def heads_and_gradient(B: int, H: int, N: int, D: int, causal: bool) -> Workload:
    """Normal random queries, keys and values, and as many that stand for the gradient of the result."""

    def make(generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, bool]:
        options = {"generator": generator, "device": DEVICE, "dtype": torch.bfloat16}
        q, k, v = (torch.randn(B, H, N, D, **options).requires_grad_() for _ in range(3))
        return q, k, v, torch.randn(B, H, N, D, **options), causal

    return Workload({"B": B, "H": H, "N": N, "D": D, "causal": int(causal)}, "bf16", make)


def way_back(forward: Callable) -> Callable:
    """Return the function that goes back through `forward`, which itself runs once for every set of inputs."""
    held = {}

    def variant(q, k, v, grad, causal) -> tuple[torch.Tensor, ...]:
        if held.get("grad") is not grad:
            held.update(grad=grad, out=forward(q, k, v, causal))
        return torch.autograd.grad(held["out"], (q, k, v), grad, retain_graph=True)

    return variant


def sdpa(backend: SDPBackend | None = None) -> Callable:
    """Return PyTorch's attention by one of its backends; None: by the one that it chooses itself."""

    def forward(q, k, v, causal) -> torch.Tensor:
        with sdpa_kernel(backend) if backend else nullcontext():
            return scaled_dot_product_attention(q, k, v, is_causal=causal)

    return forward


def two_passes() -> Callable:
    """Return the way back by plain Triton, as on other GPUs, and as where every run must give the same bits."""
    held = {}

    def variant(q, k, v, grad, causal) -> tuple[torch.Tensor, ...]:
        scale = q.shape[-1] ** -0.5
        if held.get("grad") is not grad:
            held.update(grad=grad, results=attention_forward(q, k, v, causal, scale))
        return attention_backward_plain(grad, q, k, v, *held["results"], causal, scale)

    return variant


def reference(q, k, v, grad, causal) -> tuple[torch.Tensor, ...]:
    """The gradients in float64, one head at a time: the scores of all would not fit in memory."""
    q, k, v, grad = (t.detach().flatten(0, 1)[:, None, None] for t in (q, k, v, grad))
    scale = q.shape[-1] ** -0.5
    by_head = [attention_backward_reference(*one, causal, scale) for one in zip(grad, q, k, v, strict=True)]
    return tuple(torch.cat(gradients) for gradients in zip(*by_head, strict=True))


SIZES = [(4, 32, 4096, 128), (4, 32, 4096, 64), (1, 32, 16384, 128)]

RECIPE = Recipe(
    op="attention_gradient",
    workloads=[heads_and_gradient(*size, causal) for size in SIZES for causal in (False, True)],
    variants={
        "torch": way_back(sdpa()),
        "sdpa_flash": way_back(sdpa(SDPBackend.FLASH_ATTENTION)),
        "sdpa_cudnn": way_back(sdpa(SDPBackend.CUDNN_ATTENTION)),
        "triton_plain": two_passes(),
        "triton": way_back(attention),
    },
    reference=reference,
    # q, k, v, the result and its gradient read; dq, dk and dv written
    bytes=lambda q, k, v, grad, causal: 2 * attention_bytes(q, k, v),
    # five products where the way forward has two
    flops=lambda q, k, v, grad, causal: attention_flops(q, k, v, causal) * 5 // 2,
)
