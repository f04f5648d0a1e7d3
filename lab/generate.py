"""From a solution to the notebook a learner fills in.

Answer cells carry `task="…"` in their marker, and `# blank: form` at the end of a line that becomes a blank, or above a
statement that does; what has a bare `# blank:` vanishes. Cells tagged `spec` stay out of the notebook.
"""

import ast
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from lab import notebook as notebooks
from lab.notebook import ROOT, CourseError, replace
from lab.task import Exercise, Task, find_task

if TYPE_CHECKING:
    from nbformat import NotebookNode

BLANK = "____"
ANSWER = "-answer"  # the end of an answer cell's id
CHECK = "-check"
NOTE = "# blank:"


def solved_source(source: str) -> str:
    """Return an answer cell's finished code, without the notes that make its blanks."""
    return "\n".join(line for lines, _ in noted(source) for line in lines)


def blank_source(source: str) -> str:
    """Return an answer cell as the learner finds it: what is noted is replaced by its blank form, or dropped."""
    kept: list[str] = []
    for lines, form in noted(source):
        indent = lines[0][: len(lines[0]) - len(lines[0].lstrip())]
        kept += lines if form is None else [indent + form] * bool(form)
    return "\n".join(kept)


def noted(source: str) -> Iterator[tuple[list[str], str | None]]:
    """Yield the lines of an answer cell with the blank form that is noted for them: None for a line without a note.

    A note at the end of a line is about that line, one on a line of its own about the statement that follows.
    """
    lines = source.splitlines()
    ends = {}
    if any(line.lstrip().startswith(NOTE) for line in lines):
        statements = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt)]
        ends = {node.lineno: node.end_lineno for node in reversed(statements)}
    index = 0
    while index < len(lines):
        code, note, form = lines[index].partition(NOTE)
        end = index + 1
        if note and not code.strip():
            end = ends[index + 2]
            yield lines[index + 1 : end], form.strip()
        else:
            yield [code.rstrip() if note else code], form.strip() if note else None
        index = end


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


# The course's own answer cells


def answers_of(notebook: "NotebookNode") -> dict[str, str]:
    """Return task → source of each answer cell, by cell id; in a learner's notebook `lab.answers` finds them."""
    return {cell.id.removesuffix(ANSWER): cell.source for cell in notebook.cells if cell.get("id", "").endswith(ANSWER)}


def put_answers(notebook: "NotebookNode", answers: dict[str, str]) -> set[str]:
    """Put answers into their cells, by cell id. Return the tasks that have no cell there."""
    left = dict(answers)
    for cell in notebook.cells:
        task = cell.get("id", "").removesuffix(ANSWER)
        if cell.get("id", "").endswith(ANSWER) and task in left:
            cell.source = left.pop(task)
    return set(left)
