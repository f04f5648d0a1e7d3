"""What a launch did to memory, as the machine saw it: every load, store and atomic of every program.

From the one log come the bytes moved and needed, the owner of every element, and the programs that meet at one.
"""

import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from lab.machine.faults import MOST_ELEMENTS, MOST_FAULTS, Fault, Faults
from lab.machine.memory import MemoryStep, TensorView, nearest

if TYPE_CHECKING:
    from lab.machine.execute import Run

LARGEST_DENSE = 2**26  # elements; above it a ledger is kept in pages
LARGEST_VALUES = 2**26  # bytes of named variables that are kept of one launch


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


@dataclass(frozen=True)
class Batch:
    """One load, store or atomic of several programs at once.

    view: the tensor it is meant for, None where there is none. programs: their ids. address: of every lane, or of the
    first lane of each row if `step.row`; mask: the active lanes, None for all. Axes of length 1 stand for all.
    """

    step: MemoryStep
    view: TensorView | None
    programs: np.ndarray
    address: np.ndarray
    mask: np.ndarray | None

    @property
    def shape(self) -> tuple[int, ...]:
        return len(self.programs), *self.step.shape

    @property
    def lanes(self) -> int:
        """How many lanes are active, of all programs together."""
        if self.mask is None:
            return math.prod(self.shape)
        return int(np.count_nonzero(self.mask)) * (math.prod(self.shape) // self.mask.size)

    @property
    def busy(self) -> np.ndarray:
        """The programs of which some lane is active."""
        if self.mask is None:
            return self.programs
        return self.programs[np.broadcast_to(self.mask.reshape(len(self.mask), -1).any(1), len(self.programs))]

    @property
    def offsets(self) -> np.ndarray:
        """Elements from the tensor's first one, of every lane: int64 [programs, *block]."""
        address = self.step.lanes(self.address)
        if self.view is not None:
            address = (address - self.view.data_ptr) // self.view.itemsize
        return np.broadcast_to(address, self.shape)

    @property
    def active(self) -> np.ndarray:
        """The active lanes: bool [programs, *block]."""
        return np.broadcast_to(True if self.mask is None else self.mask, self.shape)

    def inside(self) -> tuple[np.ndarray, np.ndarray, np.ndarray | slice]:
        """Return offset and program of each active lane inside the tensor, and which of the lanes these are."""
        offsets = self.offsets
        programs = np.broadcast_to(self.programs.reshape(-1, *[1] * len(self.step.shape)), self.shape)
        if self.mask is None:
            offsets, programs = offsets.ravel(), programs.ravel()
        else:
            offsets, programs = offsets[self.active], programs[self.active]
        if offsets.size and offsets.min() >= 0 and offsets.max() < self.view.extent:
            return offsets, programs, slice(None)
        good = (offsets >= 0) & (offsets < self.view.extent)
        return offsets[good], programs[good], good

    def of_program(self, position: int) -> Access:
        """Return what one of the programs did."""
        step, name = self.step, self.view and self.view.name
        one = Batch(step, self.view, self.programs[position : position + 1], own(self.address, position),
                    None if self.mask is None else own(self.mask, position))  # fmt: skip
        program = int(self.programs[position])
        return Access(step.kind, name, program, one.offsets[0], one.active[0], step.file, step.line, step.size)


def own(values: np.ndarray, position: int) -> np.ndarray:
    """Return the part of one program; axes of programs may have length 1."""
    return values if len(values) == 1 else values[position : position + 1]


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

    @cached_property
    def unit(self) -> int:
        return math.gcd(*(number for view in self.views for number in (view.itemsize, view.data_ptr - self.start)))

    @cached_property
    def writers(self) -> Ledger:
        """Who wrote each unit last: 2 * (program + 1), plus 1 when it was by an atomic; 0 where no program did."""
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


@dataclass(frozen=True)
class Variable:
    """The value of a variable of the kernel at one moment, for several programs: an array [programs or 1, *block]."""

    name: str
    line: int
    shape: tuple[int, ...]
    array: np.ndarray
    programs: np.ndarray

    def of_program(self, program: int) -> np.ndarray:
        """Return the value in one program, shaped like the variable."""
        position = int(np.flatnonzero(self.programs == program)[0])
        return np.broadcast_to(self.array[position if len(self.array) > 1 else 0], self.shape)


@dataclass
class Launch:
    """One launch. Of a recorded one, everything it did; `found` has its faults in any case.

    kernel: name; function: what ran. arguments: by name, those that are no tensors, constants included, of which
    `constexprs` has the names; options: num_warps and such. batches, variables: in the order they happened.
    """

    kernel: str
    function: object
    grid: tuple[int, int, int]
    tensors: dict[str, TensorView]
    arguments: dict[str, object]
    constexprs: set[str]
    options: dict[str, object]
    storages: dict[int, tuple[int, int]]  # address of each storage → where it lies on the CPU, and its bytes
    found: Faults = field(default_factory=Faults, repr=False)
    batches: list[Batch] = field(default_factory=list, repr=False)
    variables: list[Variable] = field(default_factory=list, repr=False)
    order: np.ndarray | None = field(default=None, repr=False)  # of the programs that ran, None for all in theirs
    keeps_values: bool = False
    tuning: bool = False  # whether autotuning tries a configuration
    room: int = LARGEST_VALUES
    elsewhere: dict[int, Region] = field(default_factory=dict, repr=False)  # by address: memory of no argument

    @property
    def programs(self) -> int:
        return math.prod(self.grid)

    @property
    def faults(self) -> list[Fault]:
        return self.found.found

    @cached_property
    def regions(self) -> dict[str, Region]:
        return regions_of(self.tensors.values())

    @property
    def all_regions(self) -> list[Region]:
        return list({id(region): region for region in (*self.regions.values(), *self.elsewhere.values())}.values())

    # What the machine tells

    def access(self, run: "Run", step: MemoryStep, address, mask, ids, value: np.ndarray | None = None) -> None:
        """See a load, store or atomic before it happens; value: what is stored."""
        views = step.views(run)
        if len(views) == 1:
            self.note(Batch(step, views[0], ids, address, mask), value)
            return
        whole = Batch(step, None, ids, address, mask)
        address, left = whole.offsets, whole.active
        for view in views:
            inside = left & (address >= view.data_ptr) & (address <= view.end - step.size)
            if inside.any():
                self.note(Batch(step.by_lanes(), view, ids, address, inside), value)
                left = left & ~inside
        if left.any():
            self.note(Batch(step.by_lanes(), nearest(views, int(address[left][0])), ids, address, left), value)

    def note(self, batch: Batch, value: np.ndarray | None) -> None:
        self.batches.append(batch)
        if batch.step.kind != "load" and batch.view is not None:
            self.write(batch, value)

    def value(self, name: str, line: int, shape: tuple[int, ...], array: np.ndarray, ids: np.ndarray) -> None:
        """See the value that a variable has been given."""
        self.room -= array.nbytes
        if self.room >= 0:
            self.variables.append(Variable(name, line, shape, array, ids))

    # Who wrote what

    def write(self, batch: Batch, value: np.ndarray | None) -> None:
        """Note the programs as writers of the elements, and where another one was there before."""
        view, region, atomic = batch.view, self.region_of(batch.view), batch.step.kind == "atomic"
        offsets, programs, which = batch.inside()
        if not offsets.size:
            return
        units = region.units(view, offsets)
        codes = 2 * (programs + 1) + atomic
        codes = codes if units.ndim == 1 else np.broadcast_to(codes[:, None], units.shape)
        before = region.writers[units]
        region.writers[units] = codes
        met = (before > 0) & (before // 2 != codes // 2)
        twice = region.writers[units] // 2 != codes // 2  # another lane of this very batch came later
        if atomic:
            met &= before % 2 == 0
            twice &= False
        if not met.any() and not twice.any():
            return
        stored = None if value is None else lanes_of(value, batch)[which]
        if met.any():
            self.meet_earlier(batch, offsets, programs, before, met, stored)
        if twice.any():
            self.meet_each_other(batch, offsets, programs, twice, stored)

    def meet_earlier(self, batch: Batch, offsets, programs, before, met, stored) -> None:
        """Leave a fault for each pair of programs of which the other one wrote in an earlier step."""
        lanes = met.reshape(len(offsets), -1)
        others = np.where(lanes, before.reshape(lanes.shape) // 2 - 1, -1).max(axis=1)
        hit = lanes.any(axis=1)
        same = np.zeros(len(offsets), bool)
        if stored is not None and stored.dtype.itemsize == batch.view.itemsize:
            memory = batch.view.array(np.dtype(f"V{batch.view.itemsize}"))
            same = memory[offsets] == stored.view(memory.dtype)
        self.add_meetings(batch, offsets[hit], programs[hit], others[hit], same[hit])

    def meet_each_other(self, batch: Batch, offsets, programs, twice, stored) -> None:
        """Leave a fault for each pair of programs that wrote one element in this step."""
        shared = np.isin(offsets, offsets[twice.reshape(len(offsets), -1).any(axis=1)])
        order = np.flatnonzero(shared)[np.argsort(offsets[shared], kind="stable")]
        first, later = order[:-1], order[1:]
        pair = (offsets[first] == offsets[later]) & (programs[first] != programs[later])
        first, later = first[pair], later[pair]
        same = np.zeros(len(first), bool)
        if stored is not None:
            data = np.ascontiguousarray(stored).view(f"V{stored.dtype.itemsize}")
            same = data[first] == data[later]
        self.add_meetings(batch, offsets[later], programs[later], programs[first], same)

    def add_meetings(self, batch: Batch, offsets, programs, others, same) -> None:
        for lanes, alike in ((~same, False), (same, True)):
            for program, other, its in first_pairs(programs[lanes], others[lanes]):
                self.add("write-write", batch, program, other, offsets[lanes][its], alike)

    def add(self, cause: str, batch: Batch, program: int, other: int, offsets: np.ndarray, same: bool = False) -> None:
        elements = np.unique(offsets)
        step, view = batch.step, batch.view
        self.found.add(Fault(cause, step.kind, view.name, program, other, elements[:MOST_ELEMENTS], len(elements),
                             step.file, step.line, view.extent, same_value=same))  # fmt: skip

    def finish(self) -> None:
        """Find the loads of what another program wrote."""
        for batch in self.batches:
            if batch.step.kind == "load" and batch.view is not None and self.region_of(batch.view).is_written:
                self.find_foreign_writer(batch)

    def region_of(self, view: TensorView) -> Region:
        """Return the region of a tensor. It need be no argument: a kernel may make an address from a number."""
        found = self.regions.get(view.name) or self.elsewhere.get(view.data_ptr)
        return found or self.elsewhere.setdefault(view.data_ptr, Region(view.data_ptr, view.end, [view]))

    def find_foreign_writer(self, batch: Batch) -> None:
        offsets, programs, _ = batch.inside()
        if not offsets.size:
            return
        region = self.region_of(batch.view)
        writers = region.writers[region.units(batch.view, offsets)].reshape(len(offsets), -1).max(axis=1) // 2 - 1
        foreign = (writers >= 0) & (writers != programs)
        for program, other, its in first_pairs(programs[foreign], writers[foreign]):
            self.add("read-write", batch, program, other, offsets[foreign][its])

    # What one asks afterwards

    @cached_property
    def accesses(self) -> list[Access]:
        """Every access of every program: program by program, in the order in which they ran."""
        found: dict[int, list[Access]] = {}
        for batch in self.batches:
            for position, program in enumerate(batch.programs.tolist()):
                found.setdefault(program, []).append(batch.of_program(position))
        order = range(self.programs) if self.order is None else self.order.tolist()
        return [access for program in order for access in found.get(program, ())]

    @property
    def busy(self) -> int:
        """How many programs touched memory."""
        busy = [batch.busy for batch in self.batches]
        return len(np.unique(np.concatenate(busy))) if busy else 0

    def owner(self, name: str) -> np.ndarray:
        """Return who wrote each element of a tensor last: int64 program ids, shaped like it, −1 where none did."""
        units = self.units_of(name)
        region = self.regions[name]
        return region.writers[units] // 2 - 1 if region.is_written else np.full(units.shape, -1)

    def touched(self, name: str, kind: str) -> np.ndarray:
        """Return how many accesses of a kind reached each element of a tensor: int64, shaped like it."""
        elements = self.units_of(name)
        region = self.regions[name]
        counts = Ledger(region.size)
        for batch, offsets, programs in self.of_region(region, (kind,)):
            pairs = np.unique(
                np.stack([programs, region.units(batch.view, offsets).reshape(len(offsets), -1)[:, 0]]), axis=1
            )
            units, times = np.unique(pairs[1], return_counts=True)
            counts[units] = counts[units] + times
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

    def of_region(self, region: Region, kinds: Collection[str]) -> Iterator[tuple[Batch, np.ndarray, np.ndarray]]:
        """Yield each batch of these kinds in a region, with offset and program of its lanes inside."""
        for batch in self.batches:
            if batch.step.kind in kinds and batch.view is not None and self.region_of(batch.view) is region:
                offsets, programs, _ = batch.inside()
                if offsets.size:
                    yield batch, offsets, programs

    def bytes_of(self, *kinds: str) -> int:
        """Return the bytes that active lanes read or wrote in accesses of these kinds."""
        return sum(batch.lanes * batch.step.size for batch in self.batches if batch.step.kind in kinds)

    @property
    def bytes_needed(self) -> int:
        """Bytes read at least once plus bytes written at least once."""
        needed = 0
        for kinds in (("load", "atomic"), ("store", "atomic")):
            for region in self.all_regions:
                used = Ledger(region.size)
                for batch, offsets, _ in self.of_region(region, kinds):
                    used[region.units(batch.view, offsets)] = 1
                needed += used.count() * region.unit
        return needed


def first_pairs(programs: np.ndarray, others: np.ndarray) -> Iterator[tuple[int, int, np.ndarray]]:
    """Yield the first pairs of programs that meet, as many as faults are kept, each with the lanes where they do."""
    if programs.size:
        pairs = programs * (others.max() + 1) + others
        _, firsts = np.unique(pairs, return_index=True)
        for first in np.sort(firsts)[:MOST_FAULTS].tolist():
            yield int(programs[first]), int(others[first]), pairs == pairs[first]


def lanes_of(value: np.ndarray, batch: Batch) -> np.ndarray:
    """Return what each active lane of a store writes."""
    value = np.broadcast_to(value, batch.shape)
    return value.ravel() if batch.mask is None else value[batch.active]
