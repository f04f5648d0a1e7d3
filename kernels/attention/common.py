"""What the kernels of attention share: dtypes, padded heads, descriptors."""

import math

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from ..gpu import has_copy_engine
from ..launch import Placeholder

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
LOG2_E = tl.constexpr(math.log2(math.e))


def padded(D: int) -> int:
    """Return the elements of a row of a block: a power of two that tensor cores
    take."""
    return max(16, triton.next_power_of_2(D))


def fetches(dtype: torch.dtype, device: torch.device) -> bool:
    """Return whether kernels read through the copy engine (TMA): never fp32, which
    tensor cores do not read from shared memory."""
    return dtype != torch.float32 and has_copy_engine(device)


def readable(t: torch.Tensor | Placeholder) -> bool:
    """Return whether the copy engine can read t, [B, heads, length, D].

    It reads rows that start at multiples of 16 bytes and whose elements lie side by
    side.
    """
    unit = 16 // t.dtype.itemsize
    aligned = t.data_ptr() % 16 == 0 and all(
        step > 0 and step % unit == 0 for step in steps(t)
    )
    return (
        math.prod(t.shape) > 0 and aligned and (t.stride()[3] == 1 or t.shape[3] == 1)
    )


def steps(t: torch.Tensor | Placeholder) -> list[int]:
    """Return all strides but the last, with a valid one for each axis of one
    element."""
    pairs = zip(t.stride()[:3], t.shape, strict=False)
    return [stride if size > 1 else 16 for stride, size in pairs]


def descriptor(t: torch.Tensor | Placeholder, BLOCK: int) -> TensorDescriptor:
    """Return the descriptor of t, [B, heads, length, D], `readable`.

    A kernel loads BLOCK rows of one head at a time, and zeros past the end of the head.
    """
    block = [1, 1, BLOCK, padded(t.shape[3])]
    return TensorDescriptor(t, list(t.shape), [*steps(t), 1], block)
