"""What a sandbox sees of the course: the lab and the kernels, and the tasks without their answers."""

import compileall
import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from importlib.util import cache_from_source, find_spec
from multiprocessing.util import Finalize
from pathlib import Path

from classroom.sandbox import python_folders
from classroom.withhold import without_answers
from lab.notebook import ROOT
from lab.task import exercises

FOLDERS = ("lab", "kernels", "classroom")
FILES = ("conftest.py",)
PREFIX = "tile-course-"  # of a folder's name; the process that made it follows
PACKAGES = ("IPython", "ipykernel", "nbval", "pytest", "torch", "triton")
IMPORTED = (  # in one sandbox or another
    *("classroom.answers", "classroom.replay", "classroom.student_eye", "ipykernel.debugger", "ipykernel.kernelapp"),
    *("lab.compiler.worker", "lab.plots", "nbval.plugin"),
)
IGNORED = shutil.ignore_patterns("__pycache__", ".*", "*.pyc")


@functools.cache
def course_for_sandboxes() -> Path:
    """Return a folder with what sandboxes may see, made once for this process and removed when it ends."""
    remove_leftovers()
    target = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
    # Not atexit: the workers of a cluster end without it.
    Finalize(None, shutil.rmtree, (target, True), exitpriority=0)
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, target / folder, ignore=IGNORED)
    for file in FILES:
        (target / file).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / file, target / file)
    (target / "solutions").mkdir()
    shutil.copy(ROOT / "solutions" / "__init__.py", target / "solutions")
    for exercise in exercises():
        (target / "solutions" / exercise.script.name).write_text(
            without_answers(exercise.script.read_text(encoding="utf-8")), encoding="utf-8"
        )
    compileall.compile_dir(target, quiet=2)
    keep_byte_code()
    return target


def keep_byte_code() -> None:
    """See to it that Python finds its packages compiled: sandboxes, which may write nowhere, would do it every time."""
    if all(Path(cache_from_source(find_spec(package).origin)).exists() for package in PACKAGES):
        return
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", f"import {', '.join(IMPORTED)}"]
    subprocess.run(command, cwd=ROOT, env=environment, capture_output=True)


def remove_leftovers() -> None:
    """Remove the folders of processes that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*-*"):
        owner = folder.name.removeprefix(PREFIX).split("-")[0]
        if owner.isdigit() and not Path("/proc", owner).exists():
            shutil.rmtree(folder, ignore_errors=True)


def without_places(text: str) -> str:
    """Return text without the folders of this machine, which are nothing to a student: what is in them keeps its name.

    A sandbox knows where Python, its packages and its copy of the course lie, and errors and answers print that.
    """
    folders = {str(ROOT), os.path.expanduser("~"), *map(str, python_folders())} - {"/", "~"}
    patterns = [rf"{re.escape(tempfile.gettempdir())}/tile-[\w-]+"]
    patterns += [re.escape(folder) for folder in sorted(folders, key=len, reverse=True)]
    return re.sub(rf"(?:{'|'.join(patterns)})(/|\b)", lambda found: "" if found[1] else "…", text)


def readable(course: Path, tasks: bool = False) -> list[Path]:
    """Return the folders and files that a sandbox may see; with `tasks`, what the student's own checks need."""
    return [course / name for name in (*FOLDERS, *FILES, *(["solutions"] * tasks))]
