"""Every chapter has the one form: sections in their order, sizes that fit a page, figures, tasks, and rows to read.

Each assertion says what to do. A chapter that calls itself a draft may be too small, and never too large; one that says
that it is not measured yet needs no rows. `CONTRIBUTING.md` tells of both.
"""

import ast
import re
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import pytest

from lab import notebook
from lab.task import Exercise, find_exercise
from tile.new import is_draft, not_measured

ROOT = Path(__file__).parents[2]
MEASUREMENTS = ROOT / "book" / "measurements"
SECTIONS = (
    "The operation",
    "What should it cost?",
    "One program's share",
    "The kernel",
    "Is it right?",
    "What did the compiler make of it?",
    "Is it fast?",
    "Break it",
    "Exercise",
    "Remember",
)


class Limit(NamedTuple):
    """How much of something a chapter, or each of its cells, may have, and what to do about more or less."""

    most: int
    too_many: str
    least: int = 0
    too_few: str = ""


LIMITS = {
    "cells": Limit(50, "cut what the chapter's question can do without", 30, "show more, one step a cell"),
    "words": Limit(2500, "cut what the chapter's question can do without", 1200, "explain more"),
    "figures": Limit(5, "leave out those that answer no question", 2, "draw what the reader would have to imagine"),
    "tasks": Limit(5, "leave out the least", 3, "write more in solutions/, rising"),
    "words in a cell": Limit(120, "split it, with a probe between, or cut"),
    "lines in a cell": Limit(12, "move a function into lab/ or kernels/, a plot into lab/plots/"),
    "lines of imports": Limit(20, "import the module, not its names"),
    "columns of code": Limit(88, "break the line: the page shows no more"),
    "columns of output": Limit(100, "print less, or a table: the page shows no more"),
}

# The first six chapters were written before there were limits, and are rewritten one by one. These are the values that
# they had when the limits came. One that has shrunk is lowered here or taken out; none is added for a new chapter.
EXCEPTIONS: dict[str, dict[str, int]] = {
    "01_vector_add": {"words in a cell": 158},
    "02_dropout": {"lines in a cell": 13, "lines of imports": 21},
    "03_matmul": {"words in a cell": 147, "lines of imports": 23},
    "04_softmax": {"words in a cell": 129, "lines of imports": 21},
    "05_attention": {"cells": 68, "words": 3068, "words in a cell": 240, "lines in a cell": 16},
    "06_gelu": {"cells": 52, "lines in a cell": 15, "lines of imports": 26},
}
WRITTEN_BEFORE = 6


def words(text: str) -> int:
    """Return how many words a text has: what holds a letter, but no addresses."""
    return sum(bool(re.search("[A-Za-z]", word)) for word in re.sub(r"\]\([^)]*\)", "]", text).split())


def columns(text: str) -> int:
    """Return the length of the longest line."""
    return max(map(len, text.splitlines()), default=0)


class Cell(NamedTuple):
    """A cell, and how a message names it."""

    name: str
    is_code: bool
    source: str
    count: int | None
    outputs: list

    @property
    def is_imports(self) -> bool:
        return all(isinstance(node, (ast.Import, ast.ImportFrom)) for node in ast.parse(self.source).body)

    @property
    def figures(self) -> int:
        """How many pictures it shows."""
        shown = [output.get("data", {}) for output in self.outputs]
        return sum("<figure" in "".join(data.get("text/html", "")) or "image/svg+xml" in data for data in shown)

    @property
    def printed(self) -> str:
        """What it shows as text, and not as HTML that breaks its own lines."""
        shown = [output.get("data", {}) for output in self.outputs]
        plain = [data.get("text/plain", "") for data in shown if not {"text/html", "image/svg+xml"} & data.keys()]
        return "\n".join([*(output.get("text", "") for output in self.outputs), *plain])


