"""What a kernel did to memory, program by program: `with trace() as t: vector_add(x, y)`.

From the machine's own record come the bytes moved against the bytes needed, the owner of every element, the accesses
outside a tensor, the programs that meet at one element, and the values of the kernel's variables.
"""

import ctypes
from collections.abc import Collection, Iterator
from contextlib import contextmanager, nullcontext
from operator import index

import numpy as np
import torch

from lab.device import ON_CPU
from lab.machine.backend import active, watched_by
from lab.machine.faults import Fault
from lab.machine.faults import Int32OverflowError as Int32OverflowError
from lab.machine.faults import OutOfBoundsError as OutOfBoundsError
from lab.machine.record import Access as Access
from lab.machine.record import Launch
from lab.words import shown

LARGEST_SNAPSHOT = 2**28  # bytes


class Trace:
    """The launches of one `with trace()` block, and what follows from them."""

    def __init__(
        self, order: str | int | None, programs: Collection[int] | None, keeps_values: bool, ones: bool = False
    ):
        self.order = order
        self.programs = programs
        self.keeps_values, self.ones = keeps_values, ones
        self.launches: list[Launch] = []
        self.contents: dict[int, np.ndarray | None] = {}

    # What the machine tells

    def begin(self, launch: Launch) -> np.ndarray | None:
        """Take a launch on, unless it only tries a configuration, and return the order of its programs."""
        if not launch.tuning:
            self.launches.append(launch)
        launch.order = self.order_of(launch.programs)
        return launch.order

    def order_of(self, count: int) -> np.ndarray | None:
        if self.order is None and self.programs is None:
            return None
        programs = np.arange(count) if self.programs is None else np.unique(list(self.programs)).astype(np.int64)
        programs = programs[programs < count]
        if self.order == "reversed":
            return programs[::-1]
        return programs if self.order is None else np.random.default_rng(self.order).permutation(programs)

    def end(self, launch: Launch) -> None:
        """Keep what the launch left in memory. What only tried a configuration counts if it did something wrong."""
        if launch.tuning and launch.faults:
            self.launches.append(launch)
        for storage, (address, size) in launch.storages.items():
            if any(
                region.is_written and address <= region.start < address + size for region in launch.regions.values()
            ):
                self.keep(storage, address, size)
        for address, region in launch.elsewhere.items():
            if region.is_written:
                self.keep(address, address, region.end - region.start)

    def keep(self, storage: int, address: int, size: int) -> None:
        """Copy a storage as it is now. It may be no torch operation: a checker counts those."""
        memory = (ctypes.c_uint8 * size).from_address(address)
        self.contents[storage] = np.ctypeslib.as_array(memory).copy() if size <= LARGEST_SNAPSHOT else None

    # What one asks

    @property
    def bytes_loaded(self) -> int:
        """Bytes that active lanes read; atomics read and write."""
        return sum(launch.bytes_of("load", "atomic") for launch in self.launches)

    @property
    def bytes_stored(self) -> int:
        """Bytes that active lanes wrote."""
        return sum(launch.bytes_of("store", "atomic") for launch in self.launches)

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

    def values(self, name: str, program: int = 0, line: int | None = None) -> list[np.ndarray]:
        """Return the values that a variable of the kernel had in one program, one for each time it was assigned.

        Of the last launch; line: only of the assignments on that line of the file. Each is an array shaped like the
        variable's block, () for a number. Raises KeyError for a variable or a program that it does not have, and
        ValueError where the launch was too large to keep them: trace fewer programs.
        """
        if not self.launches:
            raise KeyError("no kernel was launched inside this trace")
        launch = self.launches[-1]
        found = [each for each in launch.variables if each.name == name and program in each.programs]
        if launch.room < 0:
            raise ValueError(f"{launch.kernel} has more values than are kept: trace(programs=[{program}]) keeps enough")
        if not found:
            names = ", ".join(dict.fromkeys(each.name for each in launch.variables)) or "none"
            raise KeyError(f"program {program} of {launch.kernel} has no variable `{name}`; it has {names}")
        return [each.of_program(program) for each in found if line in (None, each.line)]

    def snapshot(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Return what the last launch that stored into a tensor's storage left there, laid out as the tensor.

        None when no launch stored there. Raises ValueError when the storage is larger than `LARGEST_SNAPSHOT`.
        """
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"snapshot takes a tensor, not {shown(tensor)}")
        place = tensor.untyped_storage().data_ptr()
        if place not in self.contents:
            return None
        if self.contents[place] is None:
            raise ValueError(f"a storage above {LARGEST_SNAPSHOT} bytes is not kept; compare a smaller tensor")
        storage = torch.from_numpy(self.contents[place].copy()).untyped_storage()
        return torch.empty(0, dtype=tensor.dtype).set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())


@contextmanager
def trace(
    order: str | int | None = None,
    programs: Collection[int] | None = None,
    values: bool = True,
    ones: bool = False,
) -> Iterator[Trace]:
    """Record every launch inside the block.

    order: None for ascending program ids, "reversed", or a seed to shuffle by. programs: the linear ids to run, all if
    None; a few of them show what a launch over 2**31 elements does. values: whether to keep the values of variables.
    ones: whether lanes that no load gave a value hold 1, where else they hold NaN and odd numbers.
    A kernel's exception passes through; the log stays.

    Where kernels run on a GPU, those inside the block run on the CPU all the same, on copies of their tensors that are
    copied back: a GPU cannot be watched. Raises ValueError for an unknown order, and for programs that are no numbers.
    """
    is_seed = isinstance(order, int) and order >= 0
    if not (is_seed or order is None or (isinstance(order, str) and order == "reversed")):
        raise ValueError(f"order is {shown(order)}; it must be None, 'reversed' or a whole number to shuffle by")
    try:
        programs = None if programs is None else [index(program) for program in programs]
    except TypeError:
        raise ValueError(f"programs is {shown(programs)}; it must be a list of ids such as [0, 3], or None") from None
    recorded = Trace(order, programs, values, ones)
    with nullcontext() if ON_CPU else active(), watched_by(recorded):
        yield recorded
