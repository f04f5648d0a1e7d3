"""What a learner has done so far and can ask for, in a notebook or as `tile …`: hints, progress, solutions, backups."""

import hashlib
import json
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab import notebook as notebooks
from lab.answers import cells_of, find_answers
from lab.generate import ANSWER, CHECK, answers_of, blank_form, is_withheld, read_script, solved_source
from lab.notebook import ROOT, CourseError, back_up, replace, state_folder
from lab.task import Card, Exercise, command, exercises, find_card, find_exercise, matching, spelt, without_path

if TYPE_CHECKING:
    from nbformat import NotebookNode


def read_state() -> dict[str, dict[str, Any]]:
    """Return what the learner has done: "passed" task → points, when, hash of the answer; "hints" task → tiers shown.

    A damaged file is moved into the backups, and the count begins again.
    """
    path = state_folder() / "progress.json"
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
        return {
            "passed": dict(state["passed"]),
            "hints": {task: max(0, int(tier)) for task, tier in state["hints"].items()},
        }
    except FileNotFoundError:
        pass
    except OSError as error:
        print(f"{path} cannot be read: {error.strerror}. Make it readable to see your progress.", file=sys.stderr)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
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
    card = find_card(task)
    state["passed"][card.name] = {
        "points": card.points,
        "when": datetime.now().astimezone().isoformat(timespec="seconds"),
        "answer": hashlib.sha256(answer.encode()).hexdigest(),
    }
    write_state(state)


# What a learner can ask for


def hint(task: str, every: bool = False) -> None:
    """Print the next hint for a task: a question first, a nudge second, the answer's shape third; all with `every`."""
    card = find_card(task)
    task = card.name
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
    meant = matching(without_path(name), [card.name for card in exercise.cards])
    fresh = blank_form(exercise)
    if meant and exercise.path.exists():
        notebook = read_to_change(exercise)
        blank_answer(notebook, meant, exercise, fresh)
        fresh = notebook
    backup = replace(exercise.path, notebooks.text_of(fresh))
    print(f"{meant or exercise.name} is blank again in {exercise.path.relative_to(ROOT)}.")
    if backup:
        print(f"What you had written is kept in {backup}")
    print("Is the notebook open in JupyterLab? Then choose File → Reload Notebook from Disk.")


def blank_answer(notebook: "NotebookNode", task: str, exercise: Exercise, fresh: "NotebookNode") -> None:
    """Put the blanks of one task into a learner's notebook. Raises CourseError where its cell is gone or shared."""
    found = find_answers(cells_of(notebook.cells), fresh)
    advice = f"{spelt('reset', exercise.name)} restores every cell, and keeps what you wrote in a backup."
    if task not in found:
        raise CourseError(f"{exercise.path} has lost the answer cell of `{task}`. {advice}")
    first, *more = (cell.number for cell in found[task].cells)
    for other, answer in found.items():
        if other != task and {first, *more} & {cell.number for cell in answer.cells}:
            raise CourseError(f"The answers to `{task}` and `{other}` stand in one cell of {exercise.path}. {advice}")
    course = {cell.id: cell for cell in fresh.cells}
    blank, check, old = course[task + ANSWER], course[task + CHECK].source, notebook.cells[first]
    if check in old.source.splitlines():
        blank.source += f"\n\n\n{check}"
    blank.id = old.get("id")
    if blank.id is None:  # a notebook of an older format
        del blank["id"]
    notebook.cells[first] = blank
    for number in sorted(more, reverse=True):
        del notebook.cells[number]


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
    task = card.name
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
