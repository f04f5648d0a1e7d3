"""Launching kernels with little Python, and as one operation for torch.compile.

For small tensors a call of Triton's own launch takes longer than the kernel runs. A
`launcher` does most of that work once. It calls parts of Triton that are not public:
this is the only file that does so.
"""

import functools
import threading
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple, Protocol, cast, overload

import torch
import triton

from .gpu import is_nvidia
from .gradients import refuse_transforms

# The versions of Triton whose launch is known here: tried with 3.6.0 and 3.7.1.
KNOWN = ("3.6", "3.7")
TFLOAT32 = 11  # CUDA's name for fp32 that the copy engine rounds to TF32

is_compiling = torch.compiler.is_compiling


class Operation(Protocol):
    """A function that torch.compile takes for a single operation."""

    operation: Any  # what torch.compile puts into its graph
    eager: Callable  # the function itself, for who has asked `is_compiling` already

    def __call__(self, *arguments: Any) -> Any: ...


def custom_op(shape_of: Callable) -> Callable[[Callable], Operation]:
    """Return a decorator: torch.compile takes the function for a single operation.

    The arguments and results of the function are annotated, and no result is, or is a
    view of, an argument. shape_of: the same arguments → results of the right shapes,
    dtypes, strides and device, uninitialized.
    """

    def decorate(function: Callable) -> Operation:
        name = f"tile_by_tile::{function.__name__}"
        operation = torch.library.custom_op(name, function, mutates_args=())
        operation.register_fake(shape_of)

        @functools.wraps(function)
        def call(*arguments):
            if is_compiling():
                return operation(*arguments)
            return function(*arguments)

        decorated = cast(Operation, call)
        decorated.operation, decorated.eager = operation, function
        return decorated

    return decorate


class TensorSpec(NamedTuple):
    """All of a tensor that decides how it is computed with: no values, no address."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    aligned: bool  # whether it starts at a multiple of 16 bytes

    def at(self, pointer: int) -> "Placeholder":
        """Return a placeholder for a tensor of this spec at an address."""
        return Placeholder(pointer, self)


def tensor_spec(t: torch.Tensor) -> TensorSpec:
    """Return the spec of a tensor. What is decided for a spec is kept under it.

    Operations that are called on small tensors most keep what is decided under the
    fields instead, and spell them out: that takes half the time.
    """
    try:
        # A tenth of a microsecond less than TensorSpec(…): small calls make several.
        fields = t.shape, t.stride(), t.dtype, t.device, not t.data_ptr() & 15
    except RuntimeError:
        refuse_transforms()
        raise
    return new_tuple(TensorSpec, fields)


new_tuple = tuple.__new__


@dataclass(frozen=True)
class Placeholder:
    """A tensor's spec and address, without its memory.

    It stands for the tensor where that must not be kept alive, or is not known yet.
    """

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


@overload
def placeholder(t: TensorSpec) -> Placeholder: ...
@overload
def placeholder(t: None) -> None: ...
def placeholder(t):
    """Return what the compiler takes in place of a tensor of this spec."""
    return t and t.at(0 if t.aligned else t.dtype.itemsize)


def launcher(
    kernel: Any,
    grid: tuple[int, int, int],
    tensors: tuple[TensorSpec | None, ...],
    rest: tuple = (),
    constants: tuple = (),
    described: tuple[Callable, ...] = (),
    **options: Any,
) -> Callable[..., None]:
    """Return a function that launches a kernel on tensors like these.

    It is called as `launch(tensors, *rest)`, and launches on the device of the tensors.
    The kernel takes the tensors first, as pointers or, if `described` has a function
    for each that makes its descriptor, through the copy engine; then values of the
    types that `rest` has; then the constants, which are the same in every launch.
    """
    device = next(t.device for t in tensors if t is not None)

    def launch(tensors: tuple, *rest: Any) -> None:
        """Launch the kernel through Triton's public interface."""
        sources = tensors
        if described:
            pairs = zip(described, tensors, strict=True)
            sources = tuple(describe(t) for describe, t in pairs)
        with current(device):
            kernel[grid](*sources, *rest, *constants, **options)

    if not (is_nvidia(device) and knows(triton.__version__) and drives_nvidia()):
        return launch
    with current(device):
        return direct_launcher(
            kernel, grid, tensors, rest, constants, described, launch, **options
        )


