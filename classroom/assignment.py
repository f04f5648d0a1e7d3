"""Assignments: what a teacher hands out, what a submission is assembled from, and what each task is worth."""

import hashlib
import json
import math
import re
import subprocess
import sys
from dataclasses import dataclass
from datetime import datetime, time
from pathlib import Path
from typing import TYPE_CHECKING

from lab import notebook as notebooks
from lab.generate import blank_form
from lab.notebook import ROOT, CourseError
from lab.task import Exercise, UnknownTask, find_exercise, unknown

if TYPE_CHECKING:
    from nbformat import NotebookNode

RECORD = "assignment.json"
TEMPLATE = "template.ipynb"
POINTS_IN_TITLE = re.compile(r"\([\d.]+ points?\)")
POLICY = (
    "The kernels must do the work. An answer that imitates a kernel without being one scores zero for its task: for "
    "instance one that lets PyTorch or NumPy compute the result, that remembers results, or that recognises its inputs."
)


@dataclass(frozen=True)
class Assignment:
    """One exercise as handed out to a class."""

    name: str  # "01_vector_add": the hand-out's file is called so
    points: dict[str, float]  # of each task, in the exercise's order
    template: str  # the text of the teacher's notebook: every cell, and the line that each check must print
    solution: str  # a digest of solutions/<stem>.py, which holds references and cases
    due: str | None = None  # ISO 8601, with its time zone
    course: str = ""  # the version of the course it was made with, for people

    @property
    def exercise(self) -> Exercise:
        """The exercise of the course behind it."""
        return find_exercise(self.name)

    @property
    def total(self) -> float:
        """The most points a submission can earn."""
        return sum(self.points.values())

    @property
    def digest(self) -> str:
        """A digest of all that marks depend on besides the submission: what is graded, against what, for how much."""
        parts = [self.name, self.points, self.template, self.solution]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def notebook(self) -> "NotebookNode":
        """Return the teacher's notebook, made anew."""
        return notebooks.parse(self.template, Path(TEMPLATE))


def make_assignment(
    name: str, folder: Path, points: dict[str, float] | None = None, due: str | None = None
) -> Assignment:
    """Write an assignment into a new or empty folder, or over the same one made before, and return it.

    points: task → its points, where they differ from the exercise's own. due: a date, which ends at midnight here, or
    a date and time. Raises CourseError for an unknown exercise or task, or a folder that holds something else.
    """
    exercise = find_exercise(name)
    deadline = read_due(due)
    refuse_other_files(exercise, folder)
    worth = points_of(exercise, points or {})
    template = notebooks.text_of(form(exercise, worth, deadline))
    assignment = Assignment(exercise.name, worth, template, digest_of_solution(exercise), deadline, course_version())
    record = {
        "name": assignment.name,
        "points": assignment.points,
        "due": assignment.due,
        "course": assignment.course,
        "solution": assignment.solution,
    }
    text = instructions(assignment)
    files = {
        f"{assignment.name}.ipynb": template,
        TEMPLATE: template,
        "instructions.md": text,
        "instructions.html": page(text, f"Assignment {assignment.name}"),
        RECORD: json.dumps(record, indent=1) + "\n",
    }
    try:
        for file, content in files.items():
            notebooks.write_text(folder / file, content)
    except OSError as error:
        raise CourseError(f"{folder} cannot be written: {error.strerror}. Name another one with `--out`.") from None
    return assignment


