"""y = exp(x - max(x)) / sum(exp(x - max(x))) along one dimension, and its gradient."""

# mypy: disable-error-code="assignment, misc"
# Kernels build tuples piece by piece, which are of one type to Triton.

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from .gradients import first_derivative, is_eager, refuse_transforms, wants_gradient
from .launch import TensorSpec, custom_op, launcher, tensor_spec

SHORT = 1024  # elements up to which several rows share a program
# Elements up to which the registers of one program hold a row, or the two rows of the
# backward pass.
HELD = 24576

DTYPES = (torch.float32, torch.float16, torch.bfloat16)

# The row maximum before the first element: finite, so that subtracting it from -inf
# is no inf - inf.
LOWEST = tl.constexpr(torch.finfo(torch.float32).min)
LOG2E = tl.constexpr(1.4426950408889634)


def softmax_reference(x: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """The specification: what `softmax` must return."""
    return torch.softmax(x.double(), dim).to(x.dtype)


@triton.jit
def power_of_e(x):
    """Return e**x in two instructions.

    `tl.exp` spends three more on results below 2**-126, which are 0 here.
    """
    return tl.exp2(x * LOG2E)


@triton.jit
def softmax_rows_kernel(
    x_ptr, out_ptr, M, N, stride_xm, stride_om,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Each program normalizes ROWS neighbouring rows, each held by BLOCK lanes.

    x_ptr, out_ptr: [M, N], one dtype; elements of a row lie side by side. The grid is
    (ceil(M / ROWS),).
    """
    # Widen before multiplying: a row number times a stride can pass 2**31.
    offs_m = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    offs_n = tl.arange(0, BLOCK)
    mask = (offs_m < M)[:, None] & (offs_n < N)[None, :]  # [ROWS, BLOCK]
    x_ptrs = x_ptr + offs_m[:, None] * stride_xm + offs_n[None, :]
    x = tl.load(x_ptrs, mask=mask, other=-float("inf")).to(tl.float32)
    p = power_of_e(x - tl.max(x, 1)[:, None])
    y = p * (1 / tl.sum(p, 1))[:, None]
    out_ptrs = out_ptr + offs_m[:, None] * stride_om + offs_n[None, :]
    tl.store(out_ptrs, y.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def softmax_pieces_kernel(
    x_ptr, out_ptr, M, N, stride_xm, stride_om,
    BLOCK: tl.constexpr, PIECES: tl.constexpr,
):  # fmt: skip
    """Each program normalizes one row, which it holds in PIECES blocks.

    The blocks have no more lanes than the row needs.
    x_ptr, out_ptr: [M, N], one dtype; elements of a row lie side by side. The grid is
    (M,).
    """
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)  # [BLOCK]
    x_ptrs = x_ptr + row * stride_xm + offs
    out_ptrs = out_ptr + row * stride_om + offs
    pieces = ()
    # Every load before the first use, so that all of them are under way together.
    for i in tl.static_range(PIECES):
        mask = offs < N - i * BLOCK
        pieces += (tl.load(x_ptrs + i * BLOCK, mask=mask, other=-float("inf")),)
    lane_max = pieces[0].to(tl.float32)
    for i in tl.static_range(1, PIECES):
        lane_max = tl.maximum(lane_max, pieces[i].to(tl.float32))
    row_max = tl.max(lane_max, 0)
    lane_sum = tl.zeros((BLOCK,), tl.float32)
    for i in tl.static_range(PIECES):
        lane_sum += power_of_e(pieces[i].to(tl.float32) - row_max)
    scale = 1 / tl.sum(lane_sum, 0)
    for i in tl.static_range(PIECES):
        y = power_of_e(pieces[i].to(tl.float32) - row_max) * scale
        mask = offs < N - i * BLOCK
        tl.store(out_ptrs + i * BLOCK, y.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def softmax_online_kernel(
    x_ptr, out_ptr, M, N, stride_xm, stride_om, BLOCK: tl.constexpr
):
    """Each program normalizes one row of any length in a pass and a half.

    The first pass goes from the end of the row to its start and keeps the row maximum
    and the row sum so far. The second goes back: it begins with the first BLOCK
    elements, which are still in registers; the next ones are still in a cache.

    x_ptr, out_ptr: [M, N], one dtype; elements of a row lie side by side. The grid is
    (M,).
    """
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)  # [BLOCK]
    x_ptrs = x_ptr + row * stride_xm + offs
    out_ptrs = out_ptr + row * stride_om + offs
    row_max = tl.full((), LOWEST, tl.float32)
    row_sum = 0.0
    last = (N - 1) // BLOCK * BLOCK
    for back in tl.range(0, last, BLOCK):
        mask = offs < N - last + back
        ptrs = x_ptrs + last - back
        # What is read here is read again soon; what is read or written below is not.
        x = tl.load(
            ptrs, mask=mask, other=-float("inf"), eviction_policy="evict_last"
        ).to(tl.float32)
        row_sum, row_max = with_block(x, row_sum, row_max)
    x = tl.load(
        x_ptrs, mask=offs < N, other=-float("inf"), eviction_policy="evict_first"
    ).to(tl.float32)
    new_max = tl.maximum(row_max, tl.max(x, 0))
    p = power_of_e(x - new_max)
    scale = 1 / (row_sum * power_of_e(row_max - new_max) + tl.sum(p, 0))
    y = (p * scale).to(out_ptr.dtype.element_ty)
    tl.store(out_ptrs, y, mask=offs < N, cache_modifier=".cs")
    for start in tl.range(BLOCK, N, BLOCK):
        mask = offs < N - start
        x = tl.load(x_ptrs + start, mask=mask, eviction_policy="evict_first").to(
            tl.float32
        )
        y = (power_of_e(x - new_max) * scale).to(out_ptr.dtype.element_ty)
        tl.store(out_ptrs + start, y, mask=mask, cache_modifier=".cs")


@triton.jit
def with_block(x, row_sum, row_max):
    """Return the row sum and the row maximum after one more block of the row.

    row_sum adds up powers of e relative to row_max: a larger maximum shrinks it.
    """
    new_max = tl.maximum(row_max, tl.max(x, 0))
    alpha = power_of_e(row_max - new_max)
    return row_sum * alpha + tl.sum(power_of_e(x - new_max), 0), new_max


@triton.jit
def softmax_backward_kernel(
    y_ptr, grad_ptr, out_ptr, M, N, stride_ym, stride_gm, stride_om,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Each program writes y * (grad - sum(y * grad)) for ROWS neighbouring rows.

    Each row is held by BLOCK lanes. y_ptr, grad_ptr, out_ptr: [M, N], one dtype;
    elements of a row lie side by side. The grid is (ceil(M / ROWS),).
    """
    offs_m = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    offs_n = tl.arange(0, BLOCK)
    mask = (offs_m < M)[:, None] & (offs_n < N)[None, :]  # [ROWS, BLOCK]
    y_ptrs = y_ptr + offs_m[:, None] * stride_ym + offs_n[None, :]
    grad_ptrs = grad_ptr + offs_m[:, None] * stride_gm + offs_n[None, :]
    y = tl.load(y_ptrs, mask=mask, other=0.0).to(tl.float32)
    grad = tl.load(grad_ptrs, mask=mask, other=0.0).to(tl.float32)
    out = y * (grad - tl.sum(y * grad, 1)[:, None])
    out_ptrs = out_ptr + offs_m[:, None] * stride_om + offs_n[None, :]
    tl.store(out_ptrs, out.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def softmax_backward_pieces_kernel(
    y_ptr, grad_ptr, out_ptr, M, N, stride_ym, stride_gm, stride_om,
    BLOCK: tl.constexpr, PIECES: tl.constexpr,
):  # fmt: skip
    """Each program writes y * (grad - sum(y * grad)) for one row, in PIECES blocks.

    y_ptr, grad_ptr, out_ptr: [M, N], one dtype; elements of a row lie side by side. The
    grid is (M,).
    """
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)  # [BLOCK]
    y_ptrs = y_ptr + row * stride_ym + offs
    grad_ptrs = grad_ptr + row * stride_gm + offs
    out_ptrs = out_ptr + row * stride_om + offs
    ys, grads = (), ()
    for i in tl.static_range(PIECES):
        mask = offs < N - i * BLOCK
        ys += (tl.load(y_ptrs + i * BLOCK, mask=mask, other=0.0),)
        grads += (tl.load(grad_ptrs + i * BLOCK, mask=mask, other=0.0),)
    lane_sum = tl.zeros((BLOCK,), tl.float32)
    for i in tl.static_range(PIECES):
        lane_sum += ys[i].to(tl.float32) * grads[i].to(tl.float32)
    row_sum = tl.sum(lane_sum, 0)
    for i in tl.static_range(PIECES):
        out = ys[i].to(tl.float32) * (grads[i].to(tl.float32) - row_sum)
        mask = offs < N - i * BLOCK
        tl.store(out_ptrs + i * BLOCK, out.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def softmax_backward_online_kernel(
    y_ptr, grad_ptr, out_ptr, M, N, stride_ym, stride_gm, stride_om,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Each program writes y * (grad - sum(y * grad)) for one row of any length.

    It passes over the row as softmax_online_kernel does. y_ptr, grad_ptr, out_ptr:
    [M, N], one dtype; elements of a row lie side by side. The grid is (M,).
    """
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)  # [BLOCK]
    y_ptrs = y_ptr + row * stride_ym + offs
    grad_ptrs = grad_ptr + row * stride_gm + offs
    out_ptrs = out_ptr + row * stride_om + offs
    last = (N - 1) // BLOCK * BLOCK
    lane_sum = tl.zeros((BLOCK,), tl.float32)
    for back in tl.range(0, last, BLOCK):
        mask = offs < N - last + back
        y = tl.load(
            y_ptrs + last - back, mask=mask, other=0.0, eviction_policy="evict_last"
        ).to(tl.float32)
        grad = tl.load(
            grad_ptrs + last - back, mask=mask, other=0.0, eviction_policy="evict_last"
        ).to(tl.float32)
        lane_sum += y * grad
    y = tl.load(y_ptrs, mask=offs < N, other=0.0, eviction_policy="evict_first").to(
        tl.float32
    )
    grad = tl.load(
        grad_ptrs, mask=offs < N, other=0.0, eviction_policy="evict_first"
    ).to(tl.float32)
    row_sum = tl.sum(lane_sum + y * grad, 0)
    out = (y * (grad - row_sum)).to(out_ptr.dtype.element_ty)
    tl.store(out_ptrs, out, mask=offs < N, cache_modifier=".cs")
    for start in tl.range(BLOCK, N, BLOCK):
        mask = offs < N - start
        y = tl.load(y_ptrs + start, mask=mask, eviction_policy="evict_first").to(
            tl.float32
        )
        grad = tl.load(grad_ptrs + start, mask=mask, eviction_policy="evict_first").to(
            tl.float32
        )
        out = (y * (grad - row_sum)).to(out_ptr.dtype.element_ty)
        tl.store(out_ptrs + start, out, mask=mask, cache_modifier=".cs")


class Plan(NamedTuple):
    """How rows of one length are shared out."""

    kernel: triton.runtime.KernelInterface
    rows: int  # of one program
    options: dict[str, int]  # the kernel's constants, and num_warps


def plan_for(N: int) -> Plan:
    """Return how `softmax` shares out rows of N elements."""
    if N <= SHORT:
        return Plan(softmax_rows_kernel, *short_rows(N))
    if N <= HELD:
        return Plan(softmax_pieces_kernel, 1, pieces_of(N))
    BLOCK, num_warps = 32768, 16
    if N <= 32768:
        BLOCK, num_warps = 8192, 8
    elif N <= 65536:
        BLOCK = 16384
    return Plan(softmax_online_kernel, 1, {"BLOCK": BLOCK, "num_warps": num_warps})


def backward_plan_for(N: int) -> Plan:
    """Return how the gradient of `softmax` shares out rows of N elements."""
    if N <= SHORT:
        return Plan(softmax_backward_kernel, *short_rows(N))
    if N <= HELD:
        return Plan(softmax_backward_pieces_kernel, 1, pieces_of(N))
    options = {"BLOCK": 8192 if N <= 65536 else 16384, "num_warps": 16}
    return Plan(softmax_backward_online_kernel, 1, options)


def short_rows(N: int) -> tuple[int, dict[str, int]]:
    """Return how many short rows share a program, and its options."""
    BLOCK = triton.next_power_of_2(N)
    rows = SHORT // BLOCK
    return rows, {"ROWS": rows, "BLOCK": BLOCK, "num_warps": 1}


def pieces_of(N: int) -> dict[str, int]:
    """Return the options of a program that holds a row of N elements in pieces."""
    num_warps = 2 if N <= 2048 else 4 if N <= 8192 else 8 if N <= 16384 else 16
    BLOCK = 256 * num_warps  # 8 elements a thread: a load of 16 bytes in 16-bit dtypes
    return {"BLOCK": BLOCK, "PIECES": triton.cdiv(N, BLOCK), "num_warps": num_warps}


def softmax(x: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """Return softmax(x) along dim, of the shape, dtype and device of x.

    x: fp32, fp16 or bf16, any shape and strides; arithmetic is fp32. The gradient needs
    the result alone, so only that is kept; there is no second derivative. The kernels
    want the elements of a row side by side and one stride from row to row: an input
    laid out otherwise (dim is not the last, or is strided) is copied first. The result
    is contiguous with dim moved last.
    A row of nothing but -inf becomes NaN, and so does one with NaN or +inf in it.
    On a GPU an element becomes 0 where e to its distance from the largest one is below
    2**-126.

    Source: M. Milakov and N. Gimelshein, "Online normalizer calculation for softmax",
    arXiv 1805.02867, section 3.
    Raises TypeError for anything but a tensor and an integer, ValueError for a dtype,
    layout or dim that does not fit.
    """
    check_input(x, dim)
    try:
        if not x.requires_grad and is_eager():
            return softmax_forward.eager(x, dim)
        forward = Softmax.apply if wants_gradient(x) else softmax_forward
        return forward(x, dim)
    except RuntimeError:
        refuse_transforms()
        raise


class Softmax(torch.autograd.Function):
    """`softmax` as autograd sees it."""

    @staticmethod
    def forward(ctx, x: torch.Tensor, dim: int) -> torch.Tensor:
        """Return softmax(x) along dim, and keep it."""
        y = softmax_forward(x, dim)
        ctx.save_for_backward(y)
        ctx.dim = dim
        return y

    @staticmethod
    def backward(ctx, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Return y * (grad - sum(y * grad)), the gradient of x."""
        (y,) = ctx.saved_tensors
        return first_derivative("softmax", softmax_backward, y, grad, ctx.dim), None


def uninitialized(x: torch.Tensor, *rest) -> torch.Tensor:
    """Return a tensor of the shape of x, contiguous with dim moved last."""
    dim = rest[-1]
    if x.dim() == 0:
        return x.new_empty(())
    return x.new_empty(x.movedim(dim, -1).shape).movedim(-1, dim)


@custom_op(uninitialized)
def softmax_forward(x: torch.Tensor, dim: int) -> torch.Tensor:
    """Return softmax(x) along dim, without a gradient."""
    if x.is_neg():
        x = x.resolve_neg()
    return forward_for(
        dim, x.shape, x.stride(), x.dtype, x.device, not x.data_ptr() & 15
    )(x)


@custom_op(uninitialized)
def softmax_backward(y: torch.Tensor, grad: torch.Tensor, dim: int) -> torch.Tensor:
    """Return y * (grad - sum(y * grad)), with sums along dim."""
    if grad.is_neg():
        grad = grad.resolve_neg()
    return backward_for(tensor_spec(y), tensor_spec(grad), dim)(y, grad)


@functools.lru_cache(maxsize=1024)
def forward_for(dim: int, *fields: Any) -> Callable[..., torch.Tensor]:
    """Return the function that computes softmax for a spec with these fields."""
    return function_on_rows(plan_for, softmax_forward, (TensorSpec(*fields),), dim)


@functools.lru_cache(maxsize=1024)
def backward_for(
    y: TensorSpec, grad: TensorSpec, dim: int
) -> Callable[..., torch.Tensor]:
    """Return the function that computes the gradient from tensors of these specs."""
    return function_on_rows(backward_plan_for, softmax_backward, (y, grad), dim)


def function_on_rows(
    plan_of: Callable[[int], Plan],
    operation: Callable[..., torch.Tensor],
    inputs: tuple[TensorSpec, ...],
    dim: int,
) -> Callable[..., torch.Tensor]:
    """Return the function that computes an operation on tensors of these specs.

    Where the tensors are matrices of rows as they lie, it launches a kernel on them;
    else it takes their rows along dim, as matrices, and puts the result back in place.
    """
    x = inputs[0]
    check_spec(x, dim)
    shape, strides = x.shape, [row_stride(t, dim) for t in inputs]
    if 0 in shape:
        return lambda x, *rest: uninitialized(x, dim)
    if None in strides:

        def computed(*tensors: torch.Tensor) -> torch.Tensor:
            rows = operation(*[rows_along(t, dim) for t in tensors], 1)
            return as_rows_of(tensors[0], dim, rows)

        return computed
    N = shape[-1] if shape else 1
    M = math.prod(shape) // N
    kernel, rows, options = plan_of(N)
    options = dict(options)
    num_warps = options.pop("num_warps")
    launch = launcher(
        kernel,
        (triton.cdiv(M, rows), 1, 1),
        (*inputs, x._replace(aligned=True)),
        constants=(M, N, *strides, N, *options.values()),
        num_warps=num_warps,
    )

    sizes = shape or ((),)  # apart, since a tuple of them takes PyTorch twice as long

    def launched(*tensors: torch.Tensor) -> torch.Tensor:
        out = tensors[0].new_empty(*sizes)
        launch((*tensors, out))
        return out

    return launched


def row_stride(x: TensorSpec, dim: int) -> int | None:
    """Return the stride from row to row of a tensor as it lies.

    None where its rows do not run along the last dimension, without gaps and with one
    stride from each to the next.
    """
    if not x.shape:
        return 1
    if dim not in (-1, len(x.shape) - 1) or (x.strides[-1] != 1 and x.shape[-1] != 1):
        return None
    between = None  # from row to row
    whole = 0  # what the stride of the next axis must be
    for size, stride in zip(x.shape[-2::-1], x.strides[-2::-1], strict=True):
        if size != 1:
            if between is not None and stride != whole:
                return None
            between = stride if between is None else between
            whole = stride * size
    return x.shape[-1] if between is None else between


def rows_along(x: torch.Tensor, dim: int) -> torch.Tensor:
    """Return x as a matrix [M, N] whose rows run along dim without gaps.

    It is a view where strides allow one, else a copy.
    """
    if x.dim() == 0:
        return x.reshape(1, 1)
    N = x.shape[dim]
    rows = x.movedim(dim, -1).reshape(x.numel() // N, N)
    return rows if rows.stride(1) == 1 or N == 1 else rows.contiguous()


def as_rows_of(x: torch.Tensor, dim: int, rows: torch.Tensor) -> torch.Tensor:
    """Return a matrix of rows in the shape of x: the way back from `rows_along`."""
    if x.dim() == 0:
        return rows.view(())
    return rows.view(x.movedim(dim, -1).shape).movedim(-1, dim)


def check_input(x: torch.Tensor, dim: int) -> None:
    """Raise TypeError or ValueError, naming what is wrong, unless the types fit."""
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"softmax takes a tensor, not {type(x).__name__}")
    if not isinstance(dim, int) or isinstance(dim, bool):
        raise TypeError(f"dim must be an integer, not {type(dim).__name__}")
    if x.layout is not torch.strided:
        raise ValueError(f"softmax takes dense tensors, not {x.layout}")


def check_spec(x: TensorSpec, dim: int) -> None:
    """Raise ValueError, naming what is wrong, unless softmax takes such tensors."""
    if x.dtype not in DTYPES:
        known = ", ".join(map(str, DTYPES))
        raise ValueError(f"softmax takes tensors of {known}, not {x.dtype}")
    axes = max(len(x.shape), 1)
    if not -axes <= dim < axes:
        shape = tuple(x.shape)
        raise ValueError(f"dim must be a dimension of x, of shape {shape}, not {dim}")


def softmax_bytes(x: torch.Tensor) -> int:
    """Return the bytes that must cross memory once: x read, the result written."""
    return 2 * x.numel() * x.element_size()


def softmax_flops(x: torch.Tensor) -> int:
    """Return the floating-point operations: five an element.

    They compare, subtract, raise to a power, add and multiply.
    """
    return 5 * x.numel()
