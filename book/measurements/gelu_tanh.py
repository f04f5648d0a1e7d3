"""What `tile measure gelu_tanh` times: the form with tanh. Every variant allocates its result."""

from functools import partial

import torch
import torch.nn.functional as F
import triton

from kernels.gelu import block_of, gelu, gelu_bytes, gelu_flops, gelu_kernel, gelu_reference
from kernels.ladders.gelu import gelu_libdevice_exp, gelu_libdevice_tanh, gelu_sigmoid
from lab.device import DEVICE
from lab.measure.recipe import Recipe, TorchCompiled, Workload

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


def one_vector(n: int, dtype: str) -> Workload:
    """A vector of n normal random numbers."""
    options = {"device": DEVICE, "dtype": DTYPES[dtype]}
    return Workload({"N": n}, dtype, lambda generator: (torch.randn(n, generator=generator, **options),))


def rung(form):
    """Return the operation by one function of the ladder."""

    def launched(x: torch.Tensor) -> torch.Tensor:
        out, block = torch.empty_like(x), block_of(x.dtype)
        gelu_kernel[(triton.cdiv(x.numel(), block),)](x, out, x.numel(), FORM=form, BLOCK=block)
        return out

    return launched


torch_gelu = partial(F.gelu, approximate="tanh")

RECIPE = Recipe(
    op="gelu_tanh",
    workloads=[one_vector(n, dtype) for n, dtype in ((2**24, "bf16"), (2**28, "bf16"), (2**28, "fp32"))],
    variants={
        "torch": torch_gelu,
        "torch_compile": TorchCompiled(torch_gelu),
        "libdevice_tanh": rung(gelu_libdevice_tanh),
        "sigmoid": rung(gelu_sigmoid),
        "libdevice_exp": rung(gelu_libdevice_exp),
        "triton": partial(gelu, approximate="tanh"),
    },
    reference=lambda x: gelu_reference(x.double(), "tanh"),
    bytes=gelu_bytes,
    flops=partial(gelu_flops, approximate="tanh"),
)
