"""Carry what a learner wrote in an exercise over into a new version of it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lab.answers import Answer, Cell, find_answers, identity, same_text
from lab.generate import ANSWER, answers_of

if TYPE_CHECKING:
    from nbformat import NotebookNode


@dataclass
class Written:
    """What a learner wrote in one exercise."""

    stem: str
    answers: dict[str, str]  # task → source, of those that are no longer as they were handed out
    missing: list[str]  # the tasks that have no answer cell any more
    own: list[tuple[str, Cell]]  # other cells, each with the id of the course's cell that it stands behind


def written_in(cells: list[Cell], blank: "NotebookNode", stem: str) -> Written:
    """Return what a learner wrote in the cells of an exercise that was handed out as `blank`."""
    original, found = answers_of(blank), find_answers(cells, blank)
    answers = {task: answer.source for task, answer in found.items() if not same_text(answer.source, original[task])}
    missing = [task for task in original if task not in found]
    return Written(stem, answers, missing, list(own_cells(cells, found, blank)))


def own_cells(cells: list[Cell], found: dict[str, Answer], blank: "NotebookNode") -> Iterator[tuple[str, Cell]]:
    """Yield the cells that are neither an answer nor the course's, each with the id of what it stands behind.

    A cell of the course that the learner changed counts as one behind it. At the top the id is "".
    """
    known = {cell.id: cell for cell in blank.cells}
    place_of = {cell: task + ANSWER for task, answer in found.items() for cell in answer.cells}
    behind = ""
    for cell in cells:
        if cell in place_of:
            behind = place_of[cell]
            continue
        alike = next((name for name, other in known.items() if same_text(cell.source, other.source)), "")
        name = identity(cell, known) or alike
        if name and not name.endswith(ANSWER):  # what says it is an answer, and is none, goes where it stood
            behind = name
        if not alike and cell.source.strip():
            yield behind, cell


def put_own(notebook: "NotebookNode", own: list[tuple[str, Cell]]) -> None:
    """Put a learner's own cells into a new version, each behind its cell of the course; at the end where that is gone.

    What the new version says itself is left out.
    """
    texts = [cell.source for cell in notebook.cells]
    for behind, cell in reversed(own):
        if not any(same_text(cell.source, text) for text in texts):
            ids = ["", *(each.get("id") for each in notebook.cells)]
            place = ids.index(behind) if behind in ids else len(notebook.cells)
            notebook.cells.insert(place, new_cell(cell))


def new_cell(cell: Cell) -> "NotebookNode":
    """Return a learner's cell with an id of its own; outputs come back when it runs."""
    import nbformat

    if cell.kind == "code":
        return nbformat.v4.new_code_cell(cell.source)
    make = nbformat.v4.new_markdown_cell if cell.kind == "markdown" else nbformat.v4.new_raw_cell
    pictures = {"attachments": nbformat.from_dict(cell.attachments)} if cell.attachments else {}
    return make(cell.source, **pictures)
