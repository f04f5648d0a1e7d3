"""gelu(x) = x * Phi(x), where Phi is the normal distribution's.

Also the same of x + bias, and the gradients of both.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

from .elementwise import copied_like, flat_launcher, has_no_gaps, same_layout
from .gradients import first_derivative, is_eager, refuse_transforms, wants_gradient
from .launch import TensorSpec, custom_op, launcher, tensor_spec

BLOCK_BYTES = 4096  # of each tensor that a program owns
ROWS = 128  # rows whose gradients one program adds up for the bias
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
APPROXIMATIONS = ("none", "tanh")  # the two functions called GeLU, by PyTorch's names


def gelu_reference(x: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    """The specification: what `gelu` must return.

    Unlike 1 + erf, erfc keeps its digits where x is negative.
    """
    x64 = x.double()
    if approximate == "tanh":
        u = math.sqrt(8 / math.pi) * (x64 + 0.044715 * x64**3)
        return (x64 * torch.sigmoid(u)).to(x.dtype)
    return (x64 * 0.5 * torch.erfc(-x64 / math.sqrt(2))).to(x.dtype)


def bias_gelu_reference(
    x: torch.Tensor, bias: torch.Tensor, approximate: str = "none"
) -> torch.Tensor:
    """The specification: what `bias_gelu` must return."""
    return gelu_reference(x.double() + bias.double(), approximate).to(x.dtype)


# Forms: functions of a float32 x. gelu_exp2 is the tanh form; gelu_short has the digits
# of 16 bits, gelu_long nearly all those of float32. Each comes with its derivative.


@triton.jit
def gelu_exp2(x):
    """The tanh form, as x * sigmoid(2u): constants and log2(e) are multiplied here."""
    return x / (1.0 + tl.exp2(x * (-2.302208198144325 - 0.1029432395800235 * x * x)))


@triton.jit
def gelu_exp2_slope(x):
    """The derivative of `gelu_exp2`."""
    s = 1.0 / (1.0 + tl.exp2(x * (-2.302208198144325 - 0.1029432395800235 * x * x)))
    # Where this bounds x, s is 0 or 1. Unbounded, x * x would overflow, and infinity
    # times 1 - s = 0 is NaN.
    z = tl.minimum(tl.maximum(x, -32.0), 32.0)
    return s + s * (1.0 - s) * z * (1.5957691216057308 + 0.2140644488177747 * z * z)


@triton.jit
def normal_short(x, t):
    """Return Phi(x), to 5e-6 of its value, and exp(-x * x / 2).

    t: 1 / (1 + 0.31 * abs(x)).
    """
    bell = tl.exp2(x * x * -0.7213475204444817)
    # Phi(-|x|) is the bell times a function that a polynomial in t is close to for
    # every x.
    p = 0.015745380088914778 + t * (0.18044972268897264 + t * -0.07392892246072745)
    p = 0.13342945071763043 + t * p
    p = 0.12386069608440216 + t * (0.12044135207438483 + t * p)
    tail = bell * (t * p)
    return tl.where(x > 0, 1.0 - tail, tail), bell


@triton.jit
def gelu_short(x):
    """x * Phi(x), to more digits than 16 bits can hold.

    This division gives 0 for a divisor past 2**126, and so need not look for one.
    """
    phi, bell = normal_short(x, libdevice.fast_dividef(1.0, 1.0 + 0.31 * tl.abs(x)))
    return x * phi


@triton.jit
def gelu_short_slope(x):
    """The derivative of `gelu_short`: Phi(x) + x * exp(-x * x / 2) / sqrt(2 pi)."""
    phi, bell = normal_short(x, libdevice.fast_dividef(1.0, 1.0 + 0.31 * tl.abs(x)))
    return phi + x * (bell * 0.3989422804014327)


@triton.jit
def normal_long(x):
    """Return Phi(x) and exp(-x * x / 2) to nearly all the digits of float32."""
    z = tl.minimum(tl.abs(x), 32.0)
    # An exponential magnifies the rounding error of its argument. The first 8 bits of z
    # have an exact square, and 23/32 of that is exact as well: what is left is small.
    high = (z.to(tl.int32, bitcast=True) & -65536).to(tl.float32, bitcast=True)
    rest = (
        high * high * 0.0025975204444817 + (z - high) * (z + high) * 0.7213475204444817
    )
    bell = tl.exp2(high * high * -0.71875) * tl.exp2(-rest)
    t = 1.0 / (1.0 + 0.345 * z)
    p = -0.26939778927981006 + t * (0.14436086963545905 + t * -0.02817982517809178)
    p = 0.11133088307311496 + t * (
        -0.03640105427291316 + t * (0.1853124123891004 + t * p)
    )
    p = 0.1376200176162367 + t * (
        0.13800706599441367 + t * (0.11734742196405472 + t * p)
    )
    tail = bell * (t * p)
    return tl.where(x > 0, 1.0 - tail, tail), bell


@triton.jit
def gelu_long(x):
    """x * Phi(x), for results of 32 bits."""
    phi, bell = normal_long(x)
    return x * phi


@triton.jit
def gelu_long_slope(x):
    """The derivative of `gelu_long`."""
    phi, bell = normal_long(x)
    return phi + x * (bell * 0.3989422804014327)


# Kernels


@triton.jit
def gelu_kernel(x_ptr, out_ptr, n, FORM: tl.constexpr, BLOCK: tl.constexpr):
    """Each program writes FORM(x) for BLOCK consecutive elements.

    x_ptr, out_ptr: [n], contiguous, one dtype. FORM: one of the functions above.
    """
    # Widen before multiplying: pid * BLOCK passes 2**31 once n does.
    pid = tl.program_id(0).to(tl.int64)
    offs = pid * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    tl.store(out_ptr + offs, FORM(x).to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def gelu_backward_kernel(
    x_ptr, grad_ptr, dx_ptr, n, SLOPE: tl.constexpr, BLOCK: tl.constexpr
):
    """Each program writes grad * SLOPE(x) for BLOCK consecutive elements.

    x_ptr, grad_ptr, dx_ptr: [n], contiguous, one dtype.
    """
    pid = tl.program_id(0).to(tl.int64)
    offs = pid * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    grad = tl.load(grad_ptr + offs, mask=mask).to(tl.float32)
    tl.store(dx_ptr + offs, (grad * SLOPE(x)).to(dx_ptr.dtype.element_ty), mask=mask)


@triton.jit
def bias_gelu_kernel(
    x_ptr, bias_ptr, out_ptr, M, N, stride_xm, stride_xn, stride_bias,
    FORM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Each program writes FORM(x + bias) for a tile of [BLOCK_M, BLOCK_N].

    x_ptr: [M, N]. bias_ptr: [N]. out_ptr: [M, N], contiguous. One dtype.
    """
    pid = tl.program_id(0).to(tl.int64)
    tiles_n = tl.cdiv(N, BLOCK_N)
    offs_m = pid // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
    mask_n = offs_n < N
    mask = (offs_m < M)[:, None] & mask_n[None, :]
    bias = tl.load(bias_ptr + offs_n * stride_bias, mask=mask_n).to(tl.float32)
    x_ptrs = x_ptr + offs_m[:, None] * stride_xm + offs_n[None, :] * stride_xn
    x = tl.load(x_ptrs, mask=mask).to(tl.float32)
    out = FORM(x + bias[None, :])  # [BLOCK_M, BLOCK_N]
    out_ptrs = out_ptr + offs_m[:, None] * N + offs_n[None, :]
    tl.store(out_ptrs, out.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def bias_gelu_backward_kernel(
    x_ptr, bias_ptr, grad_ptr, dx_ptr, partial_ptr, M, N,
    stride_xm, stride_xn, stride_bias, stride_gm, stride_gn,
    SLOPE: tl.constexpr, ROWS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Each program writes dx = grad * SLOPE(x + bias) for [ROWS, BLOCK_N] elements.

    It also writes the sum of each column of these.
    x_ptr, grad_ptr: [M, N]. bias_ptr: [N]. dx_ptr: [M, N], contiguous. partial_ptr:
    [cdiv(M, ROWS), N], contiguous, float32.
    """
    pid = tl.program_id(0).to(tl.int64)
    tiles_n = tl.cdiv(N, BLOCK_N)
    pid_m = pid // tiles_n
    offs_n = pid % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
    mask_n = offs_n < N
    bias = tl.load(bias_ptr + offs_n * stride_bias, mask=mask_n).to(tl.float32)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, ROWS, BLOCK_M):
        offs_m = pid_m * ROWS + start + tl.arange(0, BLOCK_M)
        mask = (offs_m < M)[:, None] & mask_n[None, :]
        x_ptrs = x_ptr + offs_m[:, None] * stride_xm + offs_n[None, :] * stride_xn
        x = tl.load(x_ptrs, mask=mask).to(tl.float32)
        grad_ptrs = grad_ptr + offs_m[:, None] * stride_gm + offs_n[None, :] * stride_gn
        grad = tl.load(grad_ptrs, mask=mask, other=0.0).to(tl.float32)
        dx = grad * SLOPE(x + bias[None, :])  # [BLOCK_M, BLOCK_N]
        acc += tl.where(mask, dx, 0.0)
        dx_ptrs = dx_ptr + offs_m[:, None] * N + offs_n[None, :]
        tl.store(dx_ptrs, dx.to(dx_ptr.dtype.element_ty), mask=mask)
    tl.store(partial_ptr + pid_m * N + offs_n, tl.sum(acc, 0), mask=mask_n)


# Functions to call


class Gelu(torch.autograd.Function):
    """Backward needs x, and nothing else of forward."""

    @staticmethod
    def forward(ctx, x: torch.Tensor, approximate: str) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.approximate = approximate
        return gelu_forward(x, approximate)

    @staticmethod
    def backward(ctx, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        (x,) = ctx.saved_tensors
        dx = first_derivative("gelu", gelu_backward, x, grad, ctx.approximate)
        return dx, None


class BiasGelu(torch.autograd.Function):
    """x + bias is computed twice and never stored."""

    @staticmethod
    def forward(
        ctx, x: torch.Tensor, bias: torch.Tensor, approximate: str
    ) -> torch.Tensor:
        ctx.save_for_backward(x, bias)
        ctx.approximate = approximate
        return bias_gelu_forward(x, bias, approximate)

    @staticmethod
    def backward(ctx, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        x, bias = ctx.saved_tensors
        arguments = x, bias, grad, ctx.approximate
        return *first_derivative("bias_gelu", bias_gelu_backward, *arguments), None


def gelu(x: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    """Return gelu(x), of x's shape, dtype and device, with a gradient.

    x: any shape, a dtype of `DTYPES`, any strides. The kernel walks memory in order, so
    the result takes the layout of x if x fills its memory without gaps; otherwise x is
    copied first.
    approximate: "none" for x * Phi(x), "tanh" for
    0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))), as in
    torch.nn.functional.gelu. They differ by up to 4.73e-4.
    Both are computed in float32 and keep their digits where x is negative and PyTorch's
    1 + erf or 1 + tanh loses them. As in PyTorch the value at -inf is NaN. There is no
    second derivative.
    Raises TypeError for anything but a tensor, ValueError for another dtype or an
    unknown approximation.
    """
    # A small tensor takes less time than to check it, so what x is is asked for when it
    # fails.
    try:
        if not x.requires_grad and is_eager():
            return gelu_forward.eager(x, approximate)
        forward = Gelu.apply if wants_gradient(x) else gelu_forward
        return forward(x, approximate)
    except Exception as error:
        failure = error
    check_tensor("gelu", x)
    refuse_transforms()
    raise failure


def bias_gelu(
    x: torch.Tensor, bias: torch.Tensor, approximate: str = "none"
) -> torch.Tensor:
    """Return gelu(x + bias), contiguous, with gradients for both.

    The sum is neither rounded nor written to memory.
    x: [..., N] and bias: [N], one dtype of `DTYPES`, one device, any strides.
    approximate: as in `gelu`. There is no second derivative.
    Raises TypeError for anything but tensors, ValueError when shapes, dtypes or devices
    do not fit.
    """
    check_tensor("bias_gelu", x)
    check_tensor("bias_gelu", bias)
    if wants_gradient(x, bias):
        return BiasGelu.apply(x, bias, approximate)
    return bias_gelu_forward(x, bias, approximate)


def check_tensor(name: str, x: torch.Tensor) -> None:
    """Raise TypeError or ValueError unless x is a dense tensor."""
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"{name} takes a tensor, not {type(x).__name__}")
    if x.layout is not torch.strided:
        raise ValueError(f"{name} takes dense tensors, not {x.layout}")


def check_spec(name: str, x: TensorSpec, approximate: str) -> None:
    """Raise ValueError, naming what is wrong, unless the kernels take such tensors."""
    if x.dtype not in DTYPES:
        known = ", ".join(map(str, DTYPES))
        raise ValueError(f"{name} takes tensors of {known}, not {x.dtype}")
    if approximate not in APPROXIMATIONS:
        known = ", ".join(APPROXIMATIONS)
        raise ValueError(f"approximate must be one of {known}, not {approximate!r}")


# Launches: all that can be known without values is checked and decided once


def forms_of(dtype: torch.dtype, approximate: str) -> tuple:
    """Return the function of x that is precise enough for a dtype, and its slope."""
    if approximate == "tanh":
        return gelu_exp2, gelu_exp2_slope
    if dtype == torch.float32:
        return gelu_long, gelu_long_slope
    return gelu_short, gelu_short_slope


@custom_op(lambda x, approximate: torch.empty_like(x))
def gelu_forward(x: torch.Tensor, approximate: str) -> torch.Tensor:
    """Return gelu(x) in the layout of x, or of a copy of it."""
    if x.is_neg():
        x = x.resolve_neg()
    return forward_for(
        approximate, x.shape, x.stride(), x.dtype, x.device, not x.data_ptr() & 15
    )(x)


@functools.lru_cache(maxsize=1024)
def forward_for(approximate: str, *fields: Any) -> Callable[..., torch.Tensor]:
    """Return the function that computes gelu for a spec with these fields."""
    x = TensorSpec(*fields)
    check_spec("gelu", x, approximate)
    FORM = forms_of(x.dtype, approximate)[0]
    x_fits = has_no_gaps(x)
    specs = x._replace(aligned=x.aligned or not x_fits), x._replace(aligned=True)
    launch = flat_launcher(gelu_kernel, specs, block_of(x.dtype), FORM)

    def forward(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        launch((x if x_fits else copied_like(x, out), out))
        return out

    return forward


@custom_op(lambda x, grad, approximate: torch.empty_like(x))
def gelu_backward(
    x: torch.Tensor, grad: torch.Tensor, approximate: str
) -> torch.Tensor:
    """Return the gradient for x, in the layout of x, or of a copy of it."""
    x, grad = x.resolve_neg(), grad.resolve_neg()
    return backward_for(tensor_spec(x), tensor_spec(grad), approximate)(x, grad)


@functools.lru_cache(maxsize=1024)
def backward_for(
    x: TensorSpec, grad: TensorSpec, approximate: str
) -> Callable[..., torch.Tensor]:
    """Return the function that computes the gradient for tensors of these specs."""
    SLOPE = forms_of(x.dtype, approximate)[1]
    x_fits = has_no_gaps(x)
    grad_fits = x_fits and same_layout(x.shape, grad.strides, x.strides)
    specs = (
        x._replace(aligned=x.aligned or not x_fits),
        grad._replace(aligned=grad.aligned or not grad_fits),
        x._replace(aligned=True),
    )
    launch = flat_launcher(gelu_backward_kernel, specs, block_of(x.dtype), SLOPE)

    def backward(x: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
        dx = torch.empty_like(x)
        if not x_fits:
            x = copied_like(x, dx)
        if not grad_fits:
            grad = copied_like(grad, dx)
        launch((x, grad, dx))
        return dx

    return backward


def block_of(dtype: torch.dtype) -> int:
    """Return the elements of a program: as many bytes of each dtype.

    What has to be under way at any moment is bytes, whatever they mean.
    """
    return BLOCK_BYTES // dtype.itemsize


@custom_op(lambda x, bias, approximate: contiguous_like(x))
def bias_gelu_forward(
    x: torch.Tensor, bias: torch.Tensor, approximate: str
) -> torch.Tensor:
    """Return gelu(x + bias), contiguous."""
    if x.is_neg() or bias.is_neg():
        x, bias = x.resolve_neg(), bias.resolve_neg()
    return bias_forward_for(tensor_spec(x), tensor_spec(bias), approximate)(x, bias)


@functools.lru_cache(maxsize=1024)
def bias_forward_for(
    x: TensorSpec, bias: TensorSpec, approximate: str
) -> Callable[..., torch.Tensor]:
    """Return the function that computes bias_gelu of tensors of these specs."""
    check_bias(x, bias, approximate)
    if 0 in x.shape:
        return lambda x, bias: contiguous_like(x)
    N = x.shape[-1]
    M = math.prod(x.shape) // N
    if (strides := matrix_strides(x)) is None:
        return lambda x, bias: bias_gelu_forward(as_rows(x), bias, approximate).view(
            x.shape
        )
    tile = dict(tile_of(N))
    num_warps = tile.pop("num_warps")
    programs = triton.cdiv(M, tile["BLOCK_M"]) * triton.cdiv(N, tile["BLOCK_N"])
    FORM = forms_of(x.dtype, approximate)[0]
    launch = launcher(
        bias_gelu_kernel,
        (programs, 1, 1),
        (x, bias, x._replace(aligned=True)),
        constants=(M, N, *strides, *bias.strides, FORM, *tile.values()),
        num_warps=num_warps,
    )
    sizes = x.shape

    def forward(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        out = x.new_empty(*sizes)
        launch((x, bias, out))
        return out

    return forward


def matrix_strides(x: TensorSpec) -> tuple[int, int] | None:
    """Return the strides of [..., N] as [M, N] without a copy; None if it needs one."""
    if len(x.shape) == 1:
        return x.shape[0], x.strides[0]
    if len(x.shape) == 2:
        return x.strides[0], x.strides[1]
    dense = [math.prod(x.shape[axis + 1 :]) for axis in range(len(x.shape))]
    return (dense[-2], 1) if same_layout(x.shape, x.strides, dense) else None


@custom_op(
    lambda x, bias, grad, approximate: (contiguous_like(x), contiguous_like(bias))
)
def bias_gelu_backward(
    x: torch.Tensor, bias: torch.Tensor, grad: torch.Tensor, approximate: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradients for x and for bias, contiguous."""
    dx = contiguous_like(x)
    if dx.numel() == 0:
        return dx, torch.zeros_like(bias, memory_format=torch.contiguous_format)
    x, bias, grad = as_rows(x), bias.resolve_neg(), as_rows(grad)
    M, N = x.shape
    partial = x.new_empty((triton.cdiv(M, ROWS), N), dtype=torch.float32)
    tensors = x, bias, grad, dx, partial
    launch = bias_backward_launch_for(*map(tensor_spec, tensors), approximate)
    launch(tensors)
    return dx, partial.sum(0).to(bias.dtype)


