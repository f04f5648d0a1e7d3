"""Run an answer on inputs and bring back plain evidence. Nothing here knows what is right: `examine` does."""

import base64
import json
import math
import os
import sys
import traceback
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from lab.check.counts import Visits, count_loads, count_memory, widest_accesses
from lab.check.elements import Elements, element_addresses
from lab.check.inputs import (
    GUARD,
    SPARSE,
    Frozen,
    LiveInputs,
    from_bytes,
    guarded_buffer,
    guards_broken,
    to_bytes,
    view_of,
)
from lab.compiler import pack_launch
from lab.device import ON_CPU

if TYPE_CHECKING:
    from lab.trace import Trace

POISONED = {"empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided"}
COPIED = {"zeros", "zeros_like", "new_zeros", "ones", "ones_like", "full", "full_like", "new_full", "clone", "_to_copy"}
FREE = (
    POISONED
    | COPIED
    | {"new_ones", "copy_", "fill_", "zero_", "_unsafe_view", "set_", "resize_", "lift_fresh", "_local_scalar_dense"}
)
UNREAD = POISONED | {f"{kind}{name}" for name in ("zeros", "ones", "full") for kind in ("", "new_")}
UNREAD |= {"zeros_like", "ones_like", "full_like"}  # they ask a tensor for its shape and dtype, not for its elements
MOST_STUDIED = 1 << 22  # elements of an input of which it is told whether they were read
LAYING_OUT = {"clone", "copy_", "_to_copy"}  # of a strided tensor: a kernel that takes any strides has that to do
NEGATING = {"_conj", "_neg_view"}  # views that change the sign of what is read through them
WRITTEN = {"_to_copy": "to"}  # what a learner writes for an operation


# The host function's own doings


def poison(dtype: torch.dtype) -> int:
    """Return the byte that fills new memory: NaN in every floating format, an unlikely number in integers."""
    if dtype.is_floating_point or dtype.is_complex:
        return 0xFF
    return 1 if dtype == torch.bool else 0xA5


def converts(tensor: torch.Tensor, dtype: torch.dtype | None) -> bool:
    """Return whether a copy in a dtype works out other elements: one number is only an argument for a kernel."""
    return dtype not in (None, tensor.dtype) and tensor.numel() > 1


class HostWatch(TorchDispatchMode):
    """Watches a host function: notes its torch operations, and puts what they allocate between guard bands.

    `operations`: what computed or wrote: name, file, line, `computes` (more than moving data or making it), the
    storages it wrote, and how many launches came before it. `poisoned`, `read`, `permitted`: addresses of the storages
    that new memory has, of those that some operation read, and of those that an operation wrote which the task allows.
    """

    def __init__(self, allows: Iterable[str] = ()):
        super().__init__()
        self.allows = {name.removeprefix("torch.") for name in allows}
        self.buffers: list[torch.Tensor] = []
        self.operations: list[dict] = []
        self.poisoned: set[int] = set()
        self.read: set[int] = set()
        self.permitted: set[int] = set()
        self.launches = 0
        self.launching = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Keep torch from importing its compiler, which takes a second, to shield this class from it."""
        return False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if self.launching:
            return result
        name = func._schema.name.removeprefix("aten::")
        self.note(name, func._schema, args, kwargs or {})
        if (name in POISONED or name in COPIED) and type(result) is torch.Tensor and result.layout == torch.strided:
            result = self.guard(result, name in POISONED)
        if self.allowed(name):
            self.permitted |= {t.untyped_storage().data_ptr() for t in (result,) if isinstance(t, torch.Tensor)}
        return result

    def allowed(self, name: str) -> bool:
        """Return whether the task allows an operation."""
        return name in self.allows or name.strip("_") in self.allows or WRITTEN.get(name) in self.allows

    def note(self, name: str, schema, args: tuple, kwargs: dict) -> None:
        """Keep the operation if it computes from tensors or writes into one."""
        values = [*args, *kwargs.values()]
        tensors = [v for v in values if isinstance(v, torch.Tensor)]
        tensors += [t for v in values if isinstance(v, (list, tuple)) for t in v if isinstance(t, torch.Tensor)]
        is_view = any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns)
        if not is_view and name not in UNREAD:
            self.read |= {t.untyped_storage().data_ptr() for t in tensors}
        free = name in FREE and not (name in LAYING_OUT and not all(t.is_contiguous() for t in tensors))
        free = free and not (name == "_to_copy" and any(converts(t, kwargs.get("dtype")) for t in tensors))
        moves = is_view and name not in NEGATING
        computes = bool(tensors) and not moves and not free and not self.allowed(name)
        targets = [
            a
            for a, formal in zip(args, schema.arguments, strict=False)
            if formal.alias_info and formal.alias_info.is_write
        ]
        writes = [t.untyped_storage().data_ptr() for t in targets if isinstance(t, torch.Tensor)]
        if computes or writes:
            file, line = line_of_learner(sys._getframe(2))
            known = {"name": WRITTEN.get(name, name.strip("_")), "computes": computes, "writes": writes}
            self.operations.append(known | {"launches": self.launches, "file": file, "line": line})

    def guard(self, result: torch.Tensor, poisoned: bool) -> torch.Tensor:
        """Return a tensor like `result` between guard bands, poisoned or with the same contents."""
        nbytes = result.untyped_storage().nbytes()
        if result.device.type not in ("cpu", "cuda"):
            return result
        buffer = guarded_buffer(nbytes, result.device)
        self.buffers.append(buffer)
        if poisoned and nbytes <= SPARSE:
            buffer[GUARD : GUARD + nbytes].fill_(poison(result.dtype))
            self.poisoned.add(buffer.data_ptr())
        placed = view_of(buffer, result.dtype, int(result.storage_offset()), result.shape, result.stride())
        return placed if poisoned else placed.copy_(result)

    @contextmanager
    def watching_launches(self):
        """Count launches, and look away while one runs: what Triton does with torch is not the host's doing."""
        from triton.runtime import driver
        from triton.runtime.jit import JITFunction

        run, stream_of = JITFunction.run, driver.active.get_current_stream

        def watched_run(kernel, *args, **kwargs):
            outer, self.launching = self.launching, True
            try:
                return run(kernel, *args, **kwargs)
            finally:
                self.launching = outer
                self.launches += not outer and not kwargs.get("warmup", False)

        def watched_stream(device):
            # A kernel that was compiled before may be launched without its JITFunction, not without a stream.
            self.launches += not self.launching
            return stream_of(device)

        with (
            patch.object(JITFunction, "run", watched_run),
            patch.object(driver.active, "get_current_stream", watched_stream),
        ):
            yield


