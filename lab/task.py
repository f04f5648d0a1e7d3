"""What a task asks and how it is judged, read from `solutions/<stem>.py`.

A solution is a jupytext `py:percent` script and a module. Its cells tagged `spec` hold the `Task` objects.
"""

import ast
import difflib
import functools
import importlib
import importlib.util
import inspect
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lab.notebook import ROOT, CourseError, in_notebook

if TYPE_CHECKING:
    import torch

LONGEST = 60  # letters of a name that a message repeats


class UnknownTask(CourseError, LookupError):
    """There is no task or exercise of that name."""


@dataclass(frozen=True)
class Case:
    """One regime a task's answer must master."""

    name: str
    make: "Callable[[torch.Generator], tuple[Any, ...]]"  # the arguments, on the generator's device
    programs: int = 1  # at least this many programs must take part


@dataclass(frozen=True)
class Task:
    """What one answer must do, and how it is judged."""

    name: str
    title: str
    reference: "Callable[..., torch.Tensor]"
    cases: tuple[Case, ...]
    points: int
    hints: tuple[str, str, str]  # a question; a nudge; the answer's shape
    allows: tuple[str, ...] = ()  # torch operations the host function may use
    # How much work an answer may do, where the text of its task asks for more than this:
    launches: int | None = 1  # of kernels, None for any number
    stores: int | None = 1  # of each element of a result, None for any number; what atomics add is not counted
    reads: Mapping[str, int] = field(default_factory=dict)  # of each element of an argument, where it is not one
    shared: tuple[str, ...] = ()  # arguments that a program may read once for each block that it stores
    buffers: int = 0  # tensors beside the results that kernels may store into
    block: int | None = None  # the most elements that a program may store at once
    step: int | None = None  # the most elements of a row that it may load at once


class Card(NamedTuple):
    """What can be told of a task without importing torch."""

    name: str
    title: str
    points: int
    hints: tuple[str, str, str]


class Exercise(NamedTuple):
    """The tasks of one chapter."""

    chapter: int
    stem: str
    cards: tuple[Card, ...]

    @property
    def name(self) -> str:
        return f"{self.chapter:02}_{self.stem}"

    @property
    def script(self) -> Path:
        return ROOT / "solutions" / f"{self.stem}.py"

    @property
    def path(self) -> Path:
        return ROOT / "exercises" / f"{self.name}.ipynb"


class WrongAnswer(NamedTuple):
    """An answer the check must reject, the reason it must give, and words of the cause that it must tell."""

    task: str
    reason: str
    function: Callable[..., Any]
    cause: str


class Mistake(NamedTuple):
    """A formula that a wrong answer may follow in the place of the reference, and what went wrong then, in words."""

    task: str
    words: str
    formula: Callable[..., Any]

    @property
    def takes_block(self) -> bool:
        """Whether the formula depends on how many elements one step of a loop takes: on its argument `block`."""
        return "block" in inspect.signature(self.formula).parameters


# Reading solutions


def read_exercise(script: Path) -> Exercise:
    """Return the exercise of a solution, read from its text alone: importing it would import torch."""
    return read_version(script, script.stat().st_mtime_ns)


@functools.lru_cache  # parsing takes a tenth of a second, and every check asks
def read_version(script: Path, changed: int) -> Exercise:
    """Return the exercise of a solution as it was when last changed, in nanoseconds."""
    text = script.read_text(encoding="utf-8")
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    specs = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "Task"]
    cards = [
        Card(**{word.arg: ast.literal_eval(word.value) for word in spec.keywords if word.arg in Card._fields})
        for spec in sorted(specs, key=lambda spec: spec.lineno)
    ]
    chapter = re.search(r"^#\s+chapter: (\d+)$", text, re.MULTILINE)
    return Exercise(int(chapter[1]), script.stem, tuple(cards))


def exercises() -> list[Exercise]:
    """Return every exercise of the course, in order."""
    scripts = (ROOT / "solutions").glob("[!_]*.py")
    return sorted(read_exercise(script) for script in scripts)


def find_exercise(name: str) -> Exercise:
    """Return the exercise called `name`: its stem, its file's name or path, or one of its tasks. Raises UnknownTask.

    Names are found in either case, and with "-" for "_".
    """
    key = without_path(name)
    known = {}
    for exercise in exercises():
        known |= {card.name: exercise for card in exercise.cards}
        known |= {exercise.stem: exercise, exercise.name: exercise}
    meant = matching(key, known)
    if meant is None:
        raise UnknownTask(unknown("exercise or task", key, known))
    return known[meant]


def without_path(name: object) -> str:
    """Return a name as it is, and of a path the file's name without its ending."""
    return re.sub(r"\.(ipynb|py)$", "", Path(asked(name)).name, flags=re.IGNORECASE)


