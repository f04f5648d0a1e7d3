"""Find the answers in a learner's notebook, whatever the editor has done to its cells.

Colab keeps a cell's id in its metadata, older notebooks have none, VS Code gives new ones and may drop the metadata;
people split, merge, copy and move cells. So a cell is known by its id, else by its metadata, else by what it defines.
"""

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from lab.generate import ANSWER, CHECK

if TYPE_CHECKING:
    from nbformat import NotebookNode


@dataclass(eq=False)
class Cell:
    """What may be of use in a learner's cell."""

    source: str
    kind: str  # "code", "markdown" or "raw"
    ids: list[str]  # its own first, then where other programs keep it
    number: int = 0  # its place in the notebook
    attachments: dict = field(default_factory=dict)  # the pictures of a text

    @cached_property
    def defined(self) -> set[str]:
        """The names that it defines at its top level; of what is no Python, the functions it seems to define."""
        if statements(self.source):
            return {name for name, _ in definitions(self.source)}
        return set(re.findall(r"^[ \t]*def (\w+)", self.source, re.MULTILINE))


@dataclass
class Answer:
    """A learner's answer to a task: its text, and the cells that it stands in, in their order."""

    source: str
    cells: list[Cell]


# Reading


def read_cells(data: bytes, findings: list[str]) -> list[Cell]:
    """Return the cells of a notebook file, as far as it is one; what it is not becomes a sentence in `findings`."""
    if not data.strip():
        findings.append("The file is empty." if data else "There is no file, or it is empty.")
        return []
    try:
        content = json.loads(decode(data, findings))
    except (ValueError, RecursionError, MemoryError) as error:
        findings.append(f"The file is no notebook: {str(error)[:100]}.")
        return []
    cells = content.get("cells") if isinstance(content, dict) else None
    if isinstance(cells, list):
        language = language_of(content)
        if language not in ("python", ""):
            findings.append(f"Its language was set to {language[:40]!r}; it was read as Python.")
        return cells_of(cells)
    if isinstance(content, dict) and "worksheets" in content:
        findings.append(
            "The file is a notebook of nbformat 3, which has no list of cells: open it in JupyterLab and save it, "
            "which makes it one of nbformat 4."
        )
    else:
        findings.append("The file is JSON, but no notebook of nbformat 4: it has no list of cells.")
    return []


def decode(data: bytes, findings: list[str]) -> str:
    """Return the text of a file in UTF-8, or in what else editors write. Raises ValueError."""
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        encoding, text = "latin-1", data.decode("latin-1")
    if encoding != "utf-8-sig":
        findings.append(f"The file is encoded as {encoding}, not UTF-8.")
    return text


def language_of(content: dict) -> str:
    """Return the language that a notebook's metadata name, in lower case; "" where they name none."""
    metadata = content.get("metadata")
    parts = [metadata.get(key) for key in ("kernelspec", "language_info")] if isinstance(metadata, dict) else []
    names = [part.get("language") or part.get("name") for part in parts if isinstance(part, dict)]
    return next((str(name).lower() for name in names if name and str(name).lower() != "python3"), "")


def cells_of(cells: list) -> list[Cell]:
    """Return what is of use in a notebook's list of cells, whatever its entries are."""
    read = (read_cell(cell, number) for number, cell in enumerate(cells))
    return [cell for cell in read if cell is not None]


def read_cell(cell: object, number: int) -> Cell | None:
    """Return what is of use in one entry of a notebook's list of cells, None where nothing is."""
    if not isinstance(cell, dict):
        return None
    source = cell.get("source", "")
    if isinstance(source, list):
        source = "".join(line for line in source if isinstance(line, str))
    if not isinstance(source, str):
        return None
    source = source.encode("utf-8", "replace").decode()  # half of a surrogate pair is JSON, but no text
    metadata = cell.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    task = metadata.get("task")
    ids = [cell.get("id"), metadata.get("id"), f"{task}{ANSWER}" if task else None]
    attachments = cell.get("attachments")
    return Cell(
        source,
        str(cell.get("cell_type")),
        [name for name in ids if isinstance(name, str)],
        number,
        attachments if isinstance(attachments, dict) else {},
    )


# Choosing


def find_answers(cells: list[Cell], template: "NotebookNode") -> dict[str, Answer]:
    """Return task → answer of the tasks of a template that have one in the cells, a blank one counting as well.

    Of several definitions of a name, that one counts which the task's check would meet if the notebook ran from top to
    bottom, or the last in a copy of the answer's cell; a text that differs from the template's goes before all others.
    """
    known = {cell.id: cell for cell in template.cells}
    tasks = [name.removesuffix(ANSWER) for name in known if name.endswith(ANSWER)]
    chosen = {task: choose(task, cells, known) for task in tasks}
    checks = {known[task + CHECK].source.strip() for task in tasks if task + CHECK in known}
    answers = {}
    for task in (task for task in tasks if chosen[task]):
        texts = []
        for cell in chosen[task]:
            sharing = [other for other in tasks if cell in chosen[other]]
            source = cell.source if len(sharing) == 1 else share_of(task, cell, sharing, known)
            texts.append(without_lines(source, checks))
        answers[task] = Answer(texts[0] if len(texts) == 1 else "\n\n\n".join(texts), chosen[task])
    return answers