LIBRARIES = tuple(
    str(Path(module.__file__).parent) + os.sep for module in (torch, np, sys.modules["lab"], os) if module.__file__
)


def is_learners(file: str) -> bool:
    """Return whether code of this file is the learner's and not a library's."""
    return not file.startswith(LIBRARIES) and "site-packages" not in file and not file.startswith("<frozen")


def line_of_learner(frame) -> tuple[str, int]:
    """Return file and line of the innermost frame that is no library's, ("", 0) if there is none."""
    while frame is not None:
        if is_learners(frame.f_code.co_filename):
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return "", 0


# Evidence


@dataclass
class Result:
    """One value the answer returned. `contents` and what follows only where it is a plain dense tensor."""

    kind: str  # "tensor", or the name of the type
    shape: tuple[int, ...] = ()
    dtype: str = ""
    device: str = ""
    contents: np.ndarray | None = None  # bytes, in order
    aliases: list[int] = field(default_factory=list)  # positions of the inputs whose memory it shares
    owner: np.ndarray | None = None  # program that stored each element last, -1 where none did; None when not traced
    store_lines: list = field(default_factory=list)  # [file, line] of the stores that wrote it
    programs: int = 0  # programs of one launch that stored into it
    reached: np.ndarray | None = None  # bool: elements that a lane of a store points to, masked off or not
    lanes: int = 0  # of all stores into it, of the program that has most
    share: list = field(default_factory=list)  # shape of the block that a store writes
    read_early: list = field(default_factory=list)  # [file, line] of the loads from it before anything was in it
    times: np.ndarray | None = None  # stores of each element, atomics left out; None where none had more than one
    storers: list[int] = field(default_factory=list)  # programs that stored the element with the most stores
    overwritten: np.ndarray | None = None  # bool: elements that changed after the last launch
    overwrites: list = field(default_factory=list)  # [name, file, line] of torch operations on it after the last launch

    @property
    def tensor(self) -> torch.Tensor:
        """The value itself. Raises ValueError for one that is no plain dense tensor."""
        if self.contents is None:
            raise ValueError(f"{self.kind} is no plain tensor")
        return from_bytes(self.contents, getattr(torch, self.dtype), self.shape)


