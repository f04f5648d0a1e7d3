"""Offsets that do not fit into int32: where they are computed, and which lanes of an address they spoil."""

import functools
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from lab.machine.memory import MemoryStep
from lab.machine.plan import Step
from lab.machine.values import RUN, WRAPPED, Environment, merge


class Wrapped(NamedTuple):
    """Lanes of a value that did not fit into int32, and where it was computed."""

    lanes: np.ndarray
    file: str
    line: int


EXACT = {
    "arith.addi": lambda x, y: x + y,
    "arith.subi": lambda x, y: x - y,
    "arith.muli": lambda x, y: x * y,
}


def is_checked(step: Step) -> bool:
    """Return whether a step computes part of an address in int32."""
    return step.name in EXACT and step.outputs[0].counts and step.outputs[0].type.element == "i32"


def extremes(x: np.ndarray) -> tuple[int, int]:
    if x.size == 1:
        only = int(x.item())
        return only, only
    return int(x.min()), int(x.max())


def wrap(env: Environment, target: int, lanes: np.ndarray, place) -> None:
    """Note which lanes of a value have wrapped around."""
    if env[WRAPPED] is None:
        env[WRAPPED] = {}
    before = env[WRAPPED].get(target)
    lanes = lanes if before is None else lanes | before.lanes
    env[WRAPPED][target] = Wrapped(lanes, place.file, place.line) if before is None else before._replace(lanes=lanes)


def merge_wrapped(parts: list[dict | None], places: list[np.ndarray], count: int) -> dict | None:
    """Return which lanes of which value have wrapped around in `count` programs, from the same of sets of them."""
    merged = {}
    for at in set().union(*(part for part in parts if part)):
        its = [part.get(at) if part else None for part in parts]
        first = next(each for each in its if each is not None)
        none = np.zeros((1,) * first.lanes.ndim, bool)
        merged[at] = first._replace(lanes=merge([none if each is None else each.lanes for each in its], places, count))
    return merged or None


def pass_on(env: Environment, sources: Iterable[int], target: int, layout: Callable | None = None) -> None:
    """Let a value take over the wrapped lanes of those it was computed from."""
    found = [env[WRAPPED][each] for each in sources if each in env[WRAPPED]]
    if not found:
        env[WRAPPED].pop(target, None)
        return
    lanes = functools.reduce(np.logical_or, (each.lanes for each in found))
    env[WRAPPED][target] = found[0]._replace(lanes=layout(lanes) if layout else lanes)


def pass_on_chosen(env: Environment, condition: int, a: int, b: int, target: int) -> None:
    """Let a value take over the wrapped lanes of those two of which a condition chose it."""
    taken, lanes, place = env[condition], False, None
    for side, chosen in ((a, taken), (b, ~taken)):
        if wrapped := env[WRAPPED].get(side):
            chosen = chosen.reshape(chosen.shape + (1,) * (wrapped.lanes.ndim - chosen.ndim))
            lanes, place = lanes | (wrapped.lanes & chosen), wrapped
    if place is None:
        env[WRAPPED].pop(target, None)
    else:
        env[WRAPPED][target] = place._replace(lanes=lanes)


def without_wrapped(env: Environment, slots: Iterable[int], access: MemoryStep, address, mask, ids):
    """Leave a fault for the active lanes of which an offset has wrapped around, and return a mask without them."""
    for wrapped in [env[WRAPPED][each] for each in slots if each in env[WRAPPED]]:
        address = access.lanes(address)
        lanes = wrapped.lanes.reshape(*wrapped.lanes.shape, *[1] * (address.ndim - wrapped.lanes.ndim))
        shape = np.broadcast_shapes(address.shape, lanes.shape, () if mask is None else mask.shape)
        mask = np.broadcast_to(True if mask is None else mask, shape)
        taken = mask & lanes
        if taken.any():
            told = MemoryStep(access.kind, access.dtype, access.shape, access.origin, False, wrapped.file, wrapped.line)
            told.blame_overflow(env[RUN], np.broadcast_to(address, shape)[taken], taken, ids)
        mask = mask & ~lanes
    return mask
