"""What elementwise operations share: their kernels walk memory in order."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import triton

from .launch import TensorSpec, launcher

LARGE = 2**22  # elements from which narrow loads cost more than a second launch


def has_no_gaps(t: TensorSpec) -> bool:
    """Return whether the elements of a tensor fill a piece of memory, once each."""
    count = 1
    for stride, size in sorted(zip(t.strides, t.shape, strict=True)):
        if size > 1 and stride != count:
            return 0 in t.shape
        count *= size
    return True


def same_layout(shape: Sequence, strides: Sequence, others: Sequence) -> bool:
    """Return whether these and other strides put the elements of a shape alike."""
    axes = zip(shape, strides, others, strict=True)
    return strides == others or all(a == b for size, a, b in axes if size > 1)


def copied_like(t: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """Return a copy of t whose memory holds its values in the order of out's."""
    return torch.empty_like(out).copy_(t)


def flat_launcher(
    kernel: Any, tensors: tuple[TensorSpec, ...], BLOCK: int, *constants: Any
) -> Callable[[tuple], None]:
    """Return a function that launches an elementwise kernel on tensors like these.

    The tensors have one layout without gaps. The kernel takes pointers to them, their
    number of elements n, the constants and BLOCK, the elements of one program.
    """
    n = math.prod(tensors[0].shape)
    if n == 0:
        return lambda tensors: None
    # The compiler can load 16 bytes at a time only where 16 divides the count: a large
    # size that 16 does not divide gives its tail a launch of its own.
    whole = n - n % 16 if n > LARGE else n

    def launcher_for(count: int) -> Callable[..., None]:
        flat = tuple(t._replace(shape=(count,), strides=(1,)) for t in tensors)
        grid = (triton.cdiv(count, BLOCK), 1, 1)
        return launcher(kernel, grid, flat, constants=(count, *constants, BLOCK))

    launch = launcher_for(whole)
    if whole == n:
        return launch
    launch_tail = launcher_for(n - whole)

    def launch_both(tensors: tuple) -> None:
        launch(tensors)
        launch_tail(tuple(t.as_strided((n,), (1,))[whole:] for t in tensors))

    return launch_both