def find_card(name: str) -> Card:
    """Return what can be told of the task called `name`, in either case and with "-" for "_".

    Raises UnknownTask, naming the closest.
    """
    cards = {card.name: card for exercise in exercises() for card in exercise.cards}
    meant = matching(name, cards)
    if meant is None:
        raise UnknownTask(unknown("task", name, cards))
    return cards[meant]


def matching(name: object, known: Iterable[str]) -> str | None:
    """Return the one of the known names that is meant: the same, or the only one that differs in case and in "-"."""
    text = asked(name)
    alike = [each for each in known if folded(each) == folded(text)]
    return text if text in alike else alike[0] if len(alike) == 1 else None


def folded(name: str) -> str:
    """Return a name as it is compared with others."""
    return name.strip().casefold().replace("-", "_")


def asked(name: object) -> str:
    """Return what was given as a name, as text; its type where it has none."""
    if isinstance(name, str):
        return name
    from lab.words import text_of

    return text_of(name) or type(name).__name__


def unknown(kind: str, name: object, known: Iterable[str]) -> str:
    """Return the sentence that says `name` does not exist and which name comes closest."""
    from lab.words import one_line

    text = asked(name)
    text = one_line(text if len(text) <= LONGEST else f"{text[:LONGEST]}…")
    names = {folded(each): each for each in known}
    closest = difflib.get_close_matches(folded(text), names, n=1, cutoff=0.0)
    question = f" Did you mean `{names[closest[0]]}`?" if closest else ""
    return f"There is no {kind} called `{text}`.{question} {spelt('progress')} lists them all."


def spelt(verb: str, name: str = "", option: str = "") -> str:
    """Return what to write to be served, where the reader is: a call in a notebook, a command in a terminal.

    option: the command's, such as "--yes"; a notebook's `solution` calls it `anyway`.
    """
    if in_notebook():
        arguments = [f'"{name}"'] * bool(name) + ["anyway=True"] * bool(option)
        return f"`{verb}({', '.join(arguments)})`"
    return f"`{' '.join(filter(None, [command(), verb, name, option]))}`"


def command() -> str:
    """Return the course's command as a terminal in the course's folder knows it."""
    return "tile" if shutil.which("tile") else ".venv/bin/tile"


def find_task(name: str) -> Task:
    """Return the task called `name`, with its reference and cases; imports torch. Raises UnknownTask."""
    task = find_card(name).name
    return importlib.import_module(f"solutions.{find_exercise(task).stem}").TASKS[task]


def wrong(task: str, *, reason: str, cause: str = "") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Mark a function of `solutions/wrong/<stem>.py` as an answer to `task` that must be rejected for `reason`.

    cause: a word or phrase of the cause that the verdict must tell.
    """

    def mark(function: Callable[..., Any]) -> Callable[..., Any]:
        function.wrong = WrongAnswer(task, reason, function, cause)
        return function

    return mark


def wrong_answers(stem: str) -> list[WrongAnswer]:
    """Return the answers to the tasks of `solutions/<stem>.py` that must be rejected."""
    module = importlib.import_module(f"solutions.wrong.{stem}")
    return [value.wrong for value in vars(module).values() if isinstance(getattr(value, "wrong", None), WrongAnswer)]


def mistake(task: str, words: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Mark a function of `solutions/mistakes/<stem>.py`: it gives what an answer gives that makes a known mistake.

    It takes the arguments of the task's reference, and `block`, the elements of a step, if it depends on that.
    words: what the learner is told; "{block}" stands for the block.
    """

    def mark(function: Callable[..., Any]) -> Callable[..., Any]:
        function.mistake = Mistake(task, words, function)
        return function

    return mark


def drawing(task: str) -> Callable[[Callable[..., str]], Callable[..., str]]:
    """Mark a function of `solutions/mistakes/<stem>.py` that draws a wrong result of a task in a line of text.

    It takes the result, and the arguments of the call.
    """

    def mark(function: Callable[..., str]) -> Callable[..., str]:
        function.drawing = task
        return function

    return mark


def mistakes_of(task: Task) -> list[Mistake]:
    """Return the mistakes that are known of a task of the course, in the order in which they stand in their file."""
    found = [getattr(value, "mistake", None) for value in known_of(task)]
    return [each for each in found if isinstance(each, Mistake) and each.task == task.name]


def drawing_of(task: Task) -> Callable[..., str] | None:
    """Return what draws the results of a task of the course in text, if there is such a function."""
    return next((value for value in known_of(task) if getattr(value, "drawing", None) == task.name), None)


def known_of(task: Task) -> list[Any]:
    """Return what `solutions/mistakes/` has for the stem of a task; nothing for a task that is not of the course."""
    name = task.reference.__module__.replace("solutions.", "solutions.mistakes.", 1)
    if name == task.reference.__module__ or importlib.util.find_spec(name) is None:
        return []
    return [value for value in vars(importlib.import_module(name)).values() if callable(value)]