@dataclass
class Evidence:
    """What one run of an answer left behind, as plain data."""

    error: dict | None = None  # type, message, refused (by the compiler), file, line
    returned: str = ""  # type of the returned object
    results: list[Result] = field(default_factory=list)
    operations: list[dict] = field(default_factory=list)
    launches: list[dict] = field(default_factory=list)  # kernel, grid, programs, busy: those that touched memory
    launch_count: int = 0
    out_of_bounds: list[dict] = field(default_factory=list)
    conflicts: list[dict] = field(default_factory=list)
    changed: list[int] = field(default_factory=list)  # positions of inputs
    guards_broken: int = 0  # tensors beside which something was written
    loads: list[dict] = field(default_factory=list)  # of inputs, see `count_loads`
    memory: list[dict] = field(default_factory=list)  # beside the inputs, see `count_memory`
    widest: list[dict] = field(default_factory=list)  # see `widest_accesses`
    reused: bool = False  # the result of the run before changed during this one
    kernels: list[dict] = field(default_factory=list)  # launched for the first time, packed for the compiler
    # Of a study: position of an input, and which of its elements were not read; name, value and program of variables
    # that became NaN or inf.
    unread: list[dict] = field(default_factory=list)
    strange: list[dict] = field(default_factory=list)

    def encode(self) -> bytes:
        """Return the evidence as JSON, so that reading it runs no code of whoever wrote it."""
        return json.dumps(asdict(self), default=encode_array).encode()

    @classmethod
    def decode(cls, text: bytes) -> "Evidence":
        """Return the evidence that `encode` wrote."""
        fields = json.loads(text, object_hook=decode_array)
        fields["results"] = [Result(**result) for result in fields["results"]]
        return cls(**fields)


def encode_array(value):
    if isinstance(value, np.generic):
        return value.item()
    array = np.ascontiguousarray(value)
    return {"array": base64.b64encode(array).decode(), "dtype": str(array.dtype), "shape": list(np.shape(value))}


def decode_array(fields: dict):
    if fields.keys() != {"array", "dtype", "shape"}:
        return fields
    return np.frombuffer(base64.b64decode(fields["array"]), fields["dtype"]).reshape(fields["shape"])


def describe_error(error: BaseException) -> dict:
    """Return type, message and the learner's line of an exception: for what the compiler refuses, a kernel's line."""
    refusal = getattr(error, "refusal", None)
    if refusal is not None and refusal.line:
        file, line = refusal.file, refusal.line
    else:
        own = [frame for frame in traceback.extract_tb(error.__traceback__) if is_learners(frame.filename)]
        file, line = (own[-1].filename, own[-1].lineno) if own else ("", 0)
    message = str(error) if refusal is None else refusal.words
    return {
        "type": type(error).__name__,
        "message": message[:500],
        "refused": refusal is not None,
        "file": file,
        "line": line,
    }


def describe_fault(fault) -> dict:
    """Return a fault of `lab.trace` as plain data: its sentence, and the first and last of its elements."""
    names = ("cause", "kind", "tensor", "program", "other", "count", "file", "line")
    facts = {name: getattr(fault, name) for name in names}
    elements = np.asarray(fault.elements).reshape(-1)
    extremes = [int(elements.min()), int(elements.max())] if elements.size else []
    return facts | {
        "same_value": bool(fault.same_value),
        "extremes": extremes,
        "text": str(fault),
    }


def describe_access(fault, batches: list) -> dict:
    """Return of a load or store that left its tensor whether it has a mask, and the first element that it reached."""
    place = fault.file, fault.line, fault.kind
    own = [batch for batch in batches if (batch.step.file, batch.step.line, batch.step.kind) == place]
    reached = [batch.offsets[batch.active] for batch in own]
    first = min((int(offsets.min()) for offsets in reached if offsets.size), default=0)
    return {"masked": any(batch.mask is not None for batch in own), "first": first}


def traced(order: str | int | None, studies: bool) -> "AbstractContextManager[Trace | None]":
    """Return the trace of the launches to come; where a GPU runs them there is none."""
    if not ON_CPU:
        return nullcontext()
    from lab.trace import trace

    return trace(order=order, values=studies, ones=studies)


