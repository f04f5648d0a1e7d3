"""What `tile measure dropout` times. Every variant allocates its result, as it does for whoever calls it."""

import math

import torch
import torch.nn.functional as F
import triton

from kernels.dropout import dropout, dropout_bytes, dropout_flops
from kernels.ladders.dropout import BLOCK, dropout_four_kernel, dropout_one_kernel, dropout_stored_kernel
from lab.device import DEVICE
from lab.measure.recipe import Recipe, TorchCompiled, Workload

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
P, SEED = 0.5, 2**40 + 1
SCALE = 1 / (1 - P)


def one_vector(n: int, dtype: str) -> Workload:
    """A vector of n normal random numbers."""
    options = {"device": DEVICE, "dtype": DTYPES[dtype]}
    return Workload({"N": n}, dtype, lambda generator: (torch.randn(n, generator=generator, **options),))


def torch_dropout(x: torch.Tensor) -> torch.Tensor:
    """PyTorch's own, as in training."""
    return F.dropout(x, P, training=True)


def stored_mask(x: torch.Tensor) -> torch.Tensor:
    """PyTorch draws a mask and writes it to memory, and a kernel reads it."""
    keep, out = torch.rand(x.shape, device=x.device) >= P, torch.empty_like(x)
    dropout_stored_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, keep, out, x.numel(), SCALE, BLOCK=BLOCK)
    return out


def one_number(x: torch.Tensor) -> torch.Tensor:
    """A call of the generator for each element."""
    out = torch.empty_like(x)
    dropout_one_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, out, x.numel(), SEED, P, SCALE, BLOCK=BLOCK)
    return out


def four_numbers(x: torch.Tensor, rounds: int = 10) -> torch.Tensor:
    """A call of the generator for four elements."""
    out, n = torch.empty_like(x), x.numel()
    dropout_four_kernel[(triton.cdiv(n, BLOCK),)](x, out, n, SEED, P, SCALE, CALLS=BLOCK // 4, ROUNDS=rounds)
    return out


def seven_rounds(x: torch.Tensor) -> torch.Tensor:
    """The same with the fewest rounds that passed the tests of the generator's authors."""
    return four_numbers(x, rounds=7)


def as_drawn(expected: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
    """Return `expected` with a 0 where `result` has one, if about as many are 0 as chance would have it."""
    dropped, n = result == 0, result.numel()
    deviation = abs(dropped.sum().item() - n * P) / math.sqrt(n * P * (1 - P))
    return torch.where(dropped, 0, expected) if deviation < 6 else expected


SIZES = [2**exponent for exponent in (12, 16, 20, 22, 24, 26, 28)] + [2**28 - 1]

RECIPE = Recipe(
    op="dropout",
    workloads=[one_vector(n, dtype) for dtype in DTYPES for n in SIZES],
    variants={
        "torch": torch_dropout,
        "torch_compile": TorchCompiled(torch_dropout),
        "stored_mask": stored_mask,
        "one_number": one_number,
        "four_numbers": four_numbers,
        "seven_rounds": seven_rounds,
        "triton": lambda x: dropout(x, P, SEED),
    },
    reference=lambda x: x.double() * SCALE,
    bytes=dropout_bytes,
    flops=dropout_flops,
    calls=("torch", "torch_compile", "triton"),
    as_drawn=as_drawn,
)
