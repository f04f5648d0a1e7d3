"""Answers to the tasks of `solutions/gelu.py` that the check must reject, each for its
reason.
"""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from triton.language.extra import libdevice

from lab.task import wrong
from solutions import gelu as right


def launch(kernel, *tensors, constants=(), programs=None, BLOCK=256, out=None):
    """Run a kernel with the parameters (x_ptr, …, out_ptr, n, …) and return its
    output.
    """
    out = torch.empty_like(tensors[0]) if out is None else out
    n = tensors[0].numel()
    grid = (triton.cdiv(n, BLOCK) if programs is None else programs,)
    kernel[grid](*tensors, out, n, *constants, BLOCK=BLOCK)
    return out


# SiLU


@triton.jit
def narrow_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n)
    tl.store(out_ptr + offs, x * tl.sigmoid(x), mask=offs < n)


@wrong("silu", reason="compiler")
def does_not_widen(x):
    return launch(narrow_kernel, x)


@triton.jit
def rounded_sigmoid_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n)
    s = tl.sigmoid(x.to(tl.float32)).to(tl.bfloat16)
    tl.store(out_ptr + offs, x.to(tl.float32) * s.to(tl.float32), mask=offs < n)


@wrong("silu", reason="wrong-values", cause="lower precision than float32")
def rounds_the_sigmoid(x):
    return launch(rounded_sigmoid_kernel, x)


@triton.jit
def sigmoid_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n).to(tl.float32)
    tl.store(out_ptr + offs, tl.sigmoid(x), mask=offs < n)


@wrong("silu", reason="wrong-values", cause="the sigmoid alone")
def forgets_the_factor(x):
    return launch(sigmoid_kernel, x)


@triton.jit
def exponential_above_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n).to(tl.float32)
    e = tl.exp(x)
    tl.store(out_ptr + offs, x * e / (1.0 + e), mask=offs < n)


@wrong("silu", reason="not-finite", cause="it is finite when every input is within")
def divides_infinity_by_infinity(x):
    return launch(exponential_above_kernel, x)


@triton.jit
def unmasked_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n).to(tl.float32)
    tl.store(out_ptr + offs, x * tl.sigmoid(x))


@wrong("silu", reason="out-of-bounds", cause="this store has no mask")
def no_mask_on_the_store(x):
    return launch(unmasked_kernel, x)


@wrong("silu", reason="torch")
def torch_does_it(x):
    return F.silu(x)


@wrong("silu", reason="dtype")
def stays_wide(x):
    return launch(
        right.silu_kernel,
        x,
        out=torch.empty(x.shape, dtype=torch.float32, device=x.device),
    )


@wrong("silu", reason="returns-input")
def works_in_place(x):
    return launch(right.silu_kernel, x, out=x)


@wrong("silu", reason="not-written", cause="the grid has no program at all")
def skips_the_tail(x):
    return launch(right.silu_kernel, x, programs=x.numel() // 256)


# Quick GeLU


def quick_gelu_with(scale):
    """Return quick GeLU by the right kernel with another scale."""
    return lambda x: launch(right.quick_gelu_kernel, x, constants=(scale,))


@wrong("quick_gelu", reason="wrong-values", cause="base e")
def keeps_base_e(x):
    return quick_gelu_with(-1.702)(x)


@wrong("quick_gelu", reason="wrong-values", cause="divided by log2(e)")
def divides_by_the_logarithm(x):
    return quick_gelu_with(-1.702 / 1.4426950408889634)(x)


@wrong("quick_gelu", reason="wrong-values", cause="the wrong sign")
def forgets_the_sign(x):
    return quick_gelu_with(1.702 * 1.4426950408889634)(x)


@wrong("quick_gelu", reason="wrong-values", cause="too few digits")
def rounds_the_constant(x):
    return quick_gelu_with(-2.455)(x)


@triton.jit
def exact_gelu_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n).to(tl.float32)
    tl.store(
        out_ptr + offs, 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476)), mask=offs < n
    )


@wrong("quick_gelu", reason="wrong-values", cause="the exact GeLU")
def computes_the_exact_gelu(x):
    return launch(exact_gelu_kernel, x)