class Runner:
    """Runs one answer again and again, behind the same pointers where the layout of the inputs allows it."""

    def __init__(self, function: Callable, allows: Iterable[str] = ()):
        self.function = function
        self.allows = tuple(allows)
        self.inputs: LiveInputs | None = None
        self.last: list[tuple[torch.Tensor, np.ndarray]] = []  # results of the run before, with their bytes then
        self.studies = False
        self.packed: set[tuple] = set()  # kernel, signature and constants of what went to the compiler

    def run(self, frozen: Frozen, order: str | int | None = None) -> Evidence:
        """Call the answer once, its programs in the given order (see `lab.trace`), and return what happened."""
        inputs = self.inputs = self.place(frozen)
        evidence = Evidence()
        watch = self.watch()
        returned: Any = None
        with traced(order, self.studies) as log, watch.watching_launches():
            try:
                with watch:
                    returned = self.function(*inputs.arguments)
                if not ON_CPU:
                    torch.cuda.synchronize()
            except BaseException as error:  # a learner's sys.exit() or Ctrl-C is a result too
                evidence.error = describe_error(error)
        evidence.operations, evidence.launch_count = watch.operations, watch.launches
        if log is not None:
            self.read_trace(evidence, log)
        evidence.changed = inputs.changed()
        evidence.guards_broken = sum(map(guards_broken, [*inputs.buffers, *watch.buffers]))
        evidence.returned = type(returned).__name__
        values = list(returned) if type(returned) in (tuple, list) else [returned]
        evidence.results = [self.describe(value, inputs, watch, log) for value in values]
        evidence.reused = any(not np.array_equal(to_bytes(tensor), before) for tensor, before in self.last)
        outputs = [v for v, r in zip(values, evidence.results, strict=True) if r.contents is not None and not r.aliases]
        self.last = [(v, to_bytes(v)) for v in outputs]
        if log is not None:
            count_work(evidence, values, inputs, watch, log)
        if self.studies and log is not None:
            evidence.unread = unread_elements(inputs, watch, log)
            evidence.strange = strange_numbers(log)
        return evidence

    def study(self, frozen: Frozen, order: str | int | None = None) -> Evidence:
        """Call the answer once more, to learn why it is wrong: with 1 in the lanes that no load gave a value.

        What a GPU leaves there is undefined, and a run has NaN. The evidence also tells which inputs were not read.
        """
        self.studies = True
        try:
            return self.run(frozen, order)
        finally:
            self.studies = False

    def place(self, frozen: Frozen) -> LiveInputs:
        """Return tensors that hold the inputs: those of the run before, where they are laid out alike."""
        if self.inputs is None or self.inputs.frozen.layout != frozen.layout:
            return LiveInputs(frozen)
        self.inputs.refill(frozen)
        return self.inputs

    def watch(self) -> HostWatch:
        """Return who watches the host function during one run."""
        return HostWatch(self.allows)

    def read_trace(self, evidence: Evidence, log: "Trace") -> None:
        """Take launches and faults out of the trace, and pack each new kernel and signature for the compiler."""
        for launch in log.launches:
            grid = [int(n) for n in launch.grid]
            facts = {"kernel": launch.kernel, "grid": grid, "programs": int(launch.programs), "busy": launch.busy}
            evidence.launches.append(facts)
            signature = tuple((name, str(view.dtype)) for name, view in launch.tensors.items())
            constants = tuple(sorted((name, repr(launch.arguments[name])) for name in launch.constexprs))
            known = launch.kernel, signature, constants
            if known not in self.packed:
                self.packed.add(known)
                with suppress(ValueError):  # made by exec: without its source there is nothing to compile
                    evidence.kernels.append(pack_launch(launch))
        batches = [batch for launch in log.launches for batch in launch.batches]
        evidence.out_of_bounds = [
            describe_fault(fault) | describe_access(fault, batches) for fault in log.out_of_bounds
        ]
        evidence.conflicts = [describe_fault(fault) for fault in log.conflicts]

    def describe(self, value, inputs: LiveInputs, watch: HostWatch, log: "Trace | None") -> Result:
        """Return what there is to know about one returned value."""
        if type(value) is not torch.Tensor:
            return Result(kind=type(value).__name__)
        if value.layout != torch.strided:
            return Result(kind=f"tensor ({value.layout})")
        storage = value.untyped_storage().data_ptr()
        result = Result(
            kind="tensor",
            shape=tuple(value.shape),
            dtype=str(value.dtype).removeprefix("torch."),
            device=str(value.device),
            contents=to_bytes(value),
            aliases=[
                position
                for position, argument in enumerate(inputs.arguments)
                if isinstance(argument, torch.Tensor)
                and value.numel() > 0
                and argument.untyped_storage().data_ptr() == storage
            ],
            overwrites=[
                [op["name"], op["file"], op["line"]]
                for op in watch.operations
                if storage in op["writes"] and op["launches"] == watch.launches > 0
            ],
        )
        if log is not None:
            describe_stores(result, value, log, storage in watch.poisoned)
        return result


