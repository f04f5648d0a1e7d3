"""Dropout on the way to the kernel that ships.

First with a stored mask, then with one and with four random numbers at a call.
"""

import triton
import triton.language as tl

BLOCK = 1024  # elements that a program owns


@triton.jit
def dropout_stored_kernel(x_ptr, keep_ptr, out_ptr, n, scale, BLOCK: tl.constexpr):
    """Each program writes BLOCK consecutive elements of out, by a stored mask.

    x_ptr, out_ptr: [n], contiguous, one dtype. keep_ptr: [n], contiguous, bool.
    """
    pid = tl.program_id(0).to(tl.int64)
    offs = pid * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    keep = tl.load(keep_ptr + offs, mask=mask)
    # A choice, not a product: infinity times zero would be NaN.
    out = tl.where(keep, x * scale, 0.0)
    tl.store(out_ptr + offs, out.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def dropout_one_kernel(x_ptr, out_ptr, n, seed, p, scale, BLOCK: tl.constexpr):
    """Each program writes BLOCK consecutive elements of out; it draws one number each.

    x_ptr, out_ptr: [n], contiguous, one dtype.
    """
    pid = tl.program_id(0).to(tl.int64)
    offs = pid * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    keep = tl.rand(seed, offs) >= p
    out = tl.where(keep, x * scale, 0.0)
    tl.store(out_ptr + offs, out.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def dropout_four_kernel(
    x_ptr, out_ptr, n, seed, p, scale, CALLS: tl.constexpr, ROUNDS: tl.constexpr = 10
):
    """Each program writes 4 * CALLS elements of out; it draws four numbers at a call.

    x_ptr, out_ptr: [n], contiguous, one dtype.
    """
    pid = tl.program_id(0).to(tl.int64)
    call = pid * CALLS + tl.arange(0, CALLS)
    u0, u1, u2, u3 = tl.rand4x(seed, call, ROUNDS)
    # join stacks along a new last axis: the pairs are crossed, and the order comes out
    # as u0, u1, u2, u3.
    random = tl.reshape(tl.join(tl.join(u0, u2), tl.join(u1, u3)), (CALLS, 4))
    offs = call[:, None] * 4 + tl.arange(0, 4)[None, :]  # [CALLS, 4]
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    out = tl.where(random >= p, x * scale, 0.0)
    tl.store(out_ptr + offs, out.to(out_ptr.dtype.element_ty), mask=mask)
