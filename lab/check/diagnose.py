"""Name the mistake that most likely made the wrong values of a result.

Each `guess_…` returns one mistake in words where evidence supports it, else "". What no evidence supports is not told.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np
import torch

from lab.check.hypotheses import LOOPS, PLACES, close, explains, guess_mistake, strided_inputs
from lab.check.notfinite import cause_of_not_finite
from lab.check.question import Expected, Question, excess_of, is_floating, thawed
from lab.check.rerun import (
    Study,
    guess_constant,
    guess_factor,
    guess_filler,
    guess_precision,
    guess_unread,
    guess_without_influence,
    no_study,
)
from lab.check.runner import Result
from lab.words import listed, number, was

MODERATE = 1000.0  # a result may be as large where a smaller one has lost digits beside it
CLEAR = 20  # times what an element may be off
FEW = 4  # elements on one side of a limit, from which nothing follows


def likely_cause(
    question: Question,
    expected: Expected,
    result: Result,
    wrong: np.ndarray,
    bad: np.ndarray,
    study: Study = no_study,
) -> str:
    """Return the mistake that gives just these values, "" if none is known. The order is from certain to likely.

    wrong: bool, the elements that are not right; bad: those of them that are NaN or infinite and should not be.
    study: runs the answer once more.
    """
    return next(filter(None, causes(question, expected, result, wrong, bad, study)), "")


def causes(
    question: Question, expected: Expected, result: Result, wrong: np.ndarray, bad: np.ndarray, study: Study
) -> Iterator[str]:
    """Yield what each guess has to say, the most certain first; each is asked only if those before it are silent."""
    actual = result.tensor
    yield guess_mistake(question, expected, actual, PLACES)
    for guess in (guess_other_result, guess_transposed, guess_input, guess_sign, guess_shift, guess_missing_term):
        yield guess(question, expected, actual)
    unread = partial(guess_unread, question, expected, wrong)
    if bad.any():
        yield cause_of_not_finite(question, expected, result, bad, study, unread)
        return
    yield guess_mistake(question, expected, actual, LOOPS)
    yield unread(study(question.inputs))
    yield guess_factor(question, expected, actual, study)
    yield guess_filler(question, expected, actual, study)
    yield guess_argument(question, actual)
    yield guess_constant(question, expected, actual, study)
    yield guess_without_influence(question, expected, actual, study)
    yield guess_lost_digits(expected, actual, wrong)
    yield guess_limit(question, expected, actual, wrong)
    yield guess_precision(question, expected, actual, wrong, study)


def proves(expected: Expected, right: np.ndarray) -> bool:
    """Return whether it means anything that these elements are right: one constant may be so by luck.

    So may what no input changes: the zeros of rows that see nothing, say.
    """
    values = expected.value[expected.reacts & torch.as_tensor(right)]
    return values.numel() == 1 or bool((values != values[:1]).any())


# From the values alone


def guess_other_result(question: Question, expected: Expected, actual: torch.Tensor) -> str:
    """Name the result of the task that stands in the place of this one."""
    results = question.expected
    own = next(position for position, one in enumerate(results, 1) if one is expected)
    for position, other in enumerate(results, 1):
        if other.value.shape == actual.shape and explains(other.value, expected, actual):
            return (
                f"result {own} of {len(results)} holds what belongs into result {position}: they have changed places."
            )
    return ""


def guess_transposed(question: Question, expected: Expected, actual: torch.Tensor) -> str:
    """Name an exchange of rows and columns."""
    if actual.dim() == 2 and min(actual.shape) > 1 and explains(expected.value.t(), expected, actual):
        return "rows and columns have changed places: check which stride belongs to which axis."
    return ""


def guess_input(question: Question, expected: Expected, actual: torch.Tensor) -> str:
    """Name the input that the result is equal to, to the last digit."""
    for position, argument in enumerate(thawed(question.inputs)):
        if not isinstance(argument, torch.Tensor) or argument.shape != actual.shape:
            continue
        if torch.equal(argument.cpu(), actual) and explains(argument.cpu(), expected, actual):
            return f"the result equals `{question.name(position)}`: nothing else entered it."
    return ""


def guess_sign(question: Question, expected: Expected, actual: torch.Tensor) -> str:
    """Tell that every sign is wrong."""
    if actual.is_floating_point() and explains(-expected.exact, expected, actual):
        return "every element has the wrong sign."
    return ""


def guess_shift(question: Question, expected: Expected, actual: torch.Tensor) -> str:
    """Name a shift by one element."""
    got, right = actual.reshape(-1), expected.value.reshape(-1)
    if got.numel() > 3 and (close(got[1:], right[:-1]) or close(got[:-1], right[1:])):
        return "every element stands one place beside where it belongs: check the first offset."
    return ""


def guess_missing_term(question: Question, expected: Expected, actual: torch.Tensor) -> str:
    """Name the input that is missing from the result, or in it once too often."""
    if not actual.numel() or bool((actual == actual.reshape(-1)[0]).all()):
        return ""
    difference = (expected.exact.double() - actual.double()).to(actual.dtype)
    for position, argument in enumerate(thawed(question.inputs)):
        if not isinstance(argument, torch.Tensor) or argument.dim() == 0 or argument.shape != actual.shape:
            continue
        for sign, text in ((1, "is missing from the result"), (-1, "is in the result once too often")):
            if close(sign * difference, argument.cpu()):
                return f"`{question.name(position)}` {text}."
    return ""


def guess_argument(question: Question, actual: torch.Tensor) -> str:
    """Name the argument, a number, that every element of the result is."""
    if actual.numel() < 2 or not bool((actual == actual.reshape(-1)[0]).all()):
        return ""
    value = actual.reshape(-1)[0].item()
    for position, argument in enumerate(question.inputs.arguments):
        if isinstance(argument, (int, float)) and not isinstance(argument, bool) and argument == value != 0:
            return (
                f"every element is {number(value)}, which is `{question.name(position)}`: is a comparison, a minimum "
                "or a maximum the wrong way round?"
            )
    return ""


def guess_lost_digits(expected: Expected, actual: torch.Tensor, wrong: np.ndarray) -> str:
    """Tell of small results that are off by a rounding of larger numbers."""
    if actual.dtype != torch.float32 or not expected.value.isfinite().any():
        return ""
    at = torch.as_tensor(wrong)
    right, error = expected.exact.double().abs(), (actual.double() - expected.exact.double()).abs()
    size = max(1.0, right[right.isfinite()].max().item())
    if size > MODERATE or bool((error[at] > 2**-23 * size).any()) or bool((right[at] > 0.1 * size).any()):
        return ""
    return (
        f"only small results are wrong, and by no more than a rounding of a number near {number(size, 2)}: their "
        "digits are lost where a small number is added to a large one, or two that are nearly equal are subtracted. "
        "For log(1 + y) there is `libdevice.log1p(y)`, and (1 + tanh y) / 2 is `tl.sigmoid(2 * y)`."
    )


def guess_limit(question: Question, expected: Expected, actual: torch.Tensor, wrong: np.ndarray) -> str:
    """Name an input whose size decides whether an element is wrong, and how far off it is right beside the limit.

    An error that is small there grows slowly, and only crosses what is allowed: nothing is chosen at that limit.
    """
    at = torch.as_tensor(wrong)
    if expected.budget is None or not proves(expected, ~wrong):
        return ""
    clear = (torch.as_tensor(excess_of(expected, actual)) > CLEAR * expected.budget)[at]
    for position, argument in enumerate(thawed(question.inputs)):
        if not is_floating(argument) or argument.shape != at.shape or not argument.isfinite().all():
            continue
        bad, good = argument.cpu().double()[at], argument.cpu().double()[~at]
        if min(bad.numel(), good.numel()) < FEW:
            continue
        for sign, side in ((1, "above"), (-1, "below")):
            if (sign * bad).min() > (sign * good).max() and clear[(sign * bad).argmin()]:
                limit = number(sign * (sign * bad).min().item(), 3)
                return (
                    f"what is wrong is where `{question.name(position)}` is {limit} or {side}, and all else is right: "
                    "does the kernel choose another way there?"
                )
    return ""


# From where the wrong elements are


def guess_by_place(expected: Expected, result: Result, wrong: np.ndarray) -> str:
    """Tell which indices along an axis, or which programs, are right, where others are wrong, unless by luck."""
    if not proves(expected, ~wrong):
        return ""
    for axis in range(wrong.ndim if wrong.ndim > 1 else 0):
        others = tuple(other for other in range(wrong.ndim) if other != axis)
        all_right, all_wrong = np.asarray(~wrong.any(axis=others)), np.asarray(wrong.all(axis=others))
        first = int(all_wrong.argmax())
        if first > 0 and all_right[:first].all() and all_wrong[first:].all() and proves_rows(expected, axis, first):
            right = "index 0 is" if first == 1 else f"indices 0 to {first - 1} are"
            return f"along axis {axis}, {right} right and all from {first} on are wrong."
    if result.owner is not None:
        owners, guilty = np.unique(result.owner), np.unique(result.owner[wrong])
        firsts = [int(np.argmax(result.owner.reshape(-1) == program)) for program in owners]
        others_right = proves(expected, ~np.isin(result.owner, guilty))
        if others_right and guilty.tolist() == owners[1:].tolist() and owners[0] == 0:
            return "only program 0 is right."
        if others_right and guilty.tolist() == [owners[-1]]:
            return "only the last program is wrong."
        if len(owners) > 1 and np.flatnonzero(wrong.reshape(-1)).tolist() == firsts:
            return "only the first element of each program is wrong."
    return ""


def proves_rows(expected: Expected, axis: int, count: int) -> bool:
    """Return whether the first elements along an axis could have been wrong: they differ, and inputs change them."""
    first = np.zeros(tuple(expected.value.shape), dtype=bool)
    np.moveaxis(first, axis, 0)[:count] = True
    return proves(expected, first)


def guess_strides(failed: list[Question]) -> str:
    """Name the inputs that do not lie contiguous, if every case that fails has one."""
    names = [[f"`{question.name(position)}`" for position, _ in strided_inputs(question)] for question in failed]
    if not all(names):
        return ""
    return f"{listed(names[0])} {was(len(names[0]), 'is', 'are')} not contiguous: do the offsets use every stride?"
