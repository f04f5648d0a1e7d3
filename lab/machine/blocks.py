"""Operations on whole blocks as functions of arrays: those that lay elements out anew, and products."""

import math
import re
from collections.abc import Callable

import numpy as np

from lab.machine.dtypes import DTYPES, poison, round_to, widen
from lab.machine.plan import Step
from lab.machine.values import full


def splat(step: Step):
    ones = (1,) * len(step.outputs[0].type.shape)
    return lambda x: x.reshape(x.shape[:1] + ones)


def unsplat(step: Step):
    return lambda x: x.reshape(len(x))


def expand_dims(step: Step):
    axis = int(step.operation.attributes["axis"]) + 1
    return lambda x: np.expand_dims(x, axis)


def same(step: Step):
    return lambda x: x


def reshape(step: Step):
    source, target = step.inputs[0].type.shape, step.outputs[0].type.shape
    ones = (1,) * len(target)
    return lambda x: x.reshape(x.shape[:1] + ones) if x.size == len(x) else full(x, source).reshape(len(x), *target)


def transpose(step: Step):
    order = [0] + [int(axis) + 1 for axis in numbers(step.operation.attributes["order"])]
    return lambda x: x.transpose(order)


def numbers(text: str) -> list[int]:
    """Return the integers in `array<i32: 1, 0>`."""
    return [int(number) for number in re.findall(r"-?\d+", text.partition(":")[2])]


def join(step: Step):
    shape = step.inputs[0].type.shape
    return lambda a, b: np.stack(np.broadcast_arrays(full(a, shape), full(b, shape)), axis=-1)


def concatenate(step: Step):
    shape = step.inputs[0].type.shape
    return lambda a, b: np.concatenate(np.broadcast_arrays(full(a, shape), full(b, shape)), axis=1)


def gather(step: Step):
    axis = int(step.operation.attributes["axis"]) + 1
    source, index = (value.type.shape for value in step.inputs)

    def take(x, at):
        count = max(len(x), len(at))
        x, at = np.broadcast_to(x, (count, *source)), np.broadcast_to(at, (count, *index)).astype(np.int64)
        # An index outside of the block is undefined on a GPU: it must not end the process.
        return np.take_along_axis(x, at % source[axis - 1], axis)

    return take


def histogram(step: Step):
    shape, (bins,), dtype = step.inputs[0].type.shape, step.outputs[0].type.shape, step.outputs[0].type.dtype

    def count(x, mask=None):
        programs = max(len(x), 1 if mask is None else len(mask))
        x = np.broadcast_to(x, (programs, *shape)).astype(np.int64)
        keep = np.broadcast_to(True if mask is None else mask, x.shape) & (x >= 0) & (x < bins)
        at = (np.arange(programs)[:, None] * bins + x)[keep]
        return np.bincount(at, minlength=programs * bins).reshape(programs, bins).astype(dtype)

    return count


def dot(step: Step):
    (a, b, _), result = (value.type for value in step.inputs), step.outputs[0].type.dtype
    integers = a.dtype.kind == "i"
    work = np.float64 if integers or a.element == "f64" else np.float32
    tf32 = a.element == "f32" and step.operation.attributes.get("inputPrecision") == "tf32"

    def multiply(x, y, acc):
        x, y = (full(v, t.shape).astype(work, copy=False) for v, t in ((x, a), (y, b)))
        if tf32:
            x, y = cut_to_tf32(x), cut_to_tf32(y)
        product = np.matmul(x, y)
        if integers:
            return product.astype(result) + acc
        return (product + acc.astype(work, copy=False)).astype(result, copy=False)

    return multiply


def cut_to_tf32(x: np.ndarray) -> np.ndarray:
    """Drop the 13 bits of the fraction that a tensor core does not read."""
    return (np.ascontiguousarray(x).view(np.int32) & ~0x1FFF).view(np.float32)


