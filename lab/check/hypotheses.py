"""Which mistake gives just the values that came? The reference is asked what would be right if it were made.

A hypothesis is tested before it is told: its values must be those of the answer, and must not be those that are right.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import torch

from lab.check.inputs import FrozenTensor
from lab.check.question import (
    Expected,
    Question,
    call_reference,
    contiguous,
    is_floating,
    one_thread,
    thawed,
    widened,
)
from lab.task import mistakes_of
from lab.words import counted, listed, number, was

BLOCKS = [2**power for power in range(2, 13)]  # elements that one step of a loop may take
Results = torch.Tensor | tuple[torch.Tensor, ...]
SEVERAL = 3  # tensors of which each combination is tried


class Hypothesis(NamedTuple):
    """A mistake in words, and what makes the results from the arguments of a call if it is made."""

    words: str
    results: Callable[[list], Results]


def guess_mistake(question: Question, expected: Expected, actual: torch.Tensor, kinds: Iterable) -> str:
    """Return the first mistake of these kinds under which the reference gives what the answer gave, "" if none does."""
    arguments = list(thawed(question.inputs))
    own = next(position for position, one in enumerate(question.expected) if one is expected)
    with one_thread():
        for hypothesis in itertools.chain.from_iterable(kind(question, arguments) for kind in kinds):
            try:
                value = several(hypothesis.results(arguments))[own].cpu()
            except Exception:  # what the reference cannot take, the answer did not do
                continue
            if value.shape == actual.shape and explains(value, expected, actual):
                return hypothesis.words
    return ""


def close(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Return whether two tensors hold the same values but for roundings; a constant proves nothing.

    The first of them has the dtype that the task asks for.
    """
    exact = not a.is_floating_point()
    rough = 2 * torch.finfo(a.dtype).eps if a.dtype in (torch.float16, torch.bfloat16) else 2e-5
    a, b = a.double().reshape(-1), b.double().reshape(-1)
    if a.shape != b.shape or a.numel() < 2 or bool((b == b[0]).all()):
        return False
    if exact:
        return torch.equal(a, b)
    largest = b[b.isfinite()].abs().max().item() if bool(b.isfinite().any()) else 1.0
    return torch.allclose(a, b, rtol=rough, atol=2e-6 * min(1.0, largest), equal_nan=True)


def explains(other: torch.Tensor, expected: Expected, actual: torch.Tensor) -> bool:
    """Return whether the answer gave this other tensor; one that is as good as right explains nothing.

    Nor is anything explained by NaN alone: NaN comes of many mistakes.
    """
    if close(expected.value, other) or not close(actual, other):
        return False
    finite = actual.isfinite() & other.isfinite().to(actual.device)
    return not close(expected.value[finite], actual[finite].double()) and bool(
        (expected.value[finite] != actual[finite]).any()
    )


def result_of(arguments: Sequence, question: Question, expected: Expected) -> torch.Tensor:
    """Return what would be right in the place of `expected` if these were the arguments."""
    values = call_reference(question.task, arguments)
    return next(value for value, one in zip(values, question.expected, strict=True) if one is expected)


def right_for(question: Question, changed: list) -> Callable[[list], Results]:
    """Return what gives the results of the reference for changed arguments, in float64."""
    return lambda arguments: question.task.reference(*map(widened, changed))


def replaced(arguments: list, changes: Mapping[int, object]) -> list:
    """Return the arguments with those at some positions replaced."""
    return [changes.get(position, argument) for position, argument in enumerate(arguments)]


def tensors_of(arguments: list) -> list[tuple[int, torch.Tensor]]:
    """Return position and value of the arguments that are tensors with elements."""
    return [(i, a) for i, a in enumerate(arguments) if isinstance(a, torch.Tensor) and a.numel()]


def named(question: Question, positions: Iterable[int]) -> str:
    """Return the names of arguments in words."""
    return listed([f"`{question.name(position)}`" for position in positions])


# Another formula


