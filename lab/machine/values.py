"""Values of many programs: arrays with a leading axis of programs, and what descriptors hold."""

import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from lab.machine.plan import Step, Value
from lab.machine.text import Type

RUN, WRAPPED = 0, 1  # of an environment: the launch, and which lanes of which value have wrapped around
FIRST = 2  # after these come the values of the plan, by number

Environment = list
Closure = Callable[[Environment, np.ndarray], None]
Closures = list[tuple[Closure, tuple[int, ...], Step]]  # each with the slots that are of no use after it, and its step


def slot(value: Value) -> int:
    """Return the place of a value in an environment."""
    return FIRST + value.number


def row_steps(value: Value) -> np.ndarray:
    """Return the bytes from the first address of a row to each of the others."""
    return np.arange(value.type.shape[-1], dtype=np.int64) * value.type.pointee.itemsize


class Descriptor(NamedTuple):
    """What a tensor descriptor or a block pointer holds; arrays over programs, sizes in elements."""

    base: np.ndarray
    shape: tuple[np.ndarray, ...]
    strides: tuple[np.ndarray, ...]
    offsets: tuple[np.ndarray, ...] = ()
    padding: str = "zero"


def as_value(argument, kind: Type):
    """Return a run-time argument as a value that all programs share; integers wrap into their type."""
    if kind.dtype is None:
        return argument
    if kind.dtype.kind == "i":
        bits = 8 * kind.dtype.itemsize
        return np.array([int(argument) % 2**bits], f"u{bits // 8}").view(kind.dtype)
    return np.array([argument]).astype(kind.dtype)


def pick(value, keep: np.ndarray):
    """Return a value for some of the programs."""
    if isinstance(value, np.ndarray):
        return value if len(value) == 1 else value[keep]
    if isinstance(value, tuple):
        parts = [pick(part, keep) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, dict):
        return {key: pick(part, keep) for key, part in value.items()}
    return value


def merge(parts: list, places: list[np.ndarray], count: int):
    """Return the value of `count` programs that was computed in parts; places: the programs of each."""
    first = parts[0]
    if isinstance(first, tuple):
        merged = [merge(list(each), places, count) for each in zip(*parts, strict=True)]
        return type(first)(*merged) if hasattr(first, "_fields") else tuple(merged)
    if not isinstance(first, np.ndarray):
        return first
    out = np.empty((count, *np.broadcast_shapes(*(part.shape[1:] for part in parts))), first.dtype)
    for part, place in zip(parts, places, strict=True):
        out[place] = part
    return out


def full(value: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return a value with all elements of its block, those that repeat as a view."""
    return np.broadcast_to(value, value.shape[:1] + shape)


LITERALS = {"true": True, "false": False}


def literal(text: str, kind: Type) -> np.ndarray:
    """Return the value of a constant: `1 : i32`, `dense<0xFF800000> : tensor<8xf32>`, `dense<[1, 2]> : …`."""
    text = text.rsplit(" : ", 1)[0].strip()
    text = text[len("dense<") : -1] if text.startswith("dense<") else text
    ones = (1,) * len(kind.shape)
    if "[" in text:
        words = re.findall(r"[^\[\], ]+", text)
        return np.concatenate([number(word, kind.dtype) for word in words]).reshape(1, *kind.shape)
    if text.startswith('"0x'):
        data = np.frombuffer(bytes.fromhex(text[3:-1]), kind.dtype)
        return data.reshape(1, *(kind.shape if data.size > 1 else ones))
    return number(text, kind.dtype).reshape(1, *ones)


def number(word: str, dtype: np.dtype) -> np.ndarray:
    """Return an array with the one number that a word of a constant stands for."""
    if word in LITERALS:
        return np.array([LITERALS[word]])
    bits = 8 * dtype.itemsize
    if dtype.kind == "i":
        return np.array([int(word, 0) % 2**bits], f"u{dtype.itemsize}").view(dtype)
    if dtype.kind == "b":
        return np.array([bool(int(word, 0) & 1)])
    if word.startswith("0x"):
        return np.array([int(word, 16)], f"u{dtype.itemsize}").view(dtype)
    return np.array([float(word)]).astype(dtype)
