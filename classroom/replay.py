"""The verdict on a student's answers, from a process that never runs a line of theirs.

Each case is a question with inputs of this student's own. One sandbox runs the answer on it, twice, and its evidence is
examined here as the course's own check does. That evidence could be forged, so what passes is done once more: a second
sandbox, which runs nothing of the student's but kernels that it has read, repeats the launches on inputs that the
answer has never seen. Only what passes there as well has passed.
"""

import atexit
import hashlib
import hmac
import io
import json
import linecache
import random
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from classroom.assemble import ADDED, Assembly
from classroom.course import readable
from classroom.sandbox import START_SECONDS, Limits, Sandbox
from lab.check import ENDINGS, Verdict, conclude, run_case
from lab.check.examine import Finding, examine
from lab.check.inputs import Frozen, without_repeats
from lab.check.isolation import Crashed, TimedOut
from lab.check.question import Question, is_floating, pose, thawed
from lab.check.runner import Evidence
from lab.device import ON_CPU
from lab.generate import ANSWER, CHECK
from lab.notebook import CourseError
from lab.task import Task, find_task

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
COMPILE_SECONDS = 60.0
HAND_IN = "hand in the notebook with all its cells."
DISHONEST = "kernels must do the work, on whatever numbers stand in the tensors."
PLAIN = "a kernel is one function, in plain Triton."
LIED = "the process sent back what no run can have left behind."


@dataclass(frozen=True)
class Examiner:
    """Whose answers to what are judged, and how; the secret makes the inputs of each student their own."""

    student: str
    assignment: str
    secret: bytes
    limits: Limits
    course: Path
    sandboxed: bool = True

    def seed(self, *parts: str) -> int:
        """Return a number that only the secret's owner can foresee: the same for the same student, task and case."""
        text = json.dumps([self.student, self.assignment, *parts]).encode()
        return int.from_bytes(hmac.new(self.secret, text, hashlib.sha256).digest()[:7], "big")

    def sandbox(self, role: str) -> Sandbox:
        """Start a sandbox that sees nothing of any task."""
        return Sandbox(role, self.course, readable(self.course), self.limits, self.sandboxed)

    def witness(self) -> Sandbox:
        """Return this process's one sandbox for witnesses, with a new one inside. Raises CourseError."""
        for _ in range(2):  # a system short of memory may have ended it meanwhile
            if not nursery or nursery[0].ended:
                nursery[:] = [self.sandbox("witness")]
            try:
                nursery[0].ask("fork", seconds=START_SECONDS)
                return nursery[0]
            except (TimedOut, Crashed) as error:
                ended = error
        raise CourseError(f"No sandbox can be had ({ended}). Give this machine more memory, or fewer workers.")


nursery: list[Sandbox] = []  # imports once for all students; what serves one of them is forked from it, and ends


@atexit.register
def close_nursery() -> None:
    """End the sandbox that outlives each student's."""
    while nursery:
        nursery.pop().close()


def judge_answers(assembly: Assembly, tasks: list[str], examiner: Examiner) -> list[Verdict]:
    """Return a verdict on each of the tasks. Whatever the student's code does becomes one.

    Raises CourseError where this process runs kernels on a GPU, or no sandbox can be had.
    """
    if not ON_CPU:
        raise CourseError("Marks must not hang on a GPU: set CUDA_VISIBLE_DEVICES= (empty) for this program.")
    with cells_remembered(assembly), Judges(assembly, examiner) as judges:
        return [judges.judge(find_task(name)) for name in tasks]


@contextmanager
def cells_remembered(assembly: Assembly) -> Iterator[None]:
    """Let verdicts quote the student's lines, by the names that cells go by."""
    names = {name_of(cell.id): io.StringIO(cell.source).readlines() for cell in assembly.notebook.cells}
    linecache.cache.update({name: (len(lines), None, lines, name) for name, lines in names.items()})
    try:
        yield
    finally:
        for name in names:
            linecache.cache.pop(name, None)


def name_of(cell: str) -> str:
    """Return the file name that a cell's code goes by."""
    return f"<{cell}>"


# The sandboxes


@dataclass
class Answers:
    """Where `lab.check` runs one answer: in a sandbox, and within what is left of its time."""

    sandbox: Sandbox
    files: frozenset[str]
    seconds: float
    left: float = field(init=False)
    seen: Frozen | None = None  # the inputs of the last run

    def __post_init__(self):
        self.left = self.seconds

    def ask(self, method: str, *arguments) -> bytes:
        started = time.monotonic()
        self.sandbox.wait_until_ready()
        ready = time.monotonic()
        try:
            return self.sandbox.ask(method, *arguments, seconds=max(0.0, self.left))
        except TimedOut:
            raise TimedOut(f"{round(self.seconds, 1):g} s") from None
        finally:
            self.left -= time.monotonic() - max(started, ready)

    def run(self, frozen, order=None) -> Evidence:
        """Return the evidence of one run. Raises TimedOut, Crashed, and anything for evidence that is malformed."""
        self.seen = frozen
        return evidence_from(self.ask("run", frozen, order), self.files)


