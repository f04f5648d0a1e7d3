"""Source code on the page: a kernel or function as it stands in its file, highlighted, so that nothing is pasted."""

import html
import inspect
import textwrap
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from lab.notebook import ROOT
from lab.words import LAYERS, shown

# Token → (light, dark), each at least 4.5:1 against its background. Three come first: background, text, line numbers.
COLOURS = {
    "background": ("#f6f8fa", "#161b22"),
    "text": ("#1f2328", "#e6edf3"),
    "number": ("#59636e", "#9198a1"),
    "Keyword": ("#cf222e", "#ff7b72"),
    "Operator.Word": ("#cf222e", "#ff7b72"),
    "Literal.String": ("#0a3069", "#a5d6ff"),
    "Literal.Number": ("#0550ae", "#79c0ff"),
    "Name.Function": ("#8250df", "#d2a8ff"),
    "Name.Decorator": ("#8250df", "#d2a8ff"),
    "Comment": ("#59636e", "#9198a1"),
}
# How the book, JupyterLab, Colab and VS Code mark a dark page.
DARK_PAGES = ("[data-theme=dark]", "[data-jp-theme-light=false]", "[theme=dark]", ".vscode-dark")
LAYOUT = (
    ".tile-source{background:var(--c0);color:var(--c1);border-radius:6px;padding:.6em 1em;margin:.5em 0}"
    ".tile-source .t{color:var(--c2);font-size:.85em;margin-bottom:.4em}"
    "div.tile-source pre{background:none;color:inherit;border:0;box-shadow:none;margin:0;padding:0;overflow-x:auto;"
    "white-space:pre;line-height:1.4}"
    "div.tile-source pre code{all:unset;font-family:ui-monospace,Menlo,Consolas,monospace;font-size:.85rem}"
    ".tile-source .n::before{content:attr(data-n);display:inline-block;box-sizing:content-box;min-width:2em;"
    "padding-right:1em;text-align:right;color:var(--c2)}"
)


@dataclass(frozen=True)
class Source:
    """Lines of a file: highlighted in a notebook, plain text anywhere else."""

    place: str  # path relative to the repository, or "a notebook cell"
    first: int  # number of the first line in its file
    text: str

    @property
    def title(self) -> str:
        """Where the lines stand, such as "kernels/vector_add.py, lines 20 to 35"."""
        last = self.first + self.text.count("\n")
        return f"{self.place}, " + (f"line {self.first}" if last == self.first else f"lines {self.first} to {last}")

    @property
    def html(self) -> str:
        """The lines as HTML with their numbers in a margin that is left out when one copies the code."""
        rows = zip(range(self.first, self.first + self.text.count("\n") + 1), highlighted(self.text), strict=True)
        margin = '<span class="n" aria-hidden="true" data-n="{}"></span>'
        code = "\n".join(margin.format(number) + line for number, line in rows)
        return (
            f'<div class="tile-source">{style()}<div class="t">{html.escape(self.title)}</div>'
            f'<pre tabindex="0" aria-label="source code"><code>{code}</code></pre></div>'
        )

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict[str, str]:
        return {"text/html": self.html, "text/plain": str(self)}

    def __str__(self) -> str:
        return f"{self.title}\n\n{self.text}"

    __repr__ = __str__


def show(thing, start: str | None = None, stop: str | None = None) -> Source:
    """Return the source of a kernel, function, class, module or file for display.

    thing: the object itself, or a path relative to the repository.
    start, stop: how the first and the last line of an excerpt begin: the first line of the source that begins so, and
    the first one from there on. None: to the end of the source. The indentation that the lines share is left out.
    Raises TypeError for a thing with no source, FileNotFoundError for a path that leads nowhere, and ValueError for
    an excerpt that is not there.
    """
    path, first, text = read(thing)
    lines = text.split("\n")
    begin = 0 if start is None else line_beginning(start, lines, 0, place(path))
    end = len(lines) if stop is None else line_beginning(stop, lines, begin, place(path)) + 1
    if (begin, end) == (0, len(lines)):
        return Source(place(path), first, text)
    return Source(place(path), first + begin, textwrap.dedent("\n".join(lines[begin:end])))


def line_beginning(words: str, lines: list[str], begin: int, where: str) -> int:
    """Return the index of the first line from `begin` on that begins with these words. Raises ValueError, TypeError."""
    if not isinstance(words, str):
        raise TypeError(f"start and stop are the first words of a line, not {shown(words)}")
    found = (index for index in range(begin, len(lines)) if lines[index].lstrip().startswith(words))
    index = next(found, None)
    if index is None:
        rest = " from there on" if begin else ""
        raise ValueError(f"no line of what {where} shows begins with {words!r}{rest}: has the source changed?")
    return index


def read(thing) -> tuple[str, int, str]:
    """Return the file, the first line's number and the text of a thing; a jitted function's as it was written."""
    if isinstance(thing, (str, Path, ModuleType)):
        path = ROOT / (thing.__file__ if isinstance(thing, ModuleType) else thing)
        if not path.is_file():
            raise FileNotFoundError(f"there is no file {thing}: give a path below the top folder of the course")
        return str(path), 1, path.read_text(encoding="utf-8").rstrip("\n")
    try:
        function = plain(thing)
        source, first = inspect.getsourcelines(function)
    except (TypeError, OSError, ValueError):
        raise TypeError(
            f"no source for {shown(thing)}: show takes a kernel, function, class, module or path, and what was typed "
            "at a prompt or made by exec has no file"
        ) from None
    return inspect.getsourcefile(function) or function.__code__.co_filename, first, "".join(source).rstrip("\n")


def plain(thing):
    """Return the Python function under @triton.jit, @triton.autotune, functools.wraps and the like."""
    for _ in range(LAYERS):
        if inspect.isroutine(thing) or not hasattr(thing, "fn"):
            break
        thing = thing.fn
    return inspect.unwrap(thing) if callable(thing) else thing


def place(file: str) -> str:
    """Return how to name a file to a reader: relative to the repository, without paths of this machine."""
    path = Path(file)
    if "ipykernel" in file or file.startswith("<"):
        return "a notebook cell"
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name


def highlighted(text: str) -> list[str]:
    """Return the lines of Python source as HTML, one by one: a token over several lines is closed and opened again."""
    from pygments.lexers import PythonLexer

    lines = [""]
    for token, value in PythonLexer(stripnl=False, ensurenl=False).get_tokens(text):
        name = str(token).removeprefix("Token.")
        number = next((i for i, kind in enumerate(COLOURS) if name.startswith(kind)), None)
        for index, part in enumerate(value.split("\n")):
            if index:
                lines.append("")
            if part:
                part = html.escape(part)
                lines[-1] += part if number is None else f'<span class="c{number}">{part}</span>'
    return lines


def style() -> str:
    """Return the style sheet of a block of source, which carries its own colours for light and dark pages."""
    light, dark = (";".join(f"--c{i}:{pair[k]}" for i, pair in enumerate(COLOURS.values())) for k in (0, 1))
    tokens = "".join(f".tile-source .c{i}{{color:var(--c{i})}}" for i in range(3, len(COLOURS)))
    dark_pages = ",".join(f"{page} .tile-source" for page in DARK_PAGES)
    return f"<style>.tile-source{{{light}}}{dark_pages}{{{dark}}}{LAYOUT}{tokens}</style>"
