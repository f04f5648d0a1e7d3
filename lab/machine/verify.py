"""Whether the values that an operation takes and makes fit together.

What Triton compiles always does. A text from anybody may not, and NumPy would stretch a value to fit another.
"""

import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from lab.machine.dtypes import DTYPES

if TYPE_CHECKING:
    from lab.machine.plan import Step

Shapes = list[tuple[int, ...]]
BOOL = DTYPES["i1"]


def fits(step: "Step") -> bool:
    """Return whether the types of what a step takes and makes fit together."""
    taken, made = [value.type.shape for value in step.inputs], [value.type.shape for value in step.outputs]
    if step.name.startswith("tt.descriptor_") or (step.name in MOVED and step.inputs[0].type.block is not None):
        return fits_a_block(step)
    kinds = [value.type for value in step.inputs]
    if step.name in MOVED:
        pointee = kinds[0].pointee
        wanted = [pointee if each == "value" else BOOL for each in MOVED[step.name]]
        if pointee is None or [kind.dtype for kind in kinds[1:]] != wanted[: len(kinds) - 1]:
            return False
    if step.name in CONDITIONS and kinds[0].dtype != BOOL:
        return False
    if step.name.startswith(("arith.", "math.")) and len({*kinds[step.name == "arith.select" :]}) > 1:
        return False
    return RULES.get(step.name, same)(step, taken, made)


def fits_a_block(step: "Step") -> bool:
    """Return whether a step moves as many elements as the block has to which its descriptor or pointer leads."""
    block = step.inputs[0].type.block
    moved = step.outputs or [value for value in step.inputs[1:] if value.type.shape][-1:]
    if block is None or len(moved) != 1 or moved[0].type.dtype != block.dtype:
        return False
    if step.name in ("tt.descriptor_gather", "tt.descriptor_scatter"):
        (rows,), (count, width) = step.inputs[1].type.shape, moved[0].type.shape
        return rows == count and width == block.shape[1] and step.inputs[2].type.shape == ()
    places = step.inputs[1 : 1 + len(block.shape)] if step.name.startswith("tt.descriptor_") else []
    return all(value.type.shape == () for value in places) and (
        math.prod(moved[0].type.shape) == math.prod(block.shape)
    )


def same(step: "Step", taken: Shapes, made: Shapes) -> bool:
    return len({*taken, *made}) <= 1


def anything(step: "Step", taken: Shapes, made: Shapes) -> bool:
    return True


def numbers(step: "Step", taken: Shapes, made: Shapes) -> bool:
    return not any(taken)


def selects(step: "Step", taken: Shapes, made: Shapes) -> bool:
    return same(step, taken[1:], made) and taken[0] in ((), made[0])


def broadcasts(step: "Step", taken: Shapes, made: Shapes) -> bool:
    return len(taken[0]) == len(made[0]) and all(a in (1, b) for a, b in zip(taken[0], made[0], strict=True))


def expands(step: "Step", taken: Shapes, made: Shapes) -> bool:
    axis = int(step.operation.attributes["axis"])
    return made[0] == (*taken[0][:axis], 1, *taken[0][axis:])


def reshapes(step: "Step", taken: Shapes, made: Shapes) -> bool:
    return math.prod(taken[0]) == math.prod(made[0])


def transposes(step: "Step", taken: Shapes, made: Shapes) -> bool:
    order = [int(axis) for axis in re.findall(r"\d+", step.operation.attributes["order"].partition(":")[2])]
    return sorted(order) == list(range(len(taken[0]))) and made[0] == tuple(taken[0][axis] for axis in order)


def joins(step: "Step", taken: Shapes, made: Shapes) -> bool:
    return taken[0] == taken[1] and made[0] == (*taken[0], 2)


def splits(step: "Step", taken: Shapes, made: Shapes) -> bool:
    return made[0] == made[1] and taken[0] == (*made[0], 2)