@wrong("quick_gelu", reason="one-program")
def one_program_does_everything(x):
    block = triton.next_power_of_2(max(1, x.numel()))
    return launch(
        right.quick_gelu_kernel,
        x,
        constants=(-1.702 * 1.4426950408889634,),
        BLOCK=block,
    )


# Backward through quick GeLU


@triton.jit
def overflowing_kernel(x_ptr, grad_ptr, dx_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    grad = tl.load(grad_ptr + offs, mask=mask).to(tl.float32)
    s = tl.sigmoid(1.702 * x)
    tl.store(dx_ptr + offs, grad * (s + 1.702 * x * s * (1.0 - s)), mask=mask)


@wrong(
    "quick_gelu_backward",
    reason="not-finite",
    cause="it is finite when every input is within",
)
def multiplies_the_large_ones_first(x, grad):
    return launch(overflowing_kernel, x, grad)


@triton.jit
def no_chain_kernel(x_ptr, grad_ptr, dx_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    s = tl.sigmoid(1.702 * x)
    tl.store(dx_ptr + offs, s + s * (1.0 - s) * x * 1.702, mask=mask)


@wrong("quick_gelu_backward", reason="wrong-values", cause="`grad`, is missing")
def forgets_the_gradient(x, grad):
    return launch(no_chain_kernel, x, grad)


@triton.jit
def plain_sigmoid_kernel(x_ptr, grad_ptr, dx_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    grad = tl.load(grad_ptr + offs, mask=mask).to(tl.float32)
    s = tl.sigmoid(1.702 * x)
    tl.store(dx_ptr + offs, grad * s, mask=mask)


@wrong(
    "quick_gelu_backward",
    reason="wrong-values",
    cause="second term of the derivative is missing",
)
def takes_the_sigmoid_for_a_constant(x, grad):
    return launch(plain_sigmoid_kernel, x, grad)


@wrong("quick_gelu_backward", reason="wrong-values", cause="have changed places")
def confuses_the_two_inputs(x, grad):
    return launch(right.quick_gelu_backward_kernel, grad, x)


@wrong("quick_gelu_backward", reason="returns-input")
def writes_over_the_gradient(x, grad):
    return launch(right.quick_gelu_backward_kernel, x, grad, out=grad)


# Softplus


@triton.jit
def as_it_stands_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n).to(tl.float32)
    tl.store(out_ptr + offs, tl.log(1.0 + tl.exp(x)), mask=offs < n)


@wrong("softplus", reason="wrong-values", cause="only small results are wrong")
def takes_the_formula_as_it_stands(x):
    return launch(as_it_stands_kernel, x)


@triton.jit
def overflowing_softplus_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n).to(tl.float32)
    tl.store(out_ptr + offs, libdevice.log1p(tl.exp(x)), mask=offs < n)


@wrong("softplus", reason="not-finite", cause="it is finite when every input is within")
def overflows_on_the_right(x):
    return launch(overflowing_softplus_kernel, x)


@triton.jit
def digits_lost_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n).to(tl.float32)
    tl.store(
        out_ptr + offs,
        tl.maximum(x, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(x))),
        mask=offs < n,
    )


@wrong("softplus", reason="wrong-values", cause="only small results are wrong")
def loses_the_digits_on_the_left(x):
    return launch(digits_lost_kernel, x)


@triton.jit
def threshold_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n).to(tl.float32)
    tl.store(
        out_ptr + offs, tl.where(x > 4.0, x, libdevice.log1p(tl.exp(x))), mask=offs < n
    )


@wrong("softplus", reason="wrong-values", cause="what is wrong is where `x` is")
def gives_up_too_early(x):
    return launch(threshold_kernel, x)


@triton.jit
def relu_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n).to(tl.float32)
    tl.store(out_ptr + offs, tl.maximum(x, 0.0), mask=offs < n)


@wrong("softplus", reason="wrong-values", cause="the logarithm is missing")
def forgets_the_logarithm(x):
    return launch(relu_kernel, x)


@triton.jit
def narrow_log_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n)
    small = tl.exp(-tl.abs(x.to(tl.float32))).to(x.dtype)
    out = tl.maximum(x, 0.0) + libdevice.log1p(small)
    tl.store(out_ptr + offs, out, mask=offs < n)


