"""The writer of notebooks: whole or not at all, the same bytes twice, and clear words when a cell fails."""

import os
import subprocess
import sys
from pathlib import Path
from queue import Empty

import nbformat
import pytest
from nbval.kernel import RunningKernel

from lab import notebook

ROOT = Path(__file__).parents[2]


def save(path: Path, *sources: str) -> Path:
    """Write a notebook of code cells as an editor of old would: without cell ids that stay."""
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    new = nbformat.v4.new_notebook(
        cells=cells, metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    )
    path.write_text(nbformat.writes(new))
    return path


def test_executing_twice_writes_the_same_bytes(tmp_path: Path):
    path = save(tmp_path / "a.ipynb", "print(1)\nprint(2)", "3")
    seen = []
    assert notebook.execute(path, lambda done, total: seen.append((done, total)))
    first = path.read_bytes()
    assert not notebook.execute(path)
    assert path.read_bytes() == first
    assert seen[-1] == (2, 2)
    content = notebook.read(path)
    assert content.cells[0].outputs[0].text == "1\n2\n"
    assert "language_info" not in content.metadata
    assert all("execution" not in cell.metadata for cell in content.cells)


def test_a_failing_cell_is_named_and_the_file_stays(tmp_path: Path):
    path = save(tmp_path / "a.ipynb", "x = 1", "x / 0")
    before = path.read_bytes()
    with pytest.raises(notebook.NotebookError, match=r"cell 2 of 2 \(`x / 0`\).*ZeroDivisionError"):
        notebook.execute(path)
    assert path.read_bytes() == before


def test_a_dead_kernel_is_noticed_before_its_time_is_up(tmp_path: Path):
    path = save(tmp_path / "a.ipynb", "import os\nos._exit(1)")
    with pytest.raises(notebook.NotebookError, match="cell 1 of 1.*killed its kernel"):
        notebook.execute(path)


class Kernel:
    """Answers nothing to so many requests, then either its message or nothing ever again."""

    def __init__(self, silent: int, alive: bool):
        self.silent, self.alive = silent, alive
        self.waits: list[float] = []

    def is_alive(self) -> bool:
        return self.alive

    def get_message(self, stream: str, timeout: float) -> dict:
        self.waits.append(timeout)
        if len(self.waits) <= self.silent:
            raise Empty
        return {"stream": stream}


def test_nbval_asks_a_silent_kernel_every_second_whether_it_lives(monkeypatch: pytest.MonkeyPatch):
    watched = RunningKernel.get_message
    monkeypatch.setitem(watched.__globals__, "get_message", Kernel.get_message)
    slow, dead = Kernel(silent=3, alive=True), Kernel(silent=3, alive=False)
    assert watched(slow, "iopub", timeout=2000) == {"stream": "iopub"}
    assert slow.waits == [1.0] * 4
    with pytest.raises(RuntimeError, match="The kernel died"):
        watched(dead, "iopub", timeout=2000)
    assert dead.waits == [1.0]


def test_nbval_notices_a_dead_kernel_before_its_time_is_up(tmp_path: Path):
    path = save(tmp_path / "a.ipynb", "1", "import os\nos._exit(1)", "2")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--nbval", "-p", "conftest", "-p", "no:cacheprovider", "-q", str(path)],
        cwd=ROOT,
        env={key: value for key, value in os.environ.items() if "XDIST" not in key} | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert "2 failed, 1 passed" in done.stdout
    assert "The kernel died" in done.stdout


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b'{"cells": 3}', b'{"nbformat": 4, "cells": [{}]}'])
def test_a_damaged_notebook_is_called_so(tmp_path: Path, content: bytes):
    path = tmp_path / "a.ipynb"
    path.write_bytes(content)
    with pytest.raises(notebook.NotebookError, match="a.ipynb is damaged"):
        notebook.read(path)


def test_a_missing_notebook_is_called_so(tmp_path: Path):
    with pytest.raises(notebook.NotebookError, match="cannot be read: No such file"):
        notebook.read(tmp_path / "a.ipynb")


def test_an_interrupted_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "a.txt"
    path.write_text("old")

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(notebook.os, "replace", fail)
    with pytest.raises(OSError, match="No space"):
        notebook.write_text(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_workers_share_out_notebooks_and_not_their_cells():
    """A cell needs what the cells before it have made, in one kernel."""
    options = ["--nbval", "-v", "-n", "2", "-p", "no:cacheprovider", "--deselect=notebooks"]
    command = [sys.executable, "-m", "pytest", *options, "notebooks/01_vector_add.ipynb"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert "via LoadFileScheduling" in done.stdout, done.stdout + done.stderr
