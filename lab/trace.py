"""What a kernel did to memory, program by program: `with trace() as t: vector_add(x, y)`.

From the one log of loads, stores and atomics come the bytes moved against the bytes needed, the owner of every element,
the accesses outside a tensor, and the programs that meet at one element. Needs the interpreter; no GPU can be watched.
"""

import ctypes
import functools
import math
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field

import numpy as np
import torch

from lab.device import INTERPRETED
from lab.guard import Fault, Guard, TensorView, install, kernel_place, make_guard, running_program, upstream
from lab.guard import Int32OverflowError as Int32OverflowError
from lab.guard import OutOfBoundsError as OutOfBoundsError
from lab.interpreter import interpreting

LARGEST_DENSE = 2**26  # elements; above it a ledger is kept in pages
LARGEST_SNAPSHOT = 2**28  # bytes


@dataclass(frozen=True)
class Access:
    """One load, store or atomic of one program.

    tensor: the argument's name, None where there is none. offsets: int64, elements from the tensor's first one, also of
    lanes that are masked off. mask: bool, the active lanes. itemsize: bytes a lane.
    """

    kind: str
    tensor: str | None
    program: int
    offsets: np.ndarray
    mask: np.ndarray
    file: str
    line: int
    itemsize: int

    @property
    def bytes(self) -> int:
        return int(np.count_nonzero(self.mask)) * self.itemsize


