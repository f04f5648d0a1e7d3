"""What a trace says about one tensor: where its elements lie, and which of them a program touches."""

from collections.abc import Collection, Iterable

import numpy as np

from lab.plots.figure import PALETTE
from lab.words import listed


def last_launch(trace):
    """Accept a launch, or a trace and take its last launch."""
    launches = getattr(trace, "launches", None)
    if launches is None:
        return trace
    if not launches:
        raise ValueError("the trace holds no launch: call the host function inside `with trace() as t:`")
    return launches[-1]


def view_of(launch, tensor: str):
    if tensor not in launch.tensors:
        raise ValueError(
            f"{launch.kernel} has no tensor `{tensor}`; its tensors are {listed([f'`{n}`' for n in launch.tensors])}"
        )
    return launch.tensors[tensor]


def short(name: str) -> str:
    return name.removesuffix("_ptr")


def element_offsets(view) -> np.ndarray:
    """Return the offset from the tensor's start of each element: int64, shaped like the tensor."""
    offsets = np.zeros((), np.int64)
    for size, stride in zip(view.shape, view.strides, strict=True):
        offsets = np.add.outer(offsets, np.arange(size, dtype=np.int64) * stride)
    return offsets


def accesses_of(launch, tensor: str, kinds: Collection[str]) -> list:
    return [access for access in launch.accesses if access.tensor == tensor and access.kind in kinds]


def as_grid(array: np.ndarray) -> np.ndarray:
    """Return the array as rows and columns: one row if it has one dimension, leading dimensions joined if many."""
    return array.reshape(1, -1) if array.ndim < 2 else array.reshape(-1, array.shape[-1])


def _index_of(view, offset: int) -> list[int] | None:
    """Return the index of the element at `offset` from the tensor's start, or None where there is none."""
    index, left = [0] * len(view.shape), offset
    for axis in sorted(range(len(view.shape)), key=lambda axis: -view.strides[axis]):
        if view.strides[axis] > 0 and view.shape[axis] > 1:
            index[axis], left = divmod(left, view.strides[axis])
    return index if left == 0 and all(0 <= i < size for i, size in zip(index, view.shape, strict=True)) else None


def _tile(view, access) -> np.ndarray | None:
    """Return the index of every lane, int64 [dimensions, lanes…], where the lanes form one dense tile of the tensor."""
    dimensions = access.offsets.ndim
    if dimensions != len(view.shape) or not access.mask.any():
        return None
    first = _index_of(view, int(access.offsets[access.mask][0]))
    if first is None:
        return None
    lanes = np.indices(access.offsets.shape)
    shift = np.array(first) - lanes[:, access.mask][:, 0]
    index = lanes + shift.reshape(-1, *[1] * dimensions)
    offsets = (index * np.array(view.strides).reshape(-1, *[1] * dimensions)).sum(0)
    return index if ((offsets == access.offsets) | ~access.mask).all() else None


def past_the_end(view, access) -> np.ndarray:
    """Return the indices, int64 [lanes, dimensions], of masked lanes that lie past the end of the tensor."""
    index = _tile(view, access)
    if index is None:
        return np.zeros((0, len(view.shape)), np.int64)
    outside = (index >= np.array(view.shape).reshape(-1, *[1] * access.offsets.ndim)).any(0)
    return index[:, outside & ~access.mask].T


def touched_by(accesses: Iterable, tensor: str) -> np.ndarray:
    """Return the offsets of the tensor's elements that these accesses touch."""
    parts = [access.offsets[access.mask].reshape(-1) for access in accesses if access.tensor == tensor]
    return np.concatenate([np.zeros(0, np.int64), *parts])


def colour_of(program: int) -> str:
    return PALETTE[program % len(PALETTE)]


def block_of(owner: np.ndarray) -> int:
    """Return how many elements the first program owns in a row."""
    changes = np.flatnonzero(owner != owner[0]) if owner.size else []
    return int(changes[0]) if len(changes) else max(owner.size, 1)


def whole_blocks(block: int, most: int) -> int:
    """Return how many cells to put in a row: whole blocks where they fit."""
    return most // block * block if block <= most else most


def runs_of(numbers: np.ndarray) -> list[tuple[int, int]]:
    """Return sorted whole numbers as inclusive (first, last) runs."""
    if not len(numbers):
        return []
    breaks = np.flatnonzero(np.diff(numbers) != 1)
    firsts = numbers[np.concatenate([[0], breaks + 1])]
    lasts = numbers[np.concatenate([breaks, [len(numbers) - 1]])]
    return [(int(first), int(last)) for first, last in zip(firsts, lasts, strict=True)]


def spans(numbers: np.ndarray, most: int = 3) -> str:
    """Say which whole numbers these are: `0 to 7`, `0, 4, 8 and 20 more`."""
    runs = runs_of(np.unique(numbers))
    said = [f"{first:,}" if first == last else f"{first:,} to {last:,}" for first, last in runs[:most]]
    left = sum(last - first + 1 for first, last in runs[most:])
    return listed([*said, f"{left:,} more"] if left else said)
