"""What `tile grade`, `tile grades` and `tile nbval` do and show."""

import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from classroom.assignment import load_assignment
from classroom.collect import submissions
from classroom.exports import points_text, told_apart, write_exports
from classroom.feedback import feedback_path, write_feedback
from classroom.grade import Tally, grade_all, read_secret, run_notebook
from classroom.gradebook import Gradebook
from classroom.result import Result
from classroom.sandbox import Limits, available
from lab.notebook import CourseError
from lab.task import exercises
from lab.words import counted, one_line

GRADEBOOK = "gradebook.sqlite"
NBVAL_SECONDS = 600.0  # for one notebook alone: its learner's machine may be slow
BINS = 10
WIDTH = 40  # of the longest bar of a histogram
COLUMNS = (
    *(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()),
    *(TimeElapsedColumn(), TimeRemainingColumn()),
)


def grade(
    folder: Path,
    assignment_name: str,
    out: Path,
    *,
    sandboxed: bool = True,
    scheduler: str | None = None,
    workers: int | None = None,
) -> bool:
    """Grade a folder of submissions into the folder `out`, showing how far it has come.

    Return whether every submission has its mark. What the gradebook in `out` holds already is kept. Raises CourseError.
    """
    if out.exists() and not out.is_dir():
        raise CourseError(f"{out} is a file: name a folder with `--out`.")
    assignment = load_assignment(assignment_name)
    handed_in = submissions(folder, assignment)
    target = out / assignment.name
    tally = Tally(len(handed_in))
    options = {"sandboxed": sandboxed, "scheduler": scheduler, "workers": workers}
    with Gradebook(out / GRADEBOOK) as gradebook, kept_on_errors(out):
        (target / "feedback").mkdir(parents=True, exist_ok=True)  # where it cannot be, that is said before the work
        secret = read_secret(out)
        with Progress(*COLUMNS) as progress:
            bar = progress.add_task(f"Grading {assignment.name}", total=tally.total)
            for tally, result in grade_all(handed_in, assignment, gradebook, secret, Limits(), **options):
                progress.update(bar, completed=tally.done)
                if result is not None:
                    write_feedback(target / "feedback", result, assignment)
        results = told_apart(gradebook.rows(assignment.name))
        for result in results:  # a page may be missing if grading was stopped just before it was written
            if not feedback_path(target / "feedback", result.student).exists():
                write_feedback(target / "feedback", result, assignment)
        write_exports(target, results, assignment)
    conclude(tally, results, target)
    return not tally.failed


@contextmanager
def kept_on_errors(out: Path) -> Iterator[None]:
    """Say in one sentence which file the system refuses to write, and that no mark is lost by it."""
    try:
        yield
    except OSError as error:
        file, why = error.filename2 or error.filename or out, error.strerror or error
        raise CourseError(
            f"{file} cannot be written ({why}). Every mark that was done is kept in {out / GRADEBOOK}: free "
            "some space or make the folder writable, then run the same command; it goes on where it stopped."
        ) from None


def conclude(tally: Tally, results: Sequence[Result], target: Path) -> None:
    """Say what was done, what is to be looked at, and where everything is."""
    console = Console(highlight=False, markup=False, soft_wrap=True)
    console.print(f"{tally.graded} graded, {tally.kept} as before, {len(tally.failed)} could not be graded.")
    for student, why in tally.failed.items():
        console.print(f"  {printable(student)}: {why}. Run the same command to try again.")
    noted = [result for result in results if result.notes]
    if noted:
        console.print(f"{len(noted)} have a note for you: `tile grades` marks them, and grades.csv holds the notes.")
    console.print(f"Marks are in {target}, as grades.csv, canvas.csv, moodle.csv, junit.xml and grades.json;")
    console.print(f"a page for each student is in {target / 'feedback'}.")


def grades(out: Path, assignment_name: str | None = None) -> None:
    """Show a class: for each assignment a table and a histogram. Raises CourseError where nothing was graded."""
    path = out / GRADEBOOK
    if not path.is_file():
        raise CourseError(f"There is no gradebook in {out}: name the folder that `tile grade` was given as `--out`.")
    with Gradebook(path) as gradebook:
        results = told_apart(gradebook.rows(assignment_name))
    if not results:
        which = f"of {assignment_name} " if assignment_name else ""
        raise CourseError(f"The gradebook in {out} holds no marks {which}yet: `tile grade` puts them there.")
    console = Console(highlight=False)
    for name in dict.fromkeys(result.assignment for result in results):
        chosen = [result for result in results if result.assignment == name]
        console.print(table(name, chosen))
        console.print(histogram([result.points for result in chosen], chosen[0].of), markup=False)


