"""Put the answers of whatever a student handed in into the teacher's own notebook, which can be trusted.

Only answers are taken, by cell id, and the definitions they need from cells the student added; outputs, tags, metadata
and checks are the teacher's. Whatever the bytes are, this returns, and tells what it found.
"""

import ast
import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lab.generate import ANSWER, CHECK

if TYPE_CHECKING:
    from nbformat import NotebookNode

LARGEST = 64 << 20  # bytes of a notebook; one with every output of the course has fewer than four million
LONGEST = 100_000  # characters of one cell
ADDED = "-added"  # the end of the id of a cell made of definitions that the student added


@dataclass
class Assembly:
    """A notebook to grade. `findings` are sentences about what was not as handed out."""

    notebook: "NotebookNode"
    answers: dict[str, str] = field(default_factory=dict)  # task → source, of the answers that were there
    findings: list[str] = field(default_factory=list)


@dataclass
class Cell:
    """What may be of use in a student's cell."""

    source: str
    kind: str
    ids: list[str]  # its own first, then where other programs keep it


def assemble(data: bytes, template: "NotebookNode") -> Assembly:
    """Return the template with the answers of a notebook file put in. Never raises, whatever the bytes."""
    assembly = Assembly(copy.deepcopy(template))
    cells = read_cells(data, assembly.findings)
    answers = [cell for cell in assembly.notebook.cells if cell.id.endswith(ANSWER)]
    others: list[Cell] = list(cells)
    for target in answers:
        found = find_answer(target, cells, assembly.findings)
        if found is None:
            continue
        target.source = found.source
        assembly.answers[target.id.removesuffix(ANSWER)] = found.source
        others = [cell for cell in others if cell is not found and target.id not in cell.ids]
    if cells:
        compare_others(template, cells, assembly.findings)
        add_definitions(assembly, template, others)
    return assembly


# Reading


def read_cells(data: bytes, findings: list[str]) -> list[Cell]:
    """Return the cells of a notebook file, as far as it is one."""
    if len(data) > LARGEST:
        findings.append(f"The file is larger than {LARGEST >> 20} MiB and was not read.")
        return []
    if not data.strip():
        findings.append("The file is empty." if data else "There is no file, or it is empty.")
        return []
    try:
        content = json.loads(decode(data, findings))
    except (ValueError, RecursionError, MemoryError) as error:
        findings.append(f"The file is no notebook: {str(error)[:100]}.")
        return []
    cells = content.get("cells") if isinstance(content, dict) else None
    if not isinstance(cells, list):
        findings.append("The file is JSON, but no notebook of nbformat 4: it has no list of cells.")
        return []
    language = language_of(content)
    if language not in ("python", ""):
        findings.append(f"Its language was set to {language[:40]!r}; it was graded as Python.")
    return [cell for cell in map(read_cell, cells) if cell is not None]


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


def read_cell(cell: object) -> Cell | None:
    """Return what is of use in one entry of a notebook's list of cells, None where nothing is."""
    if not isinstance(cell, dict):
        return None
    source = cell.get("source", "")
    if isinstance(source, list):
        source = "".join(line for line in source if isinstance(line, str))
    if not isinstance(source, str) or len(source) > LONGEST:
        return None
    source = source.encode("utf-8", "replace").decode()  # half of a surrogate pair is JSON, but no text
    metadata = cell.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    task = metadata.get("task")
    ids = [cell.get("id"), metadata.get("id"), f"{task}{ANSWER}" if task else None]
    return Cell(source, str(cell.get("cell_type")), [name for name in ids if isinstance(name, str)])


# Choosing


def find_answer(target: "NotebookNode", cells: list[Cell], findings: list[str]) -> Cell | None:
    """Return the student's cell for an answer cell of the template: by its id, else by the function it defines."""
    task = target.id.removesuffix(ANSWER)
    by_id = [cell for cell in cells if target.id in cell.ids[:1]]
    candidates = by_id or [cell for cell in cells if target.id in cell.ids]
    if not candidates:
        candidates = [cell for cell in cells if f"def {task}(" in cell.source and cell.kind == "code"]
        if candidates:
            findings.append(f"The answer cell of `{task}` was renamed; the cell that defines `{task}` was graded.")
    if not candidates:
        findings.append(f"The answer cell of `{task}` is missing.")
        return None
    changed = [cell for cell in candidates if cell.source.strip() != target.source.strip()]
    if len({cell.source for cell in candidates}) > 1:
        findings.append(f"There are {len(candidates)} answer cells of `{task}`; the last that was changed was graded.")
    chosen = (changed or candidates)[-1]
    if chosen.kind != "code":
        findings.append(f"The answer cell of `{task}` was no longer a code cell; it was graded as one.")
    return chosen


def compare_others(template: "NotebookNode", cells: list[Cell], findings: list[str]) -> None:
    """Tell of checks that are missing or changed, and of answers in another order: none of it matters to the marks."""
    by_id = {name: cell for cell in reversed(cells) for name in cell.ids[:1]}
    for check in (cell for cell in template.cells if cell.id.endswith(CHECK)):
        own = by_id.get(check.id)
        task = check.id.removesuffix(CHECK)
        if own is None:
            findings.append(f"The check of `{task}` was removed; the teacher's was run.")
        elif own.kind != "code" or own.source.strip() != check.source.strip():
            findings.append(f"The check of `{task}` was changed; the teacher's was run.")
    wanted = [cell.id for cell in template.cells if cell.id.endswith(ANSWER) and cell.id in by_id]
    given = [name for cell in cells for name in cell.ids[:1] if name in wanted]
    if wanted and list(dict.fromkeys(given)) != wanted:
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


def definitions(source: str) -> Iterator[tuple[str, str]]:
    """Yield name and text of what a cell imports, defines or sets at its top level; nothing for what is no Python."""
    for statement in statements(source):
        text = text_of(source, statement)
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            for alias in statement.names:
                yield (alias.asname or alias.name).split(".")[0], text
        elif isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            yield statement.name, text
        elif isinstance(statement, (ast.Assign, ast.AnnAssign)):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            for node in (node for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)):
                yield node.id, text


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
    # nbval compares outputs: a cell that has none recorded must have none, or be left out of the comparison.
    cell.metadata["tags"] = ["nbval-ignore-output"]
    notebook.cells.insert(index, cell)
