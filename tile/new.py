"""The skeleton of a chapter, in every room: it runs, checks and tests itself at once, and says what to replace."""

import ast
import builtins
import keyword
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from lab import notebook as notebooks
from lab.generate import generate
from lab.notebook import ROOT, CourseError
from lab.task import Exercise, exercises, find_exercise

if TYPE_CHECKING:
    from nbformat import NotebookNode

SKELETON = Path(__file__).with_name("skeleton")
DRAFT = (
    "> **Draft.** This chapter is being written, and may be shorter than the others. Remove this cell when it is "
    "complete."
)
STEM = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")


def not_measured(stem: str) -> str:
    """Return the text of the cell that marks a chapter as not yet measured."""
    return (
        f"> **Not measured yet.** No GPU has timed `{stem}` so far. On a machine with one, `tile measure {stem}` does, "
        f"by the recipe in `book/measurements/{stem}.py`."
    )


def is_draft(exercise: Exercise) -> bool:
    """Return whether the chapter of an exercise says that it is being written."""
    return any(cell.source == DRAFT for cell in notebooks.read(ROOT / "notebooks" / f"{exercise.name}.ipynb").cells)


def new(stem: str, chapter: int | None = None) -> list[Path]:
    """Write the skeleton of a chapter and return its files; those that are changed come last.

    chapter: its number, the next free one when left out. Raises CourseError, with nothing written, when the stem is no
    name for one or is taken, or the number is.
    """
    chapter = free_chapter(chapter)
    paths = places(stem, chapter)
    check_stem(stem, paths)
    words = {
        "STEM": stem,
        "TITLE": stem.replace("_", " ").capitalize(),
        "CHAPTER": str(chapter),
        "NAME": f"{chapter:02}_{stem}",
        "DRAFT": DRAFT,
        "NOT_MEASURED": not_measured(stem),
    }
    contents = ROOT / "book" / "_toc.yml"
    landing = ROOT / "book" / "index.md"
    listed = {
        contents: with_entry(contents.read_text(encoding="utf-8"), chapter, words["NAME"]),
        landing: with_cards(landing.read_text(encoding="utf-8"), chapter, words["NAME"], words["TITLE"]),
    }
    for template, path in paths.items():
        text = filled((SKELETON / template).read_text(encoding="utf-8"), words)
        notebooks.write_text(path, text) if path.suffix == ".py" else notebooks.write(path, chapter_of(text))
    tidy(list(paths.values()))
    for path, text in listed.items():
        notebooks.write_text(path, text)
    exercise = find_exercise(stem)
    generate(exercise)
    notebooks.execute(paths["chapter.py"])
    return [*paths.values(), exercise.path, *listed]


def places(stem: str, chapter: int) -> dict[str, Path]:
    """Return where each file of the skeleton goes."""
    return {
        "kernel.py": ROOT / "kernels" / f"{stem}.py",
        "test_kernel.py": ROOT / "tests" / "test_kernels" / f"test_{stem}.py",
        "recipe.py": ROOT / "book" / "measurements" / f"{stem}.py",
        "solution.py": ROOT / "solutions" / f"{stem}.py",
        "wrong.py": ROOT / "solutions" / "wrong" / f"{stem}.py",
        "chapter.py": ROOT / "notebooks" / f"{chapter:02}_{stem}.ipynb",
    }


def check_stem(stem: str, paths: dict[str, Path]) -> None:
    """Raise CourseError unless a stem is a name that nothing bears yet."""
    if not STEM.fullmatch(stem):
        raise CourseError(f"`{stem}` is no stem: take words in lower case joined by `_`, such as `twice_it`.")
    taken = [ROOT / "kernels" / stem, *paths.values(), *ROOT.glob(f"notebooks/*_{stem}.ipynb")]
    there = [path.relative_to(ROOT).as_posix() for path in taken if path.exists()]
    if keyword.iskeyword(stem) or stem in sys.stdlib_module_names or hasattr(builtins, stem):
        there.append("Python itself")
    if stem in names_used():
        there.append("the code around the kernel")
    if there:
        raise CourseError(f"`{stem}` is taken, by {there[0]}: choose another stem. Nothing was written.")


