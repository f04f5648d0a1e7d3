"""y = exp(x - max(x)) / sum(exp(x - max(x))) along one dimension of a tensor, and its gradient."""

from collections.abc import Callable
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch.autograd.function import once_differentiable

from .launch import custom_op

SHORT = 1024  # elements up to which several rows share a program
HELD = 24576  # elements up to which the registers of one program hold a row, or the two of the backward pass

DTYPES = (torch.float32, torch.float16, torch.bfloat16)

# The largest element so far of a row not begun: finite, so that subtracting it from -inf is no inf - inf.
LOWEST = tl.constexpr(torch.finfo(torch.float32).min)
LOG2E = tl.constexpr(1.4426950408889634)


def softmax_reference(x: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """The specification: what `softmax` must return."""
    return torch.softmax(x.double(), dim).to(x.dtype)


@triton.jit
def power_of_e(x):
    """Return e**x in two instructions: `tl.exp` spends three more on results below 2**-126, which are 0 here."""
    return tl.exp2(x * LOG2E)


@triton.jit
def softmax_rows_kernel(x_ptr, out_ptr, M, N, stride_xm, stride_om, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Each program normalizes ROWS neighbouring rows, each held by BLOCK lanes.

    x_ptr, out_ptr: [M, N], one dtype; elements of a row lie side by side. The grid is (ceil(M / ROWS),).
    """
    offs_m = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    offs_n = tl.arange(0, BLOCK)
    mask = (offs_m < M)[:, None] & (offs_n < N)[None, :]  # [ROWS, BLOCK]
    x_ptrs = x_ptr + offs_m[:, None] * stride_xm + offs_n[None, :]
    x = tl.load(x_ptrs, mask=mask, other=-float("inf")).to(tl.float32)
    powers = power_of_e(x - tl.max(x, 1)[:, None])
    y = powers * (1 / tl.sum(powers, 1))[:, None]
    out_ptrs = out_ptr + offs_m[:, None] * stride_om + offs_n[None, :]
    tl.store(out_ptrs, y.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def softmax_pieces_kernel(x_ptr, out_ptr, M, N, stride_xm, stride_om, BLOCK: tl.constexpr, PIECES: tl.constexpr):
    """Each program normalizes one row, which it holds in PIECES blocks: no more lanes than the row has use for.

    x_ptr, out_ptr: [M, N], one dtype; elements of a row lie side by side. The grid is (M,).
    """
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)  # [BLOCK]
    x_ptrs = x_ptr + row * stride_xm + offs
    out_ptrs = out_ptr + row * stride_om + offs
    pieces = ()
    # Every load before the first use, so that all of them are on their way together.
    for i in tl.static_range(PIECES):
        pieces += (tl.load(x_ptrs + i * BLOCK, mask=offs < N - i * BLOCK, other=-float("inf")),)
    largest = pieces[0].to(tl.float32)
    for i in tl.static_range(1, PIECES):
        largest = tl.maximum(largest, pieces[i].to(tl.float32))
    top = tl.max(largest, 0)
    sums = tl.zeros((BLOCK,), tl.float32)
    for i in tl.static_range(PIECES):
        sums += power_of_e(pieces[i].to(tl.float32) - top)
    scale = 1 / tl.sum(sums, 0)
    for i in tl.static_range(PIECES):
        y = power_of_e(pieces[i].to(tl.float32) - top) * scale
        tl.store(out_ptrs + i * BLOCK, y.to(out_ptr.dtype.element_ty), mask=offs < N - i * BLOCK)


@triton.jit
def softmax_online_kernel(x_ptr, out_ptr, M, N, stride_xm, stride_om, BLOCK: tl.constexpr):
    """Each program normalizes one row of any length in a pass and a half.

    From the end of the row to its start it keeps the largest element and the sum of powers so far. The first BLOCK
    elements, met last, are still in registers for the way back, which starts with them; the next ones are in a cache.

    x_ptr, out_ptr: [M, N], one dtype; elements of a row lie side by side. The grid is (M,).
    """
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)  # [BLOCK]
    x_ptrs = x_ptr + row * stride_xm + offs
    out_ptrs = out_ptr + row * stride_om + offs
    top = tl.full((), LOWEST, tl.float32)
    total = 0.0
    last = (N - 1) // BLOCK * BLOCK
    for back in tl.range(0, last, BLOCK):
        mask = offs < N - last + back
        # What is read here is read again soon; what is read or written below is not.
        x = tl.load(x_ptrs + last - back, mask=mask, other=-float("inf"), eviction_policy="evict_last").to(tl.float32)
        new_top = tl.maximum(top, tl.max(x, 0))
        total = total * power_of_e(top - new_top) + tl.sum(power_of_e(x - new_top), 0)
        top = new_top
    x = tl.load(x_ptrs, mask=offs < N, other=-float("inf"), eviction_policy="evict_first").to(tl.float32)
    new_top = tl.maximum(top, tl.max(x, 0))
    powers = power_of_e(x - new_top)
    scale = 1 / (total * power_of_e(top - new_top) + tl.sum(powers, 0))
    tl.store(out_ptrs, (powers * scale).to(out_ptr.dtype.element_ty), mask=offs < N, cache_modifier=".cs")
    for start in tl.range(BLOCK, N, BLOCK):
        mask = offs < N - start
        x = tl.load(x_ptrs + start, mask=mask, eviction_policy="evict_first").to(tl.float32)
        y = power_of_e(x - new_top) * scale
        tl.store(out_ptrs + start, y.to(out_ptr.dtype.element_ty), mask=mask, cache_modifier=".cs")


@triton.jit
def softmax_backward_kernel(
    y_ptr, grad_ptr, out_ptr, M, N, stride_ym, stride_gm, stride_om, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """Each program writes y * (grad - sum(y * grad)) for ROWS neighbouring rows, each held by BLOCK lanes.

    y_ptr, grad_ptr, out_ptr: [M, N], one dtype; elements of a row lie side by side. The grid is (ceil(M / ROWS),).
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
    y_ptr, grad_ptr, out_ptr, M, N, stride_ym, stride_gm, stride_om, BLOCK: tl.constexpr, PIECES: tl.constexpr
):
    """Each program writes y * (grad - sum(y * grad)) for one row, by the way of softmax_pieces_kernel.

    y_ptr, grad_ptr, out_ptr: [M, N], one dtype; elements of a row lie side by side. The grid is (M,).
    """
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)  # [BLOCK]
    y_ptrs = y_ptr + row * stride_ym + offs
    grad_ptrs = grad_ptr + row * stride_gm + offs
    out_ptrs = out_ptr + row * stride_om + offs
    ys, grads = (), ()
    for i in tl.static_range(PIECES):
        ys += (tl.load(y_ptrs + i * BLOCK, mask=offs < N - i * BLOCK, other=0.0),)
        grads += (tl.load(grad_ptrs + i * BLOCK, mask=offs < N - i * BLOCK, other=0.0),)
    sums = tl.zeros((BLOCK,), tl.float32)
    for i in tl.static_range(PIECES):
        sums += ys[i].to(tl.float32) * grads[i].to(tl.float32)
    total = tl.sum(sums, 0)
    for i in tl.static_range(PIECES):
        out = ys[i].to(tl.float32) * (grads[i].to(tl.float32) - total)
        tl.store(out_ptrs + i * BLOCK, out.to(out_ptr.dtype.element_ty), mask=offs < N - i * BLOCK)