@dataclass
class Judges:
    """The two sandboxes for one student's answers, each started when needed and again when something ended it."""

    assembly: Assembly
    examiner: Examiner
    answers: Sandbox | None = None
    witness: Sandbox | None = None
    defined: list[tuple[str, str]] = field(default_factory=list)  # cells that ran, to be run again in a new sandbox
    left: float = 0.0  # seconds for all answers together

    def __enter__(self) -> "Judges":
        self.left = self.examiner.limits.seconds
        self.start()
        return self

    def __exit__(self, *error) -> None:
        if self.answers is not None:
            self.answers.close()
        if self.witness is not None:
            with suppress(TimedOut, Crashed):
                self.witness.ask("leave", seconds=START_SECONDS)

    def start(self) -> None:
        """Start whichever sandbox is not running."""
        if self.answers is None:
            self.answers = self.examiner.sandbox("answers")
            for cell in self.defined:
                self.answers.ask("define", *cell, seconds=self.examiner.limits.task_seconds)
        if self.witness is None:
            self.witness = self.examiner.witness()

    def judge(self, task: Task) -> Verdict:
        """Return the verdict on one answer."""
        verdict = Verdict(task.name, False, 0, len(task.cases))
        if task.name not in self.assembly.answers:
            verdict.tell(Finding("missing", "there is no answer cell of this task in the notebook.", HAND_IN))
            return verdict
        seconds = min(self.examiner.limits.task_seconds, self.left)
        place = None
        try:
            self.start()
            place = Answers(self.answers, frozenset(name_of(cell.id) for cell in self.assembly.notebook.cells), seconds)
            finding = self.define(task, place)
            if finding is None:
                self.judge_cases(verdict, task, place)
            else:
                verdict.tell(finding)
        except (TimedOut, Crashed) as error:
            verdict.passed = False
            verdict.tell(ending(error))
        if place is not None:
            self.left -= seconds - place.left
        verdict.output = self.answers.output if self.answers else ""
        if self.answers is not None:
            self.answers.output = ""
        if self.answers is not None and self.answers.ended:
            self.forget("answers")
        return verdict

    def forget(self, role: str) -> None:
        """Close a sandbox that has ended or cannot be trusted to go on."""
        sandbox = getattr(self, role)
        if sandbox is not None:
            sandbox.close()
        setattr(self, role, None)

    def define(self, task: Task, place: Answers) -> Finding | None:
        """Run the cells up to the task's answer. Return what speaks against the answer at once."""
        error = ""
        for file, source in self.cells_until(task.name + ANSWER):
            if (file, source) not in self.defined:
                error = json.loads(place.ask("define", file, source))
                self.defined.append((file, source))
        form = json.loads(place.ask("choose", task.name, task.allows))
        if form is None:
            return None
        if form["reason"] == "missing" and error:
            return Finding("error", f"its cell does not run: {str(error)[:500]}", "run it in the notebook and mend it.")
        return Finding(str(form["reason"]), str(form["message"])[:2000], str(form["cause"])[:500])

    def cells_until(self, last: str) -> Iterator[tuple[str, str]]:
        """Yield the code of the cells up to one of them; other answers only if they run, checks never."""
        for cell in self.assembly.notebook.cells:
            is_code = cell.cell_type == "code" and not cell.id.endswith(CHECK)
            is_other = cell.id.endswith((ANSWER, ADDED)) and cell.id.rpartition("-")[0] != last.removesuffix(ANSWER)
            if is_code and (not is_other or (name_of(cell.id), cell.source) in self.defined):
                yield name_of(cell.id), cell.source
            if cell.id == last:
                return

    def judge_cases(self, verdict: Verdict, task: Task, place: Answers) -> None:
        """Run the cases in an order of this student's own; tell of what fails as `check` does."""
        numbers = list(range(len(task.cases)))
        random.Random(self.examiner.seed(task.name, "order")).shuffle(numbers)
        failed: dict[int, tuple[Question, Finding]] = {}
        self.witness.ask("begin", task.allows, seconds=self.examiner.limits.task_seconds)
        for number in numbers:
            case = task.cases[number]
            seed = self.examiner.seed(task.name, case.name)
            question = pose(task, case, seed)
            finding = self.try_case(place, question, seed, number)
            if finding is None:
                verdict.cases_passed += 1
                continue
            failed[number] = question, finding
            if finding.reason in ENDINGS:
                break
        objections = self.objections() if not failed else []
        conclude(verdict, [failed[number] for number in sorted(failed)])
        if objections:
            verdict.passed = False
            verdict.tell(Finding("compiler", "the values are right here, but " + "\n".join(objections)))

    def try_case(self, place: Answers, question: Question, seed: int, number: int) -> Finding | None:
        """Return what is wrong with an answer in one case: in its own sandbox, or as the witness sees it."""
        try:
            finding = run_case(place, question, seed, number)
            if finding is not None:
                return finding
            transcript = place.ask("transcript").decode()
        except (TimedOut, Crashed) as error:
            return ending(error)
        except Exception:
            return Finding("crashed", LIED, DISHONEST)
        return self.call_witness(place, question, transcript, number)

    def call_witness(self, place: Answers, question: Question, transcript: str, number: int) -> Finding | None:
        """Return what is wrong with what an answer did, repeated on inputs that it has not seen."""
        task, case = question.task, question.case
        seen = thawed(place.seen)
        other = replace(case, make=lambda generator: unseen(case.make(generator), seen))
        fresh = pose(task, other, self.examiner.seed(task.name, case.name, "witness"))
        try:
            reply = self.witness.ask(
                "replay", transcript, fresh.inputs, number, seconds=self.examiner.limits.task_seconds
            )
            if reply.startswith(b'{"refused"'):
                return refusal(json.loads(place.ask("objections")), json.loads(reply)["refused"])
            evidence = evidence_from(reply, self.files)
            if evidence.error is not None and evidence.error["type"] == "Refused":
                return refusal([], evidence.error["message"])
            finding = examine(fresh, evidence)
        except (TimedOut, Crashed) as error:
            self.forget("witness")
            self.start()
            self.witness.ask("begin", task.allows, seconds=self.examiner.limits.task_seconds)
            return ending(error)
        except Exception:
            return Finding("crashed", LIED, DISHONEST)
        if finding is None:
            return None
        objections = json.loads(place.ask("objections")) if finding.reason in ("error", "compiler") else []
        if objections or finding.reason == "compiler":
            return refusal(objections, finding.message)
        message = f"its launches, repeated by the grader on other numbers, do not give the result: {finding.message}"
        return replace(finding, message=message, cause=finding.cause or DISHONEST)

    @property
    def files(self) -> frozenset[str]:
        return frozenset(name_of(cell.id) for cell in self.assembly.notebook.cells)

    def objections(self) -> list[str]:
        """Return what the compiler for the GPU says against the kernels that the witness has run."""
        try:
            texts = json.loads(self.witness.ask("objections", seconds=COMPILE_SECONDS))
        except (TimedOut, Crashed):
            self.forget("witness")
            texts = ["the compiler did not come to an end with it"]
        return [f"on a GPU, {clean(str(text))}" for text in texts]


