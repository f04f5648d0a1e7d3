"""Launching a kernel again with little in between: for small tensors, Python's share of a call is the larger one."""

import functools
from dataclasses import dataclass
from types import SimpleNamespace
from typing import NamedTuple

import torch
import triton

TFLOAT32 = 11  # what CUDA calls an element type that the copy engine rounds from fp32 to TF32


class Looks(NamedTuple):
    """All of a tensor that decides how it is computed with: everything but its values and its address."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    aligned: bool  # whether it starts at a multiple of 16 bytes


def looks(t: torch.Tensor) -> Looks:
    """Return what a tensor looks like: a key under which to keep what was decided for it."""
    return Looks(t.shape, t.stride(), t.dtype, t.device, t.data_ptr() % 16 == 0)


@dataclass(frozen=True)
class Address:
    """Stands for a tensor where its memory must not be held, or is not known yet."""

    pointer: int
    dtype: torch.dtype

    def data_ptr(self) -> int:
        """Return the address, as a tensor does."""
        return self.pointer


def stand_in(t: Looks) -> Address:
    """Return what the compiler takes for a tensor of these looks."""
    return Address(0 if t.aligned else t.dtype.itemsize, t.dtype)


class Launcher:
    """A kernel compiled for arguments like `alike`, to be launched on a grid on the current device.

    Triton's own launch asks at every call which compiled kernel the arguments want, and encodes every descriptor for
    the copy engine. Here the kernel is settled once, and descriptors are passed as `encode` returns them.
    """

    def __init__(self, kernel: triton.runtime.JITFunction, grid: tuple[int, int, int], alike: tuple, **options):
        compiled = kernel.warmup(*alike, grid=grid, **options)
        self.run = run_of(compiled)
        self.forms = forms_of(compiled)
        self.driver = triton.runtime.driver.active
        self.device = self.driver.get_current_device()
        self.grid = grid
        # No metadata of the launch and no hooks: those are for Triton's own profiler.
        self.constant = compiled.function, compiled.packed_metadata, None, None, None

    def encode(self, *descriptors) -> tuple:
        """Return what stands for the kernel's descriptors among the arguments of a call."""
        from triton.backends.nvidia.driver import make_tensordesc_arg

        encoded = ()
        for descriptor, form in zip(descriptors, self.forms, strict=True):
            if descriptor.round_f32_to_tf32:
                form = {**form, "elem_type": TFLOAT32}
            encoded += tuple(make_tensordesc_arg(descriptor, form))
        return encoded

    def __call__(self, *arguments) -> None:
        """Launch the kernel with all its arguments in order, the constants included."""
        self.run(*self.grid, self.driver.get_current_stream(self.device), *self.constant, *arguments)


@functools.cache
def run_of(compiled: triton.compiler.CompiledKernel):
    """Return the function that launches a compiled kernel; in place of its descriptors it takes them encoded."""
    run = compiled.run
    if not forms_of(compiled):
        return run
    source = SimpleNamespace(fn=compiled.src.fn, signature=dict(enumerate(flat_signature(compiled))))
    return type(run)(source, compiled.metadata._replace(tensordesc_meta=None))


def flat_signature(compiled: triton.compiler.CompiledKernel) -> list[str]:
    """Return the types of a kernel's arguments, those of encoded descriptors in place of their own."""
    signature, forms = [], iter(forms_of(compiled))
    for kind in compiled.src.signature.values():
        if kind.startswith("tensordesc"):
            rank = len(next(forms)["block_size"])
            signature += ["nvTmaDesc", *rank * ["i32"], *rank * ["i64"]]
        else:
            signature.append(kind)
    return signature


def forms_of(compiled: triton.compiler.CompiledKernel) -> list[dict]:
    """Return how each descriptor of a compiled kernel has to be encoded."""
    return getattr(compiled.metadata, "tensordesc_meta", None) or []
