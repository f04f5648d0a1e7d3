"""Softmax on the way to the kernels that ship: five operations, one row a program, a program for many rows."""

import torch
import triton
import triton.language as tl

from ..softmax import power_of_e


def softmax_eager(x: torch.Tensor) -> torch.Tensor:
    """Return the softmax of each row of x, [M, N], in five operations that move 8MN + 4M elements between them."""
    largest = x.amax(1, keepdim=True)  # reads MN, writes M
    shifted = x - largest  # reads MN + M, writes MN
    powers = torch.exp(shifted)  # reads MN, writes MN
    total = powers.sum(1, keepdim=True)  # reads MN, writes M
    return powers / total  # reads MN + M, writes MN


@triton.jit
def softmax_row_kernel(x_ptr, out_ptr, M, N, stride_xm, stride_om, BLOCK: tl.constexpr):
    """Each program normalizes one row, which BLOCK lanes hold.

    x_ptr, out_ptr: [M, N], one dtype; elements of a row lie side by side. The grid is (M,).
    """
    # Widen before multiplying: a row number times a stride passes 2**31 in a large matrix.
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)  # [BLOCK]
    mask = offs < N
    x = tl.load(x_ptr + row * stride_xm + offs, mask=mask, other=-float("inf")).to(tl.float32)
    powers = power_of_e(x - tl.max(x, 0))
    y = powers * (1 / tl.sum(powers, 0))
    tl.store(out_ptr + row * stride_om + offs, y.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def softmax_persistent_kernel(x_ptr, out_ptr, M, N, stride_xm, stride_om, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    """Each program normalizes every P-th row, of P programs, and asks for STAGES - 1 rows ahead of the one it works on.

    x_ptr, out_ptr: [M, N], one dtype; elements of a row lie side by side. Any grid (P,).
    """
    offs = tl.arange(0, BLOCK)  # [BLOCK]
    mask = offs < N
    for turn in tl.range(tl.program_id(0), M, tl.num_programs(0), num_stages=STAGES):
        row = tl.cast(turn, tl.int64)
        x = tl.load(x_ptr + row * stride_xm + offs, mask=mask, other=-float("inf")).to(tl.float32)
        powers = power_of_e(x - tl.max(x, 0))
        y = powers * (1 / tl.sum(powers, 0))
        tl.store(out_ptr + row * stride_om + offs, y.to(out_ptr.dtype.element_ty), mask=mask)