def count_work(evidence: Evidence, values: list, inputs: LiveInputs, watch: HostWatch, log: "Trace") -> None:
    """Count what was loaded and stored, and how often. values: what the answer returned."""
    evidence.loads = count_loads(inputs, log)
    for loads in evidence.loads:
        loads["by_torch"] = inputs.arguments[loads["position"]].untyped_storage().data_ptr() in watch.read
    results = zip(values, evidence.results, strict=True)
    storages = {value.untyped_storage().data_ptr() for value, result in results if result.contents is not None}
    evidence.memory = count_memory(inputs, storages, watch.permitted, log)
    evidence.widest = widest_accesses(log)


def unread_elements(inputs: LiveInputs, watch: HostWatch, log: "Trace") -> list[dict]:
    """Return of which inputs some elements were read by no program, and which; not those that torch has read."""
    found = []
    for position, argument in enumerate(inputs.arguments):
        if not isinstance(argument, torch.Tensor) or not 0 < argument.numel() <= MOST_STUDIED:
            continue
        if argument.untyped_storage().data_ptr() in watch.read:
            continue
        addresses, place = np.unique(element_addresses(argument), return_inverse=True)
        unread, elements = np.ones(addresses.size, dtype=bool), Elements(addresses, argument.element_size())
        for batch in (batch for launch in log.launches for batch in launch.batches):
            if batch.step.kind != "store" and batch.view is not None:
                unread[elements.reached_by(batch)[0]] = False
        if unread.any():
            found.append({"position": position, "elements": unread[place].reshape(tuple(argument.shape))})
    return found


def strange_numbers(log: "Trace") -> list[dict]:
    """Return the first variable of each launch, of those that are one number a program, that became NaN or inf."""
    found = []
    for launch in log.launches:
        for each in launch.variables:
            if each.shape or each.array.dtype.kind != "f" or len(each.array) < 2:
                continue
            strange = np.isnan(each.array) | (each.array == np.inf)
            if strange.any():
                place = int(strange.argmax())
                value, program = float(each.array[place]), int(each.programs[place])
                found.append({"name": each.name, "value": str(value), "program": program})
                break
    return found


def describe_stores(result: Result, value: torch.Tensor, log: "Trace", poisoned: bool) -> None:
    """Fill in which program stored each element, from which line, and what changed since the last launch.

    poisoned: whether nothing was in it at first, so that a program which reads it before it is stored is wrong.
    """
    addresses = element_addresses(value)
    owner = np.full(addresses.shape, -1, dtype=np.int64)
    elements = Elements(addresses, value.element_size())
    reached = np.zeros(addresses.shape, dtype=bool)
    share: tuple[int, ...] = ()
    lines: dict[tuple[str, int], None] = {}
    early: dict[tuple[str, int], None] = {}
    visits = Visits(owner.size)
    for launch in log.launches:
        took_part = np.zeros(launch.programs, dtype=bool)
        lanes = np.zeros(launch.programs, dtype=np.int64)
        for batch in launch.batches:
            if batch.view is None:
                continue
            stored, programs = elements.reached_by(batch)
            if batch.step.kind == "load":
                if poisoned and (owner.reshape(-1)[stored] < 0).any():
                    early[batch.step.file, batch.step.line] = None
                continue
            pointed = elements.pointed_to(batch, addresses.shape)
            if pointed.size:
                reached.reshape(-1)[pointed] = True
                lanes[batch.programs] += math.prod(batch.step.shape)
                share = batch.step.shape
            if stored.size:
                owner.reshape(-1)[stored] = programs
                took_part[programs] = True
                lines[batch.step.file, batch.step.line] = None
                if batch.step.kind == "store":
                    visits.add(stored, programs)
        result.programs = max(result.programs, int(np.count_nonzero(took_part)))
        result.lanes = max(result.lanes, int(lanes.max(initial=0)))
    result.reached, result.share = reached, list(share)
    result.owner, result.store_lines = owner, [list(place) for place in lines]
    result.read_early = [list(place) for place in early]
    times = visits.times() if owner.size else owner
    if times.max(initial=0) > 1:
        result.times, result.storers = times.reshape(owner.shape), visits.visitors(int(times.argmax()))
    snapshot = None
    with suppress(ValueError):  # none is kept of very large storages
        snapshot = log.snapshot(value)
    if snapshot is not None and result.contents is not None:
        size = value.element_size()
        changed = to_bytes(snapshot).reshape(-1, size) != result.contents.reshape(-1, size)
        result.overwritten = changed.any(axis=1).reshape(addresses.shape)
