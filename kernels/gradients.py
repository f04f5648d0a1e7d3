"""What operations share about their gradients."""

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.compiler import is_compiling


def wants_gradient(*tensors: torch.Tensor) -> bool:
    """Return whether autograd must see what is computed from these tensors.

    A `torch.autograd.Function` takes longer to call than a small kernel runs.
    """
    # In forward mode tensors carry a tangent, which `requires_grad` says nothing about.
    wanted = forward_ad._current_level >= 0
    for t in tensors:
        if t.requires_grad and torch.is_grad_enabled():
            wanted = True
    if wanted:
        refuse_transforms()
    return wanted


def is_eager() -> bool:
    """Return whether PyTorch just computes: without torch.compile or forward mode."""
    return forward_ad._current_level < 0 and not is_compiling()


def refuse_transforms() -> None:
    """Raise RuntimeError inside of torch.func's transforms, as of vmap and grad.

    There a tensor may have no memory that a kernel could read.
    """
    if not is_compiling() and torch._C._are_functorch_transforms_active():
        raise RuntimeError(
            "torch.func (vmap, grad, jvp, …) cannot see into these kernels: take "
            "gradients with torch.autograd, or use PyTorch's own operation"
        )


def first_derivative(operation: str, function: Callable, *arguments: Any) -> Any:
    """Return function(*arguments), the backward pass of an operation without a second.

    To go back through the result raises an error in words. PyTorch's own
    `once_differentiable` does so only where the incoming gradient needs one itself;
    where that is constant, a second derivative would be 0, which is wrong.
    """
    return OneWay.apply(f"{operation} has no second derivative", function, *arguments)


def without_gradient(operation: str, function: Callable, *arguments: Any) -> Any:
    """Return function(*arguments), the result of an operation without a gradient.

    To go back through the result raises an error in words. A result that autograd knew
    nothing of would leave parameters without a gradient, and nobody would be told.
    """
    return OneWay.apply(f"{operation} has no gradient", function, *arguments)


class OneWay(torch.autograd.Function):
    """What autograd sees of a function that there is no way back through."""

    @staticmethod
    def forward(ctx, reason: str, function: Callable, *arguments: Any) -> Any:
        ctx.reason = reason
        return function(*arguments)

    @staticmethod
    def backward(ctx, *grads: torch.Tensor) -> None:
        raise RuntimeError(f"{ctx.reason}: use PyTorch's own operation for that")