@wrong("softplus", reason="compiler")
def gives_libdevice_half_precision(x):
    return launch(narrow_log_kernel, x)


# GeGLU


def geglu_with(kernel, x, M=None, N=None, strides=None, out=None):
    """Run a kernel with the parameters of `geglu_kernel`."""
    M = x.shape[0] if M is None else M
    N = x.shape[1] // 2 if N is None else N
    out = torch.empty((M, N), dtype=x.dtype, device=x.device) if out is None else out
    kernel[(M, triton.cdiv(N, 256))](x, out, N, *(strides or x.stride()), BLOCK=256)
    return out


@triton.jit
def swapped_kernel(x_ptr, out_ptr, N, stride_xm, stride_xn, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offs = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < N
    up = tl.load(x_ptr + row * stride_xm + offs * stride_xn, mask=mask).to(tl.float32)
    gate = tl.load(x_ptr + row * stride_xm + (N + offs) * stride_xn, mask=mask).to(
        tl.float32
    )
    out = gate * tl.sigmoid(1.5957691216 * (gate + 0.044715 * gate * gate * gate)) * up
    tl.store(out_ptr + row * N + offs, out, mask=mask)


@wrong("geglu", reason="wrong-values", cause="have changed places")
def swaps_the_halves(x):
    return geglu_with(swapped_kernel, x)


@triton.jit
def neighbours_kernel(x_ptr, out_ptr, N, stride_xm, stride_xn, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offs = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < N
    gate = tl.load(x_ptr + row * stride_xm + 2 * offs * stride_xn, mask=mask).to(
        tl.float32
    )
    up = tl.load(x_ptr + row * stride_xm + (2 * offs + 1) * stride_xn, mask=mask).to(
        tl.float32
    )
    out = gate * tl.sigmoid(1.5957691216 * (gate + 0.044715 * gate * gate * gate)) * up
    tl.store(out_ptr + row * N + offs, out, mask=mask)


@wrong("geglu", reason="wrong-values", cause="neighbours are paired")
def pairs_neighbours(x):
    return geglu_with(neighbours_kernel, x)


@triton.jit
def exact_kernel(x_ptr, out_ptr, N, stride_xm, stride_xn, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offs = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < N
    gate = tl.load(x_ptr + row * stride_xm + offs * stride_xn, mask=mask).to(tl.float32)
    up = tl.load(x_ptr + row * stride_xm + (N + offs) * stride_xn, mask=mask).to(
        tl.float32
    )
    out = 0.5 * gate * (1.0 + tl.erf(gate * 0.7071067811865476)) * up
    tl.store(out_ptr + row * N + offs, out, mask=mask)


@wrong("geglu", reason="wrong-values", cause="the exact GeLU")
def takes_the_exact_form(x):
    return geglu_with(exact_kernel, x)


@triton.jit
def narrow_index_kernel(x_ptr, out_ptr, N, stride_xm, stride_xn, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offs = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < N
    gate = tl.load(x_ptr + row * stride_xm + offs * stride_xn, mask=mask).to(tl.float32)
    up = tl.load(x_ptr + row * stride_xm + (N + offs) * stride_xn, mask=mask).to(
        tl.float32
    )
    out = gate * tl.sigmoid(1.5957691216 * (gate + 0.044715 * gate * gate * gate)) * up
    tl.store(out_ptr + row * N + offs, out, mask=mask)


@wrong("geglu", reason="int32-overflow")
def counts_in_32_bits(x):
    return geglu_with(narrow_index_kernel, x)


@wrong("geglu", reason="wrong-values", cause="as if its elements lay side by side")
def takes_rows_for_contiguous(x):
    return geglu_with(right.geglu_kernel, x, strides=(x.shape[1], 1))


@wrong("geglu", reason="shape")
def keeps_all_columns(x):
    return geglu_with(right.geglu_kernel, x, out=torch.empty_like(x))


@wrong("geglu", reason="torch")
def torch_gathers_the_halves(x):
    return geglu_with(right.geglu_kernel, torch.cat(x.chunk(2, 1), 1))


# Digits


@triton.jit
def cancelling_kernel(x_ptr, out_ptr, N, stride_xm, stride_xn, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offs = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < N
    gate = tl.load(x_ptr + row * stride_xm + offs * stride_xn, mask=mask).to(tl.float32)
    up = tl.load(x_ptr + row * stride_xm + (N + offs) * stride_xn, mask=mask).to(
        tl.float32
    )
    inner = 0.7978845608 * (gate + 0.044715 * gate * gate * gate)
    out = 0.5 * gate * (1.0 + libdevice.tanh(inner)) * up
    tl.store(out_ptr + row * N + offs, out, mask=mask)


@wrong("geglu", reason="wrong-values", cause="(1 + tanh y) / 2 is `tl.sigmoid(2 * y)`")
def adds_1_to_a_tanh_near_it(x):
    return geglu_with(cancelling_kernel, x)


# What only long rows show


@wrong("geglu", reason="not-written")
def launches_one_block_a_row(x):
    M, N = x.shape[0], x.shape[1] // 2
    out = torch.empty((M, N), dtype=x.dtype, device=x.device)
    right.geglu_kernel[(M, 1)](x, out, N, *x.stride(), BLOCK=1024)
    return out


# Work that is done twice, or by something else than the kernel


@triton.jit
def silu_overlapping_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * (BLOCK // 2) + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n).to(tl.float32)
    tl.store(out_ptr + offs, x * tl.sigmoid(x), mask=offs < n)


@wrong("silu", reason="stored-twice")
def blocks_that_overlap(x):
    return launch(silu_overlapping_kernel, x, programs=triton.cdiv(x.numel(), 128))


@wrong("quick_gelu", reason="launches")
def launches_block_by_block(x):
    out = torch.empty_like(x)
    scale = -1.702 * 1.4426950408889634
    for start in range(0, x.numel(), 256):
        part, into = x[start : start + 256], out[start : start + 256]
        right.quick_gelu_kernel[(1,)](part, into, part.numel(), scale, BLOCK=256)
    return out


@triton.jit
def backward_by_memory_kernel(x_ptr, grad_ptr, s_ptr, dx_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    grad = tl.load(grad_ptr + offs, mask=mask).to(tl.float32)
    tl.store(s_ptr + offs, tl.sigmoid(1.702 * x), mask=mask)
    s = tl.load(s_ptr + offs, mask=mask)
    tl.store(dx_ptr + offs, grad * (s + s * (1.0 - s) * x * 1.702), mask=mask)


@wrong("quick_gelu_backward", reason="memory")
def keeps_the_sigmoid_in_memory(x, grad):
    dx, s = torch.empty_like(x), torch.empty_like(x, dtype=torch.float32)
    n = x.numel()
    backward_by_memory_kernel[(triton.cdiv(n, 256),)](x, grad, s, dx, n, BLOCK=256)
    return dx


@triton.jit
def softplus_two_loads_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    small = tl.exp(-tl.abs(tl.load(x_ptr + offs, mask=mask).to(tl.float32)))
    above = tl.maximum(tl.load(x_ptr + offs, mask=mask).to(tl.float32), 0.0)
    tl.store(out_ptr + offs, above + libdevice.log1p(small), mask=mask)


@wrong("softplus", reason="read-twice")
def loads_for_each_half_of_the_formula(x):
    return launch(softplus_two_loads_kernel, x)


@triton.jit
def geglu_every_row_kernel(
    x_ptr, out_ptr, M, N, stride_xm, stride_xn, BLOCK: tl.constexpr
):
    offs = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < N
    for m in range(M):
        row = m.to(tl.int64)
        gate_ptrs = x_ptr + row * stride_xm + offs * stride_xn
        gate = tl.load(gate_ptrs, mask=mask).to(tl.float32)
        up = tl.load(gate_ptrs + N * stride_xn, mask=mask).to(tl.float32)
        inner = 1.5957691216 * (gate + 0.044715 * gate * gate * gate)
        tl.store(out_ptr + row * N + offs, gate * tl.sigmoid(inner) * up, mask=mask)


@wrong("geglu", reason="stored-twice")
def every_program_does_every_row(x):
    M, N = x.shape[0], x.shape[1] // 2
    out = torch.empty((M, N), dtype=x.dtype, device=x.device)
    geglu_every_row_kernel[(M, triton.cdiv(N, 256))](
        x, out, M, N, *x.stride(), BLOCK=256
    )
    return out
