"""Keep results in one SQLite file. A mark is in it whole or not at all, whenever the power goes."""

import sqlite3
from datetime import datetime, timezone
from pathlib import Path

from classroom.result import Result
from lab.notebook import CourseError

WAIT_SECONDS = 30.0  # for another program that is writing
SCHEMA = """
create table if not exists results (
    student text not null,
    assignment text not null,
    digest text not null,
    assignment_digest text not null,
    points real not null,
    of real not null,
    graded_at text not null,
    result text not null,
    primary key (student, assignment)
)
"""


class Gradebook:
    """The latest result of each student in each assignment."""

    def __init__(self, path: Path):
        """Open a gradebook, or begin one. Raises CourseError for a file that is none, or cannot be written."""
        self.path = path
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # marks are nobody else's business
            self.connection = sqlite3.connect(path, timeout=WAIT_SECONDS)
            self.connection.execute("pragma synchronous = full")  # a mark that was shown survives a power cut
            with self.connection:
                self.connection.execute(SCHEMA)
        except (sqlite3.Error, OSError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise CourseError(
                f"{path} cannot be used as a gradebook ({reason}). Make room and the folder writable, or name another "
                "folder with `--out`; if the file is damaged, put back a copy of it."
            ) from None

    def record(self, result: Result) -> None:
        """Put a result in, in place of an earlier one. Raises CourseError when it cannot be kept."""
        facts = (result.student, result.assignment, result.digest, result.assignment_digest, result.points, result.of)
        when = datetime.now(timezone.utc).isoformat(timespec="seconds")
        try:
            with self.connection:
                self.connection.execute(
                    "insert or replace into results values (?, ?, ?, ?, ?, ?, ?, ?)", (*facts, when, result.to_json())
                )
        except sqlite3.Error as error:
            raise CourseError(
                f"{self.path} cannot be written ({error}); the marks in it are safe. Free some space or close the "
                "program that holds it, then run the same command: it goes on where it stopped."
            ) from None

    def done(self, student: str, digest: str, assignment_digest: str) -> bool:
        """Return whether this very submission has been graded by this very assignment and secret."""
        query = "select 1 from results where student = ? and digest = ? and assignment_digest = ?"
        return self.connection.execute(query, (student, digest, assignment_digest)).fetchone() is not None

    def rows(self, assignment: str | None = None) -> list[Result]:
        """Return the results, by assignment and student; of one assignment where it is named."""
        query = "select result from results where ? is null or assignment = ? order by assignment, student"
        rows = self.connection.execute(query, (assignment, assignment)).fetchall()
        return [Result.from_json(text) for (text,) in rows]

    def close(self) -> None:
        self.connection.close()

    def __enter__(self) -> "Gradebook":
        return self

    def __exit__(self, *error) -> None:
        self.close()
