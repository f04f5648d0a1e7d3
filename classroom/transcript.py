"""Write down what an answer did on its tensors, so that another process can repeat it on other numbers.

A transcript is JSON. Its events are launches, torch operations that the task permits, and literal contents of memory;
tensors are places in numbered storages, the first of which are the inputs'. Kernels travel as source.
"""

import base64
import operator
import zlib
from contextlib import contextmanager

import numpy as np
import torch
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from lab.check.inputs import GUARD, SPARSE, LiveInputs, to_bytes
from lab.check.runner import HostWatch, Runner
from lab.compiler.link import Parcel

MOVES = frozenset({"clone", "_to_copy", "copy_"})  # torch operations of a host function that only move data
MOST_EVENTS = 1000


class Storages:
    """The memory that an answer has used, by number. What only the host wrote is compared with what was there."""

    def __init__(self, inputs: LiveInputs):
        self.kept: list[torch.Tensor] = []  # bytes; each keeps its memory from being used for another
        self.starts: dict[int, int] = {}  # address of a storage → its number
        self.contents: list[np.ndarray | None] = []
        self.inputs = len(inputs.buffers)
        for buffer in inputs.buffers:
            self.add(buffer)

    def add(self, buffer: torch.Tensor, guarded: bool = True) -> int:
        """Take a storage on, given whole and as bytes; without its guard bands where it has them."""
        number = len(self.kept)
        self.starts[buffer.untyped_storage().data_ptr()] = number
        self.kept.append(buffer[GUARD:-GUARD] if guarded else buffer)
        self.contents.append(None)
        return number

    def place(self, tensor: torch.Tensor) -> dict:
        """Return where a tensor lies; `offset` counts bytes."""
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self.starts:
            whole = torch.empty(0, dtype=torch.uint8).set_(storage, 0, (storage.nbytes(),), (1,))
            self.add(whole, guarded=False)
        number = self.starts[storage.data_ptr()]
        return {
            "storage": number,
            "offset": tensor.data_ptr() - self.kept[number].data_ptr() if tensor.numel() else 0,
            "dtype": str(tensor.dtype).removeprefix("torch."),
            "shape": list(tensor.shape),
            "strides": list(tensor.stride()),
        }

    def written(self) -> list[dict]:
        """Return an event for each storage that holds something else than after the last `look`."""
        events = []
        for number in range(self.inputs, len(self.kept)):
            if self.kept[number].numel() > SPARSE:
                continue
            now, before = to_bytes(self.kept[number]), self.contents[number]
            if before is None or not np.array_equal(now, before):
                data = base64.b64encode(zlib.compress(now, 1)).decode()
                events.append({"kind": "write", "storage": number, "data": data})
                self.contents[number] = now
        return events

    def look(self) -> None:
        """Remember what every storage holds."""
        for number in range(self.inputs, len(self.kept)):
            if self.kept[number].numel() <= SPARSE:
                self.contents[number] = to_bytes(self.kept[number])


class PlacingParcel(Parcel):
    """Packs kernels and the arguments of their launches; tensors as their places."""

    def __init__(self, storages: Storages):
        super().__init__()
        self.storages = storages

    def encode(self, value, attributes: frozenset[str] = frozenset()):
        if type(value) is torch.Tensor:
            return {"place": self.storages.place(value)}
        if type(value) in (torch.dtype, torch.memory_format, torch.layout):
            return {"torch": str(value).removeprefix("torch.")}
        if type(value) is torch.device:
            return {"device": value.type}
        return super().encode(value, attributes)