def table(name: str, results: Sequence[Result]) -> Table:
    """Return a class's table: a line a student, a column a task."""
    tasks = list(dict.fromkeys(task.name for result in results for task in result.tasks))
    shown = Table(title=name)
    for heading in ("Student", *tasks):
        shown.add_column(heading, overflow="fold")
    shown.add_column("Points", no_wrap=True)
    shown.add_column("Notes")
    for result in results:
        earned = {task.name: task for task in result.tasks}
        cells = [mark(earned[task]) if task in earned else "" for task in tasks]
        total = f"{points_text(result.points)} of {points_text(result.of)}"
        shown.add_row(printable(result.student), *cells, total, str(len(result.notes) or ""))
    return shown


def mark(task) -> str:
    """Return a task's points, or why there are none."""
    return points_text(task.points) if task.passed else f"{points_text(task.points)} {task.reason}"


def histogram(points: Sequence[float], of: float) -> str:
    """Return how many students have how many points, as text."""
    counts = [0] * BINS
    for earned in points:
        counts[min(BINS - 1, int(BINS * earned / of)) if of else BINS - 1] += 1
    scale = min(1.0, WIDTH / max(counts))
    edges = [of * index / BINS for index in range(BINS + 1)]
    lines = []
    for count, low, high in zip(counts, edges, edges[1:], strict=False):
        block = "█" * round(count * scale) or "▏" * bool(count)
        lines.append(f"{low:6.1f} to {high:<6.1f} {block} {count}")
    mean, median = statistics.fmean(points), statistics.median(points)
    said = f"{counted(len(points), 'student')}, mean {mean:.1f}, median {median:.1f} of {points_text(of)} points"
    return "\n".join([*lines, said])


# One notebook, with nbval


def nbval(path: Path, assignment_name: str | None = None) -> bool:
    """Run a notebook's answers in the notebook that was handed out, and name each cell that differs from a right one's.

    Return whether none does. Raises CourseError, and OSError where the file cannot be read.
    """
    from classroom.assemble import assemble
    from classroom.course import course_for_sandboxes

    data = path.read_bytes()
    assignment = load_assignment(assignment_name or exercise_in(path.name))
    assembly = assemble(data, assignment.notebook())
    limits = replace(Limits(), notebook_seconds=NBVAL_SECONDS)
    report, notes = run_notebook(assembly.notebook, course_for_sandboxes(), limits, available())
    told = {cell["cell"]: cell for cell in report}
    cells = [cell for cell in assembly.notebook.cells if cell.cell_type == "code"]
    differ = [cell for cell in cells if cell.id not in told or told[cell.id]["outcome"] != "passed"]
    for line in (*assembly.findings, *notes, *(f"{cell.id}: {difference(cell, told)}" for cell in differ)):
        print(one_line(line))
    print(
        f"{assignment.name}: {len(cells) - len(differ)} of {len(cells)} code cells do what they do for a right answer."
    )
    return not differ


def exercise_in(name: str) -> str:
    """Return the exercise whose name a file's name holds. Raises CourseError where there is none."""
    for exercise in exercises():
        if exercise.name in name:
            return exercise.name
    raise CourseError(f"{name} bears no exercise's name: say which it is with `--assignment`, such as 01_vector_add.")


def difference(cell, told: dict[str, dict]) -> str:
    """Return what a cell did in place of what it does for a right answer."""
    if cell.id not in told:
        return "was not run."
    _, head, *lines = [*told[cell.id]["text"].strip().splitlines(), "", ""]
    why = head.partition(": ")[2]  # behind nbval's number of the cell
    if why == "Cell outputs differ" and cell.outputs:
        return f"did not print “{cell.outputs[0].text.strip()}”."
    return why if why.startswith("Timeout") else next(filter(None, reversed(lines)), why)


def printable(name: str) -> str:
    """Return a student's name as it can stand in a terminal, on one line."""
    from rich.markup import escape

    return escape(one_line(name))