def unseen(arguments: tuple, seen: tuple) -> tuple:
    """Return the inputs of a call with other numbers in its tensors, but the same where a host function may look.

    Numbers stay, for launches pass them on, and so do tensors of integers beside others of floats: they count and
    point, and grids are made by them.
    """
    floats = any(is_floating(argument) for argument in arguments)
    for new, old in zip(arguments, seen, strict=True):
        if isinstance(new, torch.Tensor) and floats and not is_floating(new):
            without_repeats(new).copy_(without_repeats(old))  # where it lies, as a transcript tells places
    pairs = zip(arguments, seen, strict=True)
    return tuple(new if isinstance(new, torch.Tensor) else old for new, old in pairs)


def refusal(objections: list[str], words: str) -> Finding:
    """Return the finding that a kernel is no Triton: in the compiler's words where it says so as well."""
    texts = [f"on a GPU, {clean(str(text))[:1000]}" for text in objections]
    return Finding("compiler", "\n".join(texts) or f"its launches cannot be repeated: {clean(words)[:500]}.", PLAIN)


def ending(error: TimedOut | Crashed) -> Finding:
    """Return the finding that an answer came to no end, or to a bad one."""
    if isinstance(error, TimedOut):
        return Finding("timeout", f"it had not returned after {error}, and was stopped.", "does a loop never end?")
    return Finding("crashed", f"the process it ran in {error}.", "it touched foreign memory, took too much, or exited.")


# Evidence from a process that may lie


def evidence_from(reply: bytes, files: frozenset[str]) -> Evidence:
    """Return the evidence in a reply, with no file named but the student's cells: places are quoted from them."""
    evidence = Evidence.decode(reply)
    for named in (evidence.error, *evidence.operations, *evidence.out_of_bounds, *evidence.conflicts):
        if named is not None and named["file"] not in files:
            named["file"], named["line"] = "", 0
    if evidence.error is not None:
        evidence.error["type"] = clean(str(evidence.error["type"]))[:100]
        evidence.error["message"] = clean(str(evidence.error["message"]))[:500]
    for fault in (*evidence.out_of_bounds, *evidence.conflicts):
        fault["text"] = clean(str(fault["text"]))[:500]
    for result in evidence.results:
        result.kind = clean(str(result.kind))[:100]
        result.store_lines = [[file, int(line)] for file, line in result.store_lines if file in files]
        result.overwrites = [[clean(str(name)), file, line] for name, file, line in result.overwrites if file in files]
    evidence.returned = clean(str(evidence.returned))[:100]
    return evidence


def clean(text: str) -> str:
    """Return text without what would steer a terminal."""
    return CONTROL.sub("·", text)
