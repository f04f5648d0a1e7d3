"""out = x / (1 - p) where chance keeps an element, else 0. The mask is never stored: backward draws it again."""

import torch
import triton
import triton.language as tl

from .launch import custom_op

CALLS = 128  # calls of the generator that a program makes, in those that get several numbers from one
LARGE = 2**22  # elements from which narrow loads cost more than a second launch
STEPS = 2**16  # numbers that a 16-bit random number can be: p is rounded to a multiple of 1 / STEPS
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def philox_reference(seed: int, counters: torch.Tensor, rounds: int = 10) -> torch.Tensor:
    """Return four random 32-bit words for each counter, int64 [...]: int64 [..., 4].

    Philox-4x32, keyed by the 64 bits of the seed (J. Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, 2011).
    """
    low = 2**32 - 1
    k0, k1 = seed & low, (seed >> 32) & low
    c0, c1 = counters & low, (counters >> 32) & low
    c2 = c3 = torch.zeros_like(counters)
    for _ in range(rounds):
        # The product of two 32-bit numbers may come out negative, but its 64 bits are right.
        a, b = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c1, c2, c3 = ((b >> 32) & low) ^ c1 ^ k0, b & low, ((a >> 32) & low) ^ c3 ^ k1, a & low
        k0, k1 = (k0 + 0x9E3779B9) & low, (k1 + 0xBB67AE85) & low
    return torch.stack((c0, c1, c2, c3), -1)


def keep_reference(x: torch.Tensor, p: float, seed: int, rounds: int = 10) -> torch.Tensor:
    """Return which elements of x are kept: bool, of its shape. Eight in a row share one call of the generator."""
    calls = torch.arange(triton.cdiv(x.numel(), 8), device=x.device)
    words = philox_reference(seed, calls, rounds)
    halves = torch.stack((words & 0xFFFF, words >> 16), -1).flatten()[: x.numel()]
    return (halves >= threshold_of(p)).view(x.shape)


def dropout_reference(x: torch.Tensor, p: float, seed: int) -> torch.Tensor:
    """The specification: what `dropout` must return."""
    scaled = (x.double() * scale_of(threshold_of(p))).to(x.dtype)
    return torch.where(keep_reference(x, p, seed), scaled, 0)


# Every step of a training run brings a new seed: none of them may cost a compilation.
@triton.jit(do_not_specialize=["first", "seed", "threshold"])
def dropout_kernel(x_ptr, out_ptr, n, first, seed, threshold, scale, CALLS: tl.constexpr, ROUNDS: tl.constexpr = 10):
    """Each program writes 8 * CALLS consecutive elements of out, and draws eight 16-bit numbers at a call.

    x_ptr, out_ptr: [n], contiguous, one dtype. first: what is added to the program ids.
    """
    # Widen before multiplying: an element's index passes 2**31 once n does.
    pid = tl.program_id(0).to(tl.int64) + first
    call = pid * CALLS + tl.arange(0, CALLS)
    r0, r1, r2, r3 = tl.randint4x(seed, call, ROUNDS)
    words = tl.reshape(tl.join(tl.join(r0, r2), tl.join(r1, r3)), (CALLS, 4)).to(tl.uint32, bitcast=True)
    halves = tl.reshape(tl.join(words & 0xFFFF, words >> 16), (CALLS, 8))
    offs = call[:, None] * 8 + tl.arange(0, 8)[None, :]  # [CALLS, 8]
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    out = tl.where(halves >= threshold, x * scale, 0.0)
    tl.store(out_ptr + offs, out.to(out_ptr.dtype.element_ty), mask=mask)


class Dropout(torch.autograd.Function):
    """Forward and backward are one operation with one mask. All that is kept between them are p and the seed."""

    @staticmethod
    def forward(ctx, x: torch.Tensor, p: float, seed: int) -> torch.Tensor:
        ctx.p, ctx.seed = p, seed
        return drop(x, p, seed)

    @staticmethod
    def backward(ctx, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return Dropout.apply(grad, ctx.p, ctx.seed), None, None


def dropout(x: torch.Tensor, p: float, seed: int) -> torch.Tensor:
    """Return x with each element replaced by 0 with probability p and divided by 1 - p otherwise.

    x: any shape, a dtype of `DTYPES`. A tensor that is not contiguous is copied first; the result is contiguous.
    p: in [0, 1]. 0 keeps everything and 1 nothing; between them p is rounded to one of 1/65536, 2/65536, … 65535/65536,
    and the division uses the rounded p, so that the mean stays what it is. What is dropped is 0 even where x is NaN.
    seed: an integer of 64 bits. Whether element i (counted row by row, whatever the strides) is kept depends on seed
    and i alone: pass another seed at each training step and for each layer. Backward draws the mask again.
    Raises TypeError for an x that is no tensor, a p that is no number and a seed that is no int, and ValueError for
    a dtype, p or seed out of range.
    """
    check_arguments(x, p, seed)
    # Past 2**63 the same 64 bits have a negative name, which is the one that PyTorch's operations take.
    return Dropout.apply(x, float(p), seed if seed < 2**63 else seed - 2**64)


@custom_op(lambda x, p, seed: torch.empty_like(x, memory_format=torch.contiguous_format))
def drop(x: torch.Tensor, p: float, seed: int) -> torch.Tensor:
    """Return dropout without a gradient: launch the kernel over the memory of x, copied if it is not contiguous."""
    x = x.contiguous()
    out = torch.empty_like(x)
    threshold, n = threshold_of(p), x.numel()
    arguments = {"seed": seed, "threshold": threshold, "scale": scale_of(threshold), "CALLS": CALLS}
    programs = triton.cdiv(n, 8 * CALLS)
    # Only where 16 divides n can the compiler load 16 bytes at a time, so a large odd size gives its tail a launch.
    whole = n // (8 * CALLS) if n > LARGE and n % 16 else programs
    with torch.cuda.device_of(out):
        if whole > 0:
            dropout_kernel[(whole,)](x, out, min(n, whole * 8 * CALLS), 0, **arguments)
        if whole < programs:
            dropout_kernel[(1,)](x, out, n, whole, **arguments)
    return out


def threshold_of(p: float) -> int:
    """Return how many of the STEPS random numbers drop an element: none only for p = 0, all only for p = 1."""
    return min(max(round(p * STEPS), 1), STEPS - 1) if 0 < p < 1 else int(p) * STEPS


def scale_of(threshold: int) -> float:
    """Return what a kept element is multiplied with, so that the mean stays what it is."""
    return STEPS / (STEPS - threshold) if threshold < STEPS else 0.0


def check_arguments(x: torch.Tensor, p: float, seed: int) -> None:
    """Raise TypeError or ValueError, naming what is wrong, unless `dropout` can take these."""
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"dropout takes a tensor, not {type(x).__name__}")
    if x.dtype not in DTYPES or x.layout != torch.strided:
        raise ValueError(f"dropout takes dense tensors of {', '.join(map(str, DTYPES))}, not {x.dtype} ({x.layout})")
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
    """Return the floating-point operations: one multiplication an element. The generator works on integers."""
    return x.numel()
