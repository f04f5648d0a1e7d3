"""What came of one submission, as plain data that the gradebook keeps and that pages and exports are made of."""

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class TaskResult:
    """What came of one task. All text is for the student too; `picture` is HTML of the course's own making."""

    name: str
    title: str
    points: float
    of: float
    passed: bool
    cases_passed: int
    cases: int
    reason: str = ""
    message: str = ""
    advice: tuple[str, str] = ("", "")  # a label and a sentence
    case: str = ""  # the name of the case that failed
    inputs: str = ""  # its shapes and dtypes
    notes: tuple[str, ...] = ()
    printed: str = ""  # the first lines of what the answer printed
    source: str = ""  # the student's answer
    lines: tuple[int, ...] = ()  # of it, that the message is about
    picture: str = ""


@dataclass(frozen=True)
class Result:
    """What came of one submission; plain data throughout."""

    student: str
    assignment: str
    digest: str  # of the bytes handed in
    assignment_digest: str  # of all else that the mark depends on, see `digest_for`
    points: float
    of: float
    tasks: tuple[TaskResult, ...]
    findings: tuple[str, ...] = ()  # what was not as handed out; for teacher and student
    notes: tuple[str, ...] = ()  # for the teacher alone
    report: tuple[dict, ...] = ()  # of nbval: "cell", "outcome", "text"
    seconds: float = 0.0
    submitted_at: str = ""  # ISO 8601
    number: str = ""  # that Canvas or Moodle gave the student; it stands at the end of `student` as well

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Result":
        """Return the result that `to_json` wrote."""
        fields = json.loads(text)
        tasks = [{name: as_tuple(value) for name, value in task.items()} for task in fields.pop("tasks")]
        fields = {name: as_tuple(value) for name, value in fields.items()}
        return cls(**fields, tasks=tuple(TaskResult(**task) for task in tasks))


def as_tuple(value):
    return tuple(value) if isinstance(value, list) else value
