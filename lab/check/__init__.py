"""Is an answer right, and if not, where and why?

`check` shows the verdict to a learner; `judge` returns it. A case becomes a question (`.question`), the answer runs on
it (`.isolation`, `.runner`), and the evidence is examined (`.examine`, `.diagnose`).
"""

import ast
import html
import inspect
import io
import os
import sys
import textwrap
import time
import tokenize
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING

from lab.check.diagnose import ALMOST_RIGHT, guess_strides, proves
from lab.check.examine import Finding, examine, examine_form
from lab.check.isolation import Crashed, TimedOut, place_to_run
from lab.check.question import Question, excess_of, pose
from lab.check.runner import Evidence
from lab.notebook import CourseError, in_notebook
from lab.words import SHOWN, article, capital, code_marked, counted, place_of

if TYPE_CHECKING:
    from lab.task import Task

BLANK = "____"
PATIENCE = 2.0  # seconds before a person is told what they wait for
ENDINGS = ("timeout", "crashed")  # of the process the answer runs in
ADVISED = {  # reasons whose cause is plain, so that the verdict says what to do about it
    *("blank", "not-callable", "shape", "dtype", "device", "returns-input", "input-changed", "overwritten", "torch"),
    *("int32-overflow", "race", "one-program", "idle-programs", "compiler"),
}


@dataclass
class Verdict:
    """What came of checking one answer. `reason` is empty when it passed; `case` names the case that failed."""

    task: str
    passed: bool
    cases_passed: int
    cases_total: int
    reason: str = ""
    message: str = ""
    case: str = ""
    cause: str = ""
    inputs: str = ""
    notes: list[str] = field(default_factory=list)
    picture: object = None  # a lab.plots.Figure
    output: str = ""  # the beginning of what the answer printed

    @property
    def headline(self) -> str:
        """One line: how many cases pass."""
        return f"{self.task}: {self.cases_passed} of {self.cases_total} cases pass"

    def __str__(self) -> str:
        if self.passed:
            return self.headline
        parts = [self.headline]
        if self.case:
            parts.append(f"The case “{self.case}” fails, with {self.inputs}.")
        parts += [f"What happened: {self.message}", ": ".join(self.advice)]
        parts += [f"Note: {note}" for note in self.notes]
        parts += [f"Your code printed:\n{textwrap.indent(self.printed, '    ')}"] * bool(self.printed)
        width = {"width": 110, "subsequent_indent": "  ", "break_on_hyphens": False, "break_long_words": False}
        return "\n".join(textwrap.fill(line, **width) for part in parts for line in part.splitlines())

    def tell(self, finding: Finding, question: Question | None = None) -> None:
        """Take over what was found wrong, and draw where."""
        self.reason, self.message, self.cause = finding.reason, finding.message, finding.cause
        if question is not None:
            self.case, self.inputs = question.case.name, question.describe()
        if finding.excess is not None and finding.excess.size:
            from lab.plots import error_map

            self.picture = error_map(finding.excess, finding.owner)

    @property
    def advice(self) -> tuple[str, str]:
        """What to think of, or to do, next: a label and a sentence."""
        if self.cause:
            return "What to do" if self.reason in ADVISED else "Likely cause", self.cause
        if self.reason == "error":
            return "What to do", "that line stopped with this message: mend it, run its cell again, then this one."
        if self.reason == "compiler":
            return "What to do", "change what it refuses, run that cell again, then this one."
        return "What to do", f'follow one wrong element by hand; `hint("{self.task}")` asks a question that may help.'

    @property
    def printed(self) -> str:
        """The first lines of what the answer printed."""
        lines = self.output.strip().splitlines()
        return "\n".join([line[:100] for line in lines[:SHOWN]] + ["…"] * (len(lines) > SHOWN))

    def _repr_html_(self) -> str:
        safe = html.escape
        colour = "#2e8b57" if self.passed else "#c4541a"
        parts = [f"<strong>{safe(self.headline)}</strong>"]
        if self.case:
            parts.append(f"The case <strong>{safe(self.case)}</strong> fails, with <code>{safe(self.inputs)}</code>.")
        parts += [code_marked(capital(self.message))] * bool(self.message)
        parts += ["<em>{}:</em> {}".format(*map(code_marked, self.advice))] * (not self.passed)
        parts += [f"<em>Note:</em> {code_marked(note)}" for note in self.notes]
        body = "".join(f'<p style="margin:.4em 0">{part}</p>' for part in parts)
        if self.picture is not None:
            body += self.picture._repr_mimebundle_()["text/html"]
        if self.printed and not self.passed:
            body += f"<p>Your code printed:</p><pre>{safe(self.printed)}</pre>"
        return f'<div role="status" style="border-left:4px solid {colour};padding:.2em 1em">{body}</div>'


