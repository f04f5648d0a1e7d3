"""A new chapter's skeleton: complete in every room, working at once, and refused where it would be in the way."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from lab import notebook
from lab.notebook import CourseError
from lab.task import exercises
from tile import new

ROOT = Path(__file__).parents[2]
NAME = "90_twice_it"
PLACES = (
    "kernels/twice_it.py",
    "tests/test_kernels/test_twice_it.py",
    "book/measurements/twice_it.py",
    "solutions/twice_it.py",
    "solutions/wrong/twice_it.py",
    f"notebooks/{NAME}.ipynb",
    f"exercises/{NAME}.ipynb",
)


def run(course: Path, *command: str) -> subprocess.CompletedProcess:
    """Run a Python program in a copy of the course."""
    environment = {key: value for key, value in os.environ.items() if "XDIST" not in key}
    return subprocess.run(
        [sys.executable, *command],
        cwd=course,
        env=environment | {"PYTHONPATH": str(course), "TILE_STATE": str(course / ".tile"), "CI": "true"},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=300,
    )


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the course with a chapter 90 made by `tile new`."""
    copy = tmp_path_factory.mktemp("my course")
    hidden = shutil.ignore_patterns("__pycache__", ".*")
    for room in ("book", "classroom", "exercises", "kernels", "lab", "notebooks", "solutions", "tests", "tile"):
        shutil.copytree(ROOT / room, copy / room, ignore=hidden)
    for name in ("conftest.py", "pyproject.toml"):
        shutil.copy(ROOT / name, copy)
    done = run(copy, "-m", "tile.cli", "new", "twice_it", "--chapter", "90")
    assert done.returncode == 0, done.stdout + done.stderr
    for place in PLACES:
        assert place in done.stdout and (copy / place).exists()
    return copy


@pytest.mark.slow
def test_every_test_of_the_chapter_passes(course: Path):
    kinds = ("kernels/test_twice_it.py", "exercises/test_exercises.py", "notebooks", "lab/test_measure/test_recipes.py")
    places = [*(f"tests/test_{kind}" for kind in kinds), "tests/test_architecture.py", f"notebooks/{NAME}.ipynb"]
    options = ["--nbval", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-k", f"twice_it or {NAME} or imports"]
    done = run(course, "-m", "pytest", *options, *places)
    assert done.returncode == 0, done.stdout[-5000:]


def test_the_linter_has_nothing_to_say(course: Path):
    sources = [place for place in PLACES if not place.startswith("exercises/")]
    for command in (["check"], ["format", "--check"]):
        done = run(course, "-m", "ruff", *command, "--no-cache", *sources)
        assert done.returncode == 0, done.stdout + done.stderr


def test_making_it_again_changes_nothing(course: Path):
    before = {place: (course / place).read_bytes() for place in PLACES}
    done = run(course, "-m", "tile.cli", "new", "twice_it")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "`twice_it` is taken, by kernels/twice_it.py: choose another stem. Nothing was written.\n"
    assert {place: (course / place).read_bytes() for place in PLACES} == before


def test_the_book_lists_it_after_the_chapter_before(course: Path):
    before = exercises()[-1].name
    parts = yaml.safe_load((course / "book" / "_toc.yml").read_text(encoding="utf-8"))["parts"]
    chapters = [chapter for part in parts for chapter in part["chapters"] if chapter["file"].startswith("notebooks/")]
    place = [chapter["file"] for chapter in chapters].index(f"notebooks/{NAME}")
    assert chapters[place - 1]["file"] == f"notebooks/{before}"
    assert chapters[place]["sections"] == [{"file": f"exercises/{NAME}"}]
    landing = (course / "book" / "index.md").read_text(encoding="utf-8")
    rooms = ("notebooks", "exercises")
    cards = [landing.index(f":link: ../{room}/{name}\n") for name in (before, NAME) for room in rooms]
    assert cards == sorted(cards)


def test_what_cannot_be_recorded_yet_is_marked(course: Path):
    cells = notebook.read(course / "notebooks" / f"{NAME}.ipynb").cells
    assert [cell.id for cell in cells if cell.source == new.not_measured("twice_it")] == ["is-it-fast-2"]


@pytest.mark.parametrize(
    ("stem", "says"),
    [
        ("Twice", "`Twice` is no stem"),
        ("twice-it", "is no stem"),
        ("2fast", "is no stem"),
        ("../twice", "is no stem"),
        ("", "is no stem"),
        ("softmax", "`softmax` is taken, by kernels/softmax"),
        ("attention", "`attention` is taken, by .*attention"),
        ("lambda", "by Python itself"),
        ("sum", "by Python itself"),
        ("random", "by Python itself"),
        ("compiled", "by the code around the kernel"),
    ],
)
def test_a_stem_that_would_be_in_the_way_is_refused(stem: str, says: str):
    with pytest.raises(CourseError, match=says):
        new.new(stem)


@pytest.mark.parametrize(
    ("chapter", "says"),
    [(4, "Chapter 4 is 04_softmax"), (0, "Chapter 0 is none: they go from 1 to 99"), (100, "is none")],
)
def test_a_number_that_is_taken_or_none_is_refused(chapter: int, says: str):
    with pytest.raises(CourseError, match=says):
        new.new("twice_it", chapter)
