"""Name the mistake that most likely made the wrong values of a result.

Each `guess_…` returns one mistake in words where evidence supports it, else "". What no evidence supports is not told.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np
import torch

from lab.check.hypotheses import LOOPS, PLACES, close, explains, guess_mistake, result_of, strided_inputs
from lab.check.inputs import freeze
from lab.check.notfinite import Study, cause_of_not_finite, changed, result_if_any, within_one
from lab.check.question import Expected, Question, contiguous, excess_of, is_floating, thawed, widened
from lab.check.runner import Evidence, Result
from lab.words import elements_in_words, listed, number, was

ALMOST_RIGHT = "it is almost right: something is computed in a lower precision than float32."
MODERATE = 1000.0  # a result may be as large where a smaller one has lost digits beside it
CLEAR = 20  # times what an element may be off
LITTLE = 2.0**-9  # relative: half a step of bf16, some of fp16 and of TF32


def no_study(inputs) -> None:
    """Do not run the answer once more: nothing can be learnt of it."""


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
    """Name an input whose size decides whether an element is wrong."""
    at = torch.as_tensor(wrong)
    allowed = 0 if expected.budget is None else CLEAR * expected.budget.numpy()[wrong]
    if not (excess_of(expected, actual)[wrong] > allowed).all():  # it grows slowly: nothing changes at a limit
        return ""
    for position, argument in enumerate(thawed(question.inputs)):
        if not is_floating(argument) or argument.shape != at.shape or not argument.isfinite().all():
            continue
        bad, good = argument.cpu().double()[at], argument.cpu().double()[~at]
        if min(bad.numel(), good.numel()) < 4 or not proves(expected, ~wrong):
            continue
        for sign, side in ((1, "above"), (-1, "below")):
            if (sign * bad).min() > (sign * good).max():
                limit = number(sign * (sign * bad).min().item(), 3)
                return (
                    f"what is wrong is where `{question.name(position)}` is {limit} or {side}, and all else is right: "
                    "does the kernel choose another way there?"
                )
    return ""


# From running the answer once more


def guess_unread(question: Question, expected: Expected, wrong: np.ndarray, evidence: Evidence | None) -> str:
    """Name the elements of an input that no program read, if the wrong elements depend on them."""
    found = evidence.unread if evidence is not None else []
    for unread in sorted(found, key=lambda unread: not unread["elements"].all()):
        position, elements = unread["position"], unread["elements"]
        arguments = list(thawed(question.inputs))
        tensor = arguments[position].clone()
        other = tensor.logical_not() if tensor.dtype == torch.bool else tensor + 1 + tensor.abs()
        arguments[position] = other.to(tensor.dtype).where(torch.tensor(elements).to(tensor.device), tensor)
        try:
            moved = result_of(arguments, question, expected)
        except Exception:  # numbers that count or point cannot be just anything
            continue
        if moved.shape != expected.value.shape or not (wrong & (excess_of(expected, moved) != 0)).any():
            continue
        name = question.name(position)
        if elements.all():
            return f"`{name}` is loaded by no program, and the result depends on it."
        layout = question.inputs.arguments[position]
        text = (
            f"{elements_in_words(elements)} of `{name}` {was(elements)} read by no program, and the result depends on "
        )
        text += was(elements, "it", "them")
        if contiguous(layout):
            return (
                f"{text}: see where the offsets of its load end, and its mask." if at_an_end(elements) else f"{text}."
            )
        return f"{text}: its strides are {list(layout.strides)}, so do the offsets use every stride?"
    return ""


def at_an_end(elements: np.ndarray) -> bool:
    """Return whether elements are the last ones along some axis."""
    for axis in range(elements.ndim):
        others = tuple(other for other in range(elements.ndim) if other != axis)
        some, whole = np.asarray(elements.any(axis=others)), np.asarray(elements.all(axis=others))
        if np.array_equal(some, whole) and some[int(some.argmax()) :].all():
            return True
    return False


def guess_factor(question: Question, expected: Expected, actual: torch.Tensor, study: Study) -> str:
    """Name the factor by which every element is off, if it stays the same with other inputs."""
    factor = factor_of(expected.exact, actual)
    if factor is None:
        return ""
    arguments = changed(question, lambda a: 0.75 * a.flip(0))
    other = result_if_any(study(freeze(arguments)), question, expected)
    again = None if other is None else factor_of(result_of(arguments, question, expected), other)
    if again is None or abs(again - factor) > 2 * slack_of(actual) * abs(factor):
        return ""
    return f"every element is {number(factor)} times what it should be."


def factor_of(right: torch.Tensor, got: torch.Tensor) -> float | None:
    """Return the factor between what is right and what came, None where there is not one for all elements."""
    slack = slack_of(got)
    right, got = right.double().reshape(-1), got.double().reshape(-1)
    used = (right.abs() > 1e-3) & right.isfinite()
    ratios = got[used] / right[used]
    if ratios.numel() < 3 or not bool(ratios.isfinite().all()):
        return None
    middle = ratios.median().item()
    steady = bool(((ratios - middle).abs() < slack * abs(middle)).all())
    return middle if steady and abs(middle - 1) > 0.02 and abs(middle) > 1e-6 else None


def slack_of(tensor: torch.Tensor) -> float:
    """Return by how much, relatively, roundings may move an element."""
    return 2 * torch.finfo(tensor.dtype).eps if tensor.dtype in (torch.float16, torch.bfloat16) else 1e-4


def picks(question: Question, right: torch.Tensor) -> bool:
    """Return whether each element of what is right is an element of a larger input, as a maximum is."""
    tensors = [a.double().cpu() for a in thawed(question.inputs) if is_floating(a) and a.numel() > right.numel() > 1]
    return any(bool(torch.isin(right.double(), tensor).all()) for tensor in tensors)


def guess_filler(question: Question, expected: Expected, actual: torch.Tensor, study: Study) -> str:
    """Name a number that beats smaller elements: it stands where less is right, and with larger inputs all is right."""
    right, got = expected.exact.double(), actual.double()
    if not picks(question, expected.exact) or torch.equal(got, right):
        return ""
    filler = got[got != right][0].item()
    if not torch.equal(got, right.clamp(min=filler)):
        return ""
    arguments = changed(question, lambda a: a.abs().clamp(min=filler))
    values = result_if_any(study(freeze(arguments)), question, expected)
    if values is None or not torch.equal(values.double(), result_of(arguments, question, expected).double()):
        return ""
    smaller, inputs = ("a negative number", "no input is negative") if filler == 0 else ("less", "no input is less")
    filled = number(filler)
    return (
        f"where {smaller} is right it is {filled}, and it is right where {inputs}: does the {filled} of "
        'a masked lane win? The neutral element of a maximum is `-float("inf")`.'
    )


def guess_constant(question: Question, expected: Expected, actual: torch.Tensor, study: Study) -> str:
    """Tell that the result is one number everywhere, and stays it with other inputs."""
    varied = any(bool((a != a.reshape(-1)[:1]).any()) for a in thawed(question.inputs) if is_floating(a))
    first = actual.reshape(-1)[0]
    if not varied or actual.numel() < 2 or not bool((actual == first).all()):
        return ""
    for change in (within_one, torch.neg):
        other = result_if_any(study(freeze(changed(question, change))), question, expected)
        if other is not None and not bool((other == first).all()):
            return ""
    return (
        f"the result is {number(first.item())} everywhere, whatever the inputs hold: does the kernel use what it "
        "loads, or does a mask or a condition keep all of it out?"
    )


def guess_without_influence(question: Question, expected: Expected, actual: torch.Tensor, study: Study) -> str:
    """Name an argument, a number, that changes nothing in the result, and should."""
    for position, value in enumerate(question.inputs.arguments):
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            continue
        others = (value + 1, 3 * value + 2) if isinstance(value, int) else (value / 2, value / 4)
        if all(stays(question, expected, actual, position, other, study) for other in others):
            name, tried = question.name(position), listed([number(other) for other in others])
            return f"`{name}` changes nothing: with {tried} for {number(value)} the result stays what it is."
    return ""


def stays(
    question: Question, expected: Expected, actual: torch.Tensor, position: int, other: float, study: Study
) -> bool:
    """Return whether the result stays what it is with another number for an argument, and should not."""
    arguments = list(thawed(question.inputs))
    arguments[position] = other
    try:
        right = result_of(arguments, question, expected)
    except Exception:  # a number that counts something cannot be just any
        return False
    if torch.equal(right, expected.value):
        return False
    came = result_if_any(study(freeze(arguments)), question, expected)
    return came is not None and torch.equal(came, actual)


def guess_precision(
    question: Question, expected: Expected, actual: torch.Tensor, wrong: np.ndarray, study: Study
) -> str:
    """Tell of rounding to few digits: the errors are small, and become others as soon as the inputs move a little.

    Those of another formula would hardly change.
    """
    right, at = expected.exact.double(), torch.as_tensor(wrong)
    error, size = actual.double() - right, right.abs()
    near = error.abs() < 1e-2 * torch.maximum(size, size[size.isfinite()].median())
    large = error.abs()[at] > 2**-18 * size[at]
    if actual.dtype != torch.float32 or not near[at].all() or large.double().mean() < 0.5:
        return ""
    arguments = changed(question, lambda a: a * (1 + LITTLE))
    moved = result_if_any(study(freeze(arguments)), question, expected)
    if moved is None:
        return ""
    due = result_of([widened(argument) for argument in arguments], question, expected)
    change = (moved.double() - due - error).abs()[at] / error.abs()[at]
    return ALMOST_RIGHT if change.median() > 0.3 else ""


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
