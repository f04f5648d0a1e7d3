"""Name the mistake in wrong values by running the answer again: on other inputs, or to see what it reads."""

from collections.abc import Callable

import numpy as np
import torch

from lab.check.hypotheses import result_of
from lab.check.inputs import Frozen, freeze, without_repeats
from lab.check.question import Expected, Question, contiguous, excess_of, is_floating, thawed, widened
from lab.check.runner import Evidence
from lab.words import elements_in_words, listed, number, was

ALMOST_RIGHT = "it is almost right: something is computed in a lower precision than float32."
LITTLE = 2.0**-9  # relative: half a step of bf16, some of fp16 and of TF32
Study = Callable[[Frozen], Evidence | None]  # runs an answer once more, to learn why it is wrong


def no_study(inputs) -> None:
    """Do not run the answer once more: nothing can be learnt of it."""


def changed(question: Question, change) -> list:
    """Return the arguments of a call with `change` made to each floating tensor."""
    arguments = list(thawed(question.inputs))
    for argument in arguments:
        if is_floating(argument) and argument.numel():
            own = without_repeats(argument)
            own.copy_(change(own))
    return arguments


def within_one(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor divided by a number such that what is finite is within ±1."""
    return tensor / tensor.where(tensor.isfinite(), 0).abs().max().clamp(min=1)


def result_if_any(evidence: Evidence | None, question: Question, expected: Expected) -> torch.Tensor | None:
    """Return what another run gave in the place of a result, None if it gave no such tensor."""
    if evidence is None or evidence.error is not None or len(evidence.results) != len(question.expected):
        return None
    result = next(r for r, one in zip(evidence.results, question.expected, strict=True) if one is expected)
    if result.contents is None or tuple(result.shape) != tuple(expected.value.shape):
        return None
    return result.tensor


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
