"""Softmax on the way to the kernels that ship.

Five operations; one row a program; a program for many rows.
"""

import torch
import triton
import triton.language as tl

from ..softmax import power_of_e


def softmax_eager(x: torch.Tensor) -> torch.Tensor:
    """Return the softmax of each row of x, [M, N], in five operations.

    They move 8MN + 4M elements between them.
    """
    row_max = x.amax(1, keepdim=True)  # reads MN, writes M
    shifted = x - row_max  # reads MN + M, writes MN
    p = torch.exp(shifted)  # reads MN, writes MN
    row_sum = p.sum(1, keepdim=True)  # reads MN, writes M
    return p / row_sum  # reads MN + M, writes MN


@triton.jit
def softmax_row_kernel(x_ptr, out_ptr, M, N, stride_xm, stride_om, BLOCK: tl.constexpr):
    """Each program normalizes one row, which BLOCK lanes hold.

    x_ptr, out_ptr: [M, N], one dtype; elements of a row lie side by side. The grid is
    (M,).
    """
    # Widen before multiplying: a row number times a stride passes 2**31 in a large
    # matrix.
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)  # [BLOCK]
    mask = offs < N
    x_ptrs = x_ptr + row * stride_xm + offs
    x = tl.load(x_ptrs, mask=mask, other=-float("inf")).to(tl.float32)
    p = power_of_e(x - tl.max(x, 0))
    y = p * (1 / tl.sum(p, 0))
    out_ptrs = out_ptr + row * stride_om + offs
    tl.store(out_ptrs, y.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def softmax_persistent_kernel(
    x_ptr, out_ptr, M, N, stride_xm, stride_om,
    BLOCK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Each program of P normalizes every P-th row.

    It asks for STAGES - 1 rows ahead of the one it works on.
    x_ptr, out_ptr: [M, N], one dtype; elements of a row lie side by side. Any grid
    (P,).
    """
    offs = tl.arange(0, BLOCK)  # [BLOCK]
    mask = offs < N
    first, programs = tl.program_id(0), tl.num_programs(0)
    for turn in tl.range(first, M, programs, num_stages=STAGES):
        row = tl.cast(turn, tl.int64)
        x_ptrs = x_ptr + row * stride_xm + offs
        x = tl.load(x_ptrs, mask=mask, other=-float("inf")).to(tl.float32)
        p = power_of_e(x - tl.max(x, 0))
        y = p * (1 / tl.sum(p, 0))
        out_ptrs = out_ptr + row * stride_om + offs
        tl.store(out_ptrs, y.to(out_ptr.dtype.element_ty), mask=mask)
