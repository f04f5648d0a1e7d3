"""Every answer to every task, right or wrong, gives on a GPU what it gives on the machine."""

import sys

import pytest
import torch

from lab.device import DEVICE, ON_CPU
from lab.task import exercises, find_exercise, find_task, wrong_answers
from lab.trace import trace

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(ON_CPU, reason="needs a CUDA GPU")]

EXERCISES = exercises()
WRONG = [answer for one in EXERCISES for answer in wrong_answers(one.stem)]
ANSWERS = [(card.name, None) for one in EXERCISES for card in one.cards]
# Where programs race, or lanes of one, a GPU may do anything.
ANSWERS += [(answer.task, answer.function) for answer in WRONG if answer.reason not in ("race", "order")]
# Relative: sums in another order, exponentials by other instructions, TF32.
TOLERANCE = {torch.float32: 2e-3, torch.float64: 1e-9, torch.float16: 4e-3, torch.bfloat16: 2e-2}


def name_of(answer: tuple) -> str:
    task, function = answer
    return f"{task}-{function.__name__ if function else 'solution'}"


@pytest.fixture(autouse=True)
def filled_memory():
    """What nobody writes is NaN, or the largest integer, on both sides."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("answer", ANSWERS, ids=name_of)
def test_a_gpu_gives_what_the_machine_gives(answer: tuple):
    name, function = answer
    task = find_task(name)
    function = function or getattr(sys.modules[f"solutions.{find_exercise(name).stem}"], name)
    compared = 0
    for case in task.cases:
        here = run_on_machine(function, case)
        if here is None:
            continue
        there = tensors_of(function(*case.make(torch.Generator(DEVICE).manual_seed(0))))
        assert len(here) == len(there)
        for ours, theirs in zip(here, there, strict=True):
            assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
            assert differing(ours.cpu(), theirs.cpu()) == 0, case.name
        compared += 1
    if not compared:
        pytest.skip("it breaks a rule in every case, and what a GPU then does is undefined")


def run_on_machine(function, case) -> list[torch.Tensor] | None:
    """Return the results of an answer on the machine, None where a GPU may do anything."""
    results = []
    for order in (None, "reversed"):
        arguments = case.make(torch.Generator(DEVICE).manual_seed(0))
        try:
            with trace(order=order, values=False) as t:
                results.append(tensors_of(function(*arguments)))
        except Exception:  # wrong answers fail in many ways; what they raise is the business of the check
            return None
        if t.out_of_bounds or t.conflicts or not t.launches:
            return None
    one, other = results
    return one if all(differing(a.cpu(), b.cpu()) == 0 for a, b in zip(one, other, strict=True)) else None


def tensors_of(returned) -> list[torch.Tensor]:
    values = returned if isinstance(returned, (tuple, list)) else [returned]
    return [value for value in values if isinstance(value, torch.Tensor)]


def differing(ours: torch.Tensor, theirs: torch.Tensor) -> int:
    """Return how many elements differ; those are left out in which the machine's poison has come through."""
    if not ours.is_floating_point():
        return int((ours != theirs).sum())
    known, tolerance = ~ours.isnan(), TOLERANCE[ours.dtype]
    ours, theirs = ours[known].double(), theirs[known].double()
    finite = ours.isfinite()
    scale = ours[finite].abs().median().item() if finite.any() else 0.0
    budget = tolerance * (ours.abs() + scale)
    same = (ours == theirs) | ((ours - theirs).abs() <= budget)
    return int((~same).sum())