def known_formulas(question: Question, arguments: list) -> Iterator[Hypothesis]:
    """Yield the mistakes that are known of this task, with blocks of every size where they depend on one."""
    longest = max((max(tensor.shape, default=1) for _, tensor in tensors_of(arguments)), default=1)
    blocks = [block for block in BLOCKS if block < 2 * longest]
    for mistake in mistakes_of(question.task):
        for block in blocks if mistake.takes_block else [0]:
            named = {"block": block} if mistake.takes_block else {}

            def results(arguments: list, formula=mistake.formula, named=named):
                return formula(*map(widened, arguments), **named)

            yield Hypothesis(mistake.words.format(block=block), results)


# Other inputs


def other_inputs(question: Question, arguments: list) -> Iterator[Hypothesis]:
    """Yield two inputs exchanged, one in the place of another, one unused, and a mask the wrong way round."""
    tensors = tensors_of(arguments)
    alike = [
        (i, j) for (i, a), (j, b) in itertools.permutations(tensors, 2) if (a.shape, a.dtype) == (b.shape, b.dtype)
    ]
    for i, j in alike:
        if i < j:
            changed = replaced(arguments, {i: arguments[j], j: arguments[i]})
            yield Hypothesis(f"{named(question, (i, j))} have changed places.", right_for(question, changed))
    for i, j in alike:
        changed = replaced(arguments, {i: arguments[j]})
        words = f"`{question.name(j)}` is used where `{question.name(i)}` belongs."
        yield Hypothesis(words, right_for(question, changed))
    for i, tensor in tensors:
        if is_floating(tensor):
            words = f"the result is right if every element of `{question.name(i)}` were 1: does the kernel use it?"
            yield Hypothesis(words, right_for(question, replaced(arguments, {i: torch.ones_like(tensor)})))
        if tensor.dtype == torch.bool:
            words = f"`{question.name(i)}` is used the wrong way round: the two values of the choice change places."
            yield Hypothesis(words, right_for(question, replaced(arguments, {i: tensor.logical_not()})))


def other_numbers(question: Question, arguments: list) -> Iterator[Hypothesis]:
    """Yield other values of the arguments that are numbers: neutral ones, inverted ones, and two exchanged."""
    numbers = [(i, a) for i, a in enumerate(arguments) if isinstance(a, (int, float)) and not isinstance(a, bool)]
    for i, value in numbers:
        others = [0, 1, -value, float("inf"), -float("inf")] + ([1 / value] if value else [])
        for other in others:
            if other == value:
                continue
            words = f"the result is right for {number(float(other))} in the place of `{question.name(i)}`, which is "
            words += f"{number(value)} here: does it enter as it should?"
            if abs(other) == float("inf"):
                words = f"`{question.name(i)}` limits nothing: the result is right without that limit."
            yield Hypothesis(words, right_for(question, replaced(arguments, {i: other})))
    for (i, a), (j, b) in itertools.combinations(numbers, 2):
        words = f"{named(question, (i, j))} have changed places."
        yield Hypothesis(words, right_for(question, replaced(arguments, {i: b, j: a})))


# Inputs that are read at other places


def other_layouts(question: Question, arguments: list) -> Iterator[Hypothesis]:
    """Yield inputs whose strides are ignored, exchanged, added, or taken from another input."""
    flat = {i: placed(arguments[i], row_major(arguments[i])) for i, _ in strided_inputs(question)}
    together = [flat] if len(flat) > 1 else []
    for change in [{i: tensor} for i, tensor in flat.items()] + together:
        if None in change.values():
            continue
        them = ", ".join(f"{list(arguments[i].stride())}" for i in change)
        words = f"{named(question, change)} {was(len(change), 'is', 'are')} read as if "
        words += f"{was(len(change), 'its', 'their')} elements lay side by side, but "
        words += f"{was(len(change), 'its', 'their')} strides are {them}."
        yield Hypothesis(words, right_for(question, replaced(arguments, change)))
    for i, tensor in tensors_of(arguments):
        for words, strides, offset in misread(question, arguments, i):
            moved = placed(tensor, strides, offset)
            if moved is not None and (tuple(strides), offset) != (tensor.stride(), 0):
                yield Hypothesis(words, right_for(question, replaced(arguments, {i: moved})))