def concatenates(step: "Step", taken: Shapes, made: Shapes) -> bool:
    return taken[0] == taken[1] and made[0] == (2 * taken[0][0], *taken[0][1:])


def gathers(step: "Step", taken: Shapes, made: Shapes) -> bool:
    axis = int(step.operation.attributes["axis"])
    source, index = taken
    return index == made[0] and (*source[:axis], *source[axis + 1 :]) == (*index[:axis], *index[axis + 1 :])


def counts(step: "Step", taken: Shapes, made: Shapes) -> bool:
    return len(made[0]) == 1 and len(taken[0]) == 1 and same(step, taken, [])


def multiplies(step: "Step", taken: Shapes, made: Shapes) -> bool:
    (*batch, m, k), b, c = taken
    return b[:-1] == (*batch, k) and c == made[0] == (*batch, m, b[-1])


def multiplies_scaled(step: "Step", taken: Shapes, made: Shapes) -> bool:
    (*batch, m, n), a = made[0], taken[0]
    b = taken[2 if " scale %" in step.operation.text.split(", ")[0] else 1]
    # Two numbers may share a byte.
    return taken[-1] == made[0] and list(a[:-2]) == batch and m in (a[-2], 2 * a[-2]) and n in (b[-1], 2 * b[-1])


def reduces(step: "Step", taken: Shapes, made: Shapes) -> bool:
    axis = int(step.operation.attributes["axis"])
    left = (*taken[0][:axis], *taken[0][axis + 1 :])
    return same(step, taken, []) and len(left) == len(taken[0]) - 1 and all(shape == left for shape in made)


def counts_up(step: "Step", taken: Shapes, made: Shapes) -> bool:
    start, end = (int(step.operation.attributes[name]) for name in ("start", "end"))
    return made[0] == (end - start,)


def describes(step: "Step", taken: Shapes, made: Shapes) -> bool:
    block = step.outputs[0].type.block
    parts = 2 if step.name == "tt.make_tensor_descriptor" else 3
    base = step.inputs[0].type.pointee
    return not any(taken) and len(taken) == 1 + parts * len(block.shape) and base == block.dtype


def advances(step: "Step", taken: Shapes, made: Shapes) -> bool:
    pointer = step.inputs[0].type
    return not any(taken) and pointer == step.outputs[0].type and len(taken) == 1 + len(pointer.block.shape)


MOVED = {  # → what stands behind the pointer
    "tt.load": ("mask", "value"),
    "tt.store": ("value", "mask"),
    "tt.atomic_rmw": ("value", "mask"),
    "tt.atomic_cas": ("value", "value"),
}
CONDITIONS = {"scf.if", "scf.condition", "cf.cond_br", "arith.select"}
RULES: dict[str, Callable[["Step", Shapes, Shapes], bool]] = {
    "arith.select": selects,
    "tt.make_range": counts_up,
    "tt.splat": numbers,
    "tt.unsplat": lambda step, taken, made: math.prod(taken[0]) == 1 and made[0] == (),
    "tt.broadcast": broadcasts,
    "tt.expand_dims": expands,
    "tt.reshape": reshapes,
    "tt.trans": transposes,
    "tt.join": joins,
    "tt.split": splits,
    "tt.cat": concatenates,
    "tt.gather": gathers,
    "tt.histogram": counts,
    "tt.dot": multiplies,
    "tt.dot_scaled": multiplies_scaled,
    "tt.reduce": reduces,
    "tt.make_tensor_descriptor": describes,
    "tt.make_tensor_ptr": describes,
    "tt.advance": advances,
    "scf.if": lambda step, taken, made: taken == [()],
    "scf.for": lambda step, taken, made: not any(taken[:3]) and taken[3:] == made,
    "cf.cond_br": lambda step, taken, made: taken == [()],
    **dict.fromkeys(("scf.condition", "scf.while", "scf.yield", "tt.call", "tt.return", "name", "tt.print"), anything),
    **dict.fromkeys(("tt.reduce.return", "tt.scan.return", "tt.map_elementwise.return"), numbers),
}
