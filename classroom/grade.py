"""Grade one submission, or a class of them; each result is recorded as soon as it is done.

A task earns its points when every one of its cases passes, and none otherwise: an answer that is right on some inputs
is not right. Credit is partial by task.
"""

import ast
import hashlib
import hmac
import json
import math
import os
import re
import secrets
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from classroom.result import Result, TaskResult
from lab.notebook import CourseError

if TYPE_CHECKING:
    from classroom.assignment import Assignment
    from classroom.collect import Submission
    from classroom.gradebook import Gradebook
    from classroom.sandbox import Limits

SECRET_BYTES = 32
LINE = re.compile(r"\bline (\d+)\b")


@dataclass(frozen=True)
class Job:
    """One submission to grade, with all that a worker elsewhere needs for it."""

    submission: "Submission"
    data: bytes
    assignment: "Assignment"
    secret: bytes
    limits: "Limits"
    sandboxed: bool = True
    report: bool = True  # whether nbval runs as well


def digest_of(data: bytes) -> str:
    """Return the digest by which a submission is known to be the same."""
    return hashlib.sha256(data).hexdigest()


def digest_for(assignment: "Assignment", secret: bytes) -> str:
    """Return the digest by which grading is known to be the same: an assignment, and the secret behind the inputs."""
    return hmac.new(secret, assignment.digest.encode(), hashlib.sha256).hexdigest()


def grade_one(job: Job) -> Result:
    """Return the result of one submission. Raises only when this machine cannot grade."""
    if "lab.device" not in sys.modules:  # which reads this when it is imported, once
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    from classroom.assemble import assemble
    from classroom.course import course_for_sandboxes
    from classroom.judge import Examiner, judge_answers

    started = time.monotonic()
    assignment, student = job.assignment, job.submission.student
    assembly = assemble(job.data, assignment.notebook())
    examiner = Examiner(student, assignment.name, job.secret, job.limits, course_for_sandboxes(), job.sandboxed)
    verdicts = judge_answers(assembly, list(assignment.points), examiner)
    report, notes = [], []
    if job.report and assembly.answers:
        report, notes = run_notebook(assembly.notebook, examiner.course, job.limits, job.sandboxed)
    tasks = tuple(task_result(verdict, assignment, assembly.answers) for verdict in verdicts)
    return Result(
        student=student,
        assignment=assignment.name,
        digest=digest_of(job.data),
        assignment_digest=digest_for(assignment, job.secret),
        points=math.fsum(task.points for task in tasks),
        of=math.fsum(task.of for task in tasks),
        tasks=tasks,
        findings=tuple(assembly.findings),
        notes=(*job.submission.notes, *notes, *disagreements(tasks, report), *borrowings(assembly.notebook)),
        report=tuple(report),
        seconds=round(time.monotonic() - started, 1),
        submitted_at=job.submission.submitted_at.isoformat() if job.submission.submitted_at else "",
        number=job.submission.number,
    )


def task_result(verdict, assignment: "Assignment", answers: dict[str, str]) -> TaskResult:
    """Return a verdict of `lab.check` as plain data, with its points."""
    from classroom.course import without_places
    from lab.task import find_card

    told = {name: without_places(getattr(verdict, name)) for name in ("message", "cause", "output")}
    verdict = replace(verdict, **told, notes=list(map(without_places, verdict.notes)))
    worth = assignment.points[verdict.task]
    source = answers.get(verdict.task, "")
    lines = {int(number) for number in LINE.findall(verdict.message)}
    return TaskResult(
        name=verdict.task,
        title=find_card(verdict.task).title,
        points=worth if verdict.passed else 0.0,
        of=worth,
        passed=verdict.passed,
        cases_passed=verdict.cases_passed,
        cases=verdict.cases_total,
        reason=verdict.reason,
        message=verdict.message,
        advice=("", "") if verdict.passed else verdict.advice,
        case=verdict.case,
        inputs=verdict.inputs,
        notes=tuple(verdict.notes),
        printed=verdict.printed,
        source=source,
        lines=tuple(sorted(number for number in lines if 0 < number <= len(source.splitlines()))),
        picture=verdict.picture._repr_mimebundle_()["text/html"] if verdict.picture is not None else "",
    )


# The student's-eye report


