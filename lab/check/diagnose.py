"""Name the mistake that most likely made the wrong values of a result, from their pattern.

Each `guess_…` returns one mistake in words where it explains the result, else "".
"""

import itertools
from collections.abc import Callable

import numpy as np
import torch

from lab.check.inputs import Frozen, FrozenTensor, freeze, without_repeats
from lab.check.question import Expected, Question, call_reference, contiguous, excess_of, is_floating, thawed
from lab.check.runner import Evidence, Result
from lab.words import capital, code_at, elements_in_words, listed, number, place_of, was

Study = Callable[[Frozen], Evidence | None]  # runs an answer once more, to learn why it is wrong
ONLY_FIRST = "only program 0 is right: do all offsets begin with `tl.program_id(0)`, times the block size?"
ALMOST_RIGHT = "it is almost right: something is computed in a lower precision than float32."


def no_study(inputs: Frozen) -> None:
    """Do not run the answer once more: nothing can be learnt of it."""


def likely_cause(
    question: Question,
    expected: Expected,
    result: Result,
    wrong: np.ndarray,
    bad: np.ndarray,
    study: Study = no_study,
) -> str:
    """Return the mistake that would give just this pattern, "" if none is known.

    wrong: bool, the elements that are not right; bad: those of them that are NaN or infinite and should not be.
    study: runs the answer once more.
    """
    actual = result.tensor
    exact = (guess_other_result, guess_flat, guess_transposed, guess_input, guess_twin, guess_shift, guess_missing_term)
    text = next(filter(None, (guess(question, expected, actual) for guess in exact)), "")
    if text:
        return text
    if bad.any():
        return cause_of_not_finite(question, expected, result, bad, study)
    place = guess_by_place(expected, result, wrong)
    unread = guess_unread(question, expected, wrong, study(question.inputs))
    if unread and place == ONLY_FIRST and actual.dim() == 1:
        return f"{place} {capital(unread)}"
    return (
        unread
        or guess_factor(question, expected, actual)
        or guess_zero(question, expected, actual, study)
        or guess_argument(question, actual)
        or guess_constant(question, expected, actual, study)
        or guess_by_value(expected, result, wrong)
        or place
    )


