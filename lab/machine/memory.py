"""Loads and stores of many programs at once, held to the tensors of the launch.

Addresses are real. Each is checked before it is used: a load from elsewhere gives poison, a store elsewhere is dropped,
and both leave a fault.
"""

import ctypes
import functools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from lab.machine.dtypes import poison

if TYPE_CHECKING:
    from lab.machine.execute import Run


@dataclass(frozen=True)
class TensorView:
    """A tensor argument of a launch: what its pointer may reach. Strides count elements."""

    name: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Any  # as the tensor has it
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

    @functools.cached_property
    def arrays(self) -> dict[np.dtype, np.ndarray]:
        """The memory as one array for each type that it has been read as."""
        return {}

    def first(self, size: int) -> int:
        """Return the first address here that is a multiple of `size`: an access of so many bytes must be at one."""
        return -(-self.data_ptr // size) * size

    def array(self, dtype: np.dtype) -> np.ndarray:
        """Return the whole elements of a type that lie here, as an array that shares their memory."""
        if dtype not in self.arrays:
            first = self.first(dtype.itemsize)
            count = max(0, (self.end - first) // dtype.itemsize)
            buffer = (ctypes.c_uint8 * (count * dtype.itemsize)).from_address(first) if count else b""
            self.arrays[dtype] = np.frombuffer(buffer, dtype)
        return self.arrays[dtype]

    def windows(self, dtype: np.dtype, width: int) -> np.ndarray:
        """Return every run of `width` elements, one in each row, as a view. The memory must hold at least one."""
        array = self.array(dtype)
        return np.lib.stride_tricks.as_strided(array, (len(array) - width + 1, width), array.strides * 2)

    def holds(self, low: int, high: int) -> bool:
        """Return whether the bytes from address `low` up to `high` lie inside."""
        return self.data_ptr <= low and high <= self.end


def plain(dtype: np.dtype) -> np.dtype:
    """Return the type by which elements move: NumPy moves those of other packages one by one."""
    return np.dtype(f"u{dtype.itemsize}") if dtype.isbuiltin == 2 else dtype


def undefined(dtype: np.dtype, width: int = 1) -> np.ndarray:
    """Return what a lane holds that was never given a value; integers of both signs, so that no extreme hides them."""
    lanes = np.full(width, poison(dtype), dtype)
    if dtype.kind == "i":
        lanes[1::2] = -lanes[1::2]
    return lanes


@dataclass(frozen=True)
class MemoryStep:
    """A load, store or atomic of the plan: what is known of it before it runs.

    origin: numbers of the parameters that its pointer may come from, None for any. row: whether addresses are those of
    the first element of each row of `shape[-1]`.
    """

    kind: str
    dtype: np.dtype
    shape: tuple[int, ...]
    origin: frozenset[int] | None
    row: bool
    file: str
    line: int

    @functools.cached_property
    def bits(self) -> np.dtype:
        return plain(self.dtype)

    @functools.cached_property
    def size(self) -> int:
        return self.dtype.itemsize

    @functools.cached_property
    def shift(self) -> int:
        return self.size.bit_length() - 1

    @functools.cached_property
    def width(self) -> int:
        return self.shape[-1]

    @functools.cached_property
    def steps(self) -> np.ndarray:
        """Bytes from the first element of a row to each of them."""
        return np.arange(self.width, dtype=np.int64) * self.size

    @functools.cached_property
    def undefined(self) -> np.ndarray:
        return undefined(self.dtype, self.shape[-1] if self.shape else 1).view(self.bits)

    @functools.cached_property
    def ones(self) -> np.ndarray:
        return np.ones(self.shape[-1] if self.shape else 1, self.dtype).view(self.bits)

    def by_lanes(self) -> "MemoryStep":
        """Return the same access for addresses of all lanes."""
        return replace(self, row=False)

    def lanes(self, address: np.ndarray) -> np.ndarray:
        """Return the address of every lane."""
        return address + self.steps if self.row else address

    def views(self, run: "Run") -> list[TensorView]:
        """Return the tensors that the pointer may reach."""
        return run.reachable if self.origin is None else [run.views[i] for i in sorted(self.origin) if i in run.views]

    # Whole rows

    def rows(self, run: "Run", address: np.ndarray, low: int, high: int) -> tuple[TensorView, np.ndarray] | None:
        """Return the tensor that holds columns `low` to `high` of all these rows, and their first elements in it."""
        first, last = int(address.min()) + low * self.size, int(address.max()) + high * self.size
        for view in self.views(run):
            if view.holds(first, last):
                offset = address - view.first(self.size)
                return None if (offset & self.size - 1).any() else (view, (offset >> self.shift) + low)
        return None

    def load_rows(self, run: "Run", address: np.ndarray, mask: np.ndarray | None, other) -> np.ndarray | None:
        """Load row by row; None where some row lies outside of all tensors."""
        address = address[..., 0]
        if mask is None:
            found = self.rows(run, address, 0, self.width)
            return None if found is None else found[0].windows(self.bits, self.width)[found[1]]
        full = np.broadcast_shapes(address.shape + (self.width,), mask.shape, np.shape(other))
        out = np.empty(full, self.bits)
        out[...] = other
        cut = self.cut(run, address, mask, full)
        if cut is None:
            return None
        view, at, low, high, whole, parts = cut
        if view is not None:
            windows, inner = view.windows(self.bits, high - low), out[..., low:high]
            if whole is None:
                inner[...] = windows[at]
            else:
                inner[whole] = windows[at]
        if parts is not None:
            view, at, lanes = parts
            out[lanes] = view.array(self.bits)[at]
        return out

    def store_rows(self, run: "Run", address: np.ndarray, value: np.ndarray, mask: np.ndarray | None) -> bool:
        """Store row by row; return False, and store nothing, where some row lies outside of all tensors."""
        address = address[..., 0]
        full = np.broadcast_shapes(address.shape + (self.width,), value.shape, () if mask is None else mask.shape)
        value = np.broadcast_to(value, full)
        if mask is None:
            found = self.rows(run, address, 0, self.width)
            if found is None:
                return False
            view, at = found
            view.windows(self.bits, self.width)[np.broadcast_to(at, full[:-1])] = value
            return True
        cut = self.cut(run, address, mask, full)
        if cut is None:
            return False
        view, at, low, high, whole, parts = cut
        if view is not None:
            inner = value[..., low:high]
            view.windows(self.bits, high - low)[at] = inner if whole is None else inner[whole]
        if parts is not None:
            view, at, lanes = parts
            view.array(self.bits)[at] = value[lanes]
        return True

    def cut(self, run: "Run", address: np.ndarray, mask: np.ndarray, full: tuple[int, ...]):
        """Return the rows that the mask leaves whole, between the first and the last column in use, and the lanes of
        the others; None where something lies outside of all tensors.

        That is (tensor, first element of each whole row, first column, last column + 1, which rows are whole, None for
        all of them, and (tensor, elements, lanes) of the rest).
        """
        low, high = 0, self.width
        if mask.shape[-1] > 1:
            columns = mask.any(tuple(range(mask.ndim - 1)))
            if not columns.any():
                return None, None, 0, 0, None, None
            low, high = int(columns.argmax()), self.width - int(columns[::-1].argmax())
        inner = mask[..., low:high] if mask.shape[-1] > 1 else mask
        whole = np.broadcast_to(inner.all(-1), full[:-1])
        address = np.broadcast_to(address, full[:-1])
        every = bool(whole.all())
        found = parts = None
        chosen = address if every else address[whole]
        if chosen.size:
            found = self.rows(run, chosen, low, high)
            if found is None:
                return None
        if not every and mask.shape[-1] > 1:
            lanes = np.broadcast_to(mask, full) & ~whole[..., None]
            if lanes.any():
                inside = np.broadcast_to(address[..., None], full)[lanes] + np.broadcast_to(self.steps, full)[lanes]
                view = next(
                    (v for v in self.views(run) if v.holds(int(inside.min()), int(inside.max()) + self.size)), None
                )
                if view is None or (inside & self.size - 1).any():
                    return None
                parts = view, inside - view.first(self.size) >> self.shift, lanes
        view, at = found or (None, None)
        return view, at, low, high, None if every else whole, parts

    # Lane by lane

    def find(self, run: "Run", address: np.ndarray, lanes: np.ndarray | None, ids: np.ndarray):
        """Yield (tensor, elements in it, which of these addresses), and leave a fault for those outside of all.

        address: of the active lanes. lanes: the mask they were taken by, None for all. Which: None for all of them.
        """
        if not address.size:
            return
        views = self.views(run)
        low, high = int(address.min()), int(address.max()) + self.size
        odd = address & self.size - 1 != 0
        odd = odd if odd.any() else None
        for view in views:
            if odd is None and view.holds(low, high):
                yield view, address - view.first(self.size) >> self.shift, None
                return
        left = np.ones(address.shape, bool)
        for view in views:
            inside = left & (address >= view.data_ptr) & (address <= view.end - self.size)
            inside = inside if odd is None else inside & ~odd
            if inside.any():
                yield view, address[inside] - view.first(self.size) >> self.shift, inside
                left &= ~inside
        if left.any():
            self.blame(run, views, address, left, lanes, ids)

    def blame(self, run: "Run", views: list[TensorView], address, outside, lanes, ids) -> None:
        """Leave a fault for the addresses in `outside`: at the nearest of the tensors the pointer may come from."""
        stray = address[outside]
        view = nearest(views, int(stray.ravel()[0]))
        elements = np.zeros(stray.shape, np.int64)
        if view is not None:
            # Of an access that is wider than the tensor's elements, the last byte may be outside alone.
            crosses = (stray < view.end) & (stray + self.size > view.end)
            elements = (np.where(crosses, stray + self.size - 1, stray) - view.data_ptr) // view.itemsize
        programs = programs_of(address, lanes, ids)[outside.ravel()]
        run.faults.add_by_program(
            programs.ravel(), elements.ravel(), cause="out-of-bounds", kind=self.kind, tensor=view and view.name,
            other=None, file=self.file, line=self.line, extent=view.extent if view else 0, stray=True,
        )  # fmt: skip

    def blame_overflow(self, run: "Run", address: np.ndarray, lanes: np.ndarray, ids: np.ndarray) -> None:
        """Leave a fault for active lanes whose offset has wrapped around in int32, wherever it leads."""
        views = self.views(run)
        inside = np.zeros(address.shape, bool)
        for view in views:
            inside |= (address >= view.data_ptr) & (address <= view.end - self.size)
        view = views[0] if views else None
        elements = (address - view.data_ptr) // view.itemsize if view else np.zeros(address.shape, np.int64)
        run.faults.add_by_program(
            programs_of(address, lanes, ids), elements, cause="int32-overflow", kind=self.kind,
            tensor=view and view.name, other=None, file=self.file, line=self.line, extent=view.extent if view else 0,
            stray=not inside.all(),
        )  # fmt: skip

    def load(self, run: "Run", address: np.ndarray, mask: np.ndarray | None, other, ids: np.ndarray) -> np.ndarray:
        """Return what stands at the addresses; `other`, or poison, where the mask is false."""
        unset = self.ones if run.ones else self.undefined
        other = unset if other is None else other.view(self.bits)
        if self.row and (out := self.load_rows(run, address, mask, other)) is not None:
            return out.view(self.dtype)
        address = self.lanes(address)
        if mask is not None:
            address, mask = np.broadcast_arrays(address, mask)
            address = address[mask]
        values = np.empty(address.shape, self.bits)
        values[...] = unset.ravel()[0]
        for view, at, which in self.find(run, address, mask, ids):
            if which is None:
                values = view.array(self.bits)[at]
            else:
                values[which] = view.array(self.bits)[at]
        if mask is None:
            return values.view(self.dtype)
        out = np.empty(np.broadcast_shapes(mask.shape, np.shape(other)), self.bits)
        out[...] = other
        out[np.broadcast_to(mask, out.shape)] = values if out.shape == mask.shape else spread(values, mask, out.shape)
        return out.view(self.dtype)

    def store(self, run: "Run", address: np.ndarray, value: np.ndarray, mask: np.ndarray | None, ids) -> None:
        """Write values where the mask is true; of two at one address, that of the later program stays."""
        run.changes += 1
        value = value.view(self.bits)
        if self.row and self.store_rows(run, address, value, mask):
            return
        address = self.lanes(address)
        full = np.broadcast_shapes(address.shape, value.shape, () if mask is None else mask.shape)
        address, value = np.broadcast_to(address, full), np.broadcast_to(value, full)
        if mask is not None:
            mask = np.broadcast_to(mask, full)
            address, value = address[mask], value[mask]
        for view, at, which in self.find(run, address, mask, ids):
            view.array(self.bits)[at] = value if which is None else value[which]

    def update(self, run: "Run", address, change, operands, mask, ids, wanted: bool) -> np.ndarray | None:
        """Read, change and write each lane, one after the other where several meet at one address.

        change: (old, *operands) → new, on arrays. Returns the values before, if they are wanted; 0 where masked off.
        """
        full = (len(ids), *self.shape)
        given = [np.broadcast_to(operand, full) for operand in operands]
        address = np.broadcast_to(self.lanes(address), full)
        mask = np.broadcast_to(True if mask is None else mask, full)
        address, given = address[mask], [each[mask] for each in given]
        old = np.empty(address.shape, self.dtype)
        old[...] = undefined(self.dtype)[0]
        for view, at, which in self.find(run, address, mask, ids):
            values = given if which is None else [each[which] for each in given]
            array = view.array(self.bits).view(self.dtype)
            if not wanted and isinstance(change, np.ufunc) and self.bits == self.dtype:
                change.at(array, at, values[0])
                run.changes += 1
                continue
            before = np.empty(at.shape, self.dtype)
            for lanes in rounds(at):
                before[lanes] = array[at[lanes]]
                after = change(before[lanes], *[each[lanes] for each in values])
                array[at[lanes]] = after
                run.changes += bool((after != before[lanes]).any())
            old[... if which is None else which] = before
        if not wanted:
            return None
        out = np.zeros(full, self.dtype)
        out[mask] = old
        return out


def nearest(views: list[TensorView], address: int) -> TensorView | None:
    """Return the tensor that an address is in or closest to, None where there is none."""
    return min(views, key=lambda view: max(view.data_ptr - address, address - view.end, 0), default=None)


def spread(values: np.ndarray, mask: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return the values of a mask's active lanes once for each time that a larger shape repeats them."""
    whole = np.empty(mask.shape, values.dtype)
    whole[mask] = values
    return np.broadcast_to(whole, shape)[np.broadcast_to(mask, shape)]


def rounds(at: np.ndarray):
    """Yield lanes such that no element comes twice in one round, and each element meets its lanes in their order."""
    order = np.argsort(at, kind="stable")
    ordered = at[order]
    first = np.r_[True, ordered[1:] != ordered[:-1]]
    position = np.arange(len(order))
    rank = position - np.maximum.accumulate(np.where(first, position, 0))
    if not rank.any():
        yield slice(None)
        return
    for number in range(int(rank.max()) + 1):
        yield order[rank == number]


def programs_of(address: np.ndarray, lanes: np.ndarray | None, ids: np.ndarray) -> np.ndarray:
    """Return the program of each active lane; the first of all where they are at one."""
    shape = address.shape if lanes is None else lanes.shape
    if shape[0] != len(ids):
        return np.full(address.size, ids[0])
    programs = np.broadcast_to(ids.reshape(-1, *[1] * (len(shape) - 1)), shape)
    return (programs if lanes is None else programs[lanes]).ravel()
