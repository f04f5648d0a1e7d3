"""Is an answer right, and if not, where and why?

`check` shows the verdict to a learner; `judge` returns it. A case becomes a question (`.question`), an executor calls
the answer on it (`.executor`, `.runner`, `.counts`), and the evidence of that is examined (`.examine`, `.work`,
`.diagnose`).
"""

import inspect
import os
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from lab.check.blanks import before_running, own_functions
from lab.check.diagnose import proves
from lab.check.examine import examine, examine_form
from lab.check.executor import Crashed, Executor, ForkExecutor, InProcessExecutor, TimedOut, executor_for
from lab.check.finding import Finding
from lab.check.question import Question, excess_of, pose
from lab.check.rerun import Study, no_study
from lab.check.runner import Evidence
from lab.check.verdict import Verdict, conclude
from lab.notebook import CourseError, in_notebook

if TYPE_CHECKING:
    from lab.task import Task

PATIENCE = 2.0  # seconds before a person is told what they wait for
ENDINGS = ("timeout", "crashed")  # of the process the answer runs in


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

    Other seeds give other inputs. The answer runs in a forked process where it can (`isolate`, on a CPU), for at most
    `seconds` in all; on a CUDA GPU it runs in this process, untimed, without what only the trace can tell.
    `progress` is called with a line now and then while the answer runs. Raises UnknownTask; whatever the answer does
    becomes a verdict.
    """
    from lab.task import Task, find_task

    if not isinstance(task, Task):
        task = find_task(task)
    cases = task.cases
    verdict = Verdict(task.name, False, 0, len(cases))
    finding = before_running(function)
    if finding is not None:
        verdict.tell(finding)
        return verdict
    with executor_for(function, task.allows, seconds, isolate) as executor:

        def try_case(number: int) -> tuple[Question, Finding | None]:
            if progress is not None:
                line = f"{task.name}: case {number + 1} of {len(cases)}, {cases[number].name} …"
                executor.waiting = partial(progress, line)
            question = pose(task, cases[number], seed)
            return question, run_case(executor, question, seed, number)

        judge_cases(verdict, range(len(cases)), try_case)
        judge_compiled(verdict, executor)
    verdict.output = executor.output
    return verdict


def judge_cases(
    verdict: Verdict, numbers: Iterable[int], try_case: Callable[[int], tuple[Question, Finding | None]]
) -> None:
    """Try the cases in the order of `numbers`, and put into the verdict what came of them.

    try_case: takes the number of a case, and returns its question and what is wrong with the answer there, None if
    nothing is. No case is tried after one that ended the answer's process.
    """
    failed: dict[int, tuple[Question, Finding]] = {}
    passed: list[Question] = []
    for number in numbers:
        question, finding = try_case(number)
        if finding is None:
            verdict.cases_passed += 1
            passed.append(question)
            continue
        failed[number] = question, finding
        if finding.reason in ENDINGS:
            break
    conclude(verdict, [failed[number] for number in sorted(failed)], passed)


def judge_compiled(verdict: Verdict, executor: Executor) -> None:
    """Have the kernels of an answer that passes compiled for GPUs; it fails if the compiler says anything against them.

    Whatever else is wrong comes first, and to compile takes as long as all the cases together.
    """
    if not verdict.passed:
        return
    try:
        verdict.take_objections([f"on a GPU, {text}" for text in executor.objections()])
    except (Crashed, TimedOut):
        verdict.take_objections(["the compiler for the GPU did not come to an end with it; run the check again"])


def run_case(executor: Executor, question: Question, seed: int, number_of_case: int) -> Finding | None:
    """Run a case twice: in natural order, then with new contents behind the same pointers and in another order."""
    try:
        finding = examine(question, executor.run(question.inputs), studying(executor))
        if finding is not None:
            return finding
        again = pose(question.task, question.case, seed + 1)
        order = "reversed" if number_of_case % 2 == 0 else number_of_case
        second = executor.run(again.inputs, order)
        finding = examine(again, second, studying(executor, order))
        if finding is None and second.reused:
            return Finding(
                "stale",
                "the result of one call changed when the function was called again.",
                "both calls returned the same memory: allocate a new output every time.",
            )
        return finding and examine_repeat(executor, question, again, second, finding)
    except (TimedOut, Crashed) as error:
        return ending(question.task.name, error)


def studying(executor: Executor, order: str | int | None = None) -> Study:
    """Return what runs the answer once more to learn why it is wrong. A sandbox does not: what it says may be a lie."""
    if isinstance(executor, (ForkExecutor, InProcessExecutor)):
        return partial(executor.study, order=order)
    return no_study


def ending(task: str, error: TimedOut | Crashed) -> Finding:
    """Return the finding that an answer came to no end, or that the process it ran in came to one."""
    if isinstance(error, TimedOut):
        cause = "does a loop never end, or are there far too many programs?"
        return Finding("timeout", f"`{task}` had not returned after {error}, and was stopped.", cause)
    cause = "that is more than an answer may take."
    if "killed" in str(error):
        cause = "it reached for memory that is not its own, or took too much of it."
    elif "exit status" in str(error):
        cause = "something called `exit`, in a way that Python cannot catch."
    return Finding("crashed", f"`{task}` runs in a process of its own, and that {error}. Nothing else is lost.", cause)


def examine_repeat(
    executor: Executor, question: Question, again: Question, second: Evidence, finding: Finding
) -> Finding:
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
    if examine(again, executor.run(again.inputs)) is None:
        finding.reason = "order"
        finding.message = f"with its programs run in another order, the result is wrong: {finding.message}"
        finding.cause = "a program relies on what another did before it; on a GPU there is no before."
        finding.diagnose = None
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
