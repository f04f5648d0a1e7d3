"""What a teacher hands out, and a copy of the course without its answers."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import jupytext
import pytest

from classroom import assignment as assignments
from classroom.assignment import load_assignment, make_assignment
from classroom.withhold import copy_without_solutions
from lab import notebook
from lab.generate import CHECK, answers_of, blank_form, solved_form
from lab.notebook import ROOT, CourseError
from lab.task import Exercise, exercises, find_exercise

EXERCISE = find_exercise("vector_add")
NAME = EXERCISE.name


@pytest.fixture(scope="module")
def handed_out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An assignment with points and a due date of its own."""
    folder = tmp_path_factory.mktemp("assignment") / "week 1"
    make_assignment(NAME, folder, {"scale_add": 2.5}, "2027-01-31")
    return folder


def test_the_hand_out_is_the_blank_exercise_with_what_counts(handed_out: Path):
    content = notebook.read(handed_out / f"{NAME}.ipynb")
    assert answers_of(content) == answers_of(blank_form(EXERCISE))
    text = "\n".join(cell.source for cell in content.cells if cell.cell_type == "markdown")
    assert assignments.POLICY in text
    assert "2027-01-31 at 23:59" in text
    assert "(2.5 points)" in text and "(1 point)" not in text
    checks = {cell.id: cell.metadata for cell in content.cells if cell.id.endswith(CHECK)}
    assert checks["scale_add-check"]["nbgrader"]["points"] == 2.5


def test_the_instructions_name_tasks_points_date_and_policy(handed_out: Path):
    for name in ("instructions.md", "instructions.html"):
        text = (handed_out / name).read_text()
        assert "2027-01-31" in text and "scores zero" in text and "2.5" in text
        assert all(card.name in text for card in EXERCISE.cards)
    assert not re.search(r"(src|href)\s*=", (handed_out / "instructions.html").read_text())


def test_an_assignment_is_the_same_when_loaded(handed_out: Path):
    loaded = load_assignment(str(handed_out))
    again = make_assignment(NAME, handed_out, {"scale_add": 2.5}, "2027-01-31")
    assert loaded == again
    assert loaded.digest == again.digest
    assert loaded.total == 2.5 + sum(card.points for card in EXERCISE.cards[1:])


def test_points_change_the_digest_and_a_name_alone_will_do(handed_out: Path):
    plain = load_assignment("vector_add")
    assert plain.points == {card.name: card.points for card in EXERCISE.cards}
    assert plain.digest != load_assignment(str(handed_out)).digest
    assert plain.notebook().cells == load_assignment(NAME).notebook().cells


@pytest.mark.parametrize(
    "arguments, says",
    [
        (("no_such", None, None), "no exercise or task called `no_such`"),
        ((NAME, {"scale_ad": 1.0}, None), "Did you mean `scale_add`"),
        ((NAME, {"scale_add": float("nan")}, None), "cannot be worth nan points"),
        ((NAME, {"scale_add": -1.0}, None), "from 0 on"),
        ((NAME, None, "tomorrow"), "`tomorrow` is no date: write 2027-01-31"),
    ],
)
def test_mistakes_are_named_and_nothing_is_written(tmp_path: Path, arguments: tuple, says: str):
    name, points, due = arguments
    with pytest.raises(CourseError, match=re.escape(says)):
        make_assignment(name, tmp_path / "new", points, due)
    assert not (tmp_path / "new").exists()


def test_another_folder_is_never_written_over():
    before = EXERCISE.path.read_bytes()
    with pytest.raises(CourseError, match="holds something else"):
        make_assignment(NAME, ROOT / "exercises")
    assert EXERCISE.path.read_bytes() == before


@pytest.mark.parametrize(
    "name, text", [("assignment.json", "{"), ("assignment.json", "[]"), ("template.ipynb", "not a notebook")]
)
def test_a_damaged_assignment_says_how_to_mend_it(tmp_path: Path, handed_out: Path, name: str, text: str):
    for file in ("assignment.json", "template.ipynb"):
        (tmp_path / file).write_bytes((handed_out / file).read_bytes())
    (tmp_path / name).write_text(text)
    with pytest.raises(CourseError, match="is damaged .*Make it anew"):
        load_assignment(str(tmp_path))


