"""out = x + y, elementwise, in one pass over memory."""

import functools
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl

from .elementwise import copied_like, flat_launcher, has_no_gaps, same_layout
from .gradients import is_eager, refuse_transforms, wants_gradient
from .launch import TensorSpec, custom_op

BLOCK = 1024  # elements a program owns

DTYPES = (
    (torch.float64, torch.float32, torch.float16, torch.bfloat16)
    + (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
    + (torch.complex128, torch.complex64, torch.complex32)
)


def vector_add_reference(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The specification: what `vector_add` must return."""
    if x.is_floating_point():
        return (x.double() + y.double()).to(x.dtype)
    return torch.add(x, y)


@triton.jit
def vector_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Each program writes BLOCK consecutive elements of out.

    x_ptr, y_ptr, out_ptr: [n], contiguous.
    """
    # Widen before multiplying: pid * BLOCK passes 2**31 once n does.
    pid = tl.program_id(0).to(tl.int64)
    offs = pid * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    y = tl.load(y_ptr + offs, mask=mask)
    # One addition rounds once, so it needs no wider type than its own.
    tl.store(out_ptr + offs, (x + y).to(out_ptr.dtype.element_ty), mask=mask)


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return x + y, of x's shape, dtype and device: the values torch.add gives.

    x, y: one shape, one device, one dtype of `DTYPES`, any strides. Gradients, of any
    order, are those of a sum. The kernel walks memory in order, so the result takes the
    layout of x if x fills its memory without gaps, else that of y if y does, else one
    without gaps. An input laid out otherwise (transposed, sliced, expanded, lazily
    conjugated) is first copied into that layout. Raises TypeError for anything but
    tensors, ValueError when shapes, dtypes or devices differ or the dtype is another.
    """
    # To add few numbers takes less time than to check two tensors, so what they are is
    # asked for when they fail.
    try:
        if not x.requires_grad and not y.requires_grad and is_eager():
            return add.eager(x, y)
        return VectorAdd.apply(x, y) if wants_gradient(x, y) else add(x, y)
    except Exception as error:
        failure = error
    check_tensors(x, y)
    refuse_transforms()
    raise failure


class VectorAdd(torch.autograd.Function):
    """`vector_add` as autograd sees it."""

    @staticmethod
    def forward(ctx, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return add(x, y)

    @staticmethod
    def backward(ctx, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return grad, grad


def uninitialized(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return a tensor of the shape, dtype, device and layout of the sum."""
    out = torch.empty_like(x)
    if not same_layout(x.shape, x.stride(), out.stride()):
        like_y = torch.empty_like(y)
        out = like_y if same_layout(y.shape, y.stride(), like_y.stride()) else out
    return out


@custom_op(uninitialized)
def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return what `vector_add` returns."""
    if x.is_neg() or y.is_neg():
        x, y = x.resolve_neg(), y.resolve_neg()
    return sum_for(
        x.shape, x.stride(), x.dtype, x.device, not x.data_ptr() & 15,
        y.shape, y.stride(), y.dtype, y.device, not y.data_ptr() & 15,
    )(x, y)  # fmt: skip


@functools.lru_cache(maxsize=1024)
def sum_for(*fields: Any) -> Callable[..., torch.Tensor]:
    """Return the function that adds tensors of two specs with these fields.

    All that can be known without their values is checked and decided here, once.
    """
    x, y = TensorSpec(*fields[:5]), TensorSpec(*fields[5:])
    check_specs(x, y)
    like_y = not has_no_gaps(x) and has_no_gaps(y)
    kept = y if like_y else x  # whose layout the result takes
    x_fits, y_fits = (
        has_no_gaps(kept) and same_layout(t.shape, t.strides, kept.strides)
        for t in (x, y)
    )
    odd = x.dtype.is_complex or x.dtype == torch.bool
    # The allocator aligns new tensors, and so copies.
    specs = (
        x if x_fits else x._replace(aligned=True),
        y if y_fits else y._replace(aligned=True),
        x._replace(aligned=True),
    )
    launch = flat_launcher(vector_add_kernel, numbers(*specs) if odd else specs, BLOCK)

    def total(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if odd and (x.is_conj() or y.is_conj()):
            return add.eager(x.resolve_conj(), y.resolve_conj())
        out = torch.empty_like(y if like_y else x)
        if not x_fits:
            x = copied_like(x, out)
        if not y_fits:
            y = copied_like(y, out)
        launch(views(x, y, out) if odd else (x, y, out))
        return out

    return total


def numbers(*specs: TensorSpec) -> tuple[TensorSpec, ...]:
    """Return the specs of what `views` returns for tensors of these specs."""
    x, y, out = specs
    if x.dtype.is_complex:
        shape, dtype = (*x.shape, 2), x.dtype.to_real()
        return tuple(t._replace(shape=shape, dtype=dtype) for t in specs)
    return x._replace(dtype=torch.uint8), y._replace(dtype=torch.uint8), out


def views(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return x, y and out as Triton can add them: pairs of numbers, or bytes."""
    x, y, out = tensors
    if x.is_complex():
        return tuple(torch.view_as_real(t) for t in tensors)
    # The kernel stores truth values: a sum of 2 becomes True again.
    return x.view(torch.uint8), y.view(torch.uint8), out


def check_tensors(x: torch.Tensor, y: torch.Tensor) -> None:
    """Raise TypeError or ValueError, naming what is wrong, unless both are dense."""
    if not (isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor)):
        kinds = f"{type(x).__name__} and {type(y).__name__}"
        raise TypeError(f"vector_add takes two tensors, not {kinds}")
    if x.layout is not torch.strided or y.layout is not torch.strided:
        layouts = f"{x.layout} and {y.layout}"
        raise ValueError(f"vector_add takes dense tensors, not {layouts}")


def check_specs(x: TensorSpec, y: TensorSpec) -> None:
    """Raise ValueError, naming what is wrong, unless such tensors can be added."""
    if x.shape != y.shape:
        shapes = f"{tuple(x.shape)} and {tuple(y.shape)}"
        raise ValueError(f"x and y must have one shape, not {shapes}")
    if x.dtype != y.dtype:
        raise ValueError(f"x and y must have one dtype, not {x.dtype} and {y.dtype}")
    if x.device != y.device:
        devices = f"{x.device} and {y.device}"
        raise ValueError(f"x and y must be on one device, not {devices}")
    if x.dtype not in DTYPES:
        known = ", ".join(map(str, DTYPES))
        raise ValueError(f"vector_add adds tensors of {known}, not {x.dtype}")


def vector_add_bytes(x: torch.Tensor, y: torch.Tensor) -> int:
    """Return the bytes that must cross memory once: x and y read, the sum written."""
    return 3 * x.numel() * x.element_size()


def vector_add_flops(x: torch.Tensor, y: torch.Tensor) -> int:
    """Return the floating-point operations: one addition an element."""
    return x.numel()
