"""Judge a student's answers, in a process that never runs a line of theirs.

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
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import torch

from classroom.assemble import ADDED, Assembly
from classroom.course import readable
from classroom.executor import SandboxExecutor, evidence_from
from classroom.sandbox import START_SECONDS, Limits, Sandbox
from lab.check import ending, judge_cases, run_case
from lab.check.examine import examine
from lab.check.executor import Crashed, TimedOut
from lab.check.finding import Finding
from lab.check.inputs import without_repeats
from lab.check.question import Question, is_floating, pose, thawed
from lab.check.verdict import Verdict
from lab.device import ON_CPU
from lab.generate import ANSWER, CHECK
from lab.notebook import CourseError
from lab.task import Task, find_task
from lab.words import clean

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

    def replay_sandbox(self) -> Sandbox:
        """Return this process's one sandbox for replays, with a new process inside. Raises CourseError."""
        for _ in range(2):  # a system short of memory may have ended it meanwhile
            if not nursery or nursery[0].ended:
                nursery[:] = [self.sandbox("replay")]
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
    with cells_remembered(assembly), Judge(assembly, examiner) as judge:
        return [judge.judge(find_task(name)) for name in tasks]


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


# The judge


@dataclass
class Judge:
    """Judges one student's answers in two sandboxes, each started when needed and again when something ended it."""

    assembly: Assembly
    examiner: Examiner
    answers: Sandbox | None = None
    replay: Sandbox | None = None
    defined: list[tuple[str, str]] = field(default_factory=list)  # cells that ran, to be run again in a new sandbox
    left: float = 0.0  # seconds for all answers together

    def __enter__(self) -> "Judge":
        self.left = self.examiner.limits.seconds
        self.start()
        return self

    def __exit__(self, *error) -> None:
        if self.answers is not None:
            self.answers.close()
        if self.replay is not None:
            with suppress(TimedOut, Crashed):
                self.replay.ask("leave", seconds=START_SECONDS)

    def start(self) -> None:
        """Start whichever sandbox is not running."""
        if self.answers is None:
            self.answers = self.examiner.sandbox("answers")
            for cell in self.defined:
                self.answers.ask("define", *cell, seconds=self.examiner.limits.task_seconds)
        if self.replay is None:
            self.replay = self.examiner.replay_sandbox()

    def judge(self, task: Task) -> Verdict:
        """Return the verdict on one answer."""
        verdict = Verdict(task.name, False, 0, len(task.cases))
        if task.name not in self.assembly.answers:
            verdict.tell(Finding("missing", "there is no answer cell of this task in the notebook.", HAND_IN))
            return verdict
        seconds = min(self.examiner.limits.task_seconds, self.left)
        executor = None
        try:
            self.start()
            executor = SandboxExecutor(self.answers, self.files, seconds)
            finding = self.define(task, executor)
            if finding is None:
                self.judge_defined(verdict, task, executor)
            else:
                verdict.tell(finding)
        except (TimedOut, Crashed) as error:
            verdict.passed = False
            verdict.tell(ending(task.name, error))
        if executor is not None:
            self.left -= seconds - executor.left
        if self.answers is not None:
            verdict.output, self.answers.output = self.answers.output, ""
            if self.answers.ended:
                self.forget("answers")
        return verdict

    def forget(self, role: str) -> None:
        """Close a sandbox that has ended or cannot be trusted to go on."""
        sandbox = getattr(self, role)
        if sandbox is not None:
            sandbox.close()
        setattr(self, role, None)

    def define(self, task: Task, executor: SandboxExecutor) -> Finding | None:
        """Run the cells up to the task's answer. Return what speaks against the answer at once."""
        try:
            return self.run_cells(task, executor)
        except (TimedOut, Crashed, CourseError):
            raise
        except Exception:  # what was sent back is no reply
            return Finding("crashed", LIED, DISHONEST)

    def run_cells(self, task: Task, executor: SandboxExecutor) -> Finding | None:
        """Run the cells up to the task's answer, and choose its function. Raises anything for a malformed reply."""
        error = ""
        for file, source in self.cells_until(task.name + ANSWER):
            if (file, source) not in self.defined:
                error = json.loads(executor.ask("define", file, source))
                self.defined.append((file, source))
        form = json.loads(executor.ask("choose", task.name, task.allows))
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

    def judge_defined(self, verdict: Verdict, task: Task, executor: SandboxExecutor) -> None:
        """Judge an answer whose cells have run, its cases in an order of this student's own."""
        numbers = list(range(len(task.cases)))
        random.Random(self.examiner.seed(task.name, "order")).shuffle(numbers)
        self.replay.ask("begin", task.allows, seconds=self.examiner.limits.task_seconds)
        judge_cases(verdict, numbers, partial(self.try_case, task, executor))
        if verdict.passed:
            verdict.take_objections(self.objections())

    def try_case(self, task: Task, executor: SandboxExecutor, number: int) -> tuple[Question, Finding | None]:
        """Return one case as a question, and what is wrong with the answer: in its own sandbox, or when repeated."""
        case = task.cases[number]
        seed = self.examiner.seed(task.name, case.name)
        question = pose(task, case, seed)
        try:
            finding = run_case(executor, question, seed, number)
            if finding is not None:
                return question, finding
            transcript = executor.ask("transcript").decode()
        except (TimedOut, Crashed) as error:
            return question, ending(task.name, error)
        except Exception:
            return question, Finding("crashed", LIED, DISHONEST)
        return question, self.repeat_case(executor, question, transcript, number)

    def repeat_case(
        self, executor: SandboxExecutor, question: Question, transcript: str, number: int
    ) -> Finding | None:
        """Return what is wrong with what an answer did, repeated on inputs that it has not seen."""
        task, fresh = question.task, self.pose_unseen(executor, question)
        seconds = self.examiner.limits.task_seconds
        try:
            reply = self.replay.ask("replay", transcript, fresh.inputs, number, seconds=seconds)
            if reply.startswith(b'{"refused"'):
                return refusal(executor.objections(), json.loads(reply)["refused"])
            evidence = evidence_from(reply, self.files)
            if evidence.error is not None and evidence.error["type"] == "Refused":
                return refusal([], evidence.error["message"])
            finding = examine(fresh, evidence, repeated=True)
            return finding and self.unrepeatable(executor, finding)
        except (TimedOut, Crashed) as error:
            self.forget("replay")
            self.start()
            self.replay.ask("begin", task.allows, seconds=seconds)
            return ending(task.name, error)
        except Exception:
            return Finding("crashed", LIED, DISHONEST)

    def pose_unseen(self, executor: SandboxExecutor, question: Question) -> Question:
        """Return the case of a question with other numbers in its tensors than the answer's last run saw."""
        task, case = question.task, question.case
        seen = thawed(executor.seen)
        other = replace(case, make=lambda generator: unseen(case.make(generator), seen))
        return pose(task, other, self.examiner.seed(task.name, case.name, "witness"))  # another word, other inputs

    @staticmethod
    def unrepeatable(executor: SandboxExecutor, finding: Finding) -> Finding:
        """Return what was found wrong with a repetition in words that say so."""
        objections = executor.objections() if finding.reason in ("error", "compiler") else []
        if objections or finding.reason == "compiler":
            return refusal(objections, finding.message)
        finding.explain()
        message = f"its launches, repeated by the grader on other numbers, do not give the result: {finding.message}"
        return replace(finding, message=message, cause=finding.cause or DISHONEST)

    @property
    def files(self) -> frozenset[str]:
        return frozenset(name_of(cell.id) for cell in self.assembly.notebook.cells)

    def objections(self) -> list[str]:
        """Return what the compiler for the GPU, in the sandbox of replays, says against the kernels that ran there."""
        try:
            texts = json.loads(self.replay.ask("objections", seconds=COMPILE_SECONDS))
        except (TimedOut, Crashed):
            self.forget("replay")
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