@functools.lru_cache(maxsize=1024)
def bias_backward_launch_for(
    x: TensorSpec,
    bias: TensorSpec,
    grad: TensorSpec,
    dx: TensorSpec,
    partial: TensorSpec,
    approximate: str,
) -> Callable[[tuple], None]:
    """Return the function `launch((x, bias, grad, dx, partial))`."""
    M, N = x.shape
    tile = dict(backward_tile_of(N))
    num_warps = tile.pop("num_warps")
    programs = partial.shape[0] * triton.cdiv(N, tile["BLOCK_N"])
    SLOPE = forms_of(x.dtype, approximate)[1]
    strides = (*x.strides, *bias.strides, *grad.strides)
    return launcher(
        bias_gelu_backward_kernel,
        (programs, 1, 1),
        (x, bias, grad, dx, partial),
        constants=(M, N, *strides, SLOPE, ROWS, *tile.values()),
        num_warps=num_warps,
    )


def check_bias(x: TensorSpec, bias: TensorSpec, approximate: str) -> None:
    """Raise ValueError, naming what is wrong, unless `bias_gelu` takes such tensors."""
    check_spec("bias_gelu", x, approximate)
    if len(x.shape) == 0 or bias.shape != x.shape[-1:]:
        shapes = f"{tuple(bias.shape)} for {tuple(x.shape)}"
        raise ValueError(f"bias must have the length of x's last dimension: {shapes}")
    if x.dtype != bias.dtype:
        dtypes = f"{x.dtype} and {bias.dtype}"
        raise ValueError(f"x and bias must have one dtype, not {dtypes}")
    if x.device != bias.device:
        devices = f"{x.device} and {bias.device}"
        raise ValueError(f"x and bias must be on one device, not {devices}")


