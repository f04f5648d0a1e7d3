"""out = x / (1 - p) where chance keeps an element, else 0.

The mask is never stored: backward draws it again.
"""

import functools
import math
from collections.abc import Callable

import torch
import triton
import triton.language as tl

from .elementwise import LARGE
from .gradients import wants_gradient
from .launch import TensorSpec, custom_op, launcher, tensor_spec

CALLS = 128  # calls of the generator that a program makes; each gives 8 numbers
ROUNDS = 10  # of the generator
STEPS = 2**16  # values of a random number: p is rounded to a multiple of 1 / STEPS
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def philox_reference(
    seed: int, counters: torch.Tensor, rounds: int = 10
) -> torch.Tensor:
    """Return four random 32-bit words for each counter, int64 [...]: int64 [..., 4].

    Philox-4x32, keyed by the 64 bits of the seed (J. Salmon et al., Parallel Random
    Numbers: As Easy as 1, 2, 3, 2011).
    """
    low = 2**32 - 1
    k0, k1 = seed & low, (seed >> 32) & low
    c0, c1 = counters & low, (counters >> 32) & low
    c2 = c3 = torch.zeros_like(counters)
    for _ in range(rounds):
        # The product of two 32-bit numbers may be negative, but its 64 bits are right.
        a, b = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c1 = ((b >> 32) & low) ^ c1 ^ k0, b & low
        c2, c3 = ((a >> 32) & low) ^ c3 ^ k1, a & low
        k0, k1 = (k0 + 0x9E3779B9) & low, (k1 + 0xBB67AE85) & low
    return torch.stack((c0, c1, c2, c3), -1)


def keep_reference(
    x: torch.Tensor, p: float, seed: int, rounds: int = 10
) -> torch.Tensor:
    """Return which elements of x are kept: bool, of its shape.

    Eight in a row share one call of the generator.
    """
    calls = torch.arange(triton.cdiv(x.numel(), 8), device=x.device)
    words = philox_reference(seed, calls, rounds)
    halves = torch.stack((words & 0xFFFF, words >> 16), -1).flatten()[: x.numel()]
    return (halves >= threshold_of(p)).view(x.shape)


def dropout_reference(x: torch.Tensor, p: float, seed: int) -> torch.Tensor:
    """The specification: what `dropout` must return."""
    scaled = (x.double() * scale_of(threshold_of(p))).to(x.dtype)
    return torch.where(keep_reference(x, p, seed), scaled, 0)


# Every step of a training run has a new seed: none of them may cost a compilation.
@triton.jit(do_not_specialize=["first", "seed", "threshold"])
def dropout_kernel(
    x_ptr, out_ptr, n, first, seed: tl.int64, threshold, scale,
    CALLS: tl.constexpr, ROUNDS: tl.constexpr = 10,
):  # fmt: skip
    """Each program writes 8 * CALLS consecutive elements of out.

    It draws eight 16-bit numbers at a call of the generator.
    x_ptr, out_ptr: [n], contiguous, one dtype. first: what is added to program ids.
    """
    # Widen before multiplying: an element's index passes 2**31 once n does.
    pid = tl.program_id(0).to(tl.int64) + first
    call = pid * CALLS + tl.arange(0, CALLS)
    r0, r1, r2, r3 = tl.randint4x(seed, call, ROUNDS)
    words = tl.reshape(tl.join(tl.join(r0, r2), tl.join(r1, r3)), (CALLS, 4))
    words = words.to(tl.uint32, bitcast=True)
    halves = tl.reshape(tl.join(words & 0xFFFF, words >> 16), (CALLS, 8))
    offs = call[:, None] * 8 + tl.arange(0, 8)[None, :]  # [CALLS, 8]
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    out = tl.where(halves >= threshold, x * scale, 0.0)
    tl.store(out_ptr + offs, out.to(out_ptr.dtype.element_ty), mask=mask)


