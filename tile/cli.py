"""The command line: `tile …`."""

import errno
import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from lab import notebook
from lab import progress as learner
from lab.generate import generate as write_exercise
from lab.notebook import ROOT, CourseError
from lab.task import exercises, find_exercise, matching

JUPYTERLAB = (
    "-y",  # stops at the first Ctrl-C
    "--log-level=ERROR",
    "--LabApp.log_level=ERROR",
    # Opens the address itself: a file that leads there is out of reach for a browser from a snap, or of Windows.
    "--ServerApp.use_redirect_file=False",
    # A token and no password, whatever this machine is used to: the printed address then lets one in.
    "--PasswordIdentityProvider.hashed_password=",
    # The course's files at a plain address of this machine, whatever a learner's own settings serve, and where.
    f"--ServerApp.root_dir={ROOT}",
    "--ServerApp.base_url=/",
    "--ServerApp.custom_display_url=",
    "--ServerApp.certfile=",
    "--ServerApp.keyfile=",
    "--ServerApp.sock=",
    "--ServerApp.port_retries=50",
    "--KernelSpecManager.allowed_kernelspecs=[]",
    # Settings that keep JupyterLab from asking about news and looking for updates of its own.
    f"--LabApp.app_settings_dir={Path(__file__).with_name('jupyterlab')}",
    # Without it every kernel warns that others on this machine could listen.
    "--KernelManager.transport_encryption=auto",
)
LONGEST_PATH = 200  # letters of a path that a message repeats


class Commands(typer.core.TyperGroup):
    """Shows what a person can put right as one message instead of a traceback, on terminals of few letters too."""

    def main(self, *arguments, **named) -> object:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")
        return super().main(*arguments, **named)

    def invoke(self, context: typer.Context) -> object:
        try:
            return super().invoke(context)
        except CourseError as error:
            print(error, file=sys.stderr)
            raise typer.Exit(1) from None
        except OSError as error:
            if error.errno == errno.EPIPE:  # the reader, such as `head`, has seen enough
                raise
            print(refused_by_system(error), file=sys.stderr)
            raise typer.Exit(1) from None


def refused_by_system(error: OSError) -> str:
    """Return the sentence that says what the system refuses, and what to do."""
    from lab.words import one_line, text_of

    reason = error.strerror or text_of(error) or type(error).__name__
    file = one_line(text_of(error.filename or ""))
    file = file if len(file) <= LONGEST_PATH else f"{file[:LONGEST_PATH]}…"
    what = f"{file} cannot be read or written" if file else "The system refuses"
    return f"{what}: {reason}. Name another file or folder, free some space, or make it accessible."


app = typer.Typer(
    cls=Commands,
    help="Tile by Tile: write GPU kernels that stand beside the vendor's, on any laptop.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

TaskName = Annotated[str, typer.Argument(help="A task, such as scale_add.", metavar="TASK")]


@app.command()
def lab(
    browser: Annotated[bool, typer.Option(help="Open a browser.")] = True,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to try first.")] = 8888,
    ip: Annotated[str, typer.Option(help="Where to listen; 0.0.0.0 in a container.")] = "127.0.0.1",
) -> None:
    """Start JupyterLab at your next page, print its address, and stay until Ctrl-C."""
    for path in own_notebooks():
        trust(path)
    options = [f"--ip={ip}", f"--port={port}", f"--LabApp.default_url=/lab/tree/{learner.next_page().as_posix()}"]
    if not (browser and has_screen()):
        options.append("--no-browser")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        options.append("--allow-root")
    os.environ.pop("JUPYTER_TOKEN", None)  # JupyterLab prints a token only if it made it
    os.chdir(ROOT)
    print("Starting JupyterLab. Ctrl-C stops it; `make lab` brings you back to where you were.", flush=True)
    os.execv(sys.executable, [sys.executable, "-m", "jupyterlab", *JUPYTERLAB, *options])


def has_screen() -> bool:
    """Return whether a browser can open a window here; a text browser would take the terminal away."""
    if sys.platform in ("darwin", "win32"):
        return True
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "WSL_DISTRO_NAME"))