def choose(task: str, cells: list[Cell], known: "dict[str, NotebookNode]") -> list[Cell]:
    """Return the cells that hold the answer to a task, in their order; none where there is none."""
    blank = known[task + ANSWER].source
    place = {cell: number for number, cell in enumerate(cells)}
    last_check = max((place[cell] for cell in cells if is_check(cell, task, known)), default=len(cells))
    marked = {cell for cell in cells if identity(cell, known) == task + ANSWER}

    def rank(cell: Cell) -> tuple[bool, bool, int]:
        met = place[cell] <= last_check or cell in marked
        return not same_text(cell.source, blank), met, place[cell]

    def defining(names: set[str]) -> set[Cell]:
        return {cell for cell in cells if cell.kind == "code" and names & cell.defined}

    names = [name for name, _ in definitions(blank) if name != task]
    candidates = defining({task}) or marked or defining({*names})
    if not candidates:
        return []
    found = {max(candidates, key=rank)}
    for name in reversed(names):  # each stands before what uses it
        if any(re.search(rf"\b{name}\b", cell.source) for cell in found) and defining({name}):
            found.add(max(defining({name}), key=rank))
    return sorted(found, key=lambda cell: (rank(cell)[0], place[cell]))


def identity(cell: Cell, known: "dict[str, NotebookNode]") -> str:
    """Return the id of the template's cell that a cell says it is, "" where it says none."""
    return next((name for name in cell.ids if name in known), "")


def is_check(cell: Cell, task: str, known: "dict[str, NotebookNode]") -> bool:
    """Return whether a cell checks a task."""
    called = re.search(rf"""^[ \t]*check\([ \t]*["']{task}["']""", cell.source, re.MULTILINE)
    return cell.kind == "code" and (bool(called) or identity(cell, known) == task + CHECK)


def same_text(one: str, other: str) -> bool:
    """Return whether two texts are the same but for empty lines and spaces at the ends of lines."""
    return lines_of(one) == lines_of(other)


def lines_of(source: str) -> list[str]:
    return [line.rstrip() for line in source.splitlines() if line.strip()]


def without_lines(source: str, unwanted: set[str]) -> str:
    """Return a text without certain lines; as it is where it has none of them."""
    kept = [line for line in source.splitlines() if line.strip() not in unwanted]
    return source if len(kept) == len(source.splitlines()) else "\n".join(kept).strip("\n")


def share_of(task: str, cell: Cell, sharing: list[str], known: "dict[str, NotebookNode]") -> str:
    """Return the part of a cell that is the answer to one of the tasks sharing it; all of it where it is no Python.

    What none of the tasks defines goes with the definition that follows it, or stands last.
    """
    lines = cell.source.splitlines()
    owner = {name: other for other in sharing for name, _ in definitions(known[other + ANSWER].source)}
    parts: list[tuple[str, str]] = []
    begin = 0
    for statement in statements(cell.source):
        mine = [owner[name] for name in names_of(statement) if name in owner]
        if mine:
            parts.append((mine[0], "\n".join(lines[begin : statement.end_lineno])))
            begin = statement.end_lineno or begin
    if not parts:
        return cell.source
    parts[-1] = (parts[-1][0], "\n".join([parts[-1][1], *lines[begin:]]))
    return "\n\n\n".join(text.strip("\n") for other, text in parts if other == task)


# What a cell defines


def definitions(source: str) -> Iterator[tuple[str, str]]:
    """Yield name and text of what a cell imports, defines or sets at its top level; nothing for what is no Python."""
    for statement in statements(source):
        text = text_of(source, statement)
        for name in names_of(statement):
            yield name, text


def names_of(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement imports, defines or sets."""
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        for alias in statement.names:
            yield (alias.asname or alias.name).split(".")[0]
    elif isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        yield statement.name
    elif isinstance(statement, (ast.Assign, ast.AnnAssign)):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        nodes = (node for target in targets for node in ast.walk(target))
        yield from (node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))


def statements(source: str) -> list[ast.stmt]:
    try:
        return ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


def text_of(source: str, statement: ast.stmt) -> str:
    """Return a statement's text with its decorators."""
    decorators = getattr(statement, "decorator_list", [])
    first = min([statement.lineno, *(decorator.lineno for decorator in decorators)])
    return "\n".join(source.splitlines()[first - 1 : statement.end_lineno])