class Dropout(torch.autograd.Function):
    """Forward and backward are one operation with one mask, drawn twice.

    All that is kept between them are p and the seed.
    """

    @staticmethod
    def forward(ctx, x: torch.Tensor, p: float, seed: int) -> torch.Tensor:
        ctx.p, ctx.seed = p, seed
        return drop(x, p, seed)

    @staticmethod
    def backward(ctx, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return Dropout.apply(grad, ctx.p, ctx.seed), None, None


def dropout(x: torch.Tensor, p: float, seed: int) -> torch.Tensor:
    """Return x with each element dropped with probability p.

    A dropped element becomes 0, even where x is NaN; the others are divided by 1 - p.

    x: any shape, a dtype of `DTYPES`. A tensor that is not contiguous is copied first;
    the result is contiguous.
    p: in [0, 1]. 0 keeps everything and 1 nothing; between them p is rounded to one of
    1/65536, 2/65536, … 65535/65536, and the division uses the rounded p, so that the
    mean stays what it is.
    seed: an integer of 64 bits. Whether element i (counted row by row, whatever the
    strides) is kept depends on seed and i alone: pass another seed at each training
    step and for each layer. Backward draws the mask again.
    Raises TypeError for an x that is no tensor, a p that is no number and a seed that
    is no int, and ValueError for a dtype, p or seed out of range.
    """
    check_arguments(x, p, seed)
    if seed >= 2**63:  # the same 64 bits as PyTorch's operations take them
        seed -= 2**64
    if wants_gradient(x):
        return Dropout.apply(x, float(p), seed)
    return drop(x, float(p), seed)


@custom_op(
    lambda x, p, seed: torch.empty_like(x, memory_format=torch.contiguous_format)
)
def drop(x: torch.Tensor, p: float, seed: int) -> torch.Tensor:
    """Return dropout without a gradient: its kernel walks a contiguous x in order."""
    if x.is_neg() or not x.is_contiguous():
        x = x.resolve_neg().contiguous()
    out = torch.empty_like(x)
    threshold = threshold_of(p)
    launch = launch_for(tensor_spec(x))
    launch((x, out), seed, threshold, scale_of(threshold))
    return out


@functools.lru_cache(maxsize=1024)
def launch_for(x: TensorSpec) -> Callable[..., None]:
    """Return the function `launch((x, out), seed, threshold, scale)`."""
    n = math.prod(x.shape)
    programs = triton.cdiv(n, 8 * CALLS)
    # Only where 16 divides n can the compiler load 16 bytes at a time: a large odd size
    # gives its tail a launch of its own.
    whole = n // (8 * CALLS) if n > LARGE and n % 16 else programs

    def launcher_for(n: int, first: int, programs: int) -> Callable[..., None]:
        tensors = x, x._replace(aligned=True)
        rest = n, first, 0, 0, 1.0
        grid, constants = (programs, 1, 1), (CALLS, ROUNDS)
        launch = launcher(dropout_kernel, grid, tensors, rest, constants)
        return lambda tensors, *drawn: launch(tensors, n, first, *drawn)

    launches = []
    if whole > 0:
        launches.append(launcher_for(min(n, whole * 8 * CALLS), 0, whole))
    if whole < programs:
        launches.append(launcher_for(n, whole, 1))

    def launch_all(*arguments) -> None:
        for launch in launches:
            launch(*arguments)

    return launches[0] if len(launches) == 1 else launch_all


@functools.lru_cache(maxsize=1024)
def threshold_of(p: float) -> int:
    """Return how many of the STEPS random numbers drop an element.

    None drops it only for p = 0, and all only for p = 1.
    """
    if 0 < p < 1:
        return min(max(round(p * STEPS), 1), STEPS - 1)
    return int(p) * STEPS


def scale_of(threshold: int) -> float:
    """Return the factor of a kept element. With it, the mean stays what it was."""
    return STEPS / (STEPS - threshold) if threshold < STEPS else 0.0


def check_arguments(x: torch.Tensor, p: float, seed: int) -> None:
    """Raise TypeError or ValueError, naming what is wrong, unless these fit."""
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"dropout takes a tensor, not {type(x).__name__}")
    if x.dtype not in DTYPES or x.layout is not torch.strided:
        known = ", ".join(map(str, DTYPES))
        given = f"{x.dtype} ({x.layout})"
        raise ValueError(f"dropout takes dense tensors of {known}, not {given}")
    if not isinstance(p, (int, float)):
        raise TypeError(f"p must be a number, not {type(p).__name__}")
    if not 0 <= p <= 1:
        raise ValueError(f"p must be in [0, 1], not {p}")
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise TypeError(f"seed must be an int, not {type(seed).__name__} {seed}")
    if not -(2**63) <= seed < 2**64:
        raise ValueError(f"seed must be an integer of 64 bits, not {seed}")


def dropout_bytes(x: torch.Tensor) -> int:
    """Return the bytes that must cross memory once: x read, the result written."""
    return 2 * x.numel() * x.element_size()


def dropout_flops(x: torch.Tensor) -> int:
    """Return the floating-point operations: one multiplication an element.

    The generator works on integers.
    """
    return x.numel()