def names_used() -> set[str]:
    """Return the names that the skeleton's own code uses."""
    names = set()
    for template in SKELETON.glob("*.py"):
        for node in ast.walk(ast.parse(template.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Name):
                names.add(node.id)
            elif isinstance(node, ast.alias):
                names |= {*node.name.split("."), node.asname}
            elif isinstance(node, ast.FunctionDef):
                names.add(node.name)
    return names


def free_chapter(wanted: int | None) -> int:
    """Return a number no chapter has: the wanted one, else the next. Raises CourseError."""
    numbers = {exercise.chapter: exercise.name for exercise in exercises()}
    if wanted is None:
        return max(numbers, default=0) + 1
    if wanted in numbers or not 1 <= wanted <= 99:
        why = f"is {numbers[wanted]}" if wanted in numbers else "is none: they go from 1 to 99"
        raise CourseError(f"Chapter {wanted} {why}. Without `--chapter` the next free number is taken.")
    return wanted


def filled(text: str, words: dict[str, str]) -> str:
    """Return a template's text with every word in capitals replaced."""
    for word in sorted(words, key=len, reverse=True):
        text = text.replace(word, words[word])
    return text


def chapter_of(text: str) -> "NotebookNode":
    """Return the notebook of a script of cells, each with an id that tells its section."""
    import jupytext

    notebook = jupytext.reads(text, fmt="py:percent")
    section, count = "title", 0
    for cell in notebook.cells:
        heading = re.match("## (.+)", cell.source)
        if heading:
            section, count = re.sub("[^a-z]+", "-", heading[1].lower()).strip("-"), 0
        count += 1
        cell.id, cell.metadata = f"{section}-{count}", {}
    notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return notebook


def tidy(paths: list[Path]) -> None:
    """Break lines and sort imports as a stem of this length wants it."""
    for command in (["check", "--fix", "--select=I"], ["format"]):
        program = [sys.executable, "-m", "ruff", *command, "--quiet", "--no-cache"]
        subprocess.run([*program, *map(str, paths)], cwd=ROOT, stdin=subprocess.DEVNULL, check=True)


def with_entry(contents: str, chapter: int, name: str) -> str:
    """Return the table of contents with a chapter and its exercise after the chapter before it."""
    entry = f"      - file: notebooks/{name}\n        sections:\n          - file: exercises/{name}\n"
    return inserted(contents, r"^      - file: notebooks/(\d+)_.*\n(?:        .*\n)*", entry, chapter)


def with_cards(landing: str, chapter: int, name: str, title: str) -> str:
    """Return the landing page with a card for a chapter and one for its exercise after those of the one before."""
    cards = []
    for room, heading, text in (("notebooks", title, "A draft."), ("exercises", "The exercise", "One task so far.")):
        link = f":link: ../{room}/{name}\n:link-type: doc"
        cards.append(f":::{{grid-item-card}} {chapter} · {heading}\n:shadow: none\n{link}\n{text}\n:::\n")
    card = r"^:::\{grid-item-card\} (\d+) · .*\n(?:(?!:::$).*\n)*:::\n"
    return inserted(landing, card, "\n".join(cards), chapter, between="\n")


def inserted(text: str, pattern: str, entry: str, chapter: int, between: str = "") -> str:
    """Return a text with an entry after the last match of a pattern whose number is smaller, or before the first."""
    found = list(re.finditer(pattern, text, re.MULTILINE))
    before = [match.end() for match in found if int(match[1]) < chapter]
    if before:
        return text[: before[-1]] + between + entry + text[before[-1] :]
    return text[: found[0].start()] + entry + between + text[found[0].start() :]
