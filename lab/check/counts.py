"""Count the work that one run of an answer did, from its trace. Nothing here knows how much is allowed: `work` does."""

from typing import TYPE_CHECKING

import numpy as np
import torch

from lab.check.elements import Elements, element_addresses
from lab.check.inputs import LiveInputs

if TYPE_CHECKING:
    from lab.machine.memory import TensorView
    from lab.machine.record import Launch
    from lab.trace import Trace

MOST_COUNTED = 1 << 22  # elements of an input of which it is told how often they were loaded


class Visits:
    """Which program reached which elements of one tensor, access by access. Lanes of one access count once."""

    def __init__(self, size: int):
        self.size = size
        self.codes = [np.zeros(0, dtype=np.int64)]  # program * size + element, for each access

    def add(self, elements: np.ndarray, programs: np.ndarray) -> None:
        """Take an access of several programs: the elements it reached, one for each lane, and the programs of these."""
        self.codes.append(np.unique(programs * self.size + elements))

    def times(self) -> np.ndarray:
        """Return how often each element was reached."""
        return np.bincount(np.concatenate(self.codes) % self.size, minlength=self.size)

    def visitors(self, element: int) -> list[int]:
        """Return the programs that reached an element."""
        programs, elements = np.divmod(np.concatenate(self.codes), self.size)
        return np.unique(programs[elements == element]).tolist()

    def busiest(self, blocks: np.ndarray) -> dict:
        """Return the program that reached one element most often for each block that it stored, {} where none did.

        blocks: how many blocks each program stored.
        """
        codes, times = np.unique(np.concatenate(self.codes), return_counts=True)
        if not codes.size:
            return {}
        programs, elements = np.divmod(codes, self.size)
        worst = int((times / blocks[programs]).argmax())
        program = int(programs[worst])
        facts = {"times": int(times[worst]), "blocks": int(blocks[program]), "program": program}
        return facts | {"element": int(elements[worst])}


def blocks_stored(launch: "Launch") -> np.ndarray:
    """Return how many blocks each program stored: into the tensor that it stored into most often, and 1 at least."""
    blocks = {0: np.ones(launch.programs, dtype=np.int64)}
    for batch in launch.batches:
        if batch.step.kind != "load" and batch.view is not None:
            counts = blocks.setdefault(batch.view.data_ptr, np.zeros(launch.programs, dtype=np.int64))
            counts[batch.busy] += 1
    return np.maximum.reduce(list(blocks.values()))


def count_loads(inputs: LiveInputs, log: "Trace") -> list[dict]:
    """Return for each input by its position how often its elements were loaded.

    loaded: whether any was. times: of each element, by all programs together, None where none was more than once;
    loaders: the programs that loaded the one with the most. beyond: the program that loaded an element most often for
    each block that it stored, {} where none did more than once for each. places: the lines.
    """
    blocks = [blocks_stored(launch) for launch in log.launches]
    tensors = {p: a for p, a in enumerate(inputs.arguments) if isinstance(a, torch.Tensor)}
    storages = [tensor.untyped_storage().data_ptr() for tensor in tensors.values()]
    return [
        {"position": position} | loads_of(tensor, log, blocks)
        for position, tensor in tensors.items()
        if 0 < tensor.numel() <= MOST_COUNTED and storages.count(tensor.untyped_storage().data_ptr()) == 1
    ]


def loads_of(tensor: torch.Tensor, log: "Trace", blocks: list[np.ndarray]) -> dict:
    """Return how often the elements of one input were loaded, as `count_loads` has it."""
    addresses, place, copies = np.unique(element_addresses(tensor), return_inverse=True, return_counts=True)
    elements, visits = Elements(addresses, tensor.element_size()), Visits(addresses.size)
    shared = int(copies.max())  # of an expanded tensor, elements that have one address
    beyond: list[dict] = []
    places: dict[tuple[str, int], None] = {}
    for launch, stored in zip(log.launches, blocks, strict=True):
        own = Visits(addresses.size)
        for batch in launch.batches:
            reached, programs = elements.reached_by(batch) if batch.step.kind == "load" else (addresses[:0],) * 2
            if reached.size:
                own.add(reached, programs)
                places[batch.step.file, batch.step.line] = None
        visits.codes += own.codes
        most = own.busiest(stored)
        beyond += [most] * (most != {} and most["times"] > most["blocks"] * shared)
    place, times = place.reshape(tuple(tensor.shape)), -(-visits.times() // copies)
    found: dict = {
        "loaded": bool(places),
        "times": None,
        "loaders": [],
        "beyond": {},
        "places": [list(p) for p in places],
    }
    if times.max() > 1:
        found |= {"times": times[place], "loaders": visits.visitors(int(times.argmax()))}
    if beyond:
        index = np.argwhere(place == beyond[0]["element"])[0].tolist()
        found["beyond"] = beyond[0] | {"times": -(-beyond[0]["times"] // shared), "element": index}
    return found


def count_memory(inputs: LiveInputs, results: set[int], permitted: set[int], log: "Trace") -> list[dict]:
    """Return what kernels did with memory that is no input's: its use, how many elements, and the first line.

    "made": loaded before any kernel stored into it, so that the host function must have filled it. "reread": loaded
    after that. "stored": into memory that is no result's. results, permitted: addresses of the storages of the results,
    and of those that operations wrote which the task allows.
    """
    found: dict[tuple[int, str], dict] = {}
    begun: set[int] = set()  # storages that kernels have stored into
    for launch in log.launches:
        for batch in launch.batches:
            view = batch.view
            storage = None if view is None or is_input(view, inputs) else storage_of(view, launch)
            if view is None or storage is None or storage in permitted:
                continue
            use = ("reread" if storage in begun else "made") if batch.step.kind == "load" else "stored"
            begun |= {storage} if use == "stored" else set()
            if (use, storage in results) != ("stored", True):
                first: dict = {"use": use, "name": view.name or "", "result": storage in results}
                first |= {"file": batch.step.file, "line": batch.step.line, "reached": []}
                found.setdefault((storage, use), first)["reached"].append(np.unique(batch.inside()[0]))
    for each in found.values():
        each["elements"] = int(np.unique(np.concatenate(each.pop("reached"))).size)
    return list(found.values())


def storage_of(view: "TensorView", launch: "Launch") -> int | None:
    """Return the address of the storage that holds a tensor of a launch, None where it is not known."""
    for storage, (address, size) in launch.storages.items():
        if address <= view.data_ptr < address + size:
            return storage
    return None


def is_input(view: "TensorView", inputs: LiveInputs) -> bool:
    return any(b.data_ptr() <= view.data_ptr < b.data_ptr() + b.numel() for b in inputs.buffers)


def widest_accesses(log: "Trace") -> list[dict]:
    """Return for loads and for stores the access of one program that reached most elements, and its place.

    Of a load of several rows only the longest row counts: that is what a step of a loop takes.
    """
    widest: dict[str, dict] = {}
    for batch in (batch for launch in log.launches for batch in launch.batches):
        kind, shape = batch.step.kind, batch.step.shape
        lanes = int(np.prod(shape[-1:] if kind == "load" else shape))
        most = widest.get(kind, {"elements": 0})["elements"]
        if lanes > most and batch.mask is not None:
            lanes = int(batch.active.reshape(-1, lanes).sum(1).max())
        if lanes > most:
            widest[kind] = {"kind": kind, "elements": lanes, "file": batch.step.file, "line": batch.step.line}
    return list(widest.values())