def misread(question: Question, arguments: list, i: int) -> Iterator[tuple[str, tuple[int, ...], int]]:
    """Yield other strides, and elements by which the first one is missed, that an input may be read with."""
    name, tensor = question.name(i), arguments[i]
    own = tensor.stride()
    if tensor.dim() == 2:
        yield f"the strides of `{name}` have changed places: it is read transposed.", own[::-1], 0
    if tensor.dim() == 1:
        yield f"the stride of `{name}`, {own[0]}, is added to its offsets: multiply them by it.", (1,), own[0]
    for axis, stride in enumerate(own):
        if stride != 1 and tensor.dim() > 1:
            words = f"`{name}` is read as if its stride along axis {axis} were 1; it is {stride}."
            yield words, own[:axis] + (1,) + own[axis + 1 :], 0
    for j, other in tensors_of(arguments):
        if j != i and other.dim() == tensor.dim() and other.stride() != own:
            words = f"`{name}` is read with the strides of `{question.name(j)}`, {list(other.stride())}; its own are "
            yield f"{words}{list(own)}.", other.stride(), 0


def placed(tensor: torch.Tensor, strides: Sequence[int], offset: int = 0) -> torch.Tensor | None:
    """Return the tensor read with other strides from another first element, None where memory ends before that."""
    last = offset + sum((size - 1) * stride for size, stride in zip(tensor.shape, strides, strict=True))
    first = int(tensor.storage_offset())
    if first + last >= tensor.untyped_storage().nbytes() // tensor.element_size():
        return None
    return tensor.as_strided(tensor.shape, tuple(strides), first + offset)


def row_major(tensor: torch.Tensor) -> tuple[int, ...]:
    """Return the strides that a tensor would have if it were contiguous."""
    strides = [1]
    for size in reversed(tensor.shape[1:]):
        strides.insert(0, strides[0] * size)
    return tuple(strides[: tensor.dim()])


def strided_inputs(question: Question) -> list[tuple[int, FrozenTensor]]:
    """Return position and layout of the inputs that do not lie contiguous."""
    arguments = enumerate(question.inputs.arguments)
    return [(i, a) for i, a in arguments if isinstance(a, FrozenTensor) and a.shape and not contiguous(a)]


def first_of_an_axis(question: Question, arguments: list) -> Iterator[Hypothesis]:
    """Yield inputs of which index 0 along an axis is read for every index."""
    for axis in range(max((tensor.dim() for _, tensor in tensors_of(arguments)), default=0)):
        long = [(i, tensor) for i, tensor in tensors_of(arguments) if tensor.dim() > axis and tensor.shape[axis] > 1]
        for chosen in combinations_of(long):
            changes = {i: tensor.narrow(axis, 0, 1).expand_as(tensor) for i, tensor in chosen}
            words = f"for every index along axis {axis}, {named(question, changes)} {was(len(changes), 'is', 'are')} "
            words += f"read at index 0: do the offsets grow along axis {axis}?"
            yield Hypothesis(words, right_for(question, replaced(arguments, changes)))


def first_block_everywhere(question: Question, arguments: list) -> Iterator[Hypothesis]:
    """Yield inputs of which every program reads the block of program 0, along an axis that the result has as well."""
    lengths = {size for one in question.expected for size in one.value.shape}
    for length, axes in loops(question, arguments, sums=False):
        if length not in lengths:
            continue
        for block in (block for block in BLOCKS if block < length):
            order = torch.arange(length) % block
            changes = {i: arguments[i].index_select(axis, order.to(arguments[i].device)) for i, axis in axes.items()}
            yield Hypothesis(
                f"every program reads elements 0 to {block - 1} along {in_words(question, axes)}: do the offsets begin "
                "with `tl.program_id(0)`, times the block size?",
                right_for(question, replaced(arguments, changes)),
            )


def combinations_of(tensors: list) -> Iterator[tuple]:
    """Yield all of them, and then every smaller choice, as long as they are few."""
    few = tensors[:SEVERAL]
    for count in range(len(few), 0, -1):
        yield from itertools.combinations(few, count)


# Loops that leave something out, or let something in


