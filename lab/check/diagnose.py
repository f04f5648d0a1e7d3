"""Name the mistake that most likely made the wrong values of a result, from their pattern.

Each `guess_…` returns one mistake in words where it explains the result, else "".
"""

import itertools

import numpy as np
import torch

from lab.check.inputs import FrozenTensor
from lab.check.question import Expected, Question, call_reference, contiguous, thawed
from lab.check.runner import Result
from lab.words import listed, number, was

ALMOST_RIGHT = "it is almost right: something is computed in a lower precision than float32."


def likely_cause(question: Question, expected: Expected, result: Result, wrong: np.ndarray, bad: np.ndarray) -> str:
    """Return the mistake that would give just this pattern, "" if none is known.

    wrong: bool, the elements that are not right; bad: those of them that are NaN or infinite and should not be.
    """
    actual = result.tensor
    guesses = (guess_flat, guess_transposed, guess_input, guess_twin, guess_shift, guess_missing_term, guess_factor)
    texts = (guess(question, expected, actual) for guess in guesses)
    return (
        next(filter(None, texts), "")
        or guess_by_value(expected, result, wrong, bad)
        or guess_by_place(expected, result, wrong)
    )


def close(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Return whether two tensors hold the same values but for a few roundings; a constant proves nothing."""
    a, b = a.double().reshape(-1), b.double().reshape(-1)
    if a.shape != b.shape or a.numel() < 2 or bool((b == b[0]).all()):
        return False
    return torch.allclose(a, b, rtol=1e-2, atol=1e-6, equal_nan=True)


def explains(other: torch.Tensor, expected: Expected, actual: torch.Tensor) -> bool:
    """Return whether the answer gave this other tensor; one that is as good as right explains nothing."""
    return close(actual, other) and not close(other, expected.value)


def result_of(arguments: list, question: Question, expected: Expected) -> torch.Tensor:
    """Return what would be right in the place of `expected` if these were the arguments."""
    values = call_reference(question.task, arguments)
    return next(value for value, one in zip(values, question.expected, strict=True) if one is expected)


def proves(expected: Expected, right: np.ndarray) -> bool:
    """Return whether it means anything that these elements are right: one constant may be so by luck.

    So may what no input changes: the zeros of rows that see nothing, say.
    """
    values = expected.value[expected.reacts & torch.as_tensor(right)]
    return values.numel() == 1 or bool((values != values[:1]).any())


def strided_inputs(question: Question) -> list[tuple[int, FrozenTensor]]:
    """Return position and layout of the inputs that do not lie contiguous."""
    arguments = enumerate(question.inputs.arguments)
    return [
        (i, argument) for i, argument in arguments if isinstance(argument, FrozenTensor) and not contiguous(argument)
    ]


def guess_flat(question: Question, expected: Expected, actual: torch.Tensor) -> str:
    """Name an input that was read as if it lay contiguous."""
    for position, layout in strided_inputs(question):
        arguments = list(thawed(question.inputs))
        tensor = arguments[position]
        span = 1 + sum((size - 1) * stride for size, stride in zip(layout.shape, layout.strides, strict=True))
        if tensor.numel() > span:
            continue
        arguments[position] = tensor.as_strided((tensor.numel(),), (1,)).reshape(tensor.shape)
        if explains(result_of(arguments, question, expected), expected, actual):
            name, strides = question.name(position), list(layout.strides)
            return f"`{name}` is read as if its elements lay side by side, but its strides are {strides}."
    return ""


def guess_transposed(question: Question, expected: Expected, actual: torch.Tensor) -> str:
    """Name an exchange of rows and columns."""
    if actual.dim() == 2 and min(actual.shape) > 1 and explains(expected.value.t(), expected, actual):
        return "rows and columns have changed places: check which stride belongs to which axis."
    return ""


def guess_input(question: Question, expected: Expected, actual: torch.Tensor) -> str:
    """Name the input that the result is equal to."""
    for position, argument in enumerate(thawed(question.inputs)):
        if not isinstance(argument, torch.Tensor) or argument.shape != actual.shape:
            continue
        if explains(argument.cpu(), expected, actual):
            return f"the result equals `{question.name(position)}`: nothing else entered it."
    return ""


def guess_twin(question: Question, expected: Expected, actual: torch.Tensor) -> str:
    """Name the input that was used in the place of another."""
    for wanted, used in itertools.permutations(range(len(question.inputs.arguments)), 2):
        arguments = list(thawed(question.inputs))
        if not all(isinstance(arguments[i], torch.Tensor) for i in (wanted, used)):
            continue
        if arguments[wanted].shape != arguments[used].shape or arguments[wanted].dtype != arguments[used].dtype:
            continue
        arguments[wanted] = arguments[used]
        if explains(result_of(arguments, question, expected), expected, actual):
            return f"`{question.name(used)}` is used where `{question.name(wanted)}` belongs."
    return ""


def guess_shift(question: Question, expected: Expected, actual: torch.Tensor) -> str:
    """Name a shift by one element."""
    got, right = actual.reshape(-1), expected.value.reshape(-1)
    if got.numel() > 3 and (close(got[1:], right[:-1]) or close(got[:-1], right[1:])):
        return "every element stands one place beside where it belongs: check the first offset."
    return ""


def guess_missing_term(question: Question, expected: Expected, actual: torch.Tensor) -> str:
    """Name the input that is missing from the result, or in it once too often."""
    difference = expected.exact.double() - actual.double()
    for position, argument in enumerate(thawed(question.inputs)):
        if not isinstance(argument, torch.Tensor) or argument.dim() == 0 or argument.shape != actual.shape:
            continue
        for sign, text in ((1, "is missing from the result"), (-1, "is in the result once too often")):
            if close(sign * difference, argument.cpu()):
                return f"`{question.name(position)}` {text}."
    return ""


def guess_factor(question: Question, expected: Expected, actual: torch.Tensor) -> str:
    """Name the factor by which every element is off."""
    right, got = expected.exact.double().reshape(-1), actual.double().reshape(-1)
    used = (right.abs() > 1e-3) & right.isfinite()
    ratios = got[used] / right[used]
    if ratios.numel() < 3 or not bool(ratios.isfinite().all()):
        return ""
    middle = ratios.median().item()
    if abs(middle - 1) > 0.02 and abs(middle) > 1e-6 and bool(((ratios - middle).abs() < 0.01 * abs(middle)).all()):
        return f"every element is {number(middle)} times what it should be."
    return ""


def guess_by_value(expected: Expected, result: Result, wrong: np.ndarray, bad: np.ndarray) -> str:
    """Name a mistake by what stands in the wrong elements."""
    actual = result.tensor
    if bad.any() and result.owner is None:
        return "NaN stands where the output was never written, or was read before it was: check offsets and masks."
    if bad.any():
        return (
            "masked lanes of a load hold anything: give it `other=`, and see what is divided by or taken the root of."
        )
    if actual.numel() > 1 and bool((actual == actual.reshape(-1)[0]).all()):
        return f"the result is {number(actual.reshape(-1)[0].item())} everywhere: does the kernel use what it loads?"
    right = expected.exact.double()
    error, size = (actual.double() - right).abs(), right.abs()
    near = error < 1e-2 * torch.maximum(size, size[size.isfinite()].median())
    if actual.is_floating_point() and near[torch.as_tensor(wrong)].all():
        return ALMOST_RIGHT
    return ""


def guess_by_place(expected: Expected, result: Result, wrong: np.ndarray) -> str:
    """Name a mistake by where the wrong elements are, and whose, unless the others are right by luck."""
    if not proves(expected, ~wrong):
        return ""
    flat = wrong.reshape(-1)
    if result.owner is not None:
        owners, guilty = np.unique(result.owner), np.unique(result.owner[wrong])
        firsts = [int(np.argmax(result.owner.reshape(-1) == program)) for program in owners]
        others_right = proves(expected, ~np.isin(result.owner, guilty))
        if others_right and guilty.tolist() == owners[1:].tolist() and owners[0] == 0:
            return "only program 0 is right: do all offsets begin with `tl.program_id(0)`, times the block size?"
        if others_right and guilty.tolist() == [owners[-1]]:
            return "only the last program is wrong: look at what its mask leaves out."
        if len(owners) > 1 and np.flatnonzero(flat).tolist() == firsts:
            return "only the first element of each program is wrong."
    first = int(flat.argmax())
    if first > 0 and flat[first:].all():
        return f"everything from element {first} on is wrong: check the end of the offsets and the mask."
    return ""


def guess_strides(failed: list[Question]) -> str:
    """Name the inputs that do not lie contiguous, if every case that fails has one."""
    names = [[f"`{question.name(position)}`" for position, _ in strided_inputs(question)] for question in failed]
    if not all(names):
        return ""
    return f"{listed(names[0])} {was(len(names[0]), 'is', 'are')} not contiguous: do the offsets use every stride?"
