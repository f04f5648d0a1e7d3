"""Every exercise: solutions pass, blanks and wrong answers are rejected for their reason, and nothing has drifted."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lab import notebook
from lab.check import judge
from lab.check.question import Question, excess_of, pose, thawed, widened
from lab.generate import ANSWER, BLANK, answers_of, blank_form, solved_form
from lab.task import Exercise, Mistake, WrongAnswer, exercises, find_exercise, find_task, mistakes_of, wrong_answers
from tile.new import is_draft

ROOT = Path(__file__).parents[2]
COLUMNS = 88  # that a page shows
EXERCISES = exercises()
TASKS = [card.name for one in EXERCISES for card in one.cards]
WRONG = [answer for one in EXERCISES for answer in wrong_answers(one.stem)]


def module_of(task: str):
    """Return the solution's module, which finding the task has imported."""
    return sys.modules[f"solutions.{find_exercise(task).stem}"]


def blank_function(task: str, folder: Path):
    """Return the task's function as the learner finds it, defined in a file so that its source can be read."""
    blank = answers_of(blank_form(find_exercise(task)))[task]
    path = folder / f"{task}.py"
    path.write_text(blank)
    space = {name: value for name, value in vars(module_of(task)).items() if name in ("torch", "triton", "tl")}
    space["__name__"] = f"blank_{task}"
    exec(compile(blank, str(path), "exec"), space)
    return space[task]


@pytest.mark.parametrize("one", EXERCISES, ids=lambda one: one.stem)
def test_regenerating_changes_nothing(one: Exercise):
    fresh = blank_form(one)
    committed = notebook.read(one.path)
    answered = answers_of(fresh) != answers_of(committed)
    if answered and without_answers(fresh) == without_answers(committed) and not os.environ.get("CI"):
        pytest.skip("this exercise holds a learner's answers, and nothing else differs")
    assert one.path.read_text(encoding="utf-8") == notebook.text_of(fresh), "run `tile generate`"


def without_answers(content) -> list[tuple[str, str]]:
    """Return id and source of the cells that a learner has no need to change."""
    return [(cell.id, cell.source) for cell in content.cells if not cell.id.endswith(ANSWER)]


@pytest.mark.parametrize("task", TASKS)
def test_the_solution_passes(task: str):
    find_task(task)
    verdict = judge(task, getattr(module_of(task), task))
    assert verdict.passed, verdict.message
    assert verdict.cases_passed == verdict.cases_total == len(find_task(task).cases)


@pytest.mark.parametrize("task", TASKS)
def test_the_unsolved_task_names_its_blank(task: str, tmp_path: Path):
    find_task(task)
    verdict = judge(task, blank_function(task, tmp_path))
    assert (verdict.passed, verdict.reason) == (False, "blank")
    assert BLANK in verdict.message


@pytest.mark.parametrize("answer", WRONG, ids=lambda answer: f"{answer.task}-{answer.function.__name__}")
def test_a_wrong_answer_is_rejected_for_its_reason_and_with_its_cause(answer: WrongAnswer):
    verdict = judge(answer.task, answer.function)
    assert not verdict.passed
    assert verdict.reason == answer.reason, verdict.message
    assert answer.cause in verdict.cause, str(verdict)


@pytest.mark.parametrize("task", TASKS)
def test_a_known_mistake_changes_what_comes_out(task: str):
    found = find_task(task)
    questions = [pose(found, case, 0) for case in found.cases]
    for mistake in mistakes_of(found):
        assert any(differs(mistake, question) for question in questions), mistake.words


def differs(mistake: Mistake, question: Question) -> bool:
    """Return whether a mistake gives another result than the reference; not where it cannot take the inputs."""
    block = {"block": 16} if mistake.takes_block else {}
    try:
        made = mistake.formula(*map(widened, thawed(question.inputs)), **block)
    except Exception:
        return False
    pairs = zip(question.expected, made if question.several else [made], strict=True)
    return any((excess_of(expected, value.to(expected.value.dtype)) != 0).any() for expected, value in pairs)


@pytest.mark.parametrize("one", EXERCISES, ids=lambda one: one.stem)
def test_every_task_has_wrong_answers(one: Exercise):
    answers = wrong_answers(one.stem)
    assert {answer.task for answer in answers} == {card.name for card in one.cards}
    assert len(answers) >= 15 or is_draft(one)


@pytest.mark.parametrize("one", EXERCISES, ids=lambda one: one.stem)
def test_code_is_no_wider_than_the_page(one: Exercise):
    """In the script and its wrong answers as well; text cells, comments there, break as their page is wide."""
    scripts = [one.script, one.script.parent / "wrong" / one.script.name]
    cells = [
        cell for script in scripts for cell in re.split("^(?=# %%)", script.read_text("utf-8"), flags=re.MULTILINE)
    ]
    code = [cell for cell in cells if not cell.startswith("# %% [markdown]")]
    code += [cell.source for cell in blank_form(one).cells if cell.cell_type == "code"]
    assert not [line for cell in code for line in cell.splitlines() if len(line) > COLUMNS]


@pytest.mark.parametrize("one", EXERCISES, ids=lambda one: one.stem)
def test_every_code_cell_has_a_count_so_that_nbval_compares_it(one: Exercise):
    cells = [cell for cell in blank_form(one).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))


@pytest.mark.parametrize("one", EXERCISES, ids=lambda one: one.stem)
def test_nbval_passes_exactly_when_the_exercise_is_solved(one: Exercise, tmp_path: Path):
    notebook.write(tmp_path / "solved.ipynb", solved_form(one))
    notebook.write(tmp_path / "blank.ipynb", blank_form(one))
    counts = {name: nbval_counts(tmp_path / f"{name}.ipynb") for name in ("solved", "blank")}
    cells = sum(cell.cell_type == "code" for cell in blank_form(one).cells)
    assert counts["solved"] == {"passed": cells}
    assert counts["blank"] == {"passed": cells - len(one.cards), "failed": len(one.cards)}


def nbval_counts(path: Path) -> dict[str, int]:
    """Return how many cells of a notebook pass and fail under nbval."""
    options = ["--nbval", "--nbval-cell-timeout=60", "-p", "no:cacheprovider", "-p", "no:xdist", "-q"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, f"--rootdir={ROOT}", f"--confcutdir={ROOT}", str(path)],
        cwd=ROOT,
        env={key: value for key, value in os.environ.items() if "XDIST" not in key} | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=180,
    )
    found = re.findall(r"(\d+) (passed|failed|error)", done.stdout.splitlines()[-1])
    assert found, done.stdout + done.stderr
    return {kind: int(number) for number, kind in found}