def loops(question: Question, arguments: list, sums: bool) -> Iterator[tuple[int, dict[int, int]]]:
    """Yield lengths of axes of inputs, and which axis of which inputs they are: what a loop or a block goes along.

    sums: only such axes as are gone in the results.
    """
    axes = [(i, axis, size) for i, tensor in tensors_of(arguments) for axis, size in enumerate(tensor.shape)]
    for length in dict.fromkeys(size for _, _, size in axes if size > 1):
        here = [(i, axis) for i, axis, size in axes if size == length]
        for chosen in combinations_of(here):
            along = dict(chosen)
            shapes = shapes_when_shorter(question, arguments, along) if len(along) == len(chosen) else None
            if shapes is not None and not (sums and shapes != [one.value.shape for one in question.expected]):
                yield length, along


def shapes_when_shorter(question: Question, arguments: list, axes: dict[int, int]) -> list[torch.Size] | None:
    """Return the shapes of the results where axes are one element shorter, None where the reference refuses that."""
    shorter = {i: arguments[i].narrow(axis, 0, arguments[i].shape[axis] - 1) for i, axis in axes.items()}
    try:
        return [value.shape for value in several(question.task.reference(*replaced(arguments, shorter)))]
    except Exception:  # sizes no longer agree
        return None


def parts_of_an_axis(question: Question, arguments: list) -> Iterator[Hypothesis]:
    """Yield loops of which only some steps count: the first one, two or three, the last, all but one."""
    for length, axes in loops(question, arguments, sums=True):
        for begin, end in parts_of(length):
            changes = {i: arguments[i].narrow(axis, begin, end - begin) for i, axis in axes.items()}
            words = "does the loop go on to the end?" if begin == 0 else "does every step of the loop add to the sum?"
            told = f"only elements {begin} to {end - 1} of {length} along {in_words(question, axes)} count: {words}"
            yield Hypothesis(told, right_for(question, replaced(arguments, changes)))


def parts_of(length: int) -> list[tuple[int, int]]:
    """Return where parts of an axis begin and end, for steps of every size."""
    blocks = [block for block in BLOCKS if block < length]
    lasts = [(length - 1) // block * block for block in blocks]
    ends = dict.fromkeys([*lasts, *(steps * block for block in blocks for steps in (1, 2, 3))])
    begins = dict.fromkeys([*lasts, *blocks])
    return [(0, end) for end in ends if end < length] + [(begin, length) for begin in begins]


def lanes_past_the_end(question: Question, arguments: list) -> Iterator[Hypothesis]:
    """Yield blocks whose lanes past the end hold 0 and count."""
    for length, axes in loops(question, arguments, sums=False):
        for full in sorted({-(-length // block) * block for block in BLOCKS} - {length}):
            more = full - length
            changes = {i: extended(arguments[i], axis, more) for i, axis in axes.items() if is_floating(arguments[i])}

            def results(_: list, changes=changes):
                values = question.task.reference(*map(widened, replaced(arguments, changes)))
                shapes = [one.value.shape for one in question.expected]
                cut = [cut_to(value, shape) for value, shape in zip(several(values), shapes, strict=True)]
                return tuple(cut) if question.several else cut[0]

            yield Hypothesis(
                f"the result is right if {counted(more, 'lane')} past the end of {in_words(question, axes)} "
                f"{was(more, 'counts', 'count')} as 0: give {was(more, 'it', 'them')} what changes nothing, "
                "`other=0.0` before a sum and −inf before a maximum or `tl.exp`.",
                results,
            )


def several(values) -> tuple:
    """Return results as a tuple, one result as well."""
    return tuple(values) if isinstance(values, (tuple, list)) else (values,)


def extended(tensor: torch.Tensor, axis: int, more: int) -> torch.Tensor:
    """Return a tensor with zeros at the end of an axis."""
    shape = list(tensor.shape)
    shape[axis] = more
    return torch.cat([tensor, tensor.new_zeros(shape)], axis)


def cut_to(tensor: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Return the first elements of a tensor along every axis."""
    for axis, size in enumerate(shape):
        tensor = tensor.narrow(axis, 0, size)
    return tensor


def in_words(question: Question, axes: dict[int, int]) -> str:
    """Return "axis 1 of `a` and axis 0 of `b`"."""
    return listed([f"axis {axis} of `{question.name(i)}`" for i, axis in axes.items()])


# In this order.
PLACES = (known_formulas, other_inputs, other_numbers, other_layouts, first_of_an_axis, first_block_everywhere)
LOOPS = (parts_of_an_axis, lanes_past_the_end)