def dot_scaled(step: Step):
    """A product of blocks of which each 32 elements share a scale, as a Hopper GPU has it: scaled to 16 bits first."""
    operation, acc = step.operation, step.inputs[-1]
    formats = [operation.attributes["lhs"], operation.attributes["rhs"]]
    compute = DTYPES["f16" if "fp16" in formats else "bf16"]
    fast = operation.attributes["fastMath"] == "true"
    operands = operation.text.split(" lhs = ")[0].split(", ")
    inputs = iter(step.inputs)
    sides = []
    for side, operand, form in zip(("lhs", "rhs"), operands, formats, strict=False):
        value, scale = next(inputs), next(inputs) if " scale %" in operand else None
        if scale and scale.type.element != "i8":
            raise NotImplementedError(f"the scales of `tt.dot_scaled` are powers of 2, not {scale.type.element}")
        along_k = -1 if side == "lhs" else -2
        packed = operation.attributes.get(f"{side}_k_pack") != "false"
        axis = along_k if packed else -3 - along_k
        sides.append((value.type.shape, scale and scale.type.shape, axis if form == "e2m1" else None, along_k))

    def multiply(*arrays):
        rest, factors = iter(arrays), []
        for shape, scales, packed_axis, along_k in sides:
            x = full(next(rest), shape)
            x = widen(x) if packed_axis is None else unpacked(x, packed_axis)
            x = round_to(x, compute)
            if scales is not None:
                exponents = np.repeat(full(next(rest), scales).view(np.uint8), 32, axis=-1)
                exponents = exponents if along_k == -1 else exponents.swapaxes(-1, -2)
                x = round_to(widen(x) * widen(power_of_two(exponents, compute)), compute)
                x = x if fast else np.where(exponents == 255, poison(compute), x)
            factors.append(widen(x))
        return np.matmul(*factors) + full(next(rest), acc.type.shape)

    return multiply


def unpacked(pairs: np.ndarray, axis: int) -> np.ndarray:
    """Return the numbers of which each byte holds two, the one in the lower bits first, in a row along an axis."""
    bits = pairs.view(np.uint8)
    axis %= bits.ndim
    numbers = np.stack([E2M1_VALUES[bits & 15], E2M1_VALUES[bits >> 4]], axis=axis + 1)
    return numbers.reshape(*bits.shape[:axis], -1, *bits.shape[axis + 1 :])


def power_of_two(exponents: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return the scales that e8m0 bytes stand for; byte 0 gives 0, since a GPU makes it the exponent of a float."""
    return round_to((exponents.astype(np.uint32) << 23).view(np.float32), dtype)


E2M1_VALUES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def halves(function: Callable, values: list[np.ndarray], length: int) -> list[np.ndarray]:
    """Combine the first `length` entries along the first axis with the next ones."""
    shape = values[0][:length].shape
    flat = [x[:length].reshape(-1) for x in values] + [x[length : 2 * length].reshape(-1) for x in values]
    return [np.broadcast_to(x, math.prod(shape)).reshape(shape) for x in function(flat)]


def accumulate(function: Callable, values: list[np.ndarray]) -> list[np.ndarray]:
    """Combine each entry along the first axis with all before it."""
    distance = 1
    while distance < len(values[0]):
        shape = values[0][distance:].shape
        flat = [x[:-distance].reshape(-1) for x in values] + [x[distance:].reshape(-1) for x in values]
        new = [np.broadcast_to(x, math.prod(shape)).reshape(shape) for x in function(flat)]
        values = [np.concatenate([x[:distance], y]) for x, y in zip(values, new, strict=True)]
        distance *= 2
    return values


LAYOUT = {
    "tt.splat": splat,
    "tt.unsplat": unsplat,
    "tt.expand_dims": expand_dims,
    "tt.broadcast": same,
    "tt.reshape": reshape,
    "tt.trans": transpose,
}


BLOCKWISE = {
    "tt.join": join,
    "tt.cat": concatenate,
    "tt.gather": gather,
    "tt.histogram": histogram,
    "tt.dot": dot,
    "tt.dot_scaled": dot_scaled,
    "tt.ptr_to_int": same,
    "tt.int_to_ptr": lambda step: lambda x: x.astype(np.int64),
}
