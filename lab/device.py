"""Where kernels run here: on a CUDA GPU, or on the CPU, on the machine of `lab.machine`.

Importing this module, at any time before the first launch, makes the machine Triton's device where there is no GPU, and
errors of the compiler end with our advice.
"""

import csv
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import torch

HARDWARE = Path(__file__).with_name("hardware.csv")
REFERENCE_GPU = "h200"  # the GPU of the recorded runs; its facts stand in where there is no GPU


@dataclass(frozen=True)
class Gpu:
    """The facts of one GPU that a prediction needs."""

    name: str
    arch: str  # compiler target, such as "sm_90"
    sms: int  # streaming multiprocessors
    l2_bytes: int
    shared_bytes: int  # shared memory of one SM
    registers: int  # 32-bit registers of one SM
    bandwidth: float  # device memory, bytes/s
    peak_flops: dict[str, float]  # FLOP/s by "fp32", "tf32", "bf16", "fp16", "fp8"; dense


def data_sheets() -> dict[str, dict[str, str]]:
    """Return GPU → quantity → value, as `lab/hardware.csv` lists them: {"H200": {"SMs": "132", …}, …}."""
    with HARDWARE.open(newline="") as file:
        rows = list(csv.DictReader(file))
    gpus = [name for name in rows[0] if name not in ("quantity", "unit", "source")]
    return {gpu: {row["quantity"]: row[gpu] for row in rows} for gpu in gpus}


def gpu_named(key: str) -> Gpu:
    """Return the data-sheet facts of a GPU: "t4", "a100", "h100", "h200" or "b200".

    Raises ValueError for a GPU that `lab/hardware.csv` does not list. Sources stand in that file.
    """
    sheets = data_sheets()
    if key.upper() not in sheets:
        raise ValueError(f"no facts about {key!r}; lab/hardware.csv lists {', '.join(sheets).lower()}")
    facts = sheets[key.upper()]
    return Gpu(
        name=f"NVIDIA {key.upper()}",
        arch=facts["compute capability"],
        sms=int(facts["SMs"]),
        l2_bytes=int(float(facts["L2 cache"]) * 2**20),
        shared_bytes=int(float(facts["shared memory per SM"]) * 2**10),
        registers=int(facts["registers per SM"]),
        bandwidth=float(facts["memory bandwidth"]) * 1e9,
        peak_flops={
            dtype: float(facts[f"peak {dtype}"]) * 1e12
            for dtype in ("fp32", "tf32", "bf16", "fp16", "fp8")
            if facts[f"peak {dtype}"]
        },
    )


def gpu_here() -> Gpu:
    """Return the GPU of this machine; its data sheet where we have it, else what the driver tells."""
    properties = torch.cuda.get_device_properties(0)
    for listed in data_sheets():
        if listed in properties.name.replace("-", " ").split():
            return gpu_named(listed)
    return Gpu(
        name=properties.name,
        arch=f"sm_{properties.major}{properties.minor}",
        sms=properties.multi_processor_count,
        l2_bytes=properties.L2_cache_size,
        shared_bytes=properties.shared_memory_per_multiprocessor,
        registers=properties.regs_per_multiprocessor,
        # kHz × bits, twice per clock
        bandwidth=properties.memory_clock_rate * 1e3 * properties.memory_bus_width / 8 * 2,
        peak_flops={},
    )


def leave_interpreter() -> None:
    """See to it that Triton compiles kernels: its interpreter is of no use here.

    Raises RuntimeError where TRITON_INTERPRET=1 was set when Triton was imported, which cannot be undone.
    """
    wanted = os.environ.pop("TRITON_INTERPRET", "0")
    if wanted.lower() not in ("1", "true", "on", "yes", "y"):
        return
    if "triton.language" in sys.modules:
        raise RuntimeError(
            "Triton was imported with TRITON_INTERPRET=1, for its own interpreter, which this course does not use. "
            "Restart Python without that variable."
        )
    hint = "; to leave this GPU aside, set CUDA_VISIBLE_DEVICES= (empty)" if torch.cuda.is_available() else ""
    print(
        f"TRITON_INTERPRET is not needed and has no effect: kernels run without a GPU as they are{hint}.",
        file=sys.stderr,
    )


leave_interpreter()
from lab.refusal import explain_refusals  # noqa: E402  Triton comes with it, and must not see that variable

explain_refusals()
ON_CPU = not torch.cuda.is_available()
DEVICE = torch.device("cpu" if ON_CPU else "cuda")
GPU = gpu_named(REFERENCE_GPU) if ON_CPU else gpu_here()

if ON_CPU:
    from lab.machine import backend

    backend.activate()