def test_a_task_that_is_gone_is_named(tmp_path: Path, handed_out: Path):
    record = json.loads((handed_out / "assignment.json").read_text())
    record["points"]["gone"] = 1
    (tmp_path / "assignment.json").write_text(json.dumps(record))
    (tmp_path / "template.ipynb").write_bytes((handed_out / "template.ipynb").read_bytes())
    with pytest.raises(CourseError, match="no longer has `gone`"):
        load_assignment(str(tmp_path))


def test_a_changed_solution_is_mentioned(tmp_path: Path, handed_out: Path, capsys: pytest.CaptureFixture):
    record = json.loads((handed_out / "assignment.json").read_text())
    (tmp_path / "assignment.json").write_text(json.dumps(record | {"solution": "older"}))
    (tmp_path / "template.ipynb").write_bytes((handed_out / "template.ipynb").read_bytes())
    load_assignment(str(tmp_path))
    assert "has changed since this was handed out" in capsys.readouterr().err


# The copy without answers


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("copy") / "course"
    copy_without_solutions(folder)
    return folder


def in_copy(copy: Path, *arguments: str) -> subprocess.CompletedProcess:
    """Run a Python program in the copy."""
    own = {"PYTHONPATH": str(copy), "TILE_STATE": str(copy / ".tile")}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=copy, env=os.environ | own, capture_output=True, text=True, timeout=120)


def answers_in(copy: Path, one: Exercise) -> dict[str, str]:
    """Return task → what its answer cell in the copy's solution holds."""
    cells = jupytext.read(copy / "solutions" / f"{one.stem}.py", fmt="py:percent").cells
    return {cell.metadata["task"]: cell.source for cell in cells if "task" in cell.metadata}


def test_no_answer_is_in_the_copy(copy: Path):
    everything = "\n".join(path.read_text(errors="replace") for path in copy.rglob("*") if path.is_file())
    copied = [one for one in exercises() if (copy / "solutions" / one.script.name).exists()]
    assert EXERCISE in copied
    for one in copied:
        solved = answers_of(solved_form(one))
        blank = answers_of(blank_form(one))
        assert answers_in(copy, one) == blank
        assert not [task for task, answer in solved.items() if answer in everything or answer == blank[task]]
    assert not [name for name in ("solutions/wrong", ".git", "tests") if (copy / name).exists()]


def test_the_copy_judges_hints_and_resets_but_tells_no_solution(copy: Path):
    program = """
from lab import notebook
from lab.generate import CHECK, answers_of, blank_form, solved_form
from lab.task import Exercise, exercises, find_exercise, find_task
for one in exercises():
    assert notebook.text_of(blank_form(one)) == one.path.read_text(), one
    for card in one.cards:
        assert find_task(card.name).cases
"""
    done = in_copy(copy, "-c", program)
    assert done.returncode == 0, done.stderr
    told = in_copy(copy, "-m", "tile.cli", "solution", "scale_add", "--yes")
    assert (told.returncode, told.stdout) == (1, "")
    assert "ask your teacher" in told.stderr


def test_an_answer_passes_in_the_copy(copy: Path):
    (copy / "answer.py").write_text(
        "import lab.device\nimport torch, triton\nimport triton.language as tl\n"
        + answers_of(solved_form(EXERCISE))["scale_add"]
        + '\n\nfrom lab.check import check\ncheck("scale_add", scale_add)\n'
    )
    done = in_copy(copy, "answer.py")
    assert "scale_add: 9 of 9 cases pass" in done.stdout, done.stdout + done.stderr


@pytest.mark.slow
def test_nbval_in_the_copy_expects_what_a_right_answer_prints(copy: Path):
    told = in_copy(copy, "-m", "tile.cli", "nbval", f"exercises/{NAME}.ipynb")
    assert (told.returncode, told.stdout.count("-check: did not print")) == (1, 5), told.stdout + told.stderr


@pytest.mark.slow
def test_the_book_of_the_copy_builds_and_folds_no_solution(copy: Path):
    program = Path(sys.executable).with_name("jupyter-book")
    done = in_copy(copy, str(program), "build", ".", "--toc", "book/_toc.yml", "-W", "-n", "--keep-going")
    assert done.returncode == 0, done.stdout[-3000:]
    page = (copy / "_build" / "html" / "exercises" / f"{NAME}.html").read_text()
    assert "scale_add" in page and "Solution of" not in page