def own_notebooks() -> list[Path]:
    """Return the course's own notebooks: their scripts, such as the figure one steps through, may run."""
    return sorted(path for folder in ("notebooks", "exercises") for path in (ROOT / folder).glob("*.ipynb"))


def trust(path: Path) -> None:
    """Sign a notebook as `jupyter trust` does. A damaged one, or a home that cannot be written, is left unsigned."""
    from nbformat.sign import NotebookNotary

    try:
        NotebookNotary().sign(notebook.read(path))
    except (CourseError, OSError) as error:
        print(f"{path.name} is not trusted, so its figures will not move until it is run: {error}", file=sys.stderr)


@app.command()
def progress() -> None:
    """Show each chapter's tasks, your points and the next step."""
    learner.progress()


@app.command()
def hint(
    task: TaskName,
    every: Annotated[bool, typer.Option("--all", help="Show all three hints.")] = False,
) -> None:
    """Show the next hint: a question, a nudge, the answer's shape."""
    learner.hint(task, every)


@app.command()
def reset(name: Annotated[str, typer.Argument(help="An exercise or a task.", metavar="EXERCISE_OR_TASK")]) -> None:
    """Put back the blanks, after a backup of what you wrote."""
    learner.reset(name)


@app.command()
def solution(
    task: TaskName,
    yes: Annotated[bool, typer.Option("--yes", help="Show it even if the task is not passed.")] = False,
) -> None:
    """Show how we solved a task you have passed."""
    learner.solution(task, yes)


@app.command()
def nbval(
    path: Annotated[Path, typer.Argument(help="An exercise that you have filled in.", metavar="NOTEBOOK")],
    assignment: Annotated[
        str | None, typer.Option(help="The exercise, or an assignment's folder; else the file's name tells.")
    ] = None,
) -> None:
    """Say whether an exercise is solved, by nbval; the exit status is 0 or 1.

    Your answers are put into the exercise as it was handed out, and its outputs
    compared with a right answer's, whatever your file has stored.

    They run in the sandbox of `tile grade` where there can be one, elsewhere as
    in any notebook, with your rights.
    """
    from classroom import console

    if not console.nbval(path, assignment):
        raise typer.Exit(1)


@app.command()
def update() -> None:
    """Take the newest version of the course and keep your answers."""
    from tile.update import update

    update()


@app.command()
def new(
    stem: Annotated[str, typer.Argument(help="The name of the operation, such as vector_add.", metavar="STEM")],
    chapter: Annotated[
        int | None, typer.Option(min=1, max=99, help="The number; the next free one when left out.")
    ] = None,
) -> None:
    """Make the skeleton of a chapter in every room (for authors)."""
    from tile.new import new

    for path in new(stem, chapter):
        typer.echo(path.relative_to(ROOT))
    typer.echo("Each of them works, and says what to replace. CONTRIBUTING.md tells what belongs into it.")


@app.command()
def generate(
    names: Annotated[
        list[str] | None, typer.Argument(help="Exercises; all when left out.", metavar="[EXERCISE]...")
    ] = None,
) -> None:
    """Write exercises/ anew from solutions/ (for authors)."""
    chosen = [find_exercise(name) for name in names] if names else exercises()
    for one in chosen:
        with bar(one.name) as report:
            changed = write_exercise(one, report)
        typer.echo(f"{one.path.relative_to(ROOT)}: {'written' if changed else 'unchanged'}")


@app.command()
def execute(
    paths: Annotated[
        list[Path] | None, typer.Argument(help="Chapters; all when left out.", metavar="[NOTEBOOK]...")
    ] = None,
) -> None:
    """Run chapters and store their outputs (for authors)."""
    for path in paths or sorted((ROOT / "notebooks").glob("*.ipynb")):
        with bar(path.stem) as report:
            changed = notebook.execute(path.resolve(), report)
        typer.echo(f"{path.name}: {'written' if changed else 'unchanged'}")


