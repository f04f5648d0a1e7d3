"""How fast can it be? The time that bytes and FLOPs alone predict, and how near a measured time comes to it."""

from lab.device import GPU, Gpu


def predicted_ms(bytes_moved: float, flops: float = 0, dtype: str = "fp32", gpu: Gpu = GPU) -> float:
    """Return the fewest milliseconds that `gpu` allows: memory and arithmetic overlap, and the slower one decides.

    `bytes_moved` counts every input once and every output once. `dtype` names the arithmetic: "fp32", "tf32", "bf16",
    "fp16" or "fp8".
    """
    return max(memory_ms(bytes_moved, gpu), arithmetic_ms(flops, dtype, gpu))


def memory_ms(bytes_moved: float, gpu: Gpu = GPU) -> float:
    """Return the milliseconds in which `gpu` moves that many bytes to or from its memory, at its data sheet's rate."""
    return bytes_moved / gpu.bandwidth * 1e3


def arithmetic_ms(flops: float, dtype: str = "fp32", gpu: Gpu = GPU) -> float:
    """Return the milliseconds in which `gpu` does that many operations, at its data sheet's rate for `dtype`.

    A GPU without matrix units for `dtype` computes in fp32. Where no rate is known at all the answer is 0: no limit.
    """
    peak = gpu.peak_flops.get(dtype) or gpu.peak_flops.get("fp32")
    return flops / peak * 1e3 if peak else 0.0


def balance(dtype: str = "fp32", gpu: Gpu = GPU) -> float:
    """Return the FLOPs a byte must bring before `gpu` spends its time on arithmetic rather than on memory.

    Raises ValueError where the peak of `dtype` on that GPU is not known.
    """
    if dtype not in gpu.peak_flops:
        known = ", ".join(gpu.peak_flops) or "no peak rate"
        raise ValueError(f"lab/hardware.csv gives no {dtype} peak for {gpu.name}; it gives {known}")
    return gpu.peak_flops[dtype] / gpu.bandwidth


def roof_share(median_ms: float, copy_ms: float, flops: float = 0, dtype: str = "fp32", gpu: Gpu = GPU) -> float:
    """Return how near a measured time comes to the roof; 1 is the roof itself.

    The roof of memory is no data sheet's figure but `copy_ms`: what copying as many bytes took in the same run.
    """
    return max(copy_ms, arithmetic_ms(flops, dtype, gpu)) / median_ms
