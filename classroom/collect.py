"""Find each student's notebook in a folder of submissions, whichever way it was downloaded.

    <student>/….ipynb                                          a folder a student
    lastfirst_123_456_01_vector_add.ipynb                      Canvas; lastfirst_LATE_123_456_… when late
    Ada Lovelace_123_assignsubmission_file_/….ipynb            Moodle; the same with a file name after it
    01_vector_add-ada/exercises/01_vector_add.ipynb            GitHub Classroom: a repository a student

One of these layouts holds for the whole folder: the one that most of it follows. So a student who calls a file as the
files of another layout are called is not taken for somebody else.

Nothing is opened here but folders; links are never followed. Whoever handed in nothing usable is listed all the same.
"""

import os
import re
import stat
from collections import Counter
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
LATE = "Canvas marks it as late."

# In front stands what Canvas or Moodle wrote, behind it the student's own name of the file, which may be anything.
CANVAS = re.compile(r"(?P<name>[^_]+)_(?P<late>late_)?(?P<number>\d+)_\d+_.+", re.I | re.S)
MOODLE = re.compile(r"(?P<name>.*?)_(?P<number>\d+)_assignsubmission_.*", re.I | re.S)


@dataclass(frozen=True)
class Submission:
    """What one student handed in. `path` is None when there is no notebook; `notes` are for the teacher."""

    student: str  # unique in the class; Canvas's and Moodle's number stands at its end: "lovelaceada_123"
    path: Path | None
    submitted_at: datetime | None = None  # the file's own time, UTC
    notes: tuple[str, ...] = ()
    number: str = ""  # that Canvas or Moodle gave the student

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

    def __init__(self, student: str, number: str = ""):
        self.student = student
        self.number = number
        self.files: list[os.DirEntry] = []
        self.notes: list[str] = []


def submissions(folder: Path, assignment: Assignment) -> list[Submission]:
    """Return one submission a student, sorted by name. Raises CourseError when the folder holds none."""
    found: dict[str, Found] = {}
    listed = entries(folder)
    layout = layout_of(listed, assignment)
    for entry in listed:
        take(entry, layout, found)
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


def layout_of(listed: list[os.DirEntry], assignment: Assignment) -> re.Pattern | None:
    """Return the pattern that most names in a folder of submissions follow, None for a folder a student."""
    chapter, stem = assignment.name.split("_", 1)
    words = re.escape(stem).replace("_", "[-_]")
    repository = re.compile(rf"(?:{chapter}[-_])?{words}-(?P<name>.+)", re.I | re.S)
    patterns = (CANVAS, MOODLE, repository)
    followed = {entry: [one for one in patterns if named(entry, one)] for entry in listed}
    plain = [entry for entry in listed if holds_files(entry) and not followed[entry]]
    votes = Counter(one for chosen in followed.values() for one in chosen) | Counter({None: len(plain)})
    return max((*patterns[:2], None, repository), key=lambda layout: votes[layout])  # the first of equals


def named(entry: os.DirEntry, layout: re.Pattern | None) -> re.Match | None:
    """Return what a name says by a layout: Canvas has files alone, GitHub Classroom folders alone, Moodle either."""
    if layout is None or (layout is not MOODLE and holds_files(entry) == (layout is CANVAS)):
        return None
    return layout.fullmatch(entry.name)


def holds_files(entry: os.DirEntry) -> bool:
    """Return whether an entry is a folder, or a link, which may lead to one."""
    return entry.is_dir(follow_symlinks=False) or entry.is_symlink()


def take(entry: os.DirEntry, layout: re.Pattern | None, found: dict[str, Found]) -> None:
    """Add what one entry holds to its student's files."""
    match = named(entry, layout)
    parts = match.groupdict() if match else {"name": entry.name}
    number = parts.get("number", "")
    student = readable(f"{parts['name']}_{number}" if number else parts["name"])
    follows = bool(match) or (layout is None and holds_files(entry))
    if not follows and not holds_files(entry) and not entry.name.lower().endswith(SUFFIX):
        return  # a read-me, a list of grades: nobody's submission
    one = found.setdefault(student, Found(student, number))
    if not follows:
        one.notes.append(f"{shown(entry.name)} is not named as the layout of this folder has it: see whose it is.")
    if parts.get("late") and LATE not in one.notes:
        one.notes.insert(0, LATE)
    for file in notebooks_in(entry, one) if entry.is_dir(follow_symlinks=False) else [entry]:
        if file.is_symlink():
            one.notes.append(f"{shown(file.name)} is a link, and was not followed.")
        elif file.is_file(follow_symlinks=False) and file.name.lower().endswith(SUFFIX):
            one.files.append(file)


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
        return Submission(one.student, None, None, (*one.notes, "There is no notebook."), one.number)
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
    return Submission(one.student, Path(newest.path), moment, tuple(notes), one.number)


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