class Chapter:
    """A chapter, read once."""

    def __init__(self, path: Path):
        self.path, self.name = path, f"notebooks/{path.name}"
        number, _, self.stem = path.stem.partition("_")
        self.number = int(number)

    @cached_property
    def cells(self) -> list[Cell]:
        cells = []
        for number, cell in enumerate(notebook.read(self.path).cells, start=1):
            first = next(iter(cell.source.splitlines()), "")
            name = f"{self.name}, cell {number} (`{first[:60]}`)"
            is_code = cell.cell_type == "code"
            cells.append(Cell(name, is_code, cell.source, cell.get("execution_count"), cell.get("outputs", [])))
        return cells

    @property
    def code(self) -> list[Cell]:
        return [cell for cell in self.cells if cell.is_code]

    @property
    def prose(self) -> list[Cell]:
        return [cell for cell in self.cells if not cell.is_code]

    @cached_property
    def sections(self) -> dict[str, list[Cell]]:
        """The cells of each section; those of the title go by ""."""
        sections, title = {"": []}, ""
        for cell in self.cells:
            heading = re.match(r"## (.+)", cell.source)
            if heading and not cell.is_code:
                title = heading[1].strip()
            sections.setdefault(title, []).append(cell)
        return sections

    @cached_property
    def exercise(self) -> Exercise:
        return find_exercise(self.path.name)

    @property
    def is_draft(self) -> bool:
        return is_draft(self.exercise)

    @property
    def is_measured(self) -> bool:
        return not any(cell.source == not_measured(self.stem) for cell in self.sections["Is it fast?"])

    def measures(self) -> dict[str, list[tuple[int, str]]]:
        """Return what is limited: for each limit the values, and what each is the value of."""
        imports = [cell for cell in self.code if cell.is_imports]
        lines = [cell for cell in self.code if not cell.is_imports]
        return {
            "cells": [(len(self.cells), self.name)],
            "words": [(sum(words(cell.source) for cell in self.prose), self.name)],
            "figures": [(sum(cell.figures for cell in self.code), self.name)],
            "tasks": [(len(self.exercise.cards), f"exercises/{self.path.name}")],
            "words in a cell": [(words(cell.source), cell.name) for cell in self.prose],
            "lines in a cell": [(len(cell.source.splitlines()), cell.name) for cell in lines],
            "lines of imports": [(len(cell.source.splitlines()), cell.name) for cell in imports],
            "columns of code": [(columns(cell.source), cell.name) for cell in self.code],
            "columns of output": [(columns(cell.printed), cell.name) for cell in self.code],
        }


CHAPTERS = [Chapter(path) for path in sorted((ROOT / "notebooks").glob("[!.]*.ipynb"))]
each_chapter = pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.path.stem)


@each_chapter
def test_sections_in_order(chapter: Chapter):
    found = [title for title in chapter.sections if title]
    assert found == list(SECTIONS), f"{chapter.name}: the `## ` headings are, in this order: {', '.join(SECTIONS)}"


@each_chapter
@pytest.mark.parametrize("limit", LIMITS)
def test_size(chapter: Chapter, limit: str):
    rule, values = LIMITS[limit], chapter.measures()[limit]
    ceiling = EXCEPTIONS.get(chapter.path.stem, {}).get(limit, rule.most)
    for value, name in values:
        assert value <= ceiling, f"{name} has {value} {limit}, at most {ceiling}: {rule.too_many}"
        enough = value >= rule.least or chapter.is_draft
        assert enough, f"{name} has {value} {limit}, at least {rule.least}: {rule.too_few}"


@pytest.mark.parametrize("name", EXCEPTIONS)
def test_exceptions_only_shrink(name: str):
    (chapter,) = [chapter for chapter in CHAPTERS if chapter.path.stem == name]
    assert chapter.number <= WRITTEN_BEFORE, f"{chapter.name} must keep to LIMITS"
    for limit, ceiling in EXCEPTIONS[name].items():
        largest = max(value for value, _ in chapter.measures()[limit])
        assert ceiling > LIMITS[limit].most
        assert largest >= ceiling, (
            f"{chapter.name} has {largest} {limit} now: lower its exception to that, or remove it"
        )


