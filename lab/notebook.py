"""The one reader and writer of committed notebooks: what it writes is byte-identical on a second run."""

import os
import shutil
import sys
import warnings
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nbformat import NotebookNode

# nbformat imports what can tell whether text is an address; it would build a grammar for that, 1.2 s in every process.
sys.modules.setdefault("rfc3987_syntax", None)

ROOT = Path(__file__).resolve().parents[1]
CELL_SECONDS = 120


class CourseError(Exception):
    """Something the person at the keyboard can put right: the message says how, and a notebook shows nothing else."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


class NotebookError(CourseError):
    """A notebook that cannot be read, or does not run to its end."""


def in_notebook() -> bool:
    """Return whether this process is a notebook's kernel, not a terminal's or a plain one."""
    if "IPython" not in sys.modules:
        return False
    from IPython import get_ipython

    return hasattr(get_ipython(), "kernel")


def read(path: Path) -> "NotebookNode":
    """Return the notebook at `path`. Raises NotebookError for a file that is missing or no notebook."""
    try:
        text = path.read_text(encoding="utf-8-sig")  # editors on Windows put a mark in front
    except UnicodeDecodeError as error:
        raise damaged(path, error) from None
    except OSError as error:
        raise NotebookError(f"{path} cannot be read: {error.strerror}.") from None
    return parse(text, path)


def parse(text: str, path: Path) -> "NotebookNode":
    """Return the notebook whose file holds `text`. Raises NotebookError, naming `path`, for anything else."""
    import nbformat

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of ids that are missing or doubled, which nbformat mends
            notebook = nbformat.reads(text, as_version=4)
            if any("id" in cell for cell in notebook.cells):  # some editors name a format that has none
                notebook.nbformat_minor = max(notebook.nbformat_minor, 5)
            nbformat.validate(notebook)
    except (ValueError, TypeError, AttributeError, RecursionError, nbformat.ValidationError) as error:
        raise damaged(path, error) from None
    return notebook


def damaged(path: Path, error: Exception) -> NotebookError:
    """Return the error that says a file is no notebook."""
    from lab.words import text_of

    reason = next(iter(text_of(error).splitlines()), "") or type(error).__name__
    return NotebookError(f"{path} is damaged and cannot be read as a notebook ({reason}).")


def text_of(notebook: "NotebookNode") -> str:
    """Return the file's text: what `write` puts on disk."""
    import nbformat

    return nbformat.writes(notebook).rstrip("\n") + "\n"


def write(path: Path, notebook: "NotebookNode") -> None:
    """Write `notebook`, whole or not at all."""
    write_text(path, text_of(notebook))


def write_text(path: Path, text: str) -> None:
    """Replace the file at `path` in one step: a crash or a full disk leaves the old one. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(text, encoding="utf-8")
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def run(
    notebook: "NotebookNode", folder: Path, name: str = "notebook", report: Callable[[int, int], None] | None = None
) -> "NotebookNode":
    """Return a copy of `notebook` with every cell executed in `folder` by a fresh kernel of this Python.

    report: called with (cells done, cells in all) as it goes. Raises NotebookError when a cell fails, takes longer than
    two minutes, or kills the kernel; the message names the cell.
    """
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    notebook = nbformat.from_dict(notebook)
    cells = len(notebook.cells)
    current = {"index": 0}

    def starting(cell: "NotebookNode", cell_index: int) -> None:
        current["index"] = cell_index
        if report:
            report(cell_index, cells)

    client = NotebookClient(
        notebook,
        timeout=CELL_SECONDS,
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,
        extra_arguments=["--IPKernelApp.log_level=ERROR"],
        resources={"metadata": {"path": str(folder)}},
        on_cell_start=starting,
    )
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    try:
        client.execute(env=environment)
    except CellExecutionError as error:
        raise NotebookError(f"{where(name, notebook, current)} fails: {error.ename}: {error.evalue}") from None
    except CellTimeoutError:
        raise NotebookError(f"{where(name, notebook, current)} ran for more than {CELL_SECONDS} s.") from None
    except DeadKernelError:
        raise NotebookError(f"{where(name, notebook, current)} killed its kernel.") from None
    if report:
        report(cells, cells)
    return notebook


def where(name: str, notebook: "NotebookNode", current: dict[str, int]) -> str:
    """Return the words that name the cell being executed."""
    cell = notebook.cells[current["index"]]
    first = next(iter(cell.source.splitlines()), "")
    return f"{name}, cell {current['index'] + 1} of {len(notebook.cells)} (`{first}`)"


def execute(path: Path, report: Callable[[int, int], None] | None = None) -> bool:
    """Execute the notebook at `path` where it lies and store its outputs. Return whether the file changed.

    A second run writes the same bytes: no times, no Python version, and cell ids that stay. Raises NotebookError.
    """
    before = path.read_text(encoding="utf-8") if path.exists() else None
    notebook = run(read(path), path.parent, path.name, report)
    for index, cell in enumerate(notebook.cells):
        cell.metadata.pop("execution", None)
        cell.setdefault("id", f"cell-{index:02}")
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    notebook.metadata = {key: notebook.metadata[key] for key in ("kernelspec", "title") if key in notebook.metadata}
    write(path, notebook)
    return text_of(notebook) != before


# What must not be lost


def state_folder() -> Path:
    """Return the folder of what a learner makes: progress, hints shown, backups."""
    return Path(os.environ.get("TILE_STATE") or ROOT / ".tile")


def back_up(path: Path) -> Path:
    """Copy a file into the backups and return the copy's path. Raises CourseError when it cannot be kept."""
    folder = state_folder() / "backups" / datetime.now().strftime("%Y-%m-%d_%H-%M-%S-%f")
    try:
        folder.mkdir(parents=True)
        return Path(shutil.copy2(path, folder))
    except OSError as error:
        raise CourseError(
            f"{path} was left as it is: no backup could be made in {folder} ({error.strerror}). Free some space, "
            "make that folder writable, or name another one in the environment variable TILE_STATE."
        ) from None


def replace(path: Path, text: str) -> Path | None:
    """Give a file a new text, with a backup of the old one. Return the backup's path. Raises CourseError."""
    backup = back_up(path) if path.exists() else None
    try:
        write_text(path, text)
    except OSError as error:
        raise CourseError(
            f"{path} could not be written and is as it was: {error.strerror}. Free some space or make it writable."
        ) from None
    return backup