def load_assignment(name: str) -> Assignment:
    """Return the assignment in a folder made by `tile assign`, or an exercise of the course as it stands.

    Raises CourseError when the folder is damaged, or asks for tasks that the course no longer has.
    """
    folder = Path(name)
    if not (folder / RECORD).is_file():
        return assignment_of(find_exercise(name))
    try:
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        points = {str(task): float(worth) for task, worth in record["points"].items()}
        exercise = find_exercise(record["name"])
        template = (folder / TEMPLATE).read_text(encoding="utf-8")
        notebooks.parse(template, folder / TEMPLATE)
        solution, due, course = (record[key] for key in ("solution", "due", "course"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, CourseError) as error:
        raise CourseError(
            f"The assignment in {folder} is damaged ({error}). Make it anew: "
            f"`tile assign NAME --out {folder}`; submissions are not touched."
        ) from None
    lost = [f"`{task}`" for task in points if task not in {card.name for card in exercise.cards}]
    if lost:
        raise CourseError(f"The course no longer has {', '.join(lost)}. Grade with the version of then: {course}.")
    assignment = Assignment(exercise.name, points, template, digest_of_solution(exercise), due, course)
    if solution != assignment.solution:
        print(
            f"{exercise.script.name} has changed since this was handed out (version {course}): answers are judged by "
            "the tasks as they are now.",
            file=sys.stderr,
        )
    return assignment


def assignment_of(exercise: Exercise) -> Assignment:
    """Return an exercise as an assignment: its own points, no due date."""
    worth = points_of(exercise, {})
    template = notebooks.text_of(form(exercise, worth, None))
    return Assignment(exercise.name, worth, template, digest_of_solution(exercise), None, course_version())


def refuse_other_files(exercise: Exercise, folder: Path) -> None:
    """Raise CourseError unless the folder is missing, empty, or holds this assignment."""
    try:
        names = {path.name for path in folder.iterdir()} if folder.exists() else set()
    except OSError as error:
        raise CourseError(f"{folder} cannot be read: {error.strerror}. Name a new folder with `--out`.") from None
    if names and not {RECORD, f"{exercise.name}.ipynb"} <= names:
        raise CourseError(f"{folder} holds something else already. Name a new folder with `--out`.")


def points_of(exercise: Exercise, wanted: dict[str, float]) -> dict[str, float]:
    """Return the points of each task: the wanted ones, else the exercise's own. Raises CourseError."""
    known = {card.name: card.points for card in exercise.cards}
    for task, worth in wanted.items():
        if task not in known:
            raise UnknownTask(unknown("task", task, known))
        if not (math.isfinite(worth) and worth >= 0):
            raise CourseError(f"`{task}` cannot be worth {worth} points: give a number from 0 on.")
    return {task: float(wanted.get(task, own)) for task, own in known.items()}


def read_due(text: str | None) -> str | None:
    """Return a due date as ISO 8601 with its time zone. Raises CourseError for anything but a date."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
    except ValueError:
        raise CourseError(f"`{text}` is no date: write 2027-01-31, or 2027-01-31T18:00.") from None
    if len(text.strip()) <= len("2027-01-31"):
        moment = datetime.combine(moment, time(23, 59, 59))
    return moment.astimezone().isoformat() if moment.tzinfo is None else moment.isoformat()


def digest_of_solution(exercise: Exercise) -> str:
    """Return a digest of what an exercise's answers are judged by."""
    return hashlib.sha256(exercise.script.read_bytes()).hexdigest()


def course_version() -> str:
    """Return which course this is: the commit, where git knows it."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "unknown"


# What students get


def form(exercise: Exercise, worth: dict[str, float], due: str | None) -> "NotebookNode":
    """Return the notebook to hand out: the blank exercise with these points, headed by what counts."""
    import nbformat

    notebook = blank_form(exercise)
    for cell in notebook.cells:
        task, _, role = cell.id.rpartition("-")
        if task in worth and role == "text":
            cell.source = POINTS_IN_TITLE.sub(f"({points_in_words(worth[task])})", cell.source, count=1)
        if task in worth and "points" in cell.metadata.get("nbgrader", {}):
            cell.metadata["nbgrader"]["points"] = worth[task]
    head = f"**This is an assignment.** {deadline_in_words(due)}\n\n{POLICY}"
    notebook.cells.insert(1, nbformat.v4.new_markdown_cell(head.replace("  ", " "), id="assignment-text"))
    return notebook


def points_in_words(points: float) -> str:
    """Return "1 point" or "2.5 points"."""
    return f"{points:g} point{'s' * (points != 1)}"


def deadline_in_words(due: str | None) -> str:
    """Return the sentence that says when to hand in."""
    if due is None:
        return "Your teacher says when it is due."
    moment = datetime.fromisoformat(due)
    return f"It is due on {moment:%A, %Y-%m-%d at %H:%M} ({moment:%Z})."


def instructions(assignment: Assignment) -> str:
    """Return the page of instructions for students, in Markdown."""
    titles = {card.name: card.title for card in assignment.exercise.cards}
    rows = [f"| `{task}` | {titles[task]} | {worth:g} |" for task, worth in assignment.points.items()]
    return f"""# Assignment {assignment.name}

{deadline_in_words(assignment.due)} It is worth {points_in_words(assignment.total)}.

| Task | | Points |
| --- | --- | ---: |
{chr(10).join(rows)}

## What to do

1. Copy `{assignment.name}.ipynb` into the folder `exercises/` of the course, and start the course with `make lab`.
2. Fill in the answer cells: the ones with blanks (`____`). Run the check below each of them as often as you like.
3. Restart the kernel and run all cells. Every check should print that all its cases pass.
4. Hand in that one file, under that name. Outputs may stay in it; they are not looked at.

## How it is graded

- Only your answers count. They are put into the teacher's own notebook, with the imports, helper functions and kernels
  that they use, if those stand in other cells. Nothing else in your file matters.
- A kernel is a function under `@triton.jit` that computes with `triton.language`, and with nothing else.
- Each answer is run on inputs that nobody has seen before: other numbers than your checks use, in another order. That
  happens in a sandbox without network, with limits on time and memory. What passes your check for the right reason
  passes there.
- A task earns its points when all its cases pass. Tasks are counted one by one: one that fails, or never ends, takes
  nothing from the others.
- Cells that are missing, renamed or damaged are reported to you. They never crash the grading.

## What does not count

{POLICY}

Block sizes, helper functions, comments and the algorithm are yours to choose.
"""


PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
{body}
</body>
</html>
"""
STYLE = """
:root { color-scheme: light dark; }
body { font: 1rem/1.55 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem; }
h1, h2 { line-height: 1.2; }
code, pre { font: .9em/1.5 ui-monospace, monospace; }
table { border-collapse: collapse; width: 100%; }
th, td { border-bottom: 1px solid #8886; padding: .35rem .6rem .35rem 0; text-align: left; vertical-align: top; }
"""


def page(markdown: str, title: str) -> str:
    """Return Markdown as a page that loads nothing from anywhere."""
    import html

    from markdown_it import MarkdownIt

    body = MarkdownIt("commonmark").enable("table").render(markdown)
    return PAGE.format(title=html.escape(title), style=STYLE, body=body)
