"""Kernel launches under the interpreter, where no access leaves its tensor.

On the CPU an unmasked store would corrupt the heap of this very process, and an unmasked load would read a neighbour's
data in silence. Here such a store is dropped, such a load yields NaN (the largest value for integers), and the launch
ends with an `OutOfBoundsError` that says which program strayed, and where. `lab.trace` records launches through the
same hooks.
"""

import functools
import inspect
import operator
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
import triton
import triton.language as tl
from triton.runtime import interpreter as upstream
from triton.runtime.errors import InterpreterError
from triton.runtime.interpreter import TensorHandle
from triton.runtime.jit import mangle_type
from triton.tools.tensor_descriptor import TensorDescriptor

from lab.interpreter import Builder, InterpretedLanguage, numpy_dtype, use_builder

MOST_FAULTS = 32  # of one kind at one tensor in one launch: a kernel without a mask may fault in every program
MOST_ELEMENTS = 4096  # kept of one fault


@dataclass(frozen=True)
class TensorView:
    """A tensor argument of a launch: what its pointer may reach. Strides count elements."""

    name: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    itemsize: int
    data_ptr: int

    @functools.cached_property
    def extent(self) -> int:
        """Elements from the first to the last one in memory, both included; 0 when empty."""
        if 0 in self.shape:
            return 0
        return 1 + sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))

    @functools.cached_property
    def end(self) -> int:
        """Address of the first byte past the view."""
        return self.data_ptr + self.extent * self.itemsize


@dataclass
class Fault:
    """Something a kernel did that a GPU would not forgive; `str` is one sentence about it.

    cause: "out-of-bounds", "int32-overflow", "write-write" or "read-write".
    kind, of the access: "load", "store" or "atomic".
    elements: offsets from the view's first element, int64, sorted, at most `MOST_ELEMENTS` of `count`.
    """

    cause: str
    kind: str
    tensor: str | None
    program: int
    other: int | None
    elements: np.ndarray
    count: int
    file: str
    line: int
    extent: int = 0  # of the tensor, in elements
    stray: bool = False  # whether the access left the tensor
    same_value: bool = False  # of two stores

    def __str__(self) -> str:
        return SENTENCES[self.cause](self)


def counted(fault: Fault) -> str:
    """Say how many elements, and which: "28 elements of `out_ptr` (100 to 127)"."""
    first, last = int(fault.elements[0]), int(fault.elements[-1])
    if fault.count == 1:
        return f"element {first} of `{fault.tensor}`"
    return f"{fault.count} elements of `{fault.tensor}` ({first} to {last})"


VERBS = {"load": "loads", "store": "stores", "atomic": "updates"}


def say_out_of_bounds(fault: Fault) -> str:
    verb = VERBS[fault.kind]
    if fault.tensor is None:
        return f"program {fault.program} {verb} where no tensor is, line {fault.line}: is the pointer an argument?"
    first, last = int(fault.elements[0]), int(fault.elements[-1])
    beyond, before = last >= fault.extent, first < 0
    where = "outside" if beyond and before else "past the end of" if beyond else "before the start of"
    which = f"element {first}" if fault.count == 1 else f"elements {first} to {last}"
    number = f"{fault.count} element{'s' if fault.count > 1 else ''}"
    advice = f"is the {fault.kind} masked?" if beyond else "can an offset be negative?"
    return f"program {fault.program} {verb} {number} {where} `{fault.tensor}` ({which}), line {fault.line}: {advice}"


def say_overflow(fault: Fault) -> str:
    return (
        f"program {fault.program} computes offsets past 2**31 - 1 in int32, line {fault.line}: they wrap, and the "
        f"{fault.kind} reaches {counted(fault)}; widen one factor with .to(tl.int64) before multiplying"
    )


def say_write_write(fault: Fault) -> str:
    value = "the same value" if fault.same_value else "different values"
    return (
        f"programs {fault.other} and {fault.program} both store {counted(fault)}, with {value}, line {fault.line}: "
        "does each program have elements of its own?"
    )


def say_read_write(fault: Fault) -> str:
    return (
        f"program {fault.program} loads {counted(fault)}, which program {fault.other} writes in the same launch, "
        f"line {fault.line}: programs run in no fixed order, so neither can wait for the other"
    )