@contextmanager
def bar(title: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar; yield the function that moves it: cells done, cells in all."""
    from rich.progress import Progress

    with Progress(transient=True) as bars:
        task = bars.add_task(title)
        yield lambda done, total: bars.update(task, completed=done, total=total)


@app.command()
def measure(
    stem: Annotated[str, typer.Argument(help="An operation, such as vector_add.", metavar="STEM")],
    out: Annotated[Path | None, typer.Option(help="The folder to write to.")] = None,
    commit: Annotated[str | None, typer.Option(help="The commit to note, where there is no .git.")] = None,
) -> None:
    """Time a kernel beside its peers on this machine's GPU and record the rows."""
    from lab.measure import record

    record.measure(stem, out=out, commit=commit)


# For teachers


def parse_points(given: list[str]) -> dict[str, float]:
    """Return task → points of words such as "scale_add=2.5". Raises CourseError for anything else."""
    known = [card.name for exercise in exercises() for card in exercise.cards]
    points = {}
    for word in given:
        task, sign, worth = word.partition("=")
        try:
            points[matching(task, known) or task] = float(worth)
        except ValueError:
            raise CourseError(f"`{word}` is no task and its points: write `--points scale_add=2.5`.") from None
    return points


@app.command()
def assign(
    name: Annotated[str, typer.Argument(help="An exercise, such as 01_vector_add.", metavar="EXERCISE")],
    out: Annotated[Path, typer.Option(help="The folder to make.")],
    points: Annotated[list[str] | None, typer.Option(help="TASK=POINTS, once for each task that is to differ.")] = None,
    due: Annotated[str | None, typer.Option(help="2027-01-31, or 2027-01-31T18:00.")] = None,
    without_solutions: Annotated[
        bool, typer.Option("--without-solutions", help="Add a copy of the course that holds no answers.")
    ] = False,
) -> None:
    """Make an assignment of an exercise: what to hand out, and what to grade by (for teachers)."""
    from classroom.assignment import make_assignment
    from classroom.withhold import copy_without_solutions

    assignment = make_assignment(name, out, parse_points(points or []), due)
    typer.echo(f"Hand out {out / assignment.name}.ipynb, and instructions.html or .md beside it.")
    typer.echo(f"Keep the folder: `tile grade SUBMISSIONS --assignment {out} --out GRADES` grades by it.")
    if without_solutions:
        copy_without_solutions(out / "course")
        typer.echo(f"{out / 'course'} is the course without its answers: publish that for the class.")


@app.command()
def grade(
    submissions: Annotated[Path, typer.Argument(help="A folder: one a student, or an unpacked download.")],
    assignment: Annotated[str, typer.Option(help="An exercise, or the folder that `tile assign` made.")],
    out: Annotated[Path, typer.Option(help="Where gradebook, marks and feedback go.")],
    no_sandbox: Annotated[bool, typer.Option("--no-sandbox", help="Run submissions with all your rights.")] = False,
    scheduler: Annotated[str | None, typer.Option(help="A Dask scheduler's address; else all cores here.")] = None,
    workers: Annotated[int | None, typer.Option(min=1, max=1024, help="How many to grade at once here.")] = None,
) -> None:
    """Grade what a class handed in; go on where it stopped (for teachers)."""
    from classroom import console

    try:
        done = console.grade(
            submissions, assignment, out, sandboxed=not no_sandbox, scheduler=scheduler, workers=workers
        )
    except KeyboardInterrupt:
        raise CourseError("Stopped. Every mark that was done is kept: run the same command to go on.") from None
    if not done:
        raise typer.Exit(1)


@app.command()
def grades(
    out: Annotated[Path, typer.Argument(help="The folder that `tile grade` was given as --out.", metavar="GRADES")],
    assignment: Annotated[str | None, typer.Option(help="One assignment alone, such as 01_vector_add.")] = None,
) -> None:
    """Show a class as a table and a histogram (for teachers)."""
    from classroom import console

    console.grades(out, assignment)


if __name__ == "__main__":
    app(prog_name="tile")
