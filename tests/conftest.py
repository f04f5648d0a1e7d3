"""What several test files share."""

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock

ROOT = Path(__file__).parents[1]


def run_jupyter_book(output: Path, *options: str) -> float:
    """Build the book below `output` and return the CPU seconds it took; fail with what Sphinx complained about."""
    # Through Python, as `make book` does: a script's first line cannot name every folder.
    program = [sys.executable, Path(sys.executable).with_name("jupyter-book")]
    command = [*program, "build", ".", "--path-output", output, "-n", "--keep-going", *options]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=180)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    complaints = [line for line in done.stdout.splitlines() if "WARNING" in line or "ERROR" in line]
    assert done.returncode == 0, "\n".join(complaints or done.stdout.splitlines()[-40:])
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.fixture(scope="session")
def build_book() -> Callable[..., float]:
    """The function that builds a book: (output folder, options of jupyter-book…) → CPU seconds."""
    return run_jupyter_book


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site as `make book` builds it: once for all workers. Two folders up lies `cpu_seconds`."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "book"
    with FileLock(folder.with_suffix(".lock")):
        if not (folder / "cpu_seconds").exists():
            seconds = run_jupyter_book(folder, "--toc", "book/_toc.yml", "-W")
            (folder / "cpu_seconds").write_text(str(seconds))
    return folder / "_build" / "html"