def close(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Return whether two tensors hold the same values but for a few roundings; a constant proves nothing."""
    a, b = a.double().reshape(-1), b.double().reshape(-1)
    if a.shape != b.shape or a.numel() < 2 or bool((b == b[0]).all()):
        return False
    largest = b[b.isfinite()].abs().max().item() if bool(b.isfinite().any()) else 1.0
    return torch.allclose(a, b, rtol=1e-2, atol=1e-6 * min(1.0, largest), equal_nan=True)


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
            return f"{text}: see where the offsets of its load end, and its mask."
        return f"{text}: its strides are {list(layout.strides)}, so do the offsets use every stride?"
    return ""


def picks(question: Question, right: torch.Tensor) -> bool:
    """Return whether each element of what is right is an element of a larger input, as a maximum is."""
    tensors = [a.double().cpu() for a in thawed(question.inputs) if is_floating(a) and a.numel() > right.numel() > 1]
    return any(bool(torch.isin(right.double(), tensor).all()) for tensor in tensors)


def guess_zero(question: Question, expected: Expected, actual: torch.Tensor, study: Study) -> str:
    """Name a 0 that beats negative elements: each negative result is 0, and with inputs above 0 all is right."""
    right = expected.exact
    negative = right < 0
    if not picks(question, right) or not bool(negative.any()) or bool((actual[negative] != 0).any()):
        return ""
    arguments = changed(question, torch.abs)
    values = result_if_any(study(freeze(arguments)), question, expected)
    if values is None or not torch.equal(values.double(), result_of(arguments, question, expected).double()):
        return ""
    return (
        "where a negative number is right it is 0, and it is right where no input is negative: does the 0 of a masked "
        'lane win? The neutral element of a maximum is `-float("inf")`.'
    )


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


def guess_constant(question: Question, expected: Expected, actual: torch.Tensor, study: Study) -> str:
    """Tell that the result is one number everywhere, and stays it with other inputs."""
    varied = any(bool((a != a.reshape(-1)[:1]).any()) for a in thawed(question.inputs) if is_floating(a))
    first = actual.reshape(-1)[0]
    if not varied or actual.numel() < 2 or not bool((actual == first).all()):
        return ""
    other = result_if_any(study(freeze(changed(question, within_one))), question, expected)
    if other is not None and not bool((other == first).all()):
        return ""
    return f"the result is {number(first.item())} everywhere: does the kernel use what it loads?"


# NaN and infinity


def cause_of_not_finite(question: Question, expected: Expected, result: Result, bad: np.ndarray, study: Study) -> str:
    """Return what made elements NaN or infinite, as far as running the answer on other inputs can tell."""
    if result.owner is None:
        return "NaN stands where the output was never written, or was read before it was: check offsets and masks."
    if result.read_early:
        file, line = result.read_early[0]
        return f"the output is read before it is written, at {place_of(file, line)}{code_at(file, line)}."
    evidence = study(question.inputs)
    lanes = result_if_any(evidence, question, expected)
    if lanes is not None and lanes.isfinite().numpy()[bad].any():
        return "masked lanes of a load hold anything, and these reach the result: give the load `other=`."
    return (
        guess_unread(question, expected, bad, evidence)
        or guess_infinite_inputs(question, expected, bad, study)
        or guess_overflow(question, expected, bad, study)
        or guess_nothing_seen(expected, result.tensor, bad)
    )


def guess_infinite_inputs(question: Question, expected: Expected, bad: np.ndarray, study: Study) -> str:
    """Name the inputs whose infinities and NaN make the result what it is."""
    tensors = [(i, a) for i, a in enumerate(thawed(question.inputs)) if is_floating(a)]
    names = [f"`{question.name(i)}`" for i, a in tensors if not bool(a.isfinite().all())]
    if not names:
        return ""
    arguments = changed(question, lambda a: a.where(a.isfinite(), a.nan_to_num(1, 1, -1)))
    if not heals(freeze(arguments), question, expected, bad, study):
        return ""
    return (
        f"it is finite when {listed(names)} {was(len(names), 'is', 'are')}: 0 times NaN or inf is NaN, and so is "
        "inf − inf. What does not count there must be kept out by a mask or `tl.where`."
    )


def guess_overflow(question: Question, expected: Expected, bad: np.ndarray, study: Study) -> str:
    """Tell that numbers are too large, if the result is finite as soon as all inputs are small."""
    sizes = [
        (float(a[a.isfinite()].abs().max()), question.name(i))
        for i, a in enumerate(thawed(question.inputs))
        if is_floating(a) and bool(a.isfinite().any())
    ]
    largest, name = max(sizes, default=(0.0, ""))
    if largest <= 1:
        return ""
    if not heals(freeze(changed(question, within_one)), question, expected, bad, study):
        return ""
    return (
        f"it is finite when every input is within ±1. Here `{name}` reaches {number(largest, 3)}, and something "
        "overflows or becomes 0: in float32, `tl.exp` is inf above 88.7 and 0 below −104."
    )


def guess_nothing_seen(expected: Expected, actual: torch.Tensor, bad: np.ndarray) -> str:
    """Tell what NaN or infinity comes of, and where whole rows hold it."""
    lanes = torch.as_tensor(bad)
    if not bool(actual[lanes].isnan().any()):
        return "inf comes of a division by 0, of the logarithm of 0, or of a number too large for its dtype."
    if bool((~expected.reacts[lanes]).all()) and bool((expected.value[lanes] == 0).all()):
        return (
            "0 is right there whatever the inputs hold, so nothing is left to add up: 0 / 0, 0 · inf and inf − inf are "
            "NaN. Choose the 0 with `tl.where`."
        )
    rows = lanes.reshape(-1, lanes.shape[-1]) if lanes.dim() > 1 else lanes[:0]
    if not bool(lanes.all()) and len(rows) and bool((rows.all(1) == rows.any(1)).all()):
        return (
            "whole rows are NaN, and others are not: if the mask leaves such a row nothing, its maximum is −inf and "
            "its sum 0, and −inf − (−inf) and 0 / 0 are NaN."
        )
    return "NaN comes of 0 / 0, 0 · inf, inf − inf, or the root or logarithm of a negative number: which is it here?"


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


def heals(inputs: Frozen, question: Question, expected: Expected, bad: np.ndarray, study: Study) -> bool:
    """Return whether all bad elements are finite when the answer runs on these inputs."""
    values = result_if_any(study(inputs), question, expected)
    return values is not None and bool(values.isfinite().numpy()[bad].all())


def result_if_any(evidence: Evidence | None, question: Question, expected: Expected) -> torch.Tensor | None:
    """Return what another run gave in the place of a result, None if it gave no such tensor."""
    if evidence is None or evidence.error is not None or len(evidence.results) != len(question.expected):
        return None
    result = next(r for r, one in zip(evidence.results, question.expected, strict=True) if one is expected)
    if result.contents is None or tuple(result.shape) != tuple(expected.value.shape):
        return None
    return result.tensor


def guess_by_value(expected: Expected, result: Result, wrong: np.ndarray) -> str:
    """Name a mistake by what stands in the wrong elements."""
    actual = result.tensor
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
            return ONLY_FIRST
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
