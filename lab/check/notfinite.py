"""Tell what made elements of a result NaN or infinite: the answer runs again on other inputs, to see what heals it."""

from collections.abc import Callable

import numpy as np
import torch

from lab.check.inputs import Frozen, freeze
from lab.check.question import Expected, Question, is_floating, thawed
from lab.check.rerun import Study, changed, result_if_any, within_one
from lab.check.runner import Evidence, Result
from lab.words import code_at, listed, number, place_of, was


def cause_of_not_finite(
    question: Question, expected: Expected, result: Result, bad: np.ndarray, study: Study, unread: Callable
) -> str:
    """Return what made elements NaN or infinite, as far as running the answer on other inputs can tell.

    unread: tells of the evidence of a study which elements were not read.
    """
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
        unread(evidence)
        or guess_infinite_inputs(question, expected, bad, study)
        or guess_overflow(question, expected, bad, study)
        or guess_strange_number(evidence)
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
        "inf − inf. What does not count there must not be loaded, or be chosen away with `tl.where`."
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


def guess_strange_number(evidence: Evidence | None) -> str:
    """Name the first number of the kernel that became NaN or infinite."""
    if evidence is None or not evidence.strange:
        return ""
    first = evidence.strange[0]
    return (
        f"`{first['name']}` becomes {first['value']} in program {first['program']}, before any other number of the "
        "kernel does: what is it made of there?"
    )


def guess_nothing_seen(expected: Expected, actual: torch.Tensor, bad: np.ndarray) -> str:
    """Tell what NaN or infinity comes of, and where whole rows hold it."""
    lanes = torch.as_tensor(bad)
    if not bool(actual[lanes].isnan().any()):
        return ""
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
    return ""


def heals(inputs: Frozen, question: Question, expected: Expected, bad: np.ndarray, study: Study) -> bool:
    """Return whether all bad elements are finite when the answer runs on these inputs."""
    values = result_if_any(study(inputs), question, expected)
    return values is not None and bool(values.isfinite().numpy()[bad].all())
