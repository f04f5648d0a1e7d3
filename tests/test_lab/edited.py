"""Answers as a learner would write them: the official ones, with pieces of their text replaced."""

import sys
from collections.abc import Callable
from pathlib import Path

from lab.generate import answers_of, solved_form
from lab.task import find_exercise, find_task


def edited(folder: Path, task: str, *edits: str) -> Callable:
    """Return the official answer to a task from a file of its own, with each piece of its text replaced by the next."""
    exercise = find_exercise(task)
    find_task(task)
    source = answers_of(solved_form(exercise))[task]
    for before, after in zip(edits[::2], edits[1::2], strict=True):
        assert source.count(before) == 1, before
        source = source.replace(before, after)
    path = folder / "answer.py"
    path.write_text(source)
    module = vars(sys.modules[f"solutions.{exercise.stem}"])
    names = {name: value for name, value in module.items() if not name.startswith("__")} | {"__name__": "answer"}
    exec(compile(source, str(path), "exec"), names)
    return names[task]
