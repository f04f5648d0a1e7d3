"""Exercises: what a task asks, the notebook a learner fills in, and what the learner has done so far.

A solution, `solutions/<stem>.py`, is a jupytext `py:percent` script and a module. Its answer cells carry `task="…"` in
their marker, and a trailing `# blank: form` on every line that becomes a blank; several lines vanish with a bare
`# blank:`. Cells tagged `spec` hold the `Task` objects and stay out of the notebook.
"""

import ast
import difflib
import functools
import hashlib
import importlib
import json
import os
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lab import notebook as notebooks
from lab.notebook import CourseError

if TYPE_CHECKING:
    import torch
    from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parents[1]
BLANK = "____"
ANSWER = "-answer"  # the end of an answer cell's id
CHECK = "-check"
BLANK_NOTE = re.compile(r"\s*# blank:(.*)$")


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
    """An answer the check must reject, and the reason it must give."""

    task: str
    reason: str
    function: Callable[..., Any]


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
    """Return the exercise called `name`: its stem, its file's name or path, or one of its tasks. Raises UnknownTask."""
    key = Path(str(name)).name.removesuffix(".ipynb").removesuffix(".py")
    known = {}
    for exercise in exercises():
        known |= {card.name: exercise for card in exercise.cards}
        known |= {exercise.stem: exercise, exercise.name: exercise}
    if key not in known:
        raise UnknownTask(unknown("exercise or task", key, known))
    return known[key]


def find_card(name: str) -> Card:
    """Return what can be told of the task called `name`. Raises UnknownTask, naming the closest."""
    cards = {card.name: card for exercise in exercises() for card in exercise.cards}
    if name not in cards:
        raise UnknownTask(unknown("task", name, cards))
    return cards[name]


def unknown(kind: str, name: str, known: dict[str, Any]) -> str:
    """Return the sentence that says `name` does not exist and which name comes closest."""
    closest = difflib.get_close_matches(str(name), known, n=1, cutoff=0.0)
    question = f" Did you mean `{closest[0]}`?" if closest else ""
    return f"There is no {kind} called `{name}`.{question} {spelt('progress')} lists them all."


def spelt(verb: str, name: str = "", option: str = "") -> str:
    """Return what to write to be served, where the reader is: a call in a notebook, a command in a terminal.

    option: the command's, such as "--yes"; a notebook's `solution` calls it `anyway`.
    """
    if notebooks.in_notebook():
        arguments = [f'"{name}"'] * bool(name) + ["anyway=True"] * bool(option)
        return f"`{verb}({', '.join(arguments)})`"
    return f"`{' '.join(filter(None, [command(), verb, name, option]))}`"


def command() -> str:
    """Return the course's command as a terminal in the course's folder knows it."""
    return "tile" if shutil.which("tile") else ".venv/bin/tile"


def find_task(name: str) -> Task:
    """Return the task called `name`, with its reference and cases; imports torch. Raises UnknownTask."""
    find_card(name)
    return importlib.import_module(f"solutions.{find_exercise(name).stem}").TASKS[name]


