"""Find each student's notebook in a folder of submissions, whichever way it was downloaded.

    <student>/….ipynb                                          a folder a student
    lastfirst_123_456_01_vector_add.ipynb                      Canvas; lastfirst_LATE_123_456_… when late
    Ada Lovelace_123_assignsubmission_file_/….ipynb            Moodle; the same with a file name after it
    01_vector_add-ada/exercises/01_vector_add.ipynb            GitHub Classroom: a repository a student

Nothing is opened here but folders; links are never followed. Whoever handed in nothing usable is listed all the same.
"""

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from classroom.assemble import LARGEST
from classroom.assignment import Assignment
from lab.notebook import CourseError
from lab.words import one_line

DEPTH = 6  # folders below a student's that are looked into
FILES = 10_000  # names looked at for one student
SUFFIX = ".ipynb"

CANVAS = re.compile(r"(?P<name>[^_]+)_(?P<late>late_)?(?P<id>\d+)_(?P<attachment>\d+)_(?P<file>.+)", re.I | re.S)
MOODLE = re.compile(r"(?P<name>.*)_(?P<id>\d+)_assignsubmission_\w*?_(?P<file>.*)", re.I | re.S)


@dataclass(frozen=True)
class Submission:
    """What one student handed in. `path` is None when there is no notebook; `notes` are for the teacher."""

    student: str  # unique in the class; Canvas's and Moodle's number stands at its end: "lovelaceada_123"
    path: Path | None
    submitted_at: datetime | None = None  # the file's own time, UTC
    notes: tuple[str, ...] = ()

    def read(self) -> bytes:
        """Return the file's bytes, at most one more than LARGEST; none where there is no file or it cannot be read."""
        if self.path is None:
            return b""
        try:
            # Neither follow a link that was a file a moment ago nor wait for somebody to write into a pipe.
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with open(descriptor, "rb") as file:
                return file.read(LARGEST + 1) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
        except OSError:
            return b""


class Found:
    """What belongs to one student: the notebooks, and what was passed over."""

    def __init__(self, student: str, late: bool = False):
        self.student = student
        self.files: list[os.DirEntry] = []
        self.notes: list[str] = ["Canvas marks it as late."] * late


def submissions(folder: Path, assignment: Assignment) -> list[Submission]:
    """Return one submission a student, sorted by name. Raises CourseError when the folder holds none."""
    found: dict[str, Found] = {}
    for entry in entries(folder):
        take(entry, assignment, found)
    if not found:
        raise CourseError(
            f"{folder} holds no submissions: a folder for each student, or an unpacked download of Canvas, Moodle or "
            "GitHub Classroom, belongs there."
        )
    return [choose(found[student], assignment) for student in sorted(found)]


def entries(folder: Path) -> list[os.DirEntry]:
    """Return what lies in the folder of submissions, hidden things left out. Raises CourseError."""
    try:
        with os.scandir(folder) as scan:
            return sorted((entry for entry in scan if not entry.name.startswith(".")), key=lambda entry: entry.name)
    except NotADirectoryError:
        raise CourseError(f"{folder} is a file: unpack it, and name the folder.") from None
    except OSError as error:
        raise CourseError(f"{folder} cannot be read: {error.strerror}.") from None


def take(entry: os.DirEntry, assignment: Assignment, found: dict[str, Found]) -> None:
    """Add what one entry holds to its student's files."""
    moodle, canvas = MOODLE.fullmatch(entry.name), CANVAS.fullmatch(entry.name)
    is_folder = entry.is_dir(follow_symlinks=False)
    if moodle:
        student = f"{moodle['name']}_{moodle['id']}"
    elif canvas and not is_folder:
        student = f"{canvas['name']}_{canvas['id']}"
    elif is_folder or entry.is_symlink():
        student = without_assignment(entry.name, assignment)
    else:
        return  # a read-me, a list of grades: nobody's submission
    one = found.setdefault(readable(student), Found(readable(student), bool(canvas and canvas["late"])))
    for file in notebooks_in(entry, one) if is_folder else [entry]:
        if file.is_symlink():
            one.notes.append(f"{shown(file.name)} is a link, and was not followed.")
        elif file.is_file(follow_symlinks=False) and file.name.lower().endswith(SUFFIX):
            one.files.append(file)


def without_assignment(name: str, assignment: Assignment) -> str:
    """Return the student of a GitHub Classroom repository called <assignment>-<student>, else the name itself."""
    chapter, stem = assignment.name.split("_", 1)
    words = re.escape(stem).replace("_", "[-_]")
    repository = re.fullmatch(rf"(?:{chapter}[-_])?{words}-(.+)", name, re.I | re.S)
    return repository[1] if repository else name


def notebooks_in(folder: os.DirEntry, one: Found) -> Iterator[os.DirEntry]:
    """Yield the notebooks and the links below a student's folder, without following a link."""
    pending, seen = [(folder.path, 0)], 0
    while pending:
        path, depth = pending.pop()
        try:
            with os.scandir(path) as scan:
                for entry in scan:
                    seen += 1
                    if seen > FILES:
                        one.notes.append(f"More than {FILES:,} files: the rest was not looked at.")
                        return
                    if entry.is_dir(follow_symlinks=False):
                        if depth < DEPTH and not entry.name.startswith("."):
                            pending.append((entry.path, depth + 1))
                    elif entry.is_symlink() or entry.name.lower().endswith(SUFFIX):
                        yield entry
        except OSError as error:
            one.notes.append(f"{shown(os.path.basename(path))} cannot be read: {error.strerror}.")


def choose(one: Found, assignment: Assignment) -> Submission:
    """Return a student's submission: of several notebooks the newest that bears the assignment's name."""
    own = re.compile(re.escape(assignment.name) + r"\b|" + re.escape(assignment.name) + "_", re.I)
    bearing = [file for file in one.files if own.search(file.name)]
    # A repository holds the chapter beside the exercise, under the same name.
    exercises = [file for file in bearing if Path(file.path).parent.name == "exercises"]
    candidates = sorted(exercises or bearing or one.files, key=lambda file: (modified(file), file.name))
    if not candidates:
        return Submission(one.student, None, None, (*one.notes, "There is no notebook."))
    *others, newest = candidates
    notes = list(one.notes)
    if others:
        names = ", ".join(shown(file.name) for file in others[-3:])
        notes.append(f"{len(candidates)} notebooks: {shown(newest.name)} is the newest, and was graded; also {names}.")
    elif not bearing:
        notes.append(f"The notebook is called {shown(newest.name)}, not {assignment.name}{SUFFIX}.")
    moment = datetime.fromtimestamp(modified(newest), timezone.utc)
    if assignment.due and moment > datetime.fromisoformat(assignment.due):
        late = moment - datetime.fromisoformat(assignment.due)
        notes.append(f"The file is from {late.days} d {late.seconds // 3600} h after the due date.")
    return Submission(one.student, Path(newest.path), moment, tuple(notes))


def modified(file: os.DirEntry) -> float:
    """Return when a file was last changed; the beginning of time where that cannot be told."""
    try:
        return min(max(file.stat(follow_symlinks=False).st_mtime, 0.0), 2.0**35)
    except OSError:
        return 0.0


def readable(name: str) -> str:
    """Return a file's name as text that any file can hold: bytes that are no UTF-8 are spelt out."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def shown(name: str) -> str:
    """Return a file's name as it stands in a note: on one line, and not without end."""
    text = one_line(readable(name))
    return f"“{text[:80]}{'…' * (len(text) > 80)}”"