class Ledger:
    """An int64 for each unit of a memory region, 0 at first; only the pages that are written to take memory."""

    PAGE_BITS = 16

    def __init__(self, size: int):
        self.dense = np.zeros(size, dtype=np.int64) if size <= LARGEST_DENSE else None
        self.pages: dict[int, np.ndarray] = {}

    def __getitem__(self, units: np.ndarray) -> np.ndarray:
        if self.dense is not None:
            return self.dense[units]
        values = np.zeros(units.shape, dtype=np.int64)
        for page, lanes in self.by_page(units):
            if page in self.pages:
                values[lanes] = self.pages[page][units[lanes] % 2**self.PAGE_BITS]
        return values

    def __setitem__(self, units: np.ndarray, values: np.ndarray | int) -> None:
        if self.dense is not None:
            self.dense[units] = values
            return
        for page, lanes in self.by_page(units):
            kept = self.pages.setdefault(page, np.zeros(2**self.PAGE_BITS, dtype=np.int64))
            kept[units[lanes] % 2**self.PAGE_BITS] = np.broadcast_to(values, units.shape)[lanes]

    def count(self) -> int:
        """Return how many units are not 0."""
        return sum(map(np.count_nonzero, self.pages.values() if self.dense is None else [self.dense]))

    def by_page(self, units: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        pages = units >> self.PAGE_BITS
        for page in np.unique(pages).tolist():
            yield page, pages == page


@dataclass
class Region:
    """Memory that one or several overlapping tensors share, in units that divide each of their elements."""

    start: int
    end: int
    views: list[TensorView]

    @functools.cached_property
    def unit(self) -> int:
        return math.gcd(*(number for view in self.views for number in (view.itemsize, view.data_ptr - self.start)))

    @functools.cached_property
    def writers(self) -> Ledger:
        """Who wrote each unit last: 2 * (program + 1), plus 1 when it was by an atomic; 0 where nobody did."""
        return Ledger(self.size)

    @property
    def size(self) -> int:
        return (self.end - self.start) // self.unit

    @property
    def is_written(self) -> bool:
        return "writers" in self.__dict__

    def units(self, view: TensorView, offsets: np.ndarray) -> np.ndarray:
        """Return the units of some elements of a view: int64, with one more axis when an element has several."""
        each = view.itemsize // self.unit
        first = (view.data_ptr - self.start) // self.unit + offsets * each
        return first if each == 1 else first[..., None] + np.arange(each)


def regions_of(views: Iterable[TensorView]) -> dict[str, Region]:
    """Return the region of each tensor by name; tensors that overlap share one."""
    regions: list[Region] = []
    for view in sorted(views, key=lambda view: view.data_ptr):
        if regions and view.data_ptr < regions[-1].end:
            regions[-1].end = max(regions[-1].end, view.end)
            regions[-1].views.append(view)
        else:
            regions.append(Region(view.data_ptr, view.end, [view]))
    return {view.name: region for region in regions for view in region.views}


@dataclass
class Launch(Guard):
    """One recorded launch. What leaves its tensors is stopped as ever, but kept as a fault instead of raised.

    kernel: name; function: what ran. arguments: those that are no tensors, constexprs included. options: num_warps and
    such. accesses: in the order they happened.
    """

    trace: "Trace" = field(default=None, repr=False)
    accesses: list[Access] = field(default_factory=list, repr=False)

    def __post_init__(self):
        self.regions = regions_of(self.tensors.values())
        self.trace.launches.append(self)

    def order(self) -> Iterable[int]:
        wanted = self.trace.programs
        programs = range(self.programs) if wanted is None else sorted(p for p in set(wanted) if p < self.programs)
        if self.trace.order == "reversed":
            return reversed(programs)
        if self.trace.order is not None:
            return np.random.default_rng(self.trace.order).permutation(programs).tolist()
        return programs

    def observe(self, kind, view, addresses, lanes, inside, size, value) -> None:
        offsets, name = addresses, None
        if view is not None:
            offsets, name = (addresses - view.data_ptr) // view.itemsize, view.name
        place = kernel_place()
        lanes = np.broadcast_to(True, lanes.shape) if lanes.all() else lanes.copy()
        self.accesses.append(Access(kind, name, running_program(), offsets, lanes, *place, size))
        if kind != "load" and inside.any():
            self.write(kind, view, addresses, offsets, inside, place, value)

    def write(self, kind, view, addresses, offsets, inside, place, value) -> None:
        """Note the running program as the writer of some elements, and where another one was there before."""
        program, region = running_program(), self.regions[view.name]
        units = region.units(view, offsets[inside])
        before = region.writers[units]
        others = (before > 0) & (before // 2 - 1 != program)
        if kind == "atomic":
            others &= before % 2 == 0
        if others.any():
            self.record_meeting(kind, view, addresses, inside, before, others, place, value)
        region.writers[units] = 2 * (program + 1) + (kind == "atomic")

    def record_meeting(self, kind, view, addresses, inside, before, others, place, value) -> None:
        lanes = len(addresses[inside])
        before, others = before.reshape(lanes, -1), others.reshape(lanes, -1)
        met, other = others.any(axis=1), np.where(others, before // 2 - 1, -1).max(axis=1)
        same = np.zeros(lanes, dtype=bool)
        if kind == "store":
            same = same_bytes(addresses[inside], np.broadcast_to(value.data, addresses.shape)[inside])
        for program in np.unique(other[met]).tolist():
            these = met & (other == program)
            self.record("write-write", kind, view, addresses[inside][these], place, other=program,
                        same_value=bool(same[these].all()))  # fmt: skip

    def finish(self) -> None:
        """Find the loads of what another program wrote, and keep what the launch left in memory."""
        for access in self.accesses:
            if access.kind == "load" and access.tensor is not None and self.regions[access.tensor].is_written:
                self.find_foreign_writer(access)
        for storage in self.storages:
            if any(self.is_stored_into(storage, region) for region in self.regions.values()):
                self.trace.keep(storage)

    def find_foreign_writer(self, access: Access) -> None:
        view, offsets = self.tensors[access.tensor], self.inside(access)
        writers = self.regions[view.name].writers[self.regions[view.name].units(view, offsets)]
        writers = writers.reshape(len(offsets), -1).max(axis=1) // 2 - 1
        foreign = (writers >= 0) & (writers != access.program)
        for other in np.unique(writers[foreign]).tolist():
            addresses = view.data_ptr + offsets[foreign & (writers == other)] * view.itemsize
            self.record("read-write", "load", view, addresses, (access.file, access.line), access.program, other)

    def is_stored_into(self, storage: torch.UntypedStorage, region: Region) -> bool:
        return region.is_written and storage.data_ptr() <= region.start < storage.data_ptr() + storage.nbytes()

    def inside(self, access: Access) -> np.ndarray:
        """Return the offsets of an access's active lanes that lie inside their tensor: int64, one axis."""
        offsets = access.offsets[access.mask]
        return offsets[(offsets >= 0) & (offsets < self.tensors[access.tensor].extent)]

    def owner(self, name: str) -> np.ndarray:
        """Return who wrote each element of a tensor last: int64 program ids, shaped like it, −1 where nobody did."""
        units = self.units_of(name)
        region = self.regions[name]
        return region.writers[units] // 2 - 1 if region.is_written else np.full(units.shape, -1)

    def touched(self, name: str, kind: str) -> np.ndarray:
        """Return how many accesses of a kind reached each element of a tensor: int64, shaped like it."""
        elements = self.units_of(name)
        counts = Ledger(self.regions[name].size)
        for units in self.used_units(self.regions[name], (kind,)):
            counts[units] = counts[units] + 1
        return counts[elements]

    def units_of(self, name: str) -> np.ndarray:
        """Return the first unit of each element of a tensor: int64, shaped like it. Raises KeyError, ValueError."""
        if name not in self.tensors:
            raise KeyError(f"{self.kernel} has no tensor `{name}`; it has {', '.join(self.tensors) or 'none'}")
        view, region = self.tensors[name], self.regions[name]
        if math.prod(view.shape) > LARGEST_DENSE:
            raise ValueError(f"`{name}` has too many elements to show one by one; look at the launch's `accesses`")
        offsets = np.zeros(view.shape, dtype=np.int64)
        for axis, (size, stride) in enumerate(zip(view.shape, view.strides, strict=True)):
            offsets += (np.arange(size) * stride).reshape(-1, *[1] * (len(view.shape) - axis - 1))
        units = region.units(view, offsets)
        return units if units.ndim == len(view.shape) else units[..., 0]

    def used_units(self, region: Region, kinds: Collection[str]) -> Iterator[np.ndarray]:
        """Yield the units of a region that each access of these kinds touched."""
        for access in self.accesses:
            if access.kind in kinds and self.regions.get(access.tensor) is region:
                yield region.units(self.tensors[access.tensor], self.inside(access))

    @property
    def bytes_needed(self) -> int:
        """Bytes read at least once plus bytes written at least once."""
        needed = 0
        for kinds in (("load", "atomic"), ("store", "atomic")):
            for region in {id(region): region for region in self.regions.values()}.values():
                used = Ledger(region.size)
                for units in self.used_units(region, kinds):
                    used[units] = 1
                needed += used.count() * region.unit
        return needed


def same_bytes(addresses: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return for each lane whether memory holds that value already."""
    everywhere = np.ones(len(addresses), dtype=bool)
    present = upstream._interpreter.load(addresses.astype(np.uint64), everywhere, np.zeros_like(values), values.dtype)
    as_bytes = [np.ascontiguousarray(array).view(np.uint8).reshape(len(addresses), -1) for array in (present, values)]
    return (as_bytes[0] == as_bytes[1]).all(axis=1)


class Trace:
    """The launches of one `with trace()` block, and what follows from them."""

    def __init__(self, order: str | int | None, programs: Collection[int] | None):
        self.order = order
        self.programs = programs
        self.launches: list[Launch] = []
        self.contents: dict[int, np.ndarray | None] = {}

    @property
    def bytes_loaded(self) -> int:
        """Bytes that active lanes read; atomics read and write."""
        return self._bytes("load") + self._bytes("atomic")

    @property
    def bytes_stored(self) -> int:
        """Bytes that active lanes wrote."""
        return self._bytes("store") + self._bytes("atomic")

    def _bytes(self, kind: str) -> int:
        return sum(access.bytes for launch in self.launches for access in launch.accesses if access.kind == kind)

    @property
    def bytes_moved(self) -> int:
        return self.bytes_loaded + self.bytes_stored

    @property
    def bytes_needed(self) -> int:
        """Bytes that a cache which forgets nothing would move: each byte a launch reads or writes, once."""
        return sum(launch.bytes_needed for launch in self.launches)

    @property
    def out_of_bounds(self) -> list[Fault]:
        """Accesses outside a tensor, and through offsets that wrapped in int32 (these first, wherever they led)."""
        return self._faults("int32-overflow") + self._faults("out-of-bounds")

    @property
    def conflicts(self) -> list[Fault]:
        """Programs of one launch that meet at an element which at least one of them writes, not both by atomics."""
        return self._faults("write-write") + self._faults("read-write")

    def _faults(self, cause: str) -> list[Fault]:
        return [fault for launch in self.launches for fault in launch.faults if fault.cause == cause]

    def keep(self, storage: torch.UntypedStorage) -> None:
        """Copy a storage as it is now. It may be no torch operation: a checker counts those."""
        memory = (ctypes.c_uint8 * storage.nbytes()).from_address(storage.data_ptr())
        small = storage.nbytes() <= LARGEST_SNAPSHOT
        self.contents[storage.data_ptr()] = np.ctypeslib.as_array(memory).copy() if small else None

    def snapshot(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Return what the last launch that stored into a tensor's storage left there, laid out as the tensor.

        None when no launch stored there. Raises ValueError when the storage is larger than `LARGEST_SNAPSHOT`.
        """
        place = tensor.untyped_storage().data_ptr()
        if place not in self.contents:
            return None
        if self.contents[place] is None:
            raise ValueError(f"a storage above {LARGEST_SNAPSHOT} bytes is not kept; compare a smaller tensor")
        storage = torch.from_numpy(self.contents[place].copy()).untyped_storage()
        return torch.empty(0, dtype=tensor.dtype).set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())


@contextmanager
def trace(order: str | int | None = None, programs: Collection[int] | None = None) -> Iterator[Trace]:
    """Record every launch inside the block.

    order: None for ascending program ids, "reversed", or a seed to shuffle by. programs: the linear ids to run, all if
    None; a few of them show what a launch over 2**31 elements does. A kernel's exception passes through; the log stays.

    Where kernels run on a GPU, those inside the block are interpreted all the same, on copies of their tensors that
    are copied back: a GPU cannot be watched. Raises ValueError for an unknown order.
    """
    if not (order is None or order == "reversed" or isinstance(order, int)):
        raise ValueError(f"order is {order!r}; it must be None, 'reversed' or a whole number to shuffle by")
    recorded = Trace(order, programs)
    make_guard.append(functools.partial(Launch, trace=recorded))
    try:
        with nullcontext() if INTERPRETED else interpreting():
            install()
            yield recorded
    finally:
        make_guard.pop()