def wrong(task: str, *, reason: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Mark a function of `solutions/wrong/<stem>.py` as an answer to `task` that must be rejected for `reason`."""

    def mark(function: Callable[..., Any]) -> Callable[..., Any]:
        function.wrong = WrongAnswer(task, reason, function)
        return function

    return mark


def wrong_answers(stem: str) -> list[WrongAnswer]:
    """Return the answers to the tasks of `solutions/<stem>.py` that must be rejected."""
    module = importlib.import_module(f"solutions.wrong.{stem}")
    return [value.wrong for value in vars(module).values() if isinstance(getattr(value, "wrong", None), WrongAnswer)]


# From a solution to the notebook a learner fills in


def solved_source(source: str) -> str:
    """Return an answer cell's finished code, without the notes that make its blanks."""
    return "\n".join(BLANK_NOTE.sub("", line) for line in source.splitlines())


def blank_source(source: str) -> str:
    """Return an answer cell as the learner finds it: every noted line replaced by its blank form, or dropped."""
    lines = []
    for line in source.splitlines():
        note = BLANK_NOTE.search(line)
        if note is None:
            lines.append(line)
        elif note[1].strip():
            indent = line[: len(line) - len(line.lstrip())]
            lines.append(indent + note[1].strip())
    return "\n".join(lines)


def is_withheld(source: str) -> bool:
    """Return whether an answer cell of a solution holds only its blanks, as in a class's copy of the course."""
    return blank_source(source) == source


def read_script(exercise: Exercise) -> "NotebookNode":
    """Return a solution as a notebook without its specs; every cell's id tells its task and its role."""
    import jupytext

    notebook = jupytext.read(exercise.script, fmt="py:percent")
    cells = [cell for cell in notebook.cells if "spec" not in cell.metadata.get("tags", ())]
    ids: list[str] = []
    for cell, task in zip(cells, owners(cells), strict=True):
        role = f"{task}-{role_of(cell)}"
        ids.append(role)
        cell.id = role if ids.count(role) == 1 else f"{role}-{ids.count(role)}"
        cell.metadata = {"task": cell.metadata["task"]} if "task" in cell.metadata else {}
    notebook.cells = cells
    notebook.metadata = {"kernelspec": notebook.metadata["kernelspec"]}
    return notebook


def role_of(cell: "NotebookNode") -> str:
    """Return what a cell of a solution is for: "text", "answer", "check" or "code"."""
    if cell.cell_type == "markdown":
        return "text"
    if "task" in cell.metadata:
        return "answer"
    return "check" if cell.source.startswith("check(") else "code"


def owners(cells: "list[NotebookNode]") -> list[str]:
    """Return each cell's task: "start" up to the last code cell before any task, "end" after all of them."""
    answers = [index for index, cell in enumerate(cells) if "task" in cell.metadata]
    plain = [index for index in range(answers[0]) if cells[index].cell_type == "code"]
    names, pending = [], list(answers)
    for index, cell in enumerate(cells):
        if plain and index <= plain[-1]:
            names.append("start")
        else:
            names.append(cells[pending[0]].metadata["task"] if pending else "end")
            if role_of(cell) == "check":
                pending.pop(0)
    return names


def expected_line(task: Task) -> str:
    """Return the one line that `check` prints when the answer is right."""
    return f"{task.name}: {len(task.cases)} of {len(task.cases)} cases pass"


def form(exercise: Exercise, transform: Callable[[str], str]) -> "NotebookNode":
    """Return the exercise's notebook: each answer cell through `transform`, the expected line below each check."""
    import nbformat

    notebook = read_script(exercise)
    count = 0
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        count += 1
        cell.execution_count = count
        if cell.id.endswith(ANSWER):
            cell.source = transform(cell.source)
        elif cell.id.endswith(CHECK):
            task = find_task(cell.id.removesuffix(CHECK))
            cell.metadata["nbgrader"] = graded_cell(cell.id, task.points)
            cell.outputs = [nbformat.v4.new_output("stream", name="stdout", text=expected_line(task) + "\n")]
    return notebook


def graded_cell(name: str, points: float) -> dict[str, Any]:
    """Return the metadata by which nbgrader knows a test that it restores before grading."""
    kind = {"grade": True, "locked": True, "solution": False, "task": False}
    return {"schema_version": 3, "grade_id": name, "points": points, **kind}


def blank_form(exercise: Exercise) -> "NotebookNode":
    """Return the notebook a learner starts from."""
    return form(exercise, blank_source)


def solved_form(exercise: Exercise) -> "NotebookNode":
    """Return the notebook with every answer filled in."""
    return form(exercise, solved_source)


def generate(exercise: Exercise, report: Callable[[int, int], None] | None = None) -> bool:
    """Write `exercises/NN_<stem>.ipynb` and return whether it changed; an older one is backed up.

    The solved notebook is executed first: what its checks print is the output the blank one stores. Raises CourseError
    when a solution does not pass its own check.
    """
    solved = solved_form(exercise)
    try:
        executed = notebooks.run(solved, ROOT, exercise.script.name, report)
    except notebooks.NotebookError as error:
        raise CourseError(f"{error} Mend {exercise.script.relative_to(ROOT)}, then `tile generate` again.") from None
    for before, after in zip(solved.cells, executed.cells, strict=True):
        if before.id.endswith(CHECK) and before.outputs != after.outputs:
            told = "".join(output.get("text", output.get("data", {}).get("text/plain", "")) for output in after.outputs)
            raise CourseError(f"The solution of `{before.id.removesuffix(CHECK)}` fails its own check: {told.strip()}")
    text = notebooks.text_of(blank_form(exercise))
    if exercise.path.exists() and exercise.path.read_text(encoding="utf-8") == text:
        return False
    replace(exercise.path, text)
    return True


# What a learner has written


def read_answers(path: Path) -> dict[str, str]:
    """Return task → source of each answer cell of an exercise. Raises NotebookError for a damaged file."""
    return answers_of(notebooks.read(path))


def answers_of(notebook: "NotebookNode") -> dict[str, str]:
    """Return task → source of each answer cell."""
    return {cell.id.removesuffix(ANSWER): cell.source for cell in notebook.cells if cell.get("id", "").endswith(ANSWER)}


def put_answers(notebook: "NotebookNode", answers: dict[str, str]) -> set[str]:
    """Put answers into their cells, by cell id. Return the tasks that have no cell there."""
    left = dict(answers)
    for cell in notebook.cells:
        task = cell.get("id", "").removesuffix(ANSWER)
        if cell.get("id", "").endswith(ANSWER) and task in left:
            cell.source = left.pop(task)
    return set(left)


def state_folder() -> Path:
    """Return the folder of what a learner makes: progress, hints shown, backups."""
    return Path(os.environ.get("TILE_STATE") or ROOT / ".tile")


def back_up(path: Path) -> Path:
    """Copy a file into the backups and return the copy's path. Raises CourseError when it cannot be kept."""
    folder = state_folder() / "backups" / datetime.now().strftime("%Y-%m-%d_%H-%M-%S-%f")
    try:
        folder.mkdir(parents=True)
        return Path(shutil.copy2(path, folder))
    except OSError as error:
        raise CourseError(
            f"{path} was left as it is: no backup could be made in {folder} ({error.strerror}). Free some space, "
            "make that folder writable, or name another one in the environment variable TILE_STATE."
        ) from None


def replace(path: Path, text: str) -> Path | None:
    """Give a file a new text, with a backup of the old one. Return the backup's path. Raises CourseError."""
    backup = back_up(path) if path.exists() else None
    try:
        notebooks.write_text(path, text)
    except OSError as error:
        raise CourseError(
            f"{path} could not be written and is as it was: {error.strerror}. Free some space or make it writable."
        ) from None
    return backup


def read_state() -> dict[str, dict[str, Any]]:
    """Return what the learner has done: "passed" task → points, when, hash of the answer; "hints" task → tiers shown.

    A damaged file is moved into the backups, and the count begins again.
    """
    path = state_folder() / "progress.json"
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
        return {"passed": dict(state["passed"]), "hints": {task: int(tier) for task, tier in state["hints"].items()}}
    except FileNotFoundError:
        pass
    except OSError as error:
        print(f"{path} cannot be read: {error.strerror}. Make it readable to see your progress.", file=sys.stderr)
    except (ValueError, TypeError, KeyError, AttributeError):
        set_aside(path)
    return {"passed": {}, "hints": {}}


def set_aside(path: Path) -> None:
    """Move a damaged record of progress into the backups, and say so."""
    try:
        kept = back_up(path)
        path.unlink()
        print(f"{path} was damaged and is kept as {kept}. Run your checks again to count them.", file=sys.stderr)
    except (CourseError, OSError) as error:
        print(f"{path} is damaged: {error}", file=sys.stderr)


def write_state(state: dict[str, dict[str, Any]]) -> None:
    """Save what the learner has done. Says so, and goes on, where nothing can be written."""
    try:
        notebooks.write_text(state_folder() / "progress.json", json.dumps(state, indent=1, sort_keys=True) + "\n")
    except OSError as error:
        print(
            f"Your progress was not saved in {state_folder()}: {error.strerror}. Your answers are untouched; free some "
            "space or make that folder writable, and run the check again.",
            file=sys.stderr,
        )


def record(task: str, answer: str = "") -> None:
    """Note that the learner's `answer` (its source) to `task` passed."""
    state = read_state()
    state["passed"][task] = {
        "points": find_card(task).points,
        "when": datetime.now().astimezone().isoformat(timespec="seconds"),
        "answer": hashlib.sha256(answer.encode()).hexdigest(),
    }
    write_state(state)


# What a learner can ask for, in a notebook or as `tile …`


def hint(task: str, every: bool = False) -> None:
    """Print the next hint for a task: a question first, a nudge second, the answer's shape third; all with `every`."""
    card = find_card(task)
    state = read_state()
    tier = len(card.hints) if every else min(state["hints"].get(task, 0) + 1, len(card.hints))
    for number in range(1 if every else tier, tier + 1):
        print(f"Hint {number} of {len(card.hints)}: {card.hints[number - 1]}")
    if tier == len(card.hints):
        print(f"That was the last hint. {spelt('solution', task, '--yes')} shows a solution.")
    state["hints"][task] = max(tier, state["hints"].get(task, 0))
    write_state(state)


def next_task() -> tuple[Exercise, Card] | None:
    """Return the first task not passed yet, None when all are."""
    passed = read_state()["passed"]
    pending = ((exercise, card) for exercise in exercises() for card in exercise.cards if card.name not in passed)
    return next(pending, None)


def next_page() -> Path:
    """Return the notebook to open, relative to the root: the next chapter, or its exercise once that is begun."""
    passed = read_state()["passed"]
    pending = next_task()
    exercise = pending[0] if pending else exercises()[0]
    begun = any(card.name in passed for card in exercise.cards)
    folder = "exercises" if pending and begun else "notebooks"
    return Path(folder) / f"{exercise.name}.ipynb"


def progress() -> None:
    """Print each chapter's tasks with their points, what is passed, and the next step."""
    from rich.console import Console
    from rich.table import Table

    passed = read_state()["passed"]
    console = Console()
    for exercise in exercises():
        table = Table("Task", "", "Points", "State", title=f"Chapter {exercise.chapter}: {exercise.stem}")
        for card in exercise.cards:
            state = "passed" if card.name in passed else "open"
            table.add_row(card.name, card.title, str(card.points), state)
        console.print(table)
    cards = [card for exercise in exercises() for card in exercise.cards]
    earned = sum(card.points for card in cards if card.name in passed)
    console.print(f"{earned} of {sum(card.points for card in cards)} points.", highlight=False)
    pending = next_task()
    if pending:
        console.print(f"Next: `{pending[1].name}` in exercises/{pending[0].name}.ipynb", highlight=False)
    else:
        console.print(f"Every task is passed. `{command()} update` fetches new chapters.", highlight=False)


def reset(name: str) -> None:
    """Put back the blanks of an exercise or of one task, after a backup; say where that is. Raises CourseError."""
    exercise = find_exercise(name)
    tasks = [card.name for card in exercise.cards if card.name == name]
    fresh = blank_form(exercise)
    if tasks and exercise.path.exists():
        notebook = read_to_change(exercise)
        if put_answers(notebook, {name: answers_of(fresh)[name]}):
            raise CourseError(
                f"{exercise.path} has lost the answer cell of `{name}`. {spelt('reset', exercise.name)} restores "
                "every cell, and keeps what you wrote in a backup."
            )
        fresh = notebook
    backup = replace(exercise.path, notebooks.text_of(fresh))
    print(f"{tasks[0] if tasks else exercise.name} is blank again in {exercise.path.relative_to(ROOT)}.")
    if backup:
        print(f"What you had written is kept in {backup}")
    print("Is the notebook open in JupyterLab? Then choose File → Reload Notebook from Disk.")


def read_to_change(exercise: Exercise) -> "NotebookNode":
    """Return the learner's notebook. Raises CourseError for a damaged one, saying how to go on."""
    try:
        return notebooks.read(exercise.path)
    except notebooks.NotebookError as error:
        raise CourseError(
            f"{error} {spelt('reset', exercise.name)} keeps it as a backup and puts back the blank exercise."
        ) from None


def solution(task: str, anyway: bool = False) -> None:
    """Print a solution of a task that is passed, or of any with `anyway`."""
    card = find_card(task)
    state = read_state()
    if task not in state["passed"] and not anyway:
        shown = state["hints"].get(task, 0)
        advice = f"Try {spelt('hint', task)} first" if shown < len(card.hints) else "You have seen all its hints"
        raise CourseError(
            f"`{task}` is not passed yet. {advice}; {spelt('solution', task, '--yes')} shows the solution all the same."
        )
    source = answers_of(read_script(find_exercise(task)))[task]
    if is_withheld(source):
        raise CourseError("This copy of the course holds no solutions: ask your teacher for it.")
    print(solved_source(source))