class RecordingWatch(HostWatch):
    """Sees what the host function does, and writes it down as events."""

    def __init__(self, allows: tuple[str, ...], inputs: LiveInputs):
        super().__init__(allows)
        self.repeatable = MOVES | {name.removeprefix("torch.") for name in allows}
        self.storages = Storages(inputs)
        self.parcel = PlacingParcel(self.storages)
        self.events: list[dict] = []
        self.problem = ""
        self.results: list[dict | None] = []

    def add(self, event: dict) -> None:
        """Note an event, and before it what the host has written meanwhile."""
        self.events += [*self.storages.written(), event]
        if len(self.events) > MOST_EVENTS:
            raise ValueError(f"there are more than {MOST_EVENTS} launches and operations in one call")

    def guard(self, result: torch.Tensor, poisoned: bool) -> torch.Tensor:
        count = len(self.buffers)
        placed = super().guard(result, poisoned)
        for buffer in self.buffers[count:]:
            self.storages.add(buffer)
        return placed

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func._schema.name.removeprefix("aten::")
        if self.launching or name.strip("_") not in {name.strip("_") for name in self.repeatable}:
            return super().__torch_dispatch__(func, types, args, kwargs)
        event = {"kind": "torch", "name": name, "overload": func._overloadname}
        event["arguments"] = [self.parcel.encode(value) for value in args]
        event["named"] = {name: self.parcel.encode(value) for name, value in (kwargs or {}).items()}
        written = self.storages.written()
        result = super().__torch_dispatch__(func, types, args, kwargs)
        several = isinstance(result, (tuple, list))
        event["results"] = [self.storages.place(tensor) for tensor in (result if several else [result])]
        self.events += [*written, event]
        self.storages.look()
        return result

    @contextmanager
    def looking_away(self):
        """Take the torch operations of this block for nobody's."""
        outer, self.launching = self.launching, True
        try:
            yield
        finally:
            self.launching = outer

    @contextmanager
    def watching_launches(self):
        """Write launches down, all that autotuning tries among them: each leaves something in memory."""
        with super().watching_launches():
            launchers = driver.active.launcher_cls
            original_run, original_launch = JITFunction.run, launchers.__call__

            def run(kernel, *args, **kwargs):
                if self.launching or kwargs.get("warmup"):
                    return original_run(kernel, *args, **kwargs)
                grid = kwargs["grid"]

                def noted(arguments):
                    event["grid"] = grid(arguments) if callable(grid) else grid
                    return event["grid"]

                named = {name: value for name, value in kwargs.items() if name not in ("grid", "warmup")}
                with self.writing_down(kernel, args, named) as event:
                    return original_run(kernel, *args, **kwargs | {"grid": noted})

            def launch(launcher, *values):
                if self.launching:
                    return original_launch(launcher, *values)
                grid, arguments = values[:3], values[9:]  # between them: stream, code and hooks
                with self.writing_down(launcher.source.fn, arguments, launcher.options) as event:
                    event["grid"] = grid
                    return original_launch(launcher, *values)

            JITFunction.run, launchers.__call__ = run, launch
            try:
                yield
            finally:
                JITFunction.run, launchers.__call__ = original_run, original_launch

    @contextmanager
    def writing_down(self, kernel: JITFunction, args: tuple, named: dict):
        """Yield the event of the launch in this block, which gives it its grid. One that is refused leaves no event."""
        with self.looking_away():
            event = self.describe_launch(kernel, args, named)
        try:
            yield event
        except BaseException:
            self.events = [earlier for earlier in self.events if earlier is not event]
            raise
        event["grid"] = [operator.index(size) for size in event["grid"]]
        with self.looking_away():
            self.storages.look()

    def describe_launch(self, kernel: JITFunction, args: tuple, named: dict) -> dict:
        """Return the event of a launch that begins; its grid comes later. What cannot be told is kept as a problem."""
        event = {"kind": "launch", "grid": []}
        try:
            event["kernel"] = self.parcel.add(kernel)
            event["arguments"] = [self.parcel.encode(value) for value in args]
            event["named"] = {name: self.parcel.encode(value) for name, value in named.items()}
            self.add(event)
        except Exception as error:
            self.problem = self.problem or str(error)
        return event


class RecordingRunner(Runner):
    """Runs an answer, and can tell afterwards what the last run did."""

    def watch(self) -> RecordingWatch:
        self.recording = RecordingWatch(self.allows, self.inputs)
        return self.recording

    def describe(self, value, inputs: LiveInputs, watch: RecordingWatch, log):
        watch.results.append(watch.storages.place(value) if type(value) is torch.Tensor else None)
        return super().describe(value, inputs, watch, log)

    def run(self, frozen, order=None):
        evidence = super().run(frozen, order)
        self.returned = evidence.returned
        return evidence

    def transcript(self) -> dict:
        """Return the last run as JSON."""
        watch = self.recording
        watch.events += watch.storages.written()
        return {
            "storages": [kept.numel() for kept in watch.storages.kept],
            "events": watch.events,
            "functions": watch.parcel.functions,
            "results": watch.results,
            "returned": self.returned,
            "problem": watch.problem,
        }