def tile_of(N: int) -> dict[str, int]:
    """Return the options of a program that has a tile of rows of N elements."""
    return tile_up_to(512, 2048, N)


def backward_tile_of(N: int) -> dict[str, int]:
    """Return the options of a program of the backward pass.

    It keeps the sums of its columns while it goes through its rows.
    """
    if N % 16 == 0:  # loads are 16 bytes wide, and many small programs hide their time
        return tile_up_to(256, 256, N, num_warps=1)
    return tile_up_to(128, 1024, N)


def tile_up_to(
    columns: int, elements: int, N: int, num_warps: int = 4
) -> dict[str, int]:
    """Return the options for a tile of at most so many columns and elements."""
    columns = min(triton.next_power_of_2(N), columns)
    rows = min(elements // columns, ROWS)
    return {"BLOCK_M": rows, "BLOCK_N": columns, "num_warps": num_warps}


def as_rows(t: torch.Tensor) -> torch.Tensor:
    """Return [..., N] as [M, N]: a view where the strides allow one, else a copy."""
    return t.resolve_neg().reshape(-1, t.shape[-1])


def contiguous_like(t: torch.Tensor) -> torch.Tensor:
    """Return an uninitialized contiguous tensor of t's shape, dtype and device."""
    return torch.empty_like(t, memory_format=torch.contiguous_format)


def gelu_bytes(x: torch.Tensor, approximate: str = "none") -> int:
    """Return the bytes that must cross memory once: x read, the result written."""
    return 2 * x.numel() * x.element_size()


def gelu_flops(x: torch.Tensor, approximate: str = "none") -> int:
    """Return the operations of the formula, with erf and tanh counted as one each."""
    return (4 if approximate == "none" else 9) * x.numel()


def bias_gelu_bytes(
    x: torch.Tensor, bias: torch.Tensor, approximate: str = "none"
) -> int:
    """Return the bytes that must cross memory once: inputs read, the result written."""
    return 2 * x.numel() * x.element_size() + bias.numel() * bias.element_size()


def bias_gelu_flops(
    x: torch.Tensor, bias: torch.Tensor, approximate: str = "none"
) -> int:
    """Return the floating-point operations of the formula."""
    return gelu_flops(x, approximate) + x.numel()
