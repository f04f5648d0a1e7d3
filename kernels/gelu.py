"""gelu(x) = x * Phi(x), where Phi is the normal distribution's; and the same of x + bias, with every gradient."""

import math

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

from .launch import custom_op

BLOCK_BYTES = 4096  # of each tensor that a program owns
ROWS = 128  # rows whose gradients one program adds up for the bias
LARGE = 2**22  # elements from which narrow loads cost more than a second launch
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
APPROXIMATIONS = ("none", "tanh")  # the two functions that go by the name of GeLU, as PyTorch calls them


def gelu_reference(x: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    """The specification: what `gelu` must return. Unlike 1 + erf, erfc keeps its digits where x is negative."""
    x64 = x.double()
    if approximate == "tanh":
        return (x64 * torch.sigmoid(math.sqrt(8 / math.pi) * (x64 + 0.044715 * x64**3))).to(x.dtype)
    return (x64 * 0.5 * torch.erfc(-x64 / math.sqrt(2))).to(x.dtype)


def bias_gelu_reference(x: torch.Tensor, bias: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    """The specification: what `bias_gelu` must return."""
    return gelu_reference(x.double() + bias.double(), approximate).to(x.dtype)


# The rungs: one function of a float32 x, in ever fewer instructions. First the definition, then the tanh form of it.


@triton.jit
def gelu_exp2(x):
    """The same sigmoid, with its constants multiplied beforehand, and log2(e) among them."""
    return x / (1.0 + tl.exp2(x * (-2.302208198144325 - 0.1029432395800235 * x * x)))


@triton.jit
def gelu_exp2_slope(x):
    """The derivative of `gelu_exp2`."""
    s = 1.0 / (1.0 + tl.exp2(x * (-2.302208198144325 - 0.1029432395800235 * x * x)))
    # Where this bounds x, s is 0 or 1; without it, x * x would overflow and infinity meet 1 - s = 0.
    bounded = tl.minimum(tl.maximum(x, -32.0), 32.0)
    return s + s * (1.0 - s) * bounded * (1.5957691216057308 + 0.2140644488177747 * bounded * bounded)


@triton.jit
def normal_short(x, t):
    """Return Phi(x) to 5e-6 of its value, and exp(-x * x / 2), for t = 1 / (1 + 0.31 * abs(x))."""
    bell = tl.exp2(x * x * -0.7213475204444817)
    # Phi(-|x|) is the bell times a function that a polynomial in t follows all the way down.
    p = 0.015745380088914778 + t * (0.18044972268897264 + t * -0.07392892246072745)
    p = 0.12386069608440216 + t * (0.12044135207438483 + t * (0.13342945071763043 + t * p))
    tail = bell * (t * p)
    return tl.where(x > 0, 1.0 - tail, tail), bell


@triton.jit
def gelu_short(x):
    """The same, with a division that gives 0 for a divisor past 2**126 and need not look for one."""
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
    # An exponential magnifies the rounding error of its argument. The first 8 bits of z have an exact square, and
    # 23/32 of that is exact as well: what is left is small.
    high = (z.to(tl.int32, bitcast=True) & -65536).to(tl.float32, bitcast=True)
    rest = high * high * 0.0025975204444817 + (z - high) * (z + high) * 0.7213475204444817
    bell = tl.exp2(high * high * -0.71875) * tl.exp2(-rest)
    t = 1.0 / (1.0 + 0.345 * z)
    p = -0.26939778927981006 + t * (0.14436086963545905 + t * -0.02817982517809178)
    p = 0.11133088307311496 + t * (-0.03640105427291316 + t * (0.1853124123891004 + t * p))
    p = 0.1376200176162367 + t * (0.13800706599441367 + t * (0.11734742196405472 + t * p))
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
def gelu_backward_kernel(x_ptr, grad_ptr, dx_ptr, n, SLOPE: tl.constexpr, BLOCK: tl.constexpr):
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
    """Each program writes FORM(x + bias) for a tile of BLOCK_M rows and BLOCK_N columns.

    x_ptr: [M, N]. bias_ptr: [N]. out_ptr: [M, N], contiguous. One dtype.
    """
    pid = tl.program_id(0).to(tl.int64)
    tiles_n = tl.cdiv(N, BLOCK_N)
    offs_m = pid // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
    mask_n = offs_n < N
    mask = (offs_m < M)[:, None] & mask_n[None, :]
    bias = tl.load(bias_ptr + offs_n * stride_bias, mask=mask_n).to(tl.float32)
    x = tl.load(x_ptr + offs_m[:, None] * stride_xm + offs_n[None, :] * stride_xn, mask=mask).to(tl.float32)
    out = FORM(x + bias[None, :])  # [BLOCK_M, BLOCK_N]
    tl.store(out_ptr + offs_m[:, None] * N + offs_n[None, :], out.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def bias_gelu_backward_kernel(
    x_ptr, bias_ptr, grad_ptr, dx_ptr, partial_ptr, M, N,
    stride_xm, stride_xn, stride_bias, stride_gm, stride_gn,
    SLOPE: tl.constexpr, ROWS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Each program writes dx = grad * SLOPE(x + bias) for ROWS rows and BLOCK_N columns, and the sum of each column.

    x_ptr, grad_ptr: [M, N]. bias_ptr: [N]. dx_ptr: [M, N], contiguous. partial_ptr: [cdiv(M, ROWS), N] of float32.
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
        x = tl.load(x_ptr + offs_m[:, None] * stride_xm + offs_n[None, :] * stride_xn, mask=mask).to(tl.float32)
        grad_ptrs = grad_ptr + offs_m[:, None] * stride_gm + offs_n[None, :] * stride_gn
        grad = tl.load(grad_ptrs, mask=mask, other=0.0).to(tl.float32)
        dx = grad * SLOPE(x + bias[None, :])  # [BLOCK_M, BLOCK_N]
        acc += tl.where(mask, dx, 0.0)
        tl.store(dx_ptr + offs_m[:, None] * N + offs_n[None, :], dx.to(dx_ptr.dtype.element_ty), mask=mask)
    tl.store(partial_ptr + pid_m * N + offs_n, tl.sum(acc, 0), mask=mask_n)


# What one calls


class Once(torch.autograd.Function):
    """A backward pass. It has no derivative and says so, lest the gradient of a gradient be wrong in silence."""

    @staticmethod
    def forward(ctx, function, *arguments):
        return function(*arguments)

    @staticmethod
    def backward(ctx, *grads):
        raise RuntimeError("gelu and bias_gelu have no second derivative: use torch.nn.functional.gelu for that")


class Gelu(torch.autograd.Function):
    """Backward needs x, and nothing else of forward."""

    @staticmethod
    def forward(ctx, x: torch.Tensor, approximate: str) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.approximate = approximate
        return gelu_forward(x, approximate)

    @staticmethod
    def backward(ctx, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return Once.apply(gelu_backward, *ctx.saved_tensors, grad, ctx.approximate), None


class BiasGelu(torch.autograd.Function):
    """x + bias is computed twice and never stored."""

    @staticmethod
    def forward(ctx, x: torch.Tensor, bias: torch.Tensor, approximate: str) -> torch.Tensor:
        ctx.save_for_backward(x, bias)
        ctx.approximate = approximate
        return bias_gelu_forward(x, bias, approximate)

    @staticmethod
    def backward(ctx, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        return *Once.apply(bias_gelu_backward, *ctx.saved_tensors, grad, ctx.approximate), None


def gelu(x: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    """Return gelu(x): a tensor of x's shape, dtype and device. It has a gradient, but no second one.

    x: any shape, a dtype of `DTYPES`, any strides. The kernel walks memory in order, so the result takes the layout of
    x if x fills its memory without gaps; otherwise x is copied first.
    approximate: "none" for x * Phi(x), "tanh" for 0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))), as in
    torch.nn.functional.gelu. They differ by up to 4.73e-4.
    Both are computed in float32 and keep their digits where x is negative and PyTorch's 1 + erf or 1 + tanh loses them.
    As in PyTorch the value at -inf is NaN.
    Raises TypeError for anything but a tensor, ValueError for another dtype or an unknown approximation.
    """
    check_operand("gelu", x, approximate)
    return Gelu.apply(x, approximate)


def bias_gelu(x: torch.Tensor, bias: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    """Return gelu(x + bias), contiguous, with gradients for both; the sum is never rounded, nor written to memory.

    x: [..., N] and bias: [N], one dtype of `DTYPES`, one device, any strides. approximate: as in `gelu`.
    Raises TypeError for anything but tensors, ValueError when shapes, dtypes or devices do not fit.
    """
    check_operand("bias_gelu", x, approximate)
    check_operand("bias_gelu", bias, approximate)
    if x.dim() == 0 or bias.shape != x.shape[-1:]:
        raise ValueError(f"bias must have the length of x's last dimension: {tuple(bias.shape)} for {tuple(x.shape)}")
    if x.dtype != bias.dtype:
        raise ValueError(f"x and bias must have one dtype, not {x.dtype} and {bias.dtype}")
    if x.device != bias.device:
        raise ValueError(f"x and bias must be on one device, not {x.device} and {bias.device}")
    return BiasGelu.apply(x, bias, approximate)


def check_operand(name: str, x: torch.Tensor, approximate: str) -> None:
    """Raise TypeError or ValueError, naming what is wrong, unless x has a dtype and a layout that the kernels take."""
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"{name} takes a tensor, not {type(x).__name__}")
    if x.dtype not in DTYPES or x.layout != torch.strided:
        raise ValueError(f"{name} takes dense tensors of {', '.join(map(str, DTYPES))}, not {x.dtype} ({x.layout})")
    if approximate not in APPROXIMATIONS:
        raise ValueError(f"approximate must be one of {', '.join(APPROXIMATIONS)}, not {approximate!r}")


# Launches


def forms_of(dtype: torch.dtype, approximate: str) -> tuple:
    """Return the function of x that is precise enough for a dtype, and its derivative."""
    if approximate == "tanh":
        return gelu_exp2, gelu_exp2_slope
    if dtype == torch.float32:
        return gelu_long, gelu_long_slope
    return gelu_short, gelu_short_slope


@custom_op(lambda x, approximate: torch.empty_like(x))
def gelu_forward(x: torch.Tensor, approximate: str) -> torch.Tensor:
    """Return gelu(x) in the layout of x, or of a copy of it."""
    out = torch.empty_like(x)
    launch_flat(gelu_kernel, (laid_out_as(x, out), out), FORM=forms_of(x.dtype, approximate)[0])
    return out


@custom_op(lambda x, grad, approximate: torch.empty_like(x))
def gelu_backward(x: torch.Tensor, grad: torch.Tensor, approximate: str) -> torch.Tensor:
    """Return the gradient for x, in the layout of x, or of a copy of it."""
    dx = torch.empty_like(x)
    tensors = (laid_out_as(x, dx), laid_out_as(grad, dx), dx)
    launch_flat(gelu_backward_kernel, tensors, SLOPE=forms_of(x.dtype, approximate)[1])
    return dx


def launch_flat(kernel, tensors: tuple[torch.Tensor, ...], **constants) -> None:
    """Launch a kernel over the memory of tensors of one gapless layout."""
    n, block = tensors[0].numel(), block_of(tensors[0].dtype)
    flat = [t.as_strided((n,), (1,)) for t in tensors]
    # The compiler can load 16 bytes at a time only where 16 divides the count: a large odd one gives its tail a launch.
    whole = n - n % 16 if n > LARGE else n
    with torch.cuda.device_of(tensors[0]):
        if whole > 0:
            kernel[(triton.cdiv(whole, block),)](*flat, whole, **constants, BLOCK=block)
        if whole < n:
            kernel[(1,)](*(t[whole:] for t in flat), n - whole, **constants, BLOCK=block)


def block_of(dtype: torch.dtype) -> int:
    """Return the elements of a program: as many bytes of each dtype, since it is bytes that must be under way."""
    return BLOCK_BYTES // dtype.itemsize


def laid_out_as(t: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """Return t itself where equal indices mean equal offsets in t and out, else a copy for which they do."""
    strides = zip(t.shape, t.stride(), out.stride(), strict=True)
    if not t.is_neg() and all(a == b for size, a, b in strides if size > 1):
        return t
    return torch.empty_like(out).copy_(t)


@custom_op(lambda x, bias, approximate: contiguous_like(x))
def bias_gelu_forward(x: torch.Tensor, bias: torch.Tensor, approximate: str) -> torch.Tensor:
    """Return gelu(x + bias), contiguous."""
    out = contiguous_like(x)
    if out.numel() == 0:
        return out
    rows, bias = as_rows(x), bias.resolve_neg()
    (M, N), tile = rows.shape, tile_of(x.shape[-1])
    programs = triton.cdiv(M, tile["BLOCK_M"]) * triton.cdiv(N, tile["BLOCK_N"])
    with torch.cuda.device_of(out):
        bias_gelu_kernel[(programs,)](
            rows, bias, out, M, N, *rows.stride(), bias.stride(0), FORM=forms_of(x.dtype, approximate)[0], **tile
        )
    return out


@custom_op(lambda x, bias, grad, approximate: (contiguous_like(x), contiguous_like(bias)))
def bias_gelu_backward(
    x: torch.Tensor, bias: torch.Tensor, grad: torch.Tensor, approximate: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradients for x and for bias, contiguous."""
    dx = contiguous_like(x)
    if dx.numel() == 0:
        return dx, torch.zeros_like(bias, memory_format=torch.contiguous_format)
    rows, bias, grads = as_rows(x), bias.resolve_neg(), as_rows(grad)
    (M, N), tile = rows.shape, backward_tile_of(x.shape[-1])
    partial = torch.empty((triton.cdiv(M, ROWS), N), dtype=torch.float32, device=x.device)
    with torch.cuda.device_of(dx):
        bias_gelu_backward_kernel[(len(partial) * triton.cdiv(N, tile["BLOCK_N"]),)](
            rows, bias, grads, dx, partial, M, N, *rows.stride(), bias.stride(0), *grads.stride(),
            SLOPE=forms_of(x.dtype, approximate)[1], ROWS=ROWS, **tile,
        )  # fmt: skip
    return dx, partial.sum(0).to(bias.dtype)


def tile_of(N: int) -> dict[str, int]:
    """Return the options of a program that has a tile of rows of N elements."""
    return tile_up_to(512, 2048, N)


def backward_tile_of(N: int) -> dict[str, int]:
    """Return the options of a program of the backward pass, which keeps sums while the rows go by."""
    if N % 16 == 0:  # every load is 16 bytes wide, and many small programs have more of them under way
        return tile_up_to(256, 256, N, num_warps=1)
    return tile_up_to(128, 1024, N)


def tile_up_to(columns: int, elements: int, N: int, num_warps: int = 4) -> dict[str, int]:
    """Return the options for a tile of at most so many columns and elements."""
    columns = min(triton.next_power_of_2(N), columns)
    return {"BLOCK_M": min(elements // columns, ROWS), "BLOCK_N": columns, "num_warps": num_warps}


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
    """Return the floating-point operations of the formula: erf or tanh counted as one, since none is a must."""
    return (4 if approximate == "none" else 9) * x.numel()


def bias_gelu_bytes(x: torch.Tensor, bias: torch.Tensor, approximate: str = "none") -> int:
    """Return the bytes that must cross memory once: x and bias read, the result written."""
    return 2 * x.numel() * x.element_size() + bias.numel() * bias.element_size()


def bias_gelu_flops(x: torch.Tensor, bias: torch.Tensor, approximate: str = "none") -> int:
    """Return the floating-point operations of the formula."""
    return gelu_flops(x, approximate) + x.numel()
