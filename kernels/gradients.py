"""What operations share about their gradients."""

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import forward_ad


def wants_gradient(*tensors: torch.Tensor) -> bool:
    """Return whether autograd must see what is computed from these tensors.

    A `torch.autograd.Function` takes longer to call than a small kernel runs.
    """
    # In forward mode tensors carry a tangent, which `requires_grad` says nothing about.
    if forward_ad._current_level >= 0:
        return True
    if torch.is_grad_enabled():
        for t in tensors:
            if t.requires_grad:
                return True
    return False


def first_derivative(operation: str, function: Callable, *arguments: Any) -> Any:
    """Return function(*arguments), the backward pass of an operation without a second.

    To go back through the result raises an error in words. PyTorch's own
    `once_differentiable` does so only where the incoming gradient needs one itself;
    where that is constant, a second derivative would be 0, which is wrong.
    """
    return FirstDerivative.apply(operation, function, *arguments)


class FirstDerivative(torch.autograd.Function):
    """A backward pass as autograd sees it: there is no way back through it."""

    @staticmethod
    def forward(ctx, operation: str, function: Callable, *arguments: Any) -> Any:
        ctx.operation = operation
        return function(*arguments)

    @staticmethod
    def backward(ctx, *grads: torch.Tensor) -> None:
        raise RuntimeError(
            f"{ctx.operation} has no second derivative: use PyTorch's own for that"
        )
