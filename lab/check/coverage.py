"""Tell why programs left elements of a result alone, or reached past the end of a tensor: grid, block, mask or strides.

The record of a launch says which elements each lane of a store points to, and whether its mask was true.
"""

import math

import numpy as np

from lab.check.inputs import FrozenTensor
from lab.check.question import Question
from lab.check.runner import Evidence, Result
from lab.words import all_programs, counted, element, was

MOST_TILES = 64  # whose programs are listed


def cause_not_written(evidence: Evidence, result: Result) -> str:
    """Return why no program stored some elements of a result."""
    owner = result.owner
    assert owner is not None and result.reached is not None
    missing, owners = owner < 0, owner[owner >= 0]
    launched = max((launch["programs"] for launch in evidence.launches), default=0)
    lost = missing & result.reached
    overlaps = [fault for fault in evidence.conflicts if fault["cause"] == "write-write"]
    if missing.all() and launched == 0:
        return "the grid has no program at all: `triton.cdiv` rounds up, `//` rounds down."
    if missing.all() and not lost.any():
        return "no store of a kernel leads there: is it missing, or into another tensor than the one returned?"
    if missing.all():
        return "the mask of the store is false everywhere: is a comparison the wrong way round?"
    if np.array_equal(lost, missing):
        return mask_too_strict(missing, certain=len(result.share) == missing.ndim)
    several_axes = any(size > 1 for launch in evidence.launches for size in launch["grid"][1:])
    source = "of each axis come from a `tl.program_id` of its own" if several_axes else "begin with `tl.program_id(0)`"
    if result.programs > 1 and len(np.unique(owners)) == 1:
        return f"{all_programs(result.programs)} wrote the same elements: do the offsets {source}?"
    if overlaps:
        pair = f"{overlaps[0]['other']} and {overlaps[0]['program']}"
        ends = f"do the offsets {source}" if several_axes else "does each begin where the one before it ends"
        return f"programs {pair} wrote some of the same elements: {ends}?"
    return grid_too_small(evidence, result, launched)


def mask_too_strict(missing: np.ndarray, certain: bool) -> str:
    """Return which elements the mask keeps back: lanes point to them, and nothing is stored.

    certain: whether these lanes are meant for them, and not past the end of something else.
    """
    flat = missing.reshape(-1)
    if flat.sum() == 1 and flat[-1]:
        return "the mask stops one element early: the last element is n - 1, and it must be let through."
    first = element(np.unravel_index(int(missing.argmax()), missing.shape))
    more = int(missing.sum()) - 1
    which = f"{first}, and for {more:,} more, which exist" if more else f"{first}, which exists"
    if not certain:
        return (
            f"the mask of the store is false for {which}: is it too strict, or have axes changed places, of the grid "
            "or of the offsets?"
        )
    return (
        f"the mask of the store is too strict: it is false for {which}. Every element of the result must be stored, a "
        "0 as well."
    )


def grid_too_small(evidence: Evidence, result: Result, launched: int) -> str:
    """Return how the grid, the share of a program and the elements there are disagree."""
    tiles = tiles_of(result)
    if tiles is not None and tiles.size > 1:
        return tiles_without_program(evidence, result, tiles, launched)
    covered = launched * result.lanes
    size = math.prod(result.shape)
    gap = first_gap(result)
    if covered < size and gap:
        return f"{gap}: the grid has {counted(launched, 'program')}, and none for the rest."
    if covered < size and result.lanes == 1:
        return f"{counted(launched, 'program')} with 1 element each were launched for {size:,} elements."
    if covered < size:
        return (
            f"grid and block disagree: {counted(launched, 'program')}, {counted(result.lanes, 'element')} each, cover "
            f"{covered:,} of {size:,} elements. The number of programs must be rounded up, `triton.cdiv` does it, and "
            "the block must be the kernel's own."
        )
    return (
        f"{counted(launched, 'program')} with {counted(result.lanes, 'element')} each are enough for {size:,} "
        "elements, but their offsets do not reach all: check what the offsets of the store are made of."
    )


def first_gap(result: Result) -> str:
    """Return along which axis of a result of several axes nothing is written from some index on."""
    assert result.owner is not None
    missing = result.owner < 0
    for axis in range(missing.ndim if missing.ndim > 1 else 0):
        others = tuple(other for other in range(missing.ndim) if other != axis)
        whole = np.asarray(missing.all(axis=others))
        first = int(whole.argmax())
        if whole[first:].all() and not np.asarray(missing.any(axis=others))[:first].any():
            return f"along axis {axis} of the result, nothing is written from index {first} on"
    return ""


def tiles_of(result: Result) -> np.ndarray | None:
    """Return the program of each tile of a matrix, -1 where there is none; None where programs write no tiles."""
    shape, share = result.shape, tuple(result.share)
    if len(shape) != 2 or len(share) != 2 or 0 in shape or result.owner is None:
        return None
    rows, columns = (range(0, size, step) for size, step in zip(shape, share, strict=True))
    return np.array([[result.owner[m, n] for n in columns] for m in rows])