# Before anything runs


def before_running(function) -> Finding | None:
    """Return what can be said of an answer without running it: it is no function, or blanks are left in it."""
    if not callable(function):
        return Finding(
            "not-callable",
            f"`check` was given {article(type(function).__name__)}, not a function.",
            'give it the function itself, without calling it: `check("task", function)`.',
        )
    blanks = [blank for own in own_functions(function) for blank in blanks_of(own)]
    if not blanks:
        return None
    count = len(blanks)
    shown = "\n".join(blanks[: 2 * SHOWN] + [f"… and {count - 2 * SHOWN} more"] * (count > 2 * SHOWN))
    lines = "1 blank is" if count == 1 else f"{count} lines with blanks are"
    return Finding(
        "blank",
        f"{lines} still to be filled in:\n{shown}",
        f"put your code where `{BLANK}` stands, run that cell, then this one.",
    )


def own_functions(function) -> list[FunctionType]:
    """Return the answer, and the kernels and functions of the same module or notebook that it uses."""
    found, pending = [], [function]
    while pending:
        candidate = pending.pop(0)
        while not isinstance(candidate, FunctionType) and hasattr(candidate, "fn"):  # jit, autotune, heuristics
            candidate = candidate.fn
        if not isinstance(candidate, FunctionType) or candidate in found:
            continue
        if found and candidate.__module__ != found[0].__module__:
            continue
        found.append(candidate)
        pending += [
            candidate.__globals__[name] for name in candidate.__code__.co_names if name in candidate.__globals__
        ]
    return found


def blanks_of(function: FunctionType) -> list[str]:
    """Return in words each line of a function that has a blank, or the place of its empty body."""
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError):
        found = BLANK in function.__code__.co_names
        return [f"  in `{function.__name__}`"] * found
    source = textwrap.dedent("".join(lines))
    first = max(first, 1)
    numbers = {
        token.start[0]
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.NAME and token.string == BLANK
    }
    numbers = numbers or empty_body(source)
    file = function.__code__.co_filename
    return [f"  {place_of(file, first + n - 1)}: `{source.splitlines()[n - 1].strip()}`" for n in sorted(numbers)]


def empty_body(source: str) -> set[int]:
    """Return the number of the last line of a function that does nothing; nothing for any other source."""
    try:
        (function,) = ast.parse(source).body
    except (SyntaxError, ValueError):  # a lambda's line need not be a statement
        return set()
    idle = (ast.Pass, ast.Constant)
    does_nothing = isinstance(function, ast.FunctionDef) and all(
        isinstance(getattr(node, "value", node), idle) and not isinstance(node, ast.Return) for node in function.body
    )
    return {function.body[-1].end_lineno} if does_nothing else set()


# The judge


