"""Every mutant of an official answer is refused, or listed in `survivors.txt` with the reason why it may pass."""

import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch

from lab.check import judge
from lab.check.examine import examine
from lab.check.executor import Crashed, TimedOut, executor_for
from lab.check.question import Question, pose
from lab.generate import answers_of, solved_form
from lab.task import Task, exercises, find_exercise, find_task
from tests.test_exercises.mutants import Mutant, mutants_of

TASKS = [card.name for one in exercises() for card in one.cards]
SECONDS = 60.0  # for a mutant, on a machine that is busy


@cache
def mutants(task: str) -> list[Mutant]:
    """Return the mutants of a task's official answer."""
    return list(mutants_of(task, answers_of(solved_form(find_exercise(task)))[task]))


def survivors() -> dict[tuple[str, str], str]:
    """Return the reason for each task and mutant that may pass: a paragraph, with the mutants indented below it."""
    reasons, reason = {}, ""
    text = Path(__file__).with_name("survivors.txt").read_text(encoding="utf-8")
    for paragraph in text.strip().split("\n\n"):
        lines = paragraph.splitlines()
        reason = " ".join(line for line in lines if not line.startswith("    "))
        for line in lines:
            if line.startswith("    "):
                task, name = line.strip().split(": ", 1)
                assert (task, name) not in reasons, f"listed twice: {task}: {name}"
                reasons[task, name] = reason
    return reasons


def function_of(mutant: Mutant, path: Path) -> Callable:
    """Return a mutant's function, defined in a file so that its source can be read."""
    path.write_text(mutant.source, encoding="utf-8")
    space = {**vars(sys.modules[f"solutions.{find_exercise(mutant.task).stem}"]), "__name__": path.stem}
    exec(compile(mutant.source, str(path), "exec"), space)
    return space[mutant.task]


def refusing_case(task: Task, function: Callable, questions: list[tuple[Question, Question]], order: list[int]):
    """Return the number of the first case that refuses an answer, of those in `order`; None if all let it pass."""
    with executor_for(function, task.allows, SECONDS, isolate=True) as executor:
        for number in order:
            orders = None, "reversed" if number % 2 == 0 else number
            for question, programs in zip(questions[number], orders, strict=True):
                try:
                    if examine(question, executor.run(question.inputs, programs)) is not None:
                        return number
                except (Crashed, TimedOut):
                    return number
    return None


@pytest.fixture
def one_thread(monkeypatch, tmp_path):
    """Let small references waste no time on threads, and leave thousands of kernels out of Triton's cache."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.slow
@pytest.mark.parametrize("name", TASKS)
def test_mutants_are_refused_or_listed(name: str, one_thread, tmp_path: Path):
    task = find_task(name)
    questions = [(pose(task, case, 0), pose(task, case, 1)) for case in task.cases]
    order, alive = list(range(len(questions))), set()
    for number, mutant in enumerate(mutants(name)):
        function = function_of(mutant, tmp_path / f"mutant_{number}.py")
        case = refusing_case(task, function, questions, order)
        if case is not None:
            order.remove(case)
            order.insert(0, case)  # what has found one fault is likely to find the next
        elif judge(task, function, seconds=SECONDS).passed:
            alive.add(mutant.name)
    listed = {mutant for task, mutant in survivors() if task == name}
    assert not alive - listed, "the check lets these pass:\n" + "\n".join(sorted(alive - listed))
    assert not listed - alive, "these are listed and do not pass:\n" + "\n".join(sorted(listed - alive))


def test_what_is_listed_exists_and_has_a_reason():
    for (task, name), reason in survivors().items():
        assert len(reason) > 20, name
        assert name in {mutant.name for mutant in mutants(task)}, f"{task}: {name}"


SAMPLE = """
@triton.jit
def double_kernel(x_ptr, out_ptr, n, stride_x, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    total = 0.0
    for start in range(0, n, BLOCK):
        total += tl.sum(tl.load(x_ptr + start * stride_x, mask=mask, other=0.0), 0)
    tl.store(out_ptr + offs, tl.where(total > 2, total, 1.5), mask=mask)


def double(x, out):
    double_kernel[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), x.stride(0), BLOCK=64)
"""


def test_mutants_have_names_that_do_not_change_with_layout():
    ours = [mutant.name for mutant in mutants_of("double", SAMPLE)]
    moved = SAMPLE.replace("mask = offs < n", "# a comment\n\n    mask = (offs\n        < n)")
    assert [mutant.name for mutant in mutants_of("double", moved)] == ours
    assert len(set(ours)) == len(ours)


@pytest.mark.parametrize(
    "name",
    [
        "comparison: offs < n → offs <= n",
        "off by one: offs < n → offs < n - 1",
        "operator: start * stride_x → start + stride_x",
        "constant + 1: tl.program_id(0) → tl.program_id(1)",
        "constant times 1.002: tl.where(total > 2, total, 1.5) → tl.where(total > 2, total, 1.503)",
        "mask= dropped: tl.load(x_ptr + start * stride_x, mask=mask, other=0.0) → "
        "tl.load(x_ptr + start * stride_x, other=0.0)",
        "other= dropped: tl.load(x_ptr + start * stride_x, mask=mask, other=0.0) → "
        "tl.load(x_ptr + start * stride_x, mask=mask)",
        ".to(tl.int64) dropped: tl.program_id(0).to(tl.int64) → tl.program_id(0)",
        "choices exchanged: tl.where(total > 2, total, 1.5) → tl.where(total > 2, 1.5, total)",
        "3 steps at most: range(0, n, BLOCK) → range(0, tl.minimum(n, 0 + 3 * BLOCK), BLOCK)",
        "first step skipped: range(0, n, BLOCK) → range(0 + BLOCK, n, BLOCK)",
        "last step skipped: range(0, n, BLOCK) → range(0, n - BLOCK, BLOCK)",
        "stride to 1: start * stride_x → start * 1",
        "stride to 1: x.stride(0) → 1",
        "floored: triton.cdiv(x.numel(), 64) → x.numel() // 64",
        "doubled: triton.cdiv(x.numel(), 64) → 2 * triton.cdiv(x.numel(), 64)",
    ],
)
def test_the_edits_of_a_small_answer(name: str):
    assert name in [mutant.name for mutant in mutants_of("double", SAMPLE)]