def tiles_without_program(evidence: Evidence, result: Result, tiles: np.ndarray, launched: int) -> str:
    """Return how the grid differs from the tiles there are, with the program of each tile."""
    share, needed = " x ".join(map(str, result.share)), " x ".join(map(str, tiles.shape))
    text = f"the result has {needed} tiles of {share} elements"
    grid = next((launch["grid"] for launch in evidence.launches if launch["programs"] == launched), [1, 1, 1])
    if tuple(grid[:2]) == tiles.shape[::-1] and grid[0] != grid[1] and launched == tiles.size:
        return f"{text}, and the grid is ({grid[0]}, {grid[1]}): its axes have changed places."
    if launched < tiles.size:
        several = "" if grid[1] == grid[2] == 1 else f", a grid of ({', '.join(map(str, grid))})"
        return f"{text}, and {counted(launched, 'program')} {was(launched)} launched{several}: `triton.cdiv` rounds up."
    return f"{text}, and not each has a program. {programs_by_tile(tiles)}".rstrip()


def programs_by_tile(tiles: np.ndarray) -> str:
    """Return the program of each tile as small text, "–" where there is none; nothing for many tiles."""
    if tiles.size > MOST_TILES:
        return ""
    rows = [" ".join("–" if program < 0 else str(program) for program in row) for row in tiles]
    return f"Their programs, row by row: {' / '.join(rows)}."


# Past the end of a tensor


def cause_out_of_bounds(question: Question, evidence: Evidence, fault: dict) -> str:
    """Return why an access left its tensor."""
    verb = "load" if fault["kind"] == "load" else "store"
    if fault["extremes"][0] < 0:
        return f"the offsets of the {verb} become negative: see what is subtracted."
    if verb == "store" and all(r.owner is not None and (r.owner < 0).all() for r in evidence.results):
        return "no element inside was stored, so is the mask the wrong way round?"
    return (
        too_many_programs(evidence, fault)
        or begins_late(fault, verb)
        or other_strides(question, evidence, fault, verb)
        or past_the_mask(fault, verb)
    )


def begins_late(fault: dict, verb: str) -> str:
    """Tell that an access does not begin with the first element of its tensor, though it passes the last."""
    if fault["first"] <= 0:
        return ""
    return (
        f"the first element that this {verb} reaches is {fault['first']}, and not 0: is something added to the offsets "
        "that should multiply them, such as a stride?"
    )


def past_the_mask(fault: dict, verb: str) -> str:
    """Return what is wrong with the mask, or that there is none."""
    if not fault["masked"]:
        return f"this {verb} has no mask: it needs one that is false for every offset past the end."
    if fault["count"] == 1:
        return f"the mask of the {verb} lets one element too many through: the last one is n - 1, not n."
    return (
        f"the mask of the {verb} must be false for every offset past the end, along each axis, and here it is true for "
        "some. If it compares what it should, check the strides."
    )


def too_many_programs(evidence: Evidence, fault: dict) -> str:
    """Tell that the programs which left the tensors have nothing to do: those before them store all there is."""
    owners = [result.owner for result in evidence.results if result.owner is not None and result.owner.size]
    guilty = {each["program"] for each in evidence.out_of_bounds}
    if fault["masked"] or not owners or any((owner < 0).any() for owner in owners):
        return ""
    last = max(int(owner.max()) for owner in owners)
    if min(guilty) <= last:
        return ""
    launched = max(launch["programs"] for launch in evidence.launches)
    return (
        f"the grid has {launched} programs, and programs 0 to {last} store all there is: launch {last + 1}, or let a "
        "mask keep the others from memory."
    )


def other_strides(question: Question, evidence: Evidence, fault: dict, verb: str) -> str:
    """Name strides that lead just to the last element that was reached past the end."""
    last = max(each["extremes"][1] for each in evidence.out_of_bounds if each["tensor"] == fault["tensor"])
    tensors = [(i, a) for i, a in enumerate(question.inputs.arguments) if isinstance(a, FrozenTensor)]
    name = (fault["tensor"] or "").removesuffix("_ptr")
    for i, tensor in tensors:
        sizes, strides = tensor.shape, tensor.strides
        if verb == "load" and question.name(i) == name and len(sizes) == 2 and reach(sizes, strides[::-1]) == last:
            return f"the strides of `{name}` have changed places: just these would lead to element {last}."
        of_result = any(one.value.shape == sizes for one in question.expected)
        if verb == "store" and of_result and reach(sizes, strides) == last:
            return (
                f"the output is stored with the strides of `{question.name(i)}`, {list(strides)}: it is contiguous "
                "and has its own."
            )
    return ""


def reach(sizes: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Return the offset of the last element of a tensor."""
    return sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