def judge(
    task: "str | Task",
    function: Callable,
    *,
    seed: int = 0,
    seconds: float = 10.0,
    isolate: bool = True,
    progress: Callable[[str], None] | None = None,
) -> Verdict:
    """Return the verdict on an answer to a task, by name or as an object.

    Other seeds give other inputs. The answer runs in a child process where it can (`isolate`, on a CPU), for at most
    `seconds` in all; on a CUDA GPU it runs in this process, untimed, without what only the trace can tell.
    `progress` is called with a line now and then while the answer runs. Raises UnknownTask; whatever the answer does
    becomes a verdict.
    """
    if isinstance(task, str):
        from lab.task import find_task

        task = find_task(task)
    verdict = Verdict(task.name, False, 0, len(task.cases))
    finding = before_running(function)
    if finding is not None:
        verdict.tell(finding)
        return verdict
    with place_to_run(function, task.allows, seconds, isolate) as place:
        judge_cases(verdict, place, task, seed, progress)
        judge_compiled(verdict, place)
    verdict.output = place.output
    return verdict


def judge_cases(verdict: Verdict, place, task: "Task", seed: int, progress: Callable[[str], None] | None) -> None:
    """Run every case, and tell of the first that fails, or of one like it whose cause is known."""
    failed: list[tuple[Question, Finding]] = []
    for number, case in enumerate(task.cases):
        if progress is not None:
            place.waiting = partial(progress, f"{task.name}: case {number + 1} of {len(task.cases)}, {case.name} …")
        question = pose(task, case, seed)
        finding = run_case(place, question, seed, number)
        if finding is None:
            verdict.cases_passed += 1
            continue
        failed.append((question, finding))
        if finding.reason in ENDINGS:
            break
    conclude(verdict, failed)


def conclude(verdict: Verdict, failed: list[tuple[Question, Finding]]) -> None:
    """Tell of the first case that failed, or of one like it whose cause is known, and name the others."""
    verdict.passed = not failed
    if failed:
        verdict.tell(*most_telling(failed))
    others = [q.case.name for q, _ in failed if q.case.name != verdict.case]
    untried = verdict.cases_total - verdict.cases_passed - len(failed)
    if others:
        these = "this case fails" if len(others) == 1 else "these cases fail"
        verdict.notes.append(f"{these} as well: " + ", ".join(f"“{name}”" for name in others) + ".")
    if untried:
        verdict.notes.append(f"{counted(untried, 'more case')} could not be tried.")


def most_telling(failed: "list[tuple[Question, Finding]]") -> "tuple[Finding, Question]":
    """Return the first failure, or one for the same reason that says more: its cause is known, it has elements.

    To be almost right says no more: what is far off in one case may come near in another by luck.
    """
    alike = [pair for pair in failed if pair[1].reason == failed[0][1].reason]
    if failed[0][1].reason == "wrong-values" and not failed[0][1].cause:
        failed[0][1].cause = guess_strides([question for question, _ in failed])
    explained = [pair for pair in alike if pair[1].cause not in ("", ALMOST_RIGHT)]
    question, finding = max(explained or alike, key=lambda pair: pair[0].expected[0].value.numel() > 1)
    return finding, question


def judge_compiled(verdict: Verdict, place) -> None:
    """Tell what only a GPU's compiler would refuse: a failure where the values are right, else a note."""
    if verdict.reason in ("error", "compiler", *ENDINGS):
        return
    try:
        objections = [f"on a GPU, {text}" for text in place.objections()]
    except (Crashed, TimedOut):
        objections = ["the compiler for the GPU did not come to an end with it; run the check again"]
    if verdict.passed and objections:
        verdict.passed = False
        verdict.tell(Finding("compiler", "the values are right here, but " + "\n".join(objections)))
    else:
        verdict.notes += objections


