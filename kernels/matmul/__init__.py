"""out = activation(a @ b + bias): a product of matrices, one tile after another.

All that follows the product is done before a tile is stored.
"""

import functools
from collections.abc import Callable

import torch
import triton
import triton.language as tl

from ..gpu import is_hopper, shared_limit
from ..gradients import wants_gradient, without_gradient
from ..launch import TensorSpec, custom_op, launcher, tensor_spec

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float8_e4m3fn)
PRECISIONS = ("ieee", "tf32")
ACTIVATIONS: dict[str | None, Callable[[torch.Tensor], torch.Tensor]] = {
    None: lambda x: x,
    "relu": torch.relu,
    "leaky_relu": torch.nn.functional.leaky_relu,
    "gelu": torch.nn.functional.gelu,
}


def matmul_reference(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str | None = None,
    precision: str | None = None,
) -> torch.Tensor:
    """The specification: what `matmul` must return, up to the rounding of its sums."""
    out = a.double() @ b.double()
    if bias is not None:
        out = out + bias.double()
    return ACTIVATIONS[activation](out).to(result_dtype(a.dtype))


@triton.jit
def tile_origin(tile, tiles_m, tiles_n, GROUP_M: tl.constexpr):
    """Return the row and the column of a tile in grouped order.

    The order goes down GROUP_M rows of tiles, then one column on.
    """
    per_group = GROUP_M * tiles_n
    first = tile // per_group * GROUP_M
    rows = tl.minimum(tiles_m - first, GROUP_M)
    return first + tile % per_group % rows, tile % per_group // rows


