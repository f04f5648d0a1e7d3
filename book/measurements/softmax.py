"""What `tile measure softmax` times: rows of one length, as attention, a vocabulary or a long context has them."""

import torch
import triton

from kernels.ladders.softmax import softmax_eager, softmax_persistent_kernel, softmax_row_kernel
from kernels.softmax import (
    HELD,
    SHORT,
    plan_for,
    softmax,
    softmax_bytes,
    softmax_flops,
    softmax_online_kernel,
    softmax_pieces_kernel,
)
from lab.device import DEVICE, GPU
from lab.measure.recipe import Recipe, TorchCompiled, Unavailable, Workload

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
LONGEST = 32768  # lanes of one block: twice as many elements leave a program no registers


def normal_rows(M: int, N: int, dtype: str) -> Workload:
    """M rows of N normal random numbers."""

    def make(generator: torch.Generator) -> tuple[torch.Tensor]:
        return (torch.randn(M, N, generator=generator, device=DEVICE, dtype=DTYPES[dtype]),)

    return Workload({"M": M, "N": N}, dtype, make)


def torch_softmax(x: torch.Tensor) -> torch.Tensor:
    """PyTorch's own kernel."""
    return torch.softmax(x, 1)


def liger(x: torch.Tensor) -> torch.Tensor:
    """Liger's Triton kernel, which holds a row in one block, or refuses it."""
    from liger_kernel.ops.softmax import LigerSoftmaxFunction

    if x.shape[1] > 65536:
        raise Unavailable("it takes rows of at most 65,536 elements")
    return LigerSoftmaxFunction.apply(x)


def eager(x: torch.Tensor) -> torch.Tensor:
    """Five operations of PyTorch, every result of which goes through memory."""
    if x.dtype != torch.float32:
        raise Unavailable("rounding every step to 16 bits costs more than the error allowed")
    return softmax_eager(x)


def launched(kernel, x: torch.Tensor, programs: int, **options: int) -> torch.Tensor:
    """Launch one rung of the ladder."""
    out = torch.empty_like(x)
    kernel[(programs,)](x, out, *x.shape, x.stride(0), out.stride(0), **options)
    return out


def one_block(x: torch.Tensor) -> dict[str, int]:
    """Return the options of the rungs that hold a row in one block: 32 lanes a thread, at most 32 warps."""
    block = triton.next_power_of_2(x.shape[1])
    if block > LONGEST:
        raise Unavailable(f"a row is longer than a block of {LONGEST:,} lanes")
    return {"BLOCK": block, "num_warps": min(32, max(1, block // 1024))}


def row(x: torch.Tensor) -> torch.Tensor:
    """One row a program."""
    return launched(softmax_row_kernel, x, x.shape[0], **one_block(x))


def rows(x: torch.Tensor) -> torch.Tensor:
    """Several short rows a program."""
    if x.shape[1] > SHORT // 2:
        raise Unavailable("a program has room for one row")
    kernel, rows, options = plan_for(x.shape[1])
    return launched(kernel, x, triton.cdiv(x.shape[0], rows), **options)


def persistent(x: torch.Tensor) -> torch.Tensor:
    """As many programs as the GPU holds at once, each of them fetching rows ahead of the one it works on."""
    options = one_block(x)
    programs = min(x.shape[0], GPU.sms * (32 // options["num_warps"]))
    return launched(softmax_persistent_kernel, x, programs, STAGES=3, **options)


def pieces(x: torch.Tensor) -> torch.Tensor:
    """A row in registers, in as many blocks as it needs."""
    if not SHORT < x.shape[1] <= HELD:
        raise Unavailable("the plan keeps rows of other lengths in one block, or loops over them")
    return launched(softmax_pieces_kernel, x, x.shape[0], **plan_for(x.shape[1]).options)


def online(x: torch.Tensor) -> torch.Tensor:
    """A loop over blocks, whatever the length of the row."""
    if x.shape[1] <= SHORT:
        raise Unavailable("a row is no longer than one small block")
    options = plan_for(max(x.shape[1], HELD + 1)).options
    return launched(softmax_online_kernel, x, x.shape[0], **options)


SIZES = [(131072, 256), (42963, 781), (32768, 1024), (8192, 4096), (4096, 8192), (4096, 12672), (4096, 32768)]
LONG = [(2048, 131072)]
SMALL = [(8, 512)]  # for the time of a call: 4,096 elements

RECIPE = Recipe(
    op="softmax",
    workloads=[
        *(normal_rows(M, N, "bf16") for M, N in SIZES + LONG),
        *(normal_rows(M, N, "fp32") for M, N in SIZES[2::3] + LONG + SMALL),
    ],
    variants={
        "torch": torch_softmax,
        "torch_compile": TorchCompiled(torch_softmax),
        "liger": liger,
        "triton": softmax,
        "eager": eager,
        "row": row,
        "rows": rows,
        "persistent": persistent,
        "pieces": pieces,
        "online": online,
    },
    reference=lambda x: torch.softmax(x.double(), 1),
    bytes=softmax_bytes,
    flops=softmax_flops,
    calls=("torch", "torch_compile", "triton"),
)