def run_notebook(notebook, course: Path, limits: "Limits", sandboxed: bool) -> tuple[list[dict], list[str]]:
    """Return what nbval says of an assembled notebook, cell by cell, and notes for the teacher.

    It compares with the outputs of the hand-out, which are a right answer's: those in a student's file may be of any.
    """
    from classroom.course import readable, without_places
    from classroom.sandbox import Sandbox
    from lab.check.executor import Crashed, TimedOut
    from lab.notebook import text_of
    from lab.words import clean

    places = readable(course, tasks=True)
    with Sandbox("notebook", course, places, limits, sandboxed) as sandbox:
        try:
            reply = json.loads(sandbox.ask("run", text_of(notebook), seconds=limits.notebook_seconds))
            report = [
                {key: without_places(clean(str(cell[key]))) for key in ("cell", "outcome", "text")} for cell in reply
            ]
        except TimedOut as limit:
            return [], [f"The notebook did not run to its end within {limit}."]
        except Crashed as crash:
            return [], [f"The notebook could not be run: the process {crash}."]
        except (ValueError, KeyError, TypeError):
            return [], ["What the notebook's run sent back could not be read."]
    return report, []


def disagreements(tasks: tuple[TaskResult, ...], report: list[dict]) -> list[str]:
    """Return a note on each task whose check in the notebook says otherwise than its mark."""
    outcomes = {cell["cell"]: cell["outcome"] for cell in report}
    notes = []
    for task in tasks:
        outcome = outcomes.get(f"{task.name}-check")
        if outcome == "passed" and not task.passed:
            notes.append(f"`{task.name}` passes its check in the notebook, but not here ({task.reason}): look at it.")
        if outcome == "failed" and task.passed:
            notes.append(f"`{task.name}` fails its check in the notebook, but passes here; it was given its points.")
    return notes


def borrowings(notebook) -> list[str]:
    """Return a note on each task whose answer imports the course's own kernels: they may be what does its work."""
    from classroom.assemble import ADDED
    from lab.answers import statements
    from lab.generate import ANSWER

    notes = []
    for cell in notebook.cells:
        if cell.id.endswith((ADDED, ANSWER)):
            nodes = [node for statement in statements(cell.source) for node in ast.walk(statement)]
            names = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and not node.level]
            names += [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
            task = cell.id.rpartition("-")[0]
            taken = sorted({f"`{name}`" for name in names if name.split(".")[0] == "kernels"})
            notes += [f"`{task}` imports {', '.join(taken)}, the course's own: see what does the work."] * bool(taken)
    return notes


# A class


def read_secret(folder: Path) -> bytes:
    """Return the secret that makes each student's inputs their own: made once, kept beside the gradebook."""
    path = folder / "secret"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        pass
    else:
        try:
            with os.fdopen(descriptor, "w") as file:
                file.write(secrets.token_hex(SECRET_BYTES))
        except OSError:
            path.unlink()  # half a secret would be in the way of the next run
            raise
    secret = path.read_bytes().strip()
    if len(secret) < SECRET_BYTES:
        raise CourseError(f"{path} is damaged. Delete it to have a new one made; every mark is then worked out anew.")
    return secret


@dataclass
class Tally:
    """How far grading a class has come."""

    total: int
    graded: int = 0
    kept: int = 0  # were in the gradebook already
    failed: dict[str, str] = field(default_factory=dict)  # student → why there is no mark

    @property
    def done(self) -> int:
        return self.graded + self.kept + len(self.failed)


def grade_all(
    submissions: "list[Submission]",
    assignment: "Assignment",
    gradebook: "Gradebook",
    secret: bytes,
    limits: "Limits",
    *,
    sandboxed: bool = True,
    scheduler: str | None = None,
    workers: int | None = None,
) -> Iterator[tuple[Tally, Result | None]]:
    """Grade what the gradebook does not hold yet; yield the tally and the new result after each submission.

    Every result is in the gradebook before it is yielded. Raises CourseError where there can be no sandbox.
    """
    from classroom import sandbox
    from classroom.cluster import spread

    if sandboxed and scheduler is None:
        sandbox.require()
    digest = digest_for(assignment, secret)
    new = [
        submission
        for submission in submissions
        if not gradebook.done(submission.student, digest_of(submission.read()), digest)
    ]
    tally = Tally(len(submissions), kept=len(submissions) - len(new))
    yield tally, None
    # Read again, one by one as workers come free: a class's notebooks need not all be in memory at once.
    jobs = (Job(submission, submission.read(), assignment, secret, limits, sandboxed) for submission in new)
    for job, result in spread(grade_one, jobs, scheduler=scheduler, workers=workers):
        if isinstance(result, Exception):
            tally.failed[job.submission.student] = f"{type(result).__name__}: {result}"
            yield tally, None
            continue
        gradebook.record(result)
        tally.graded += 1
        yield tally, result