@triton.jit
def activate(x, ACTIVATION: tl.constexpr):
    """Return the activation of fp32 values; x itself for None."""
    if ACTIVATION == "relu":
        x = tl.where(x < 0, 0.0, x)
    elif ACTIVATION == "leaky_relu":
        x = tl.where(x < 0, 0.01 * x, x)
    elif ACTIVATION == "gelu":
        x = 0.5 * x * (1 + tl.erf(x * 0.7071067811865476))
    return x


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, bias_ptr, out_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_om, stride_on,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr, ACTIVATION: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Each program writes one tile of out, in grouped order.

    Bias and activation are applied before it is stored.
    a_ptr: [M, K]; b_ptr: [K, N]; out_ptr: [M, N]; any strides; bias_ptr: [N],
    contiguous, or None.
    """
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    pid = tl.program_id(0).to(tl.int64)
    pid_m, pid_n = tile_origin(pid, tiles_m, tiles_n, GROUP_M)
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K).to(tl.int64)
    mask_m, mask_n = offs_m < M, offs_n < N
    a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
    b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        mask_k = offs_k < K - k
        a = tl.load(a_ptrs, mask=mask_m[:, None] & mask_k[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=mask_k[:, None] & mask_n[None, :], other=0.0)
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
        a_ptrs += BLOCK_K * tl.cast(stride_ak, tl.int64)
        b_ptrs += BLOCK_K * tl.cast(stride_bk, tl.int64)
    if bias_ptr is not None:
        bias = tl.load(bias_ptr + offs_n, mask=mask_n, other=0.0)
        acc += bias.to(tl.float32)[None, :]
    out = activate(acc, ACTIVATION).to(out_ptr.dtype.element_ty)
    out_ptrs = out_ptr + offs_m[:, None] * stride_om + offs_n[None, :] * stride_on
    tl.store(out_ptrs, out, mask=mask_m[:, None] & mask_n[None, :])


def matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str | None = None,
    precision: str | None = None,
) -> torch.Tensor:
    """Return activation(a @ b + bias), [M, N], contiguous, without a gradient.

    a: [M, K]; b: [K, N]; one device, one dtype of `DTYPES`, any strides. The result has
    that dtype; bfloat16 where that is an 8-bit float, which GPUs have from compute
    capability 8.9 on. Sums are kept in fp32. bias: [N], of the dtype of the result, or
    None. activation: None, "relu", "leaky_relu" (slope 0.01) or "gelu" (with erf).
    precision: how float32 is multiplied, "ieee" or "tf32" (10 bits of mantissa, on the
    tensor cores); by default as torch.get_float32_matmul_precision says for
    torch.matmul.
    On a Hopper GPU large products go to `matmul_hopper`, which copies inputs that its
    copy engine cannot read.
    Raises TypeError for anything but tensors, and ValueError for shapes, dtypes or
    devices that do not go together. Going back through the result raises RuntimeError.
    """
    check_tensors(a, b, bias)
    arguments = a, b, bias, activation, precision
    if wants_gradient(*(t for t in (a, b, bias) if t is not None)):
        return without_gradient("matmul", multiply, *arguments)
    return multiply(*arguments)


@custom_op(
    lambda a, b, bias, activation, precision: a.new_empty(
        (a.shape[0], b.shape[1]), dtype=result_dtype(a.dtype)
    )
)
def multiply(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str | None,
    precision: str | None,
) -> torch.Tensor:
    """Return what `matmul` returns."""
    if precision is None and a.dtype is torch.float32:
        precision = default_precision()
    if a.is_neg() or b.is_neg():
        a, b = a.resolve_neg(), b.resolve_neg()
    bias_spec = None
    if bias is not None:
        bias = bias.resolve_neg().contiguous()
        bias_spec = tensor_spec(bias)
    specs = tensor_spec(a), tensor_spec(b), bias_spec
    return product_for(*specs, activation, precision)(a, b, bias)


@functools.lru_cache(maxsize=1024)
def product_for(
    a: TensorSpec,
    b: TensorSpec,
    bias: TensorSpec | None,
    activation: str | None,
    precision: str | None,
) -> Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None], torch.Tensor]:
    """Return the function of a, b and bias that multiplies matrices of these specs.

    All that can be known without their values is checked and decided here, once.
    """
    check_operands(a, b, bias, activation, precision)
    M, N = a.shape[0], b.shape[1]
    if M * N == 0:
        return lambda a, b, bias: a.new_empty((M, N), dtype=result_dtype(a.dtype))
    if suits_hopper(a, b, precision):
        from . import hopper  # which imports Gluon, an experimental part of Triton

        return hopper.product_for(a, b, bias, activation)
    return portable_product(a, b, bias, activation, precision)


def portable_product(
    a: TensorSpec,
    b: TensorSpec,
    bias: TensorSpec | None,
    activation: str | None,
    precision: str | None,
) -> Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None], torch.Tensor]:
    """Return a function that launches `matmul_kernel`, one program for each tile."""
    (M, K), N, dtype = a.shape, b.shape[1], result_dtype(a.dtype)
    if a.dtype != torch.float32 or precision is None:
        precision = "tf32"
    config = config_for(M, N, a.dtype, precision, a.device)
    out = TensorSpec((M, N), (N, 1), dtype, a.device, aligned=True)
    strides = (*a.strides, *b.strides, *out.strides)
    blocks = tuple(config.kwargs.values())
    launch = launcher(
        matmul_kernel,
        (tiles_in(M, N, config), 1, 1),
        (a, b, bias, out),
        constants=(M, N, K, *strides, *blocks, GROUP_M, activation, precision),
        num_warps=config.num_warps,
        num_stages=config.num_stages,
    )

    def product(
        a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        out = a.new_empty(M, N, dtype=dtype)
        launch((a, b, bias, out))
        return out

    return product


GROUP_M = 8  # rows of tiles that share the columns of b while those are in the L2 cache
# Rows or columns up to which one row of tiles is enough, and all the time goes into
# reading the other matrix.
SHORT = 32


def config(
    BLOCK_M: int, BLOCK_N: int, BLOCK_K: int, num_warps: int, num_stages: int
) -> triton.Config:
    blocks = {"BLOCK_M": BLOCK_M, "BLOCK_N": BLOCK_N, "BLOCK_K": BLOCK_K}
    return triton.Config(blocks, num_warps=num_warps, num_stages=num_stages)


CONFIGS = [
    config(128, 256, 64, 8, 3),
    config(128, 128, 64, 8, 3),
    config(128, 128, 32, 4, 3),
    config(64, 128, 64, 4, 4),
    config(64, 64, 32, 4, 3),
    config(32, 32, 32, 4, 2),
]
SHORT_CONFIGS = [
    config(16, 32, 256, 4, 4),
    config(16, 32, 128, 4, 4),
    config(16, 32, 64, 4, 3),
    config(16, 32, 32, 4, 2),
]
# Without tensor cores, a program holds its operands in registers.
SCALAR_CONFIG = config(64, 64, 16, 4, 3)
CPU_CONFIG = config(32, 32, 32, 4, 1)


@functools.lru_cache(maxsize=1024)
def config_for(
    M: int, N: int, dtype: torch.dtype, precision: str, device: torch.device
) -> triton.Config:
    """Return the largest tiles that fit the device and give most of it work."""
    if device.type != "cuda":
        return CPU_CONFIG
    exact = (dtype, precision) == (torch.float32, "ieee")
    if exact or torch.cuda.get_device_capability(device) < (8, 0):
        return SCALAR_CONFIG
    configs = SHORT_CONFIGS if min(M, N) <= SHORT else CONFIGS
    sms = torch.cuda.get_device_properties(device).multi_processor_count
    for one in configs:
        enough = tiles_in(M, N, one) >= 0.75 * sms or configs is SHORT_CONFIGS
        if enough and shared_bytes(one, dtype.itemsize) <= shared_limit(device):
            return one
    return configs[-1]


def tiles_in(M: int, N: int, config: triton.Config) -> int:
    """Return how many tiles cover a matrix."""
    BLOCK_M, BLOCK_N = config.kwargs["BLOCK_M"], config.kwargs["BLOCK_N"]
    return triton.cdiv(M, BLOCK_M) * triton.cdiv(N, BLOCK_N)


def shared_bytes(config: triton.Config, itemsize: int) -> int:
    """Return the most shared memory that a program of `matmul_kernel` may need.

    That is what its stages of a and b take.
    """
    blocks = config.kwargs
    rows = blocks["BLOCK_M"] + blocks["BLOCK_N"]
    return config.num_stages * rows * blocks["BLOCK_K"] * itemsize


def suits_hopper(a: TensorSpec, b: TensorSpec, precision: str | None) -> bool:
    """Return whether `matmul_hopper` can compute this product, and gains by it."""
    (M, K), N = a.shape, b.shape[1]
    large = min(M, N) > SHORT and M * N * K >= 2**24
    if not large or (a.dtype, precision) == (torch.float32, "ieee"):
        return False
    return is_hopper(a.device)


def default_precision() -> str:
    """Return how torch.matmul multiplies float32 at present."""
    return "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32"


def result_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of the product of two matrices of one dtype."""
    return torch.bfloat16 if dtype.itemsize == 1 else dtype


