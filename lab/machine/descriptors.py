"""Where a tensor descriptor or a block pointer leads, and what a GPU's copy engine asks of it."""

import functools
from collections.abc import Iterable, Iterator

import numpy as np

from lab.machine.blocks import numbers
from lab.machine.plan import Step
from lab.machine.values import Descriptor, slot

COPY_UNIT = 16  # bytes: what the copy engine of a Hopper GPU moves at least, and counts addresses in


def broken_rules(made: Descriptor, block: tuple[int, ...], size: int) -> Iterator[tuple[np.ndarray, str]]:
    """Yield (programs that break it, the rule) for a descriptor of elements of `size` bytes."""
    *strides, last = made.strides
    if block[-1] * size < COPY_UNIT:
        yield np.ones(1, bool), f"the last axis of its block must hold {COPY_UNIT} bytes or more"
    for wrong, rule in (
        (made.base % COPY_UNIT != 0, f"its tensor must begin at a multiple of {COPY_UNIT} bytes"),
        (any_of([stride * size % COPY_UNIT != 0 for stride in strides]),
         f"all its strides but the last must be multiples of {COPY_UNIT} bytes, {COPY_UNIT // size} elements"),
        (last != 1, "its last stride must be 1"),
        (any_of([extent <= 0 for extent in made.shape]), "each of its axes must have an element"),
    ):  # fmt: skip
        if np.any(wrong):
            yield wrong, rule


def broken_offsets(offsets: tuple[np.ndarray, ...], size: int, is_load: bool) -> Iterator[tuple[np.ndarray, str]]:
    """Yield (programs that break it, the rule) for the offsets of a block: an H200 ends a program that breaks one."""
    odd = offsets[-1].astype(np.int64) * size % COPY_UNIT != 0
    if odd.any():
        yield odd, f"its last offset must be a multiple of {COPY_UNIT} bytes, {COPY_UNIT // size} elements"
    negative = any_of([offset < 0 for offset in offsets])
    if not is_load and np.any(negative):
        yield negative, "only a load may begin at a negative offset"


def any_of(parts: list[np.ndarray]) -> np.ndarray:
    """Return for which programs one of these is true."""
    return functools.reduce(np.logical_or, parts, np.zeros(1, bool))


def first_of(wrong: np.ndarray, ids: np.ndarray) -> int:
    """Return the first program for which something is true."""
    return int(ids[np.broadcast_to(wrong, len(ids))].min())


def offset_slots(step: Step) -> list[int]:
    """Return the slots of what says where in its tensor a block lies: a block pointer, or a descriptor's offsets."""
    pointer = step.inputs[0]
    if not step.name.startswith("tt.descriptor_"):
        return [slot(pointer)]
    return [slot(value) for value in step.inputs[1 : 1 + len(pointer.type.block.shape)]]


def boundary(step: Step) -> list[int]:
    return numbers(step.operation.attributes.get("boundaryCheck", ""))


def block_addresses(block: Descriptor, offsets, shape, size: int, checked: Iterable[int]):
    """Return the address of each element of a block [programs, *shape], and which of them lie inside (None for all)."""
    rank = len(shape)
    address = block.base.reshape(-1, *[1] * rank)
    mask = None
    for axis, (offset, extent, stride, length) in enumerate(
        zip(offsets, block.shape, block.strides, shape, strict=True)
    ):
        column = [-1] + [1] * rank
        span = [1] + [1] * rank
        span[axis + 1] = length
        at = offset.astype(np.int64).reshape(column) + np.arange(length).reshape(span)
        address = address + at * stride.astype(np.int64).reshape(column) * size
        if axis in checked:
            inside = (at >= 0) & (at < extent.astype(np.int64).reshape(column))
            mask = inside if mask is None else mask & inside
    return address, None if mask is None or mask.all() else mask