@each_chapter
def test_title(chapter: Chapter):
    first = chapter.cells[0]
    title, _, question = first.source.partition("\n\n")
    assert title.startswith(f"# {chapter.number} · "), f"{first.name}: begin with `# {chapter.number} · ` and the name"
    assert re.match(r"\*\*[^*]+\?\*\*\n", question), f"{first.name}: below the title stands its one question, in bold"
    for heading in ("What you need:", "What you will be able to do:"):
        listed = re.search(rf"^{heading}\n\n((?:- .+\n?(?:  .+\n?)*)+)", first.source, re.MULTILINE)
        bullets = len(re.findall("^- ", listed[1], re.MULTILINE)) if listed else 0
        assert bullets == 3, f"{first.name}: `{heading}` and three bullets, not {bullets}"


@each_chapter
def test_kernel_is_shown_from_its_file(chapter: Chapter):
    pasted = [cell.name for cell in chapter.code if re.search(r"^\s*@(triton|gluon)\.jit", cell.source, re.MULTILINE)]
    assert not pasted, f"{', '.join(pasted)}: move the kernel into kernels/ or kernels/ladders/, and `show` it"
    shown = any(re.search(r"\bshow\(", cell.source) for cell in chapter.sections["The kernel"] if cell.is_code)
    assert shown, f"{chapter.name}, The kernel: `show` the kernel from its file"


@each_chapter
def test_exercise_is_linked(chapter: Chapter):
    link = f"(../exercises/{chapter.path.name})"
    linked = any(link in cell.source for cell in chapter.sections["Exercise"])
    assert linked, f"{chapter.name}, Exercise: link to it with `[…]{link}`"


@each_chapter
def test_every_code_cell_was_run(chapter: Chapter):
    """nbval compares nothing in a cell without a count."""
    counts = [cell.count for cell in chapter.code]
    assert counts == list(range(1, len(counts) + 1)), f"run `tile execute {chapter.name}`"


@each_chapter
def test_rows_or_the_mark_of_not_yet_measured(chapter: Chapter):
    """A chapter reads rows that are there, or says that there are none; it cannot do both."""
    fast = chapter.sections["Is it fast?"]
    recipe = MEASUREMENTS / f"{chapter.stem}.py"
    assert recipe.exists(), f"{chapter.name}: write {recipe.relative_to(ROOT)}, the recipe that `tile measure` follows"
    recorded = {path.stem for path in MEASUREMENTS.glob("*/*.csv")}
    read = names_read(chapter)
    if not chapter.is_measured:
        assert chapter.stem not in recorded, (
            f"{chapter.name}, Is it fast?: there are rows of {chapter.stem} now. Put a figure and a sentence that read "
            "them in the place of the cell that says `Not measured yet`"
        )
        assert not read, f"{chapter.name}: it is not measured yet, and reads rows of {', '.join(sorted(read))}"
        return
    assert read & recorded, (
        f"{chapter.name}: read the rows by `measure.recorded({chapter.stem!r})`, or, as long as no GPU has recorded "
        f"any, put this into a cell of its own in `Is it fast?`:\n\n{not_measured(chapter.stem)}"
    )
    assert read <= recorded, f"{chapter.name}: no rows are recorded of {', '.join(sorted(read - recorded))}"
    drawn = any(cell.figures for cell in fast)
    assert drawn, f"{chapter.name}, Is it fast?: show the speed over the size as a figure"


def test_the_guide_quotes_the_mark_of_not_yet_measured():
    assert f"\n{not_measured('softmax')}\n" in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def names_read(chapter: Chapter) -> set[str]:
    """Return the operations whose rows a chapter reads: the names in cells that call `recorded`."""
    recipes = {path.stem for path in MEASUREMENTS.glob("*.py")}
    names = set()
    for cell in chapter.code:
        nodes = list(ast.walk(ast.parse(cell.source)))
        calls = [node for node in nodes if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("recorded")]
        direct = {argument.value for call in calls for argument in call.args[:1] if isinstance(argument, ast.Constant)}
        looped = {node.value for node in nodes if isinstance(node, ast.Constant)} & recipes if calls else set()
        names |= direct | looped
    return names