def check_tensors(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None) -> None:
    """Raise TypeError or ValueError, naming what is wrong, unless all are dense."""
    named = (
        (("a", a), ("b", b)) if bias is None else (("a", a), ("b", b), ("bias", bias))
    )
    for name, t in named:
        if not isinstance(t, torch.Tensor):
            raise TypeError(f"matmul takes tensors, and {name} is a {type(t).__name__}")
        if t.layout is not torch.strided:
            raise ValueError(f"matmul takes dense tensors, and {name} is {t.layout}")


def check_operands(
    a: TensorSpec,
    b: TensorSpec,
    bias: TensorSpec | None,
    activation: str | None,
    precision: str | None,
) -> None:
    """Raise ValueError, naming what is wrong, unless `matmul` takes such tensors."""
    for name, t in ("b", b), ("bias", bias or a):
        if t.device != a.device:
            places = f"a is on {a.device}, {name} on {t.device}"
            raise ValueError(f"all tensors must be on one device, and {places}")
    if len(a.shape) != 2 or len(b.shape) != 2 or a.shape[1] != b.shape[0]:
        shapes = f"{tuple(a.shape)} and {tuple(b.shape)}"
        raise ValueError(f"a and b must be [M, K] and [K, N], not {shapes}")
    if a.dtype != b.dtype or a.dtype not in DTYPES:
        known = ", ".join(map(str, DTYPES))
        dtypes = f"{a.dtype} and {b.dtype}"
        raise ValueError(f"a and b must have one dtype of {known}, not {dtypes}")
    if a.dtype.itemsize == 1 and not has_8_bit_floats(a.device):
        gpu = torch.cuda.get_device_name(a.device)
        raise ValueError(f"{gpu} has no 8-bit floats: convert to torch.float16 first")
    dtype = result_dtype(a.dtype)
    if bias is not None and (bias.shape != b.shape[1:] or bias.dtype != dtype):
        found = f"{tuple(bias.shape)} of {bias.dtype}"
        raise ValueError(f"bias must be [{b.shape[1]}] of {dtype}, not {found}")
    if activation not in ACTIVATIONS:
        known = ", ".join(map(repr, ACTIVATIONS))
        raise ValueError(f"activation must be one of {known}, not {activation!r}")
    if precision not in (None, *PRECISIONS):
        known = ", ".join(map(repr, PRECISIONS))
        raise ValueError(f"precision must be None or one of {known}, not {precision!r}")


def has_8_bit_floats(device: torch.device) -> bool:
    """Return whether 8-bit floats can be multiplied on a device."""
    if device.type != "cuda":
        return True
    return torch.cuda.get_device_capability(device) >= (8, 9)


def matmul_bytes(a: torch.Tensor, b: torch.Tensor, *rest) -> int:
    """Return the bytes that must cross memory once: inputs read, the result written."""
    read = (a.numel() + b.numel()) * a.element_size()
    return read + a.shape[0] * b.shape[1] * result_dtype(a.dtype).itemsize


def matmul_flops(a: torch.Tensor, b: torch.Tensor, *rest) -> int:
    """Return the floating-point operations.

    They are a multiplication and an addition for each element of out and each of K.
    """
    return 2 * a.shape[0] * b.shape[1] * a.shape[1]