@triton.jit
def softmax_backward_online_kernel(
    y_ptr, grad_ptr, out_ptr, M, N, stride_ym, stride_gm, stride_om, BLOCK: tl.constexpr
):
    """Each program writes y * (grad - sum(y * grad)) for one row of any length, by the way of softmax_online_kernel.

    y_ptr, grad_ptr, out_ptr: [M, N], one dtype; elements of a row lie side by side. The grid is (M,).
    """
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)  # [BLOCK]
    y_ptrs = y_ptr + row * stride_ym + offs
    grad_ptrs = grad_ptr + row * stride_gm + offs
    out_ptrs = out_ptr + row * stride_om + offs
    sums = tl.zeros((BLOCK,), tl.float32)
    last = (N - 1) // BLOCK * BLOCK
    for back in tl.range(0, last, BLOCK):
        mask = offs < N - last + back
        y = tl.load(y_ptrs + last - back, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        grad = tl.load(grad_ptrs + last - back, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        sums += y * grad
    y = tl.load(y_ptrs, mask=offs < N, other=0.0, eviction_policy="evict_first").to(tl.float32)
    grad = tl.load(grad_ptrs, mask=offs < N, other=0.0, eviction_policy="evict_first").to(tl.float32)
    total = tl.sum(sums + y * grad, 0)
    tl.store(out_ptrs, (y * (grad - total)).to(out_ptr.dtype.element_ty), mask=offs < N, cache_modifier=".cs")
    for start in tl.range(BLOCK, N, BLOCK):
        mask = offs < N - start
        y = tl.load(y_ptrs + start, mask=mask, eviction_policy="evict_first").to(tl.float32)
        grad = tl.load(grad_ptrs + start, mask=mask, eviction_policy="evict_first").to(tl.float32)
        out = y * (grad - total)
        tl.store(out_ptrs + start, out.to(out_ptr.dtype.element_ty), mask=mask, cache_modifier=".cs")


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
    block, num_warps = (8192, 8) if N <= 32768 else (16384, 16) if N <= 65536 else (32768, 16)
    return Plan(softmax_online_kernel, 1, {"BLOCK": block, "num_warps": num_warps})


def backward_plan_for(N: int) -> Plan:
    """Return how the gradient of `softmax` shares out rows of N elements."""
    if N <= SHORT:
        return Plan(softmax_backward_kernel, *short_rows(N))
    if N <= HELD:
        return Plan(softmax_backward_pieces_kernel, 1, pieces_of(N))
    return Plan(softmax_backward_online_kernel, 1, {"BLOCK": 8192 if N <= 65536 else 16384, "num_warps": 16})


def short_rows(N: int) -> tuple[int, dict[str, int]]:
    """Return how many short rows share a program, and its options."""
    block = triton.next_power_of_2(N)
    return SHORT // block, {"ROWS": SHORT // block, "BLOCK": block, "num_warps": 1}


def pieces_of(N: int) -> dict[str, int]:
    """Return the options of a program that holds rows of N elements in pieces."""
    num_warps = 2 if N <= 2048 else 4 if N <= 8192 else 8 if N <= 16384 else 16
    block = 256 * num_warps  # 8 elements a thread: one 16-byte load in the 16-bit dtypes
    return {"BLOCK": block, "PIECES": triton.cdiv(N, block), "num_warps": num_warps}


def softmax(x: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """Return softmax(x) along dim: a tensor of the shape, dtype and device of x, with the values of torch.softmax.

    x: fp32, fp16 or bf16, any shape and strides; arithmetic is fp32. The gradient needs the result alone, so only that
    is kept. The kernels want the elements of a row side by side and one stride from row to row: an input laid out
    otherwise (dim is not the last, or is strided) is copied first. The result is contiguous with dim moved last.
    A row of nothing but -inf becomes NaN, and so does one with NaN or +inf in it.
    On a GPU an element becomes 0 where e to its distance from the largest one is below 2**-126.

    Source: M. Milakov and N. Gimelshein, "Online normalizer calculation for softmax", arXiv 1805.02867, section 3.
    Raises TypeError for anything but a tensor and an integer, ValueError for a dtype, layout or dim that does not fit.
    """
    check_input(x, dim)
    return Softmax.apply(x, dim)


class Softmax(torch.autograd.Function):
    """`softmax` as autograd sees it."""

    @staticmethod
    def forward(ctx, x: torch.Tensor, dim: int) -> torch.Tensor:
        """Return softmax(x) along dim, and keep it."""
        x_rows = rows_along(x, dim)
        y_rows = softmax_rows(x_rows)
        y = as_rows_of(x, dim, y_rows)
        ctx.save_for_backward(y)
        ctx.dim = dim
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Return y * (grad - sum(y * grad)), the gradient of x."""
        (y,) = ctx.saved_tensors
        rows = softmax_backward_rows(rows_along(y, ctx.dim), rows_along(grad, ctx.dim))
        return as_rows_of(y, ctx.dim, rows), None


@custom_op(lambda x: x.new_empty(x.shape))
def softmax_rows(x: torch.Tensor) -> torch.Tensor:
    """Return softmax(x) along the rows of a matrix that have no gaps."""
    return launched(plan_for, x)


@custom_op(lambda y, grad: y.new_empty(y.shape))
def softmax_backward_rows(y: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
    """Return y * (grad - sum(y * grad)) along the rows of matrices that have no gaps."""
    return launched(backward_plan_for, y, grad)


def launched(plan_of: Callable[[int], Plan], *inputs: torch.Tensor) -> torch.Tensor:
    """Return what the kernel for rows of this length makes of one or two matrices [M, N] with rows without gaps."""
    M, N = inputs[0].shape
    out = inputs[0].new_empty(M, N)
    if out.numel() > 0:
        kernel, rows, options = plan_of(N)
        strides = [t.stride(0) for t in (*inputs, out)]
        with torch.cuda.device_of(out):
            kernel[(triton.cdiv(M, rows),)](*inputs, out, M, N, *strides, **options)
    return out


def rows_along(x: torch.Tensor, dim: int) -> torch.Tensor:
    """Return x as a matrix [M, N] whose rows run along dim without gaps: a view where strides allow, else a copy."""
    if x.dim() == 0:
        return x.reshape(1, 1)
    N = x.shape[dim]
    rows = x.resolve_neg().movedim(dim, -1).reshape(x.numel() // max(N, 1), N)
    return rows if rows.stride(1) == 1 or N == 1 else rows.contiguous()


def as_rows_of(x: torch.Tensor, dim: int, rows: torch.Tensor) -> torch.Tensor:
    """Return a matrix of rows in the shape that x has: the way back from `rows_along`."""
    return rows.view(x.movedim(dim, -1).shape).movedim(-1, dim) if x.dim() else rows.view(())


def check_input(x: torch.Tensor, dim: int) -> None:
    """Raise TypeError or ValueError, naming what is wrong, unless softmax(x, dim) can be computed."""
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"softmax takes a tensor, not {type(x).__name__}")
    if not isinstance(dim, int) or isinstance(dim, bool):
        raise TypeError(f"dim must be an integer, not {type(dim).__name__}")
    if x.dtype not in DTYPES or x.layout != torch.strided:
        raise ValueError(f"softmax takes dense tensors of {', '.join(map(str, DTYPES))}, not {x.dtype} ({x.layout})")
    if not -max(x.dim(), 1) <= dim < max(x.dim(), 1):
        raise ValueError(f"dim must be a dimension of x, which has the shape {tuple(x.shape)}, not {dim}")


def softmax_bytes(x: torch.Tensor) -> int:
    """Return the bytes that must cross memory once: x read, the result written."""
    return 2 * x.numel() * x.element_size()


def softmax_flops(x: torch.Tensor) -> int:
    """Return the floating-point operations of each element: compare, subtract, raise, add and multiply."""
    return 5 * x.numel()
