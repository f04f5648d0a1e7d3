"""out = x + y, elementwise, in one pass over memory."""

import torch
import triton
import triton.language as tl

from .launch import custom_op

BLOCK = 1024  # elements a program owns
LARGE = 2**22  # elements from which narrow loads cost more than a second launch

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
    """Return x + y: a tensor of x's shape, dtype and device, with the values torch.add gives. Records no gradient.

    x, y: one shape, one device, one dtype of `DTYPES`, any strides. The kernel walks memory in order, so the result
    takes the layout of x if x fills its memory without gaps, else that of y if y does, else a contiguous one; and
    an input laid out otherwise (transposed, sliced, expanded, lazily conjugated) is first copied into it.
    Raises TypeError for anything but tensors, ValueError when shapes, dtypes or devices differ or the dtype is another.
    """
    check_operands(x, y)
    return add(x, y)


def empty_result(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return an uninitialized tensor in the layout of x if that is gapless, else in that of y, else contiguous."""
    out = torch.empty_like(x)
    if same_layout(x, out):
        return out
    out_like_y = torch.empty_like(y)
    return out_like_y if same_layout(y, out_like_y) else out


@custom_op(empty_result)
def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return x + y, in the layout of `empty_result`."""
    out = empty_result(x, y)
    add_flat(laid_out_as(x, out), laid_out_as(y, out), out)
    return out


def laid_out_as(t: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """Return t itself where its memory holds its values in the order of out's, else a copy that does."""
    if same_layout(t, out) and not t.is_conj() and not t.is_neg():
        return t
    return torch.empty_like(out).copy_(t)


def add_flat(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor) -> None:
    """Launch the kernel over the memory of three tensors of one gapless layout."""
    if out.is_complex():
        x, y, out = (torch.view_as_real(t) for t in (x, y, out))
    elif out.dtype == torch.bool:  # 0 or 1 as a byte; the store turns a sum of 2 back into True
        x, y = x.view(torch.uint8), y.view(torch.uint8)
    n = out.numel()
    # The compiler can load 16 bytes at a time only where 16 divides the count: a large odd one gives its tail a launch.
    whole = n - n % 16 if n > LARGE else n
    with torch.cuda.device_of(out):
        if whole > 0:
            vector_add_kernel[(triton.cdiv(whole, BLOCK),)](x, y, out, whole, BLOCK=BLOCK)
        if whole < n:
            tails = (t.as_strided((n - whole,), (1,), t.storage_offset() + whole) for t in (x, y, out))
            vector_add_kernel[(1,)](*tails, n - whole, BLOCK=BLOCK)


def check_operands(x: torch.Tensor, y: torch.Tensor) -> None:
    """Raise TypeError or ValueError, naming what is wrong, unless x and y can be added."""
    if not (isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor)):
        raise TypeError(f"vector_add takes two tensors, not {type(x).__name__} and {type(y).__name__}")
    if x.shape != y.shape:
        raise ValueError(f"x and y must have one shape, not {tuple(x.shape)} and {tuple(y.shape)}")
    if x.dtype != y.dtype:
        raise ValueError(f"x and y must have one dtype, not {x.dtype} and {y.dtype}")
    if x.device != y.device:
        raise ValueError(f"x and y must be on one device, not {x.device} and {y.device}")
    if x.dtype not in DTYPES or x.layout != torch.strided or y.layout != torch.strided:
        raise ValueError(f"vector_add adds dense tensors of {', '.join(map(str, DTYPES))}, not {x.dtype} ({x.layout})")


def same_layout(t: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether equal indices mean equal offsets in both tensors, which have one shape."""
    strides = zip(t.shape, t.stride(), other.stride(), strict=True)
    return t.stride() == other.stride() or all(a == b for size, a, b in strides if size > 1)


def vector_add_bytes(x: torch.Tensor, y: torch.Tensor) -> int:
    """Return the bytes that must cross memory once: x and y read, the sum written."""
    return 3 * x.numel() * x.element_size()


def vector_add_flops(x: torch.Tensor, y: torch.Tensor) -> int:
    """Return the floating-point operations: one addition an element."""
    return x.numel()