def run_case(place, question: Question, seed: int, number_of_case: int) -> Finding | None:
    """Run a case twice: in natural order, then with new contents behind the same pointers and in another order."""
    try:
        first = place.run(question.inputs, None)
        finding = examine(question, first)
        if finding is not None:
            return finding
        again = pose(question.task, question.case, seed + 1)
        order = "reversed" if number_of_case % 2 == 0 else number_of_case
        second = place.run(again.inputs, order)
        finding = examine(again, second)
        if finding is None and second.reused:
            return Finding(
                "stale",
                "the result of one call changed when the function was called again.",
                "both calls returned the same memory: allocate a new output every time.",
            )
        if finding is None:
            return None
        return examine_repeat(place, question, again, second, finding)
    except TimedOut as limit:
        cause = "does a loop never end, or are there far too many programs?"
        return Finding("timeout", f"`{question.task.name}` had not returned after {limit}, and was stopped.", cause)
    except Crashed as crash:
        killed = "it reached for memory that is not its own, or took too much of it."
        cause = killed if "killed" in str(crash) else "something called `exit`, in a way that Python cannot catch."
        message = f"`{question.task.name}` runs in a process of its own, and that {crash}. Nothing else is lost."
        return Finding("crashed", message, cause)


def examine_repeat(place, question: Question, again: Question, second: Evidence, finding: Finding) -> Finding:
    """Tell why the second run of a case failed where the first was right."""
    if examine_form(again, second) is None:
        pairs = zip(question.expected, second.results, strict=True)
        old = [(expected, excess_of(expected, result.tensor) == 0) for expected, result in pairs]
        by_luck = second.launch_count > 0 and not any(proves(expected, right) for expected, right in old)
        if not by_luck and all(right.all() for _, right in old):
            return Finding(
                "stale",
                "called again with new numbers in the same tensors, it returned the old result.",
                "results must not be kept between calls.",
            )
    if finding.reason not in ("wrong-values", "not-finite", "not-written"):
        return finding
    if examine(again, place.run(again.inputs, None)) is None:
        finding.reason = "order"
        finding.message = f"with its programs run in another order, the result is wrong: {finding.message}"
        finding.cause = "a program relies on what another did before it; on a GPU there is no before."
    return finding


# Showing it


def check(task_name: str, function: Callable) -> None:
    """Check an answer and show the verdict: one line when all cases pass, else what is wrong and why.

    Never raises, so that a notebook runs on; except for nbgrader, to which whatever does not raise is right.
    """
    from lab.progress import record
    from lab.task import UnknownTask

    waiting = Waiting()
    try:
        verdict = judge(task_name, function, progress=waiting.tell)
    except UnknownTask as unknown:
        print(unknown)
        return
    finally:
        waiting.clear()
    if verdict.passed:
        print(verdict.headline)
        record(task_name, source_of(function))
        return
    show(verdict)
    if "NBGRADER_EXECUTION" in os.environ:
        raise CourseError(f"{verdict.headline}.")


def source_of(function: Callable) -> str:
    """Return the text of an answer, kernels and all, as far as it can be had."""
    texts = []
    for own in own_functions(function):
        try:
            texts.append(inspect.getsource(own))
        except (OSError, TypeError):
            texts.append(own.__name__)
    return "\n".join(texts)


def show(verdict: Verdict) -> None:
    """Show a verdict where the learner is: with its picture in a notebook, as text elsewhere."""
    if not in_notebook():
        print(verdict)
        return
    from IPython.display import display

    display({"text/html": verdict._repr_html_(), "text/plain": str(verdict)}, raw=True)


class Waiting:
    """Tells a person what is going on once it takes longer than they would wait in silence."""

    def __init__(self):
        self.started = time.monotonic()
        self.told = False

    def tell(self, text: str) -> None:
        """Show a line. Not to pytest, which would compare it with what a notebook printed in less time."""
        watched = (sys.stdout.isatty() or in_notebook()) and "PYTEST_VERSION" not in os.environ
        if watched and time.monotonic() - self.started > PATIENCE:
            self.told = True
            print(f"\r{text:<80}", end="", flush=True)

    def clear(self) -> None:
        """Take the line away again."""
        if not self.told:
            return
        if in_notebook():
            from IPython.display import clear_output

            clear_output(wait=True)
        else:
            print(f"\r{'':<80}\r", end="", flush=True)