SENTENCES = {
    "out-of-bounds": say_out_of_bounds,
    "int32-overflow": say_overflow,
    "write-write": say_write_write,
    "read-write": say_read_write,
}


class OutOfBoundsError(RuntimeError):
    """A launch reached outside its tensors; `faults` says where. Nothing was stored there."""

    def __init__(self, faults: list[Fault]):
        super().__init__(str(faults[0]))
        self.faults = faults


class Int32OverflowError(OutOfBoundsError):
    """A launch computed an offset in int32 that does not fit, and used it."""


@dataclass
class Guard:
    """Watches one launch: keeps every access inside the tensors and collects the faults."""

    kernel: str
    function: object
    grid: tuple[int, int, int]
    tensors: dict[str, TensorView]
    arguments: dict[str, object]
    constexprs: set[str]
    options: dict[str, object]
    storages: list[torch.UntypedStorage] = field(repr=False)
    faults: list[Fault] = field(default_factory=list, repr=False)

    @property
    def programs(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]

    def order(self) -> Iterable[int]:
        """Yield the linear ids of the programs to run: x + grid[0] * (y + grid[1] * z), as a GPU counts them."""
        return range(self.programs)

    def access(self, kind: str, pointers: TensorHandle, mask: np.ndarray, value: TensorHandle | None) -> np.ndarray:
        """Return which lanes may touch memory, and record a fault for the others that wish to."""
        size = numpy_dtype(pointers.get_element_ty()).itemsize
        addresses = pointers.data.view(np.int64)
        mask = mask if mask.shape == addresses.shape else np.broadcast_to(mask, addresses.shape)
        allowed = np.zeros(mask.shape, dtype=bool)
        for view, lanes, inside in self.attribute(addresses, mask, size, pointers.attr.get("argument")):
            allowed |= inside
            self.observe(kind, view, addresses, lanes, inside, size, value)
            self.find_strays(kind, view, addresses, lanes, inside, pointers.attr.get("wrapped"))
        return allowed

    def attribute(self, addresses, mask, size, argument) -> Iterator[tuple[TensorView | None, np.ndarray, np.ndarray]]:
        """Yield (view, its active lanes, those of them inside it); the view is the one the pointer was derived from.

        Where that is unknown (a pointer chosen by tl.where), a lane belongs to a view that holds it, else the nearest.
        """
        if argument is not None:
            view = self.tensors[argument]
            inside = (addresses >= view.data_ptr) & (addresses <= view.end - size)
            yield view, mask, inside & mask
            return
        left = mask
        for view in self.tensors.values():
            inside = left & (addresses >= view.data_ptr) & (addresses <= view.end - size)
            if inside.any():
                yield view, inside, inside
                left = left & ~inside
        if left.any():
            stray = addresses[left][0]
            distance = lambda view: min(abs(view.data_ptr - stray), abs(view.end - stray))  # noqa: E731
            yield min(self.tensors.values(), key=distance, default=None), left, np.zeros_like(left)

    def observe(self, kind, view, addresses, lanes, inside, size, value) -> None:
        """See one access of the running program, before it happens; for subclasses."""

    def find_strays(self, kind, view, addresses, lanes, inside, wrapped) -> None:
        """Record the active lanes that leave the view, or whose offset wrapped around in int32."""
        if wrapped is not None:
            taken = lanes & np.broadcast_to(wrapped.lanes, lanes.shape)
            if taken.any():
                stray = bool((taken & ~inside).any())
                self.record("int32-overflow", kind, view, addresses[taken], place=wrapped.place, stray=stray)
                lanes = lanes & ~taken
        outside = lanes & ~inside
        if outside.any():
            self.record("out-of-bounds", kind, view, addresses[outside], stray=True)

    def record(self, cause, kind, view, addresses, place=None, program=None, other=None, stray=False, same_value=False):
        """Add a fault of a program (the running one), or widen the one that it has already at this line."""
        file, line = place or kernel_place()
        program = running_program() if program is None else program
        elements, name = np.zeros(1, np.int64), None
        if view is not None:
            elements, name = np.unique((addresses - view.data_ptr) // view.itemsize), view.name
        key = (cause, kind, name, program, other, file, line)
        for fault in self.faults:
            if key == (fault.cause, fault.kind, fault.tensor, fault.program, fault.other, fault.file, fault.line):
                elements = np.union1d(fault.elements, elements)
                fault.count = max(fault.count, len(elements))
                fault.elements = elements[:MOST_ELEMENTS]
                fault.stray |= stray
                fault.same_value &= same_value
                return
        if sum(key[:3] == (fault.cause, fault.kind, fault.tensor) for fault in self.faults) < MOST_FAULTS:
            self.faults.append(
                Fault(cause, kind, name, program, other, elements[:MOST_ELEMENTS], len(elements), file, line,
                      view.extent if view else 0, stray, same_value)
            )  # fmt: skip

    def finish(self) -> None:
        """End the launch. Raises OutOfBoundsError when an access left its tensor."""
        overflows = [fault for fault in self.faults if fault.cause == "int32-overflow"]
        if overflows:
            raise Int32OverflowError(overflows)
        if self.faults:
            raise OutOfBoundsError(self.faults)


# What a kernel is doing right now

watching: list[Guard] = []  # the launch in progress, if any; a pre-run hook may launch within a launch
make_guard = [Guard]  # the last one is used: `lab.trace` puts its own on top


def running_program() -> int:
    """Return the linear id of the program that is running."""
    builder = upstream.interpreter_builder
    x, y, z = builder.grid_idx
    return x + builder.grid_dim[0] * (y + builder.grid_dim[1] * z)


# "<string>" is where Python keeps the constructors it writes for dataclasses, Triton's among them.
NOT_THE_KERNEL = (
    "<string>",
    *(os.path.join(os.path.dirname(file), "") for file in (triton.__file__, np.__file__, __file__)),
)


@functools.cache
def is_kernel_file(name: str) -> bool:
    return not name.startswith(NOT_THE_KERNEL)


def kernel_place() -> tuple[str, int]:
    """Return file and line of the kernel's own code that runs now: the innermost frame not in Triton, NumPy or lab."""
    frame = sys._getframe(1)
    while frame is not None and not is_kernel_file(frame.f_code.co_filename):
        frame = frame.f_back
    return (frame.f_code.co_filename, frame.f_lineno) if frame else ("", 0)


# Hooks


@dataclass(frozen=True)
class Wrapped:
    """Lanes of an int32 result that did not fit, and the file and line where it was computed."""

    lanes: np.ndarray
    place: tuple[str, int]


def inherit(result: TensorHandle, *sources: TensorHandle) -> TensorHandle:
    """Let a result remember which argument its pointer came from and which of its lanes wrapped around."""
    for source in sources:
        if "argument" in source.attr:
            result.attr["argument"] = source.attr["argument"]
    wrapped = [source.attr["wrapped"] for source in sources if "wrapped" in source.attr]
    if wrapped:
        lanes = functools.reduce(np.logical_or, (each.lanes for each in wrapped))
        result.attr["wrapped"] = Wrapped(lanes, wrapped[0].place)
    return result


def poison(dtype: np.dtype) -> object:
    """Return what a load from outside a tensor yields: NaN, or the largest integer."""
    if dtype == np.bool_:
        return True
    return np.iinfo(dtype).max if np.issubdtype(dtype, np.integer) else np.nan


class GuardedBuilder(Builder):
    """The repaired builder; every access passes the guard of its launch first."""

    def create_masked_load(self, pointers, mask, other, *args, **kwargs):
        if not watching:
            return super().create_masked_load(pointers, mask, other, *args, **kwargs)
        wanted = np.asarray(mask.data)  # descriptors pass an array, whose data is a buffer
        allowed = watching[-1].access("load", pointers, wanted, None)
        result = super().create_masked_load(pointers, TensorHandle(allowed, tl.int1), other, *args, **kwargs)
        stopped = wanted & ~allowed
        if stopped.any():
            result.data[stopped] = poison(result.data.dtype)
        return result

    def create_masked_store(self, pointers, value, mask, *args, **kwargs):
        if watching:
            mask = TensorHandle(watching[-1].access("store", pointers, np.asarray(mask.data), value), tl.int1)
        return super().create_masked_store(pointers, value, mask, *args, **kwargs)

    def create_atomic_rmw(self, operation, pointers, value, mask, *options):
        if watching:
            mask = TensorHandle(watching[-1].access("atomic", pointers, mask.data, value), tl.int1)
        return super().create_atomic_rmw(operation, pointers, value, mask, *options)

    def create_atomic_cas(self, pointers, expected, value, *options):
        """Compare and swap; where one lane strays none is carried out, as Triton's own has no mask."""
        everywhere = np.ones(pointers.data.shape, dtype=bool)
        if watching and not watching[-1].access("atomic", pointers, everywhere, value).all():
            return TensorHandle(np.full_like(expected.data, poison(expected.data.dtype)), expected.dtype.scalar)
        return super().create_atomic_cas(pointers, expected, value, *options)

    def create_addptr(self, pointer, offset):
        return inherit(super().create_addptr(pointer, offset), pointer, offset)

    def create_bitcast(self, source, target):
        return inherit(super().create_bitcast(source, target), source)

    def cast_impl(self, source, target):
        return inherit(super().cast_impl(source, target), source)

    def binary_op(self, lhs, rhs, operation):
        """Compute elementwise, and notice where an int32 sum, difference or product does not fit."""
        result = super().binary_op(lhs, rhs, operation)
        if operation in (np.add, np.subtract, np.multiply):
            if "wrapped" in lhs.attr or "wrapped" in rhs.attr:
                inherit(result, lhs, rhs)
            if result.data.dtype == np.int32:
                misfits = operation(lhs.data, rhs.data, dtype=np.int64) != result.data
                if misfits.any():
                    result.attr["wrapped"] = Wrapped(misfits, kernel_place())
        return result


def shape_operation(name: str, position: int):
    """Return a builder method that reshapes a tensor, and with it what the tensor remembers."""
    original = getattr(Builder, name)

    def reshape(self, *args):
        source, result = args[position], original(self, *args)
        if "argument" in source.attr:
            result.attr["argument"] = source.attr["argument"]
        if "wrapped" in source.attr:
            lanes = list(args)
            lanes[position] = TensorHandle(source.attr["wrapped"].lanes, tl.int1)
            result.attr["wrapped"] = Wrapped(original(self, *lanes).data, source.attr["wrapped"].place)
        return result

    return reshape


for name, position in {"expand_dims": 0, "broadcast": 0, "reshape": 0, "trans": 0, "splat": 1}.items():
    setattr(GuardedBuilder, f"create_{name}", shape_operation(f"create_{name}", position))


def keep_argument(materialize):
    """Let the pointers that a tensor descriptor or block pointer makes remember their argument."""

    @functools.wraps(materialize)
    def remembering(descriptor, *args):
        pointers, mask = materialize(descriptor, *args)
        return inherit(pointers, descriptor.base), mask

    return remembering


@functools.cache
def install() -> None:
    """Guard every launch in this process; a second call does nothing. `lab.interpreter.repair` goes first."""
    use_builder(GuardedBuilder)
    for handle in (upstream.TensorDescHandle, upstream.BlockPointerHandle):
        handle.materialize_pointers = keep_argument(handle.materialize_pointers)
    upstream.InterpretedFunction.run = launch


# Launching


def launch(kernel: upstream.InterpretedFunction, *args, grid, warmup: bool, **kwargs) -> None:
    """Run a kernel's programs one after the other under a guard.

    Raises InterpreterError for an exception of the kernel's, naming program and line, and what `Guard.finish` raises.
    """
    if warmup:
        return
    executor = upstream.GridExecutor(kernel.rewrite(), kernel.arg_names, grid)
    options = {name: value for name, value in kwargs.items() if name not in executor.arg_names}
    kwargs = {name: value for name, value in kwargs.items() if name in executor.arg_names}
    given = inspect.getcallargs(executor.fn, *args, **kwargs)
    on_host = executor._init_args_hst((), given)[1] if not_on_cpu(given) else given
    for hook in kernel.pre_run_hooks:
        hook(**on_host)
    grid = three_sizes(grid(given) if callable(grid) else grid)
    tensors = {view.name: view for name, value in on_host.items() for view in tensor_views(name, value)}
    guard = make_guard[-1](
        kernel=kernel.__name__,
        function=kernel,
        grid=grid,
        tensors=tensors,
        arguments={
            name: value for name, value in given.items() if name not in tensors or isinstance(value, TensorDescriptor)
        },
        constexprs=set(executor.constexprs),
        options=options,
        storages=list({storage.data_ptr(): storage for storage in storages_of(on_host.values())}.values()),
    )
    values = {
        name: value if name in executor.constexprs else as_argument(name, value) for name, value in on_host.items()
    }
    run_programs(executor.fn, guard, values)
    if on_host is not given:
        executor._restore_args_dev((), (), given, on_host)
    guard.finish()


def three_sizes(grid: object) -> tuple[int, int, int]:
    """Return a grid with all three of its sizes. Raises TypeError, as a GPU does, for other than whole numbers."""
    try:
        return (*map(operator.index, grid), 1, 1)[:3]
    except TypeError:
        raise TypeError(f"a grid is a tuple of one to three whole numbers, such as (4,), not {grid!r}") from None


def run_programs(function, guard: Guard, values: dict[str, object]) -> None:
    builder = upstream.interpreter_builder
    before = builder.__dict__.get("grid_dim"), builder.__dict__.get("grid_idx")
    watching.append(guard)
    try:
        with InterpretedLanguage(), np.errstate(all="ignore"):
            builder.set_grid_dim(*guard.grid)
            for program in guard.order():
                rest, x = divmod(program, guard.grid[0])
                z, y = divmod(rest, guard.grid[1])
                builder.set_grid_idx(x, y, z)
                try:
                    function(**values)
                except Exception as error:
                    raise InterpreterError(f"program {program}{where_raised(error)}: {name_error(error)}") from error
    finally:
        watching.pop()
        builder.grid_dim, builder.grid_idx = before


def where_raised(error: Exception) -> str:
    """Return ", line 12" for the innermost line of a kernel that the error passed."""
    lines, traceback = [], error.__traceback__
    while traceback is not None:
        if is_kernel_file(traceback.tb_frame.f_code.co_filename):
            lines.append(traceback.tb_lineno)
        traceback = traceback.tb_next
    return f", line {lines[-1]}" if lines else ""


def name_error(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def not_on_cpu(arguments: dict[str, object]) -> bool:
    return any(getattr(value, "is_cuda", False) for value in arguments.values())


def tensor_views(name: str, value: object) -> Iterator[TensorView]:
    """Yield the tensors within one argument: itself, a descriptor's base, or the members of a tuple as `name[0]`."""
    if isinstance(value, tuple):
        for position, member in enumerate(value):
            yield from tensor_views(f"{name}[{position}]", member)
    elif isinstance(value, TensorDescriptor):
        yield TensorView(name, tuple(value.shape), tuple(value.strides), value.base.dtype, value.base.element_size(),
                         value.base.data_ptr())  # fmt: skip
    elif hasattr(value, "data_ptr"):
        tensor = getattr(value, "base", value)  # of Triton's TensorWrapper
        yield TensorView(name, tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype, tensor.element_size(),
                         tensor.data_ptr())  # fmt: skip


def storages_of(values: Iterable[object]) -> Iterator[torch.UntypedStorage]:
    for value in values:
        if isinstance(value, tuple):
            yield from storages_of(value)
        elif hasattr(value, "data_ptr") or isinstance(value, TensorDescriptor):
            yield getattr(value, "base", value).untyped_storage()


def as_argument(name: str, value: object) -> object:
    """Return a run-time argument as the kernel sees it: a Python float is fp32, an int is i32, or i64 if it must be.

    Triton's own conversion leaves floats alone, so that bf16 * alpha would stay bf16, and holds 2**31 in an uint32.
    """
    if isinstance(value, tuple):
        return upstream._tuple_create(value, [as_argument(f"{name}[{i}]", member) for i, member in enumerate(value)])
    if isinstance(value, (bool, int, float)):
        dtype = tl.str_to_ty(mangle_type(value), None)
        return tl.tensor(TensorHandle(np.array([value], dtype=numpy_dtype(dtype)), dtype), dtype)
    converted = upstream._implicit_cvt(value)
    if isinstance(value, TensorDescriptor):
        converted.handle.base.attr["argument"] = name
    elif hasattr(value, "data_ptr"):
        converted.handle.attr["argument"] = name
    return converted