def current(device: torch.device) -> Any:
    """Return a context in which a GPU is the current one; nothing changes for a CPU."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


@functools.cache
def knows(version: str) -> bool:
    """Return whether the launch of this version of Triton is known; warn if not."""
    known = ".".join(version.split(".")[:2]) in KNOWN
    if not known:
        warnings.warn(
            f"The kernels know the launcher of Triton {' and '.join(KNOWN)}. With "
            f"{version} they take Triton's public launch: slower, never wrong.",
            stacklevel=2,
        )
    return known


def drives_nvidia() -> bool:
    """Return whether Triton's active driver is the one for NVIDIA's GPUs.

    Where there is such a GPU, another driver may stand in for it.
    """
    from triton.backends.nvidia.driver import CudaLauncher

    return DRIVERS.active.launcher_cls is CudaLauncher


def direct_launcher(
    kernel, grid, tensors, rest, constants, described, otherwise, **options
) -> Callable[..., None]:
    """Return what `launcher` returns, of a kernel compiled now, past Triton's launch.

    At every call Triton's own launch looks up which compiled kernel the arguments need,
    and encodes every descriptor for the copy engine. Here the kernel is looked up once,
    and encoded descriptors are kept by the addresses of their tensors. `otherwise` is
    Triton's own launch: for when another driver than the GPU's has become active.
    """
    if described:
        pairs = zip(described, tensors, strict=True)
        sources = [describe(t.at(0)) for describe, t in pairs]
    else:
        sources = [placeholder(t) for t in tensors]
    compiled = kernel.warmup(*sources, *rest, *constants, grid=grid, **options)
    start, facts, packed = start_of(compiled)
    driver = DRIVERS.active
    device, several = driver.get_current_device(), torch.cuda.device_count() > 1
    complete = None not in tensors
    encoded = encoder(forms_of(compiled), tensors, described) if described else None

    def launch(tensors: tuple, *rest: Any) -> None:
        """Launch the kernel on the current stream of the device."""
        if DRIVERS.active is not driver:
            return otherwise(tensors, *rest)
        if several and driver.get_current_device() != device:
            with torch.cuda.device(device):
                return launch(tensors, *rest)
        # As numbers: the driver is asked about the address of every tensor it gets.
        if complete:
            addresses = [t.data_ptr() for t in tensors]
        else:
            addresses = [None if t is None else t.data_ptr() for t in tensors]
        sources = addresses if encoded is None else encoded(*addresses)
        stream = driver.get_current_stream(device)
        if packed:
            start(*grid, stream, *facts, (*sources, *rest, *constants))
        else:
            start(*grid, stream, *facts, *sources, *rest, *constants)
        return None

    return launch


def encoder(
    forms: list[dict], tensors: tuple, described: tuple[Callable, ...]
) -> Callable[..., tuple]:
    """Return a function that encodes the descriptors of tensors at given addresses."""
    from triton.backends.nvidia.driver import make_tensordesc_arg

    @functools.lru_cache(maxsize=1024)
    def encode(*addresses: int) -> tuple:
        bind_context()
        encoded: tuple = ()
        for address, t, describe, form in zip(
            addresses, tensors, described, forms, strict=True
        ):
            descriptor = describe(t.at(address))
            # Triton has this parameter from 3.7 on.
            if getattr(descriptor, "round_f32_to_tf32", False):
                form = {**form, "elem_type": TFLOAT32}
            encoded += tuple(make_tensordesc_arg(descriptor, form))
        return encoded

    return encode


DRIVERS = triton.runtime.driver
bound = threading.local()


def bind_context() -> None:
    """See to it that this thread has a CUDA context, which encoding needs.

    PyTorch gives a thread its context only when it must, and a tensor from PyTorch's
    cache of memory does not need one.
    """
    if torch.cuda.is_available() and not getattr(bound, "done", False):
        torch.cuda.Event().record()
        bound.done = True


@functools.cache
def start_of(compiled: Any) -> tuple[Callable, tuple, bool]:
    """Return the function that starts a compiled kernel, and what it wants to be told.

    It takes the grid, the stream, these facts and the arguments of the kernel: in one
    tuple if the last result is true. In place of descriptors it takes them encoded.
    """
    run = compiled.run
    if forms_of(compiled):
        signature = dict(enumerate(flat_signature(compiled)))
        source = SimpleNamespace(fn=compiled.src.fn, signature=signature)
        metadata = compiled.metadata._replace(tensordesc_meta=None)
        run = type(run)(source, metadata)
    # No metadata of the launch and no hooks: those are for Triton's own profiler.
    unhooked = compiled.packed_metadata, None, None, None
    if run.global_scratch_size or run.profile_scratch_size:
        return run, (compiled.function, *unhooked), False
    modes = compiled.function, run.launch_cooperative_grid, run.launch_pdl
    if hasattr(run, "arg_annotations"):  # from Triton 3.7 on
        types = run.arg_annotations, run.kernel_signature
        return run.launch, (*modes, *unhooked, None, None, *types), True
    return run.launch, (*modes, None, None, *unhooked), False


def flat_signature(compiled: Any) -> list[str]:
    """Return the types of a kernel's arguments, its descriptors being encoded."""
    signature, forms = [], iter(forms_of(compiled))
    for kind in compiled.src.signature.values():
        if kind.startswith("tensordesc"):
            rank = len(next(forms)["block_size"])
            signature += ["nvTmaDesc", *rank * ["i32"], *rank * ["i64"]]
        else:
            signature.append(kind)
    return signature


def forms_of(compiled: Any) -> list[dict]:
    """Return how each descriptor of a compiled kernel has to be encoded."""
    return getattr(compiled.metadata, "tensordesc_meta", None) or []
