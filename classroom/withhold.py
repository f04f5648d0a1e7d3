"""A copy of the course that holds no answers, for a class that must not find them."""

import re
import shutil
import subprocess
from pathlib import Path

from lab import notebook as notebooks
from lab.generate import blank_form, blank_source
from lab.notebook import ROOT, CourseError
from lab.task import exercises

LEFT_OUT = ("solutions/wrong/", "tests/", ".ci/")  # tests and wrong answers would show right ones
SKIPPED = {"__pycache__", "_build", "build", "node_modules", "venv"}  # where git does not say what the course is
CELL = "# %%"
ANSWER_CELL = re.compile(r'# %%.* task="\w+"')


def copy_without_solutions(target: Path) -> None:
    """Copy the course into a new or empty folder: exercises blank, solutions blanked, and no history.

    What learners run works there: notebooks, checks, hints, the book. Raises CourseError.
    """
    if target.exists() and any(target.iterdir()):
        raise CourseError(f"{target} holds something already: delete it, or name another folder.")
    known = exercises()
    scripts = {exercise.script for exercise in known}
    pages = {exercise.path: exercise for exercise in known}
    for source in course_files():
        copy = target / source.relative_to(ROOT)
        if source in scripts:
            notebooks.write_text(copy, without_answers(source.read_text(encoding="utf-8")))
        elif source in pages:  # the teacher may have filled in this one
            notebooks.write_text(copy, notebooks.text_of(blank_form(pages[source])))
        else:
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, copy)


def course_files() -> list[Path]:
    """Return the files of the course that a copy without answers holds."""
    names = [name for name in tracked() if not name.startswith(LEFT_OUT)]
    paths = [ROOT / name for name in names]
    return [path for path in paths if path.is_file() and not path.is_symlink()]


def tracked() -> list[str]:
    """Return the names of the course's files: what git tracks, or where there is no git all that is not made here."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z"]
    try:
        listed = subprocess.run(command, capture_output=True, timeout=30, check=True).stdout
        return [name for name in listed.decode("utf-8", "surrogateescape").split("\0") if name]
    except (OSError, subprocess.SubprocessError):
        paths = (path.relative_to(ROOT) for path in ROOT.rglob("*"))
        return [
            path.as_posix() for path in paths if not SKIPPED & set(path.parts) and not path.parts[0].startswith(".")
        ]


def without_answers(script: str) -> str:
    """Return the text of a solution with each answer in its blank form, as a comment: importing it runs no blank."""
    head, *cells = re.split(rf"^(?={CELL})", script, flags=re.MULTILINE)
    return head + "".join(blank_cell(cell) for cell in cells)


def blank_cell(cell: str) -> str:
    """Return a cell of a script; an answer cell blank, tagged as one that is live in the notebook alone."""
    marker, _, body = cell.partition("\n")
    if not ANSWER_CELL.fullmatch(marker):
        return cell
    code = blank_source(body.rstrip())
    lines = [f"# {line}".rstrip() for line in code.splitlines()]
    return "\n".join([f'{marker} tags=["active-ipynb"]', *lines, "", ""])
