"""out = 2 * x, elementwise: a placeholder that works, to be replaced."""

import torch
import triton
import triton.language as tl

from .launch import custom_op

BLOCK = 1024  # elements a program owns
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def STEM_reference(x: torch.Tensor) -> torch.Tensor:
    """The specification: what `STEM` must return."""
    return (2 * x.double()).to(x.dtype)


@triton.jit
def STEM_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Each program writes BLOCK consecutive elements of out.

    x_ptr, out_ptr: [n], contiguous, one dtype.
    """
    # Widen before multiplying: pid * BLOCK passes 2**31 once n does.
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    tl.store(out_ptr + offs, (2 * x).to(out_ptr.dtype.element_ty), mask=mask)


def STEM(x: torch.Tensor) -> torch.Tensor:
    """Return 2 * x: contiguous, of x's shape, dtype and device. Records no gradient.

    x: of any shape and strides, and of one of `DTYPES`; it is copied unless contiguous.
    Raises ValueError for another dtype.
    """
    if x.dtype not in DTYPES:
        names = ", ".join(map(str, DTYPES))
        raise ValueError(f"STEM takes tensors of {names}, not {x.dtype}")
    return launch_STEM(x)


def empty_result(x: torch.Tensor) -> torch.Tensor:
    """Return an uninitialized tensor for the result."""
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


@custom_op(empty_result)
def launch_STEM(x: torch.Tensor) -> torch.Tensor:
    """Return 2 * x, contiguous."""
    out, n = empty_result(x), x.numel()
    grid = (triton.cdiv(n, BLOCK),)
    if n:
        with torch.cuda.device_of(out):
            STEM_kernel[grid](x.contiguous(), out, n, BLOCK=BLOCK)
    return out


def STEM_bytes(x: torch.Tensor) -> int:
    """Return the bytes that must cross memory once: x read, out written."""
    return 2 * x.numel() * x.element_size()


def STEM_flops(x: torch.Tensor) -> int:
    """Return the floating-point operations: one multiplication an element."""
    return x.numel()
