"""Submissions that must earn nothing, each for the reason expected, and submissions that must lose nothing."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from classroom import sandbox
from classroom.assemble import assemble
from classroom.assignment import assignment_of
from classroom.course import course_for_sandboxes
from classroom.judge import Examiner, Judge, cells_remembered
from classroom.sandbox import Limits
from lab import notebook as notebooks
from lab.device import ON_CPU
from lab.generate import ANSWER, put_answers, solved_form
from lab.task import find_exercise, find_task

CORPUS = Path(__file__).with_name("corpus")
TASK = "scale_add"
EXERCISE = find_exercise("vector_add")
TEMPLATE = assignment_of(EXERCISE).notebook()
SECRET = b"not known to any student"
ALLOWED = {"launches": 2, "buffers": 1, "allows": ("clone", "to")}
QUICK = Limits(task_seconds=6.0, seconds=60.0, memory=1 << 30)

pytestmark = [
    pytest.mark.skipif(not sandbox.available(), reason="needs bubblewrap: apt install bubblewrap"),
    pytest.mark.skipif(not ON_CPU, reason="answers are graded in a process that runs kernels on the CPU"),
]


def cells(name: str) -> dict[str, str]:
    """Return title → source of the cells of a corpus file."""
    text = (CORPUS / f"{name}.py").read_text(encoding="utf-8")
    parts = re.split(r"^# %% (.*)\n", text, flags=re.MULTILINE)[1:]
    return {title: source.strip() + "\n" for title, source in zip(parts[::2], parts[1::2], strict=True)}


def solved():
    """Return the notebook of a student who has solved everything."""
    return solved_form(EXERCISE)


KERNEL = next(cell.source for cell in solved().cells if cell.id == TASK + ANSWER).split("\n\n\ndef ")[0] + "\n\n\n"


def answer(source: str) -> str:
    """Return an answer with the right kernel, where it launches one that it does not define."""
    return KERNEL * ("scale_add_kernel[" in source and "def scale_add_kernel" not in source) + source


def submission(source: str) -> bytes:
    """Return a solved notebook with another answer to the first task."""
    notebook = solved()
    put_answers(notebook, {TASK: answer(source)})
    return notebooks.text_of(notebook).encode()


@pytest.fixture(scope="module")
def examiner():
    return Examiner("Ada", EXERCISE.name, SECRET, QUICK, course_for_sandboxes())


@pytest.fixture(scope="module")
def shared_judge(examiner):
    """Sandboxes for answers that attack nobody, to save their start."""
    with Judge(assemble(submission(""), TEMPLATE), examiner) as judge:
        yield judge


def verdict_on(source: str, judge: Judge, **allowed):
    """Return the verdict on an answer to the first task, or to one that allows more work."""
    judge.assembly, judge.left = assemble(submission(source), TEMPLATE), QUICK.seconds
    with cells_remembered(judge.assembly):
        return judge.judge(replace(find_task(TASK), **allowed))


def tricks(file: str):
    """Return (title, reason, source) of each cell of a corpus file."""
    return [
        pytest.param(*title.split(" -> "), source, id=title.split(" -> ")[0]) for title, source in cells(file).items()
    ]


@pytest.mark.parametrize(("title", "reason", "source"), tricks("results"))
def test_faked_result_earns_nothing(title, reason, source, shared_judge):
    verdict = verdict_on(source, shared_judge)
    assert not verdict.passed
    assert verdict.reason == reason, str(verdict)


@pytest.mark.slow
@pytest.mark.parametrize(("title", "reason", "source"), [*tricks("checker"), *tricks("machine")])
def test_attack_earns_nothing(title, reason, source, examiner):
    with Judge(assemble(submission(source), TEMPLATE), examiner) as judge:
        verdict = verdict_on(source, judge)
        assert not verdict.passed
        assert verdict.reason == reason, str(verdict)


@pytest.mark.parametrize("title", cells("honest"))
def test_honest_answer_loses_nothing(title, shared_judge):
    """The task allows what some of them do, so that the grader has copies, buffers and several launches to repeat."""
    verdict = verdict_on(cells("honest")[title], shared_judge, **ALLOWED)
    assert verdict.passed, str(verdict)
    assert shared_judge.assembly.findings == []
