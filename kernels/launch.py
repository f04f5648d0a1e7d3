"""What stands between a call and its kernels: little of Python, and something that torch.compile can see.

For small tensors, Python's share of a call is the larger one.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import NamedTuple

import torch
import triton

TFLOAT32 = 11  # what CUDA calls an element type that the copy engine rounds from fp32 to TF32


def custom_op(shape_of: Callable) -> Callable[[Callable], Callable]:
    """Return a decorator for a function that launches kernels: torch.compile then takes it for a single operation.

    The arguments and results of the function are annotated, and no result is, or is a view of, an argument. shape_of:
    the same arguments → results of the right shapes, dtypes, strides and device, uninitialized.
    """

    def decorate(function: Callable) -> Callable:
        operation = torch.library.custom_op(f"tile_by_tile::{function.__name__}", function, mutates_args=())
        operation.register_fake(shape_of)

        @functools.wraps(function)
        def call(*arguments):
            return operation(*arguments) if torch.compiler.is_compiling() else function(*arguments)

        call.operation = operation
        return call

    return decorate


class TensorSpec(NamedTuple):
    """All of a tensor that decides how it is computed with: everything but its values and its address."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    aligned: bool  # whether it starts at a multiple of 16 bytes

    def at(self, pointer: int) -> "Placeholder":
        """Return a placeholder for a tensor of this spec at an address."""
        return Placeholder(pointer, self)


def tensor_spec(t: torch.Tensor) -> TensorSpec:
    """Return the spec of a tensor: a key under which to keep what was decided for it."""
    return TensorSpec(t.shape, t.stride(), t.dtype, t.device, t.data_ptr() % 16 == 0)


@dataclass(frozen=True)
class Placeholder:
    """Stands for a tensor where its memory must not be held, or is not known yet."""

    pointer: int
    spec: TensorSpec

    @property
    def shape(self) -> tuple[int, ...]:
        return self.spec.shape

    @property
    def dtype(self) -> torch.dtype:
        return self.spec.dtype

    def stride(self) -> tuple[int, ...]:
        return self.spec.strides

    def data_ptr(self) -> int:
        return self.pointer


def placeholder(t: TensorSpec | None) -> Placeholder | None:
    """Return what the compiler takes in place of a tensor of this spec."""
    return t and t.at(0 if t.aligned else t.dtype.itemsize)


def launcher(
    kernel,
    grid: tuple[int, int, int],
    tensors: tuple[TensorSpec | None, ...],
    rest: tuple = (),
    constants: tuple = (),
    described: tuple[Callable, ...] = (),
    **options,
) -> Callable[..., None]:
    """Return a function that launches a kernel on tensors of these specs: `launch(tensors, *rest)`.

    The kernel takes the tensors first, as pointers or, if `described` has a function for each that makes its
    descriptor, through the copy engine; then what `rest` is like; then the constants, which every launch has in common.
    """

    def launch(tensors: tuple, *rest) -> None:
        sources = [describe(t) for describe, t in zip(described, tensors, strict=True)] if described else tensors
        kernel[grid](*sources, *rest, *constants, **options)

    if all(t is None or t.device.type != "cuda" for t in tensors):
        return launch
    return Launcher(kernel, grid, tensors, rest, constants, described, launch, **options)


class Launcher:
    """A kernel compiled for arguments like those that `launcher` is told of, on the current device.

    Triton's own launch asks at every call which compiled kernel the arguments want, and encodes every descriptor for
    the copy engine. Here the kernel is settled once, and descriptors stay encoded by the address of their tensor.
    `otherwise` is Triton's own launch, for when another driver than the GPU's has been made active since.
    """

    def __init__(self, kernel, grid, tensors, rest, constants, described, otherwise, **options):
        sources = (placeholder(t) for t in tensors)
        if described:
            sources = (describe(t.at(0)) for describe, t in zip(described, tensors, strict=True))
        compiled = kernel.warmup(*sources, *rest, *constants, grid=grid, **options)
        self.run = run_of(compiled)
        self.forms = forms_of(compiled)
        self.driver = triton.runtime.driver.active
        self.otherwise = otherwise
        self.device = self.driver.get_current_device()
        self.grid, self.tensors, self.constants, self.described = grid, tensors, constants, described
        # No metadata of the launch and no hooks: those are for Triton's own profiler.
        self.before = compiled.function, compiled.packed_metadata, None, None, None
        self.encoded = functools.lru_cache(maxsize=1024)(self.encode)

    def encode(self, *places: int) -> tuple:
        """Return what stands for the descriptors of tensors at these addresses among the arguments of a launch."""
        from triton.backends.nvidia.driver import make_tensordesc_arg

        encoded = ()
        for place, t, describe, form in zip(places, self.tensors, self.described, self.forms, strict=True):
            descriptor = describe(t.at(place))
            if getattr(descriptor, "round_f32_to_tf32", False):  # a parameter from Triton 3.7 on
                form = {**form, "elem_type": TFLOAT32}
            encoded += tuple(make_tensordesc_arg(descriptor, form))
        return encoded

    def __call__(self, tensors: tuple, *rest) -> None:
        """Launch the kernel."""
        if triton.runtime.driver.active is not self.driver:
            return self.otherwise(tensors, *rest)
        sources = self.encoded(*[t.data_ptr() for t in tensors]) if self.described else tensors
        stream = self.driver.get_current_stream(self.device)
        self.run(*self.grid, stream, *self.before, *sources, *rest, *self.constants)


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
