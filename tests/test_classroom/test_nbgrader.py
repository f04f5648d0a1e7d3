"""The exercises in nbgrader: it hands them out, puts back the checks, and marks a task by what its check says."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lab import notebook
from lab.generate import answers_of, blank_form, put_answers, solved_form
from lab.notebook import ROOT
from lab.task import find_exercise

NAME = "01_vector_add"
NBGRADER = os.environ.get("NBGRADER") or shutil.which("nbgrader", path=str(Path(sys.executable).parent))
pytestmark = pytest.mark.skipif(
    NBGRADER is None, reason="nbgrader is not installed here; NBGRADER=/path/to/nbgrader names one"
)
SCORES = """
import json
from nbgrader.api import Gradebook
with Gradebook("sqlite:///gradebook.db") as book:
    print(json.dumps({
        submission.student.id: {grade.name: grade.auto_score for n in submission.notebooks for grade in n.grades}
        for submission in book.assignment_submissions("one")
    }))
"""


def nbgrader(folder: Path, *arguments: str) -> str:
    """Run nbgrader in a course's folder and return what it printed."""
    own = {"PYTHONPATH": str(ROOT), "TILE_STATE": str(folder / "state")}
    own["PATH"] = os.pathsep.join([str(Path(NBGRADER).parent), os.environ["PATH"]])  # nbgrader runs its alembic
    done = subprocess.run(
        [NBGRADER, *arguments], cwd=folder, env=os.environ | own, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow
def test_nbgrader_generates_and_marks_an_exercise(tmp_path: Path):
    one = find_exercise(NAME)
    source = tmp_path / "source" / "one" / f"{NAME}.ipynb"
    source.parent.mkdir(parents=True)
    shutil.copy(one.path, source)
    nbgrader(tmp_path, "generate_assignment", "one", "--create")
    released = notebook.read(tmp_path / "release" / "one" / source.name)
    assert answers_of(released) == answers_of(blank_form(one))

    solved = answers_of(solved_form(one))
    tasks = list(solved)
    half = {task: solved[task] for task in tasks[:2]}
    for student, answers in {"all": solved, "half": half, "none": {}}.items():
        put_answers(released, answers)
        if student == "none":  # a check that is edited away comes back
            next(cell for cell in released.cells if cell.id == f"{tasks[0]}-check").source = "pass"
        notebook.write(tmp_path / "submitted" / student / "one" / source.name, released)
        released = notebook.read(tmp_path / "release" / "one" / source.name)
    nbgrader(tmp_path, "autograde", "one", "--create")

    python = Path(NBGRADER).with_name("python")
    told = subprocess.run([python, "-c", SCORES], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    worth = {f"{card.name}-check": card.points for card in one.cards}
    nothing = dict.fromkeys(worth, 0)
    assert json.loads(told.stdout) == {
        "all": worth,
        "half": nothing | {f"{task}-check": worth[f"{task}-check"] for task in half},
        "none": nothing,
    }
