"""What `tile measure gelu` times: the form with erf. Every variant allocates its result, as it does for its caller."""

import torch
import torch.nn.functional as F
import triton

from kernels.gelu import block_of, gelu, gelu_bytes, gelu_flops, gelu_kernel, gelu_reference
from kernels.ladders.gelu import gelu_erf, gelu_libdevice_erf, gelu_polynomial
from lab.device import DEVICE
from lab.measure.recipe import Recipe, TorchCompiled, Unavailable, Workload

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


def one_vector(n: int, dtype: str) -> Workload:
    """A vector of n normal random numbers."""
    options = {"device": DEVICE, "dtype": DTYPES[dtype]}
    return Workload({"N": n}, dtype, lambda generator: (torch.randn(n, generator=generator, **options),))


def rung(form):
    """Return the operation by one function of the ladder."""

    def launched(x: torch.Tensor) -> torch.Tensor:
        if x.numel() % 16:
            raise Unavailable("a size that 16 does not divide is for the whole operation, which splits it")
        out, block = torch.empty_like(x), block_of(x.dtype)
        gelu_kernel[(triton.cdiv(x.numel(), block),)](x, out, x.numel(), FORM=form, BLOCK=block)
        return out

    return launched


def polynomial(x: torch.Tensor) -> torch.Tensor:
    """The rung by a polynomial that has the digits of 16 bits, and no more."""
    if x.dtype == torch.float32:
        raise Unavailable("its polynomial is right to 5e-6, which is enough for 16 bits and too little for 32")
    return rung(gelu_polynomial)(x)


SIZES = [(2**exponent, "bf16") for exponent in (12, 16, 20, 24, 26, 28)] + [(2**28 - 1, "bf16"), (2**28, "fp32")]

RECIPE = Recipe(
    op="gelu",
    workloads=[one_vector(n, dtype) for n, dtype in SIZES],
    variants={
        "torch": F.gelu,
        "torch_compile": TorchCompiled(F.gelu),
        "erf": rung(gelu_erf),
        "libdevice_erf": rung(gelu_libdevice_erf),
        "polynomial": polynomial,
        "triton": gelu,
    },
    reference=lambda x: gelu_reference(x.double()),
    bytes=gelu_bytes,
    flops=gelu_flops,
    calls=("torch", "torch_compile", "triton"),
)
