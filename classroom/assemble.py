"""Put the answers of whatever a student handed in into the teacher's own notebook, which can be trusted.

Only answers are taken, found as `tile update` finds them, and the definitions they need from cells the student added;
outputs, tags, metadata and checks are the teacher's. Whatever the bytes are, this returns, and tells what it found.
"""

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lab.answers import Answer, Cell, definitions, find_answers, identity, read_cells, statements
from lab.generate import ANSWER, CHECK, put_answers

if TYPE_CHECKING:
    from nbformat import NotebookNode

LARGEST = 64 << 20  # bytes of a notebook; one with every output of the course has fewer than four million
LONGEST = 100_000  # characters of one cell
ADDED = "-added"  # the end of the id of a cell made of definitions that the student added
UNCOMPARED = ["nbval-ignore-output"]  # tags of the student's own cells, which may print what they like


@dataclass
class Assembly:
    """A notebook to grade. `findings` are sentences about what was not as handed out."""

    notebook: "NotebookNode"
    answers: dict[str, str] = field(default_factory=dict)  # task → source, of the answers that were there
    findings: list[str] = field(default_factory=list)


def assemble(data: bytes, template: "NotebookNode") -> Assembly:
    """Return the template with the answers of a notebook file put in. Never raises, whatever the bytes."""
    assembly = Assembly(copy.deepcopy(template))
    cells = read_submission(data, assembly.findings)
    found = find_answers(cells, template)
    assembly.answers = {task: answer.source for task, answer in found.items()}
    put_answers(assembly.notebook, assembly.answers)
    for cell in assembly.notebook.cells:
        if cell.id.endswith(ANSWER):
            cell.metadata["tags"] = UNCOMPARED
    known = {cell.id: cell for cell in template.cells}
    # An editor that gives every cell a new name, as VS Code may, has renamed none of them.
    keeps_names = any(identity(cell, known).endswith((ANSWER, CHECK)) for cell in cells)
    for task in (name.removesuffix(ANSWER) for name in known if name.endswith(ANSWER)):
        marked = {cell for cell in cells if identity(cell, known) == task + ANSWER}
        assembly.findings += about_answer(task, found.get(task), marked, keeps_names)
    if cells:
        compare_others(template, cells, found, assembly.findings)
        used = {cell for answer in found.values() for cell in answer.cells}
        add_definitions(assembly, template, [cell for cell in cells if cell not in used])
    return assembly


def read_submission(data: bytes, findings: list[str]) -> list[Cell]:
    """Return the cells of a notebook file, as far as it is one, and none that are far longer than any person's."""
    if len(data) > LARGEST:
        findings.append(f"The file is larger than {LARGEST >> 20} MiB and was not read.")
        return []
    return [cell for cell in read_cells(data, findings) if len(cell.source) <= LONGEST]


# What to tell


def about_answer(task: str, answer: Answer | None, marked: set[Cell], keeps_names: bool) -> Iterator[str]:
    """Yield the findings about the answer that was found to a task; `marked` are the cells that say they hold it."""
    if answer is None:
        yield f"The answer cell of `{task}` is missing."
        return
    if keeps_names and not any(cell in marked for cell in answer.cells):
        yield f"The answer to `{task}` is not in its own cell; the cell that defines `{task}` was graded."
    if len(answer.cells) > 1:
        yield f"The answer to `{task}` stands in {len(answer.cells)} cells; they were graded together."
    elif len({cell.source for cell in marked}) > 1:
        yield f"There are {len(marked)} answer cells of `{task}`; the last that was changed was graded."
    if any(cell.kind != "code" for cell in answer.cells):
        yield f"The answer cell of `{task}` was no longer a code cell; it was graded as one."


def compare_others(
    template: "NotebookNode", cells: list[Cell], answers: dict[str, Answer], findings: list[str]
) -> None:
    """Tell of checks that are missing or changed, and of answers in another order: none of it matters to the marks."""
    by_id = {name: cell for cell in reversed(cells) for name in cell.ids[:1]}
    lines = {line.strip() for cell in cells if cell.kind == "code" for line in cell.source.splitlines()}
    for check in (cell for cell in template.cells if cell.id.endswith(CHECK)):
        task = check.id.removesuffix(CHECK)
        if check.source.strip() in lines:
            continue
        happened = "changed" if check.id in by_id else "removed"
        findings.append(f"The check of `{task}` was {happened}; the teacher's was run.")
    places = [answer.cells[0].number for answer in answers.values()]
    if places != sorted(places):
        findings.append("The answers stood in another order; they were graded in the order of the hand-out.")


# Definitions outside the answer cells


def add_definitions(assembly: Assembly, template: "NotebookNode", others: list[Cell]) -> None:
    """Put in front of each answer the imports and definitions that it names and that only the student's cells have."""
    known = {cell.source.strip() for cell in template.cells}
    own = [cell.source for cell in others if cell.kind == "code" and cell.source.strip() not in known]
    offered = {name: statement for source in own for name, statement in definitions(source)}
    given = {name for cell in template.cells if cell.cell_type == "code" for name, _ in definitions(cell.source)}
    for task, answer in assembly.answers.items():
        needed = needed_by(answer, {name: text for name, text in offered.items() if name not in given})
        if needed:
            insert_before(assembly.notebook, task, "\n\n\n".join(dict.fromkeys(needed.values())))
            names = ", ".join(f"`{name}`" for name in needed)
            assembly.findings.append(f"`{task}` uses {names}, which another cell defines; that was taken along.")


def needed_by(answer: str, offered: dict[str, str]) -> dict[str, str]:
    """Return those of the offered definitions that an answer names, and those that these name, in their own order."""
    own = {name for name, _ in definitions(answer)}
    needed, pending = set(), [answer]
    while pending:
        for statement in statements(pending.pop()):
            for node in ast.walk(statement):
                name = node.id if isinstance(node, ast.Name) else ""
                if name in offered and name not in needed and name not in own:
                    needed.add(name)
                    pending.append(offered[name])
    return {name: text for name, text in offered.items() if name in needed}


def insert_before(notebook: "NotebookNode", task: str, source: str) -> None:
    """Put a code cell in front of an answer cell."""
    import nbformat

    index = next(index for index, cell in enumerate(notebook.cells) if cell.id == task + ANSWER)
    cell = nbformat.v4.new_code_cell(source, id=task + ADDED)
    cell.metadata["tags"] = UNCOMPARED
    notebook.cells.insert(index, cell)
