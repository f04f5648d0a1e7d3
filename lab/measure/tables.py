"""Small tables for chapters: numbers under heads with their units, as HTML in a notebook, as plain text elsewhere."""

import html
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lab.measure.rows import OURS, PEERS, Row, select, standings
from lab.plots.axes import UNITS, amount, named, shape_labels

WIDEST = 100  # columns of plain text that a page shows
CAPTION = "caption-side:top;color:inherit;font-weight:600;text-align:left;padding:0 0 .3em;white-space:nowrap"


@dataclass(frozen=True)
class Table:
    """Rows of text under heads; the best values are marked."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    best: frozenset[tuple[int, int]] = frozenset()  # (row, column)
    words: frozenset[int] = frozenset()  # columns that read from the left
    title: str = ""

    @property
    def html(self) -> str:
        """The table as HTML that takes the page's own colours; the best values are bold."""
        line = "border-bottom:1px solid rgba(128,136,145,.35)"
        head = "".join(f'<th style="{self._side(c)};{line}">{html.escape(h)}</th>' for c, h in enumerate(self.heads))
        body = "".join(
            "<tr>" + "".join(self._cell(row, column, text) for column, text in enumerate(cells)) + "</tr>"
            for row, cells in enumerate(self.rows)
        )
        style = "border-collapse:collapse;font-variant-numeric:tabular-nums;margin:.6rem 0;width:auto"
        caption = f'<caption style="{CAPTION}">{html.escape(self.title)}</caption>' if self.title else ""
        inside = f"{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
        return f'<table class="tile-table" style="{style}">{inside}</table>'

    def _cell(self, row: int, column: int, text: str) -> str:
        text = html.escape(text)
        text = f"<strong>{text}</strong>" if (row, column) in self.best else text
        return f'<td style="{self._side(column)}">{text}</td>'

    def _side(self, column: int) -> str:
        return f"padding:.25em .8em .25em 0;text-align:{'left' if column in self.words else 'right'}"

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict[str, str]:
        return {"text/html": self.html, "text/plain": str(self)}

    def __str__(self) -> str:
        """The table as plain text; a star marks the best values."""
        star = [["*" if (r, c) in self.best else "" for c in range(len(self.heads))] for r in range(len(self.rows))]
        shown = [[text + mark for text, mark in zip(*pair, strict=True)] for pair in zip(self.rows, star, strict=True)]
        starred = {column for _, column in self.best}
        shown = [[t if c not in starred or t.endswith("*") else f"{t} " for c, t in enumerate(row)] for row in shown]
        heads = [f"{head} " if column in starred else head for column, head in enumerate(self.heads)]
        widths = [max(map(len, column)) for column in zip(heads, *shown, strict=True)]
        lines = [
            "  ".join(
                text.ljust(width) if column in self.words else text.rjust(width)
                for column, (text, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in (heads, *shown)
        ]
        return "\n".join([*[self.title] * bool(self.title), *lines, *["* the best"] * bool(self.best)])

    __repr__ = __str__


def table(
    rows: Sequence[Mapping[str, Any]] | Sequence[Sequence[Any]],
    heads: Sequence[str] = (),
    *,
    formats: Mapping[str, str] | None = None,
    best: Mapping[str, Callable] | None = None,
    across: Collection[str] = (),
    title: str = "",
) -> Table:
    """Return a table of rows that map each head, with its unit, to a value; or of rows of values under `heads`.

    formats: head → format of its numbers, such as ".0%"; otherwise three digits, or two after the point under a head
    with a ×. best: head → `min` or `max`, which number of its column to mark. across: heads among which each row's
    largest number is marked.
    Raises ValueError for rows of different heads, and for a table wider than a page.
    """
    lines = [dict(zip(heads, row, strict=True)) if heads else dict(row) for row in rows]
    heads, best = tuple(lines[0]) if lines else (), best or {}
    formats = {head: ".2f" for head in heads if "×" in head} | dict(formats or {})
    if not heads or any(tuple(line) != heads for line in lines):
        raise ValueError("a table needs rows, and all of them with the same heads in the same order")
    if unknown := [head for head in (*formats, *best, *across) if head not in heads]:
        raise ValueError(f"no column is called {', '.join(unknown)}; the heads are {', '.join(heads)}")
    values = [tuple(line.values()) for line in lines]
    texts = [tuple(shown(value, formats.get(head)) for head, value in line.items()) for line in lines]
    marked: set[tuple[int, int]] = set()
    for head, pick in best.items():
        marked |= {*extremes([(place, heads.index(head)) for place in range(len(lines))], values, texts, pick)}
    for place in range(len(lines)):
        marked |= {*extremes([(place, heads.index(head)) for head in across], values, texts, max)}
    words = {place for place in range(len(heads)) if not any(is_number(row[place]) for row in values)}
    made = Table(heads, tuple(texts), frozenset(marked), frozenset(words), title)
    if (width := max(map(len, str(made).splitlines()))) > WIDEST:
        raise ValueError(f"the table is {width} columns wide, and a page shows {WIDEST}: shorten its heads")
    return made


def is_number(value: object) -> bool:
    """Return whether a value reads as a number, as "82%" does."""
    return not isinstance(value, bool) and re.fullmatch(r"[-+]?[\d.,]+(e-?\d+)?%?", str(value)) is not None


def extremes(cells: Sequence[tuple[int, int]], values: Sequence, texts: Sequence, pick: Callable) -> list:
    """Return the cells that hold the number which `pick` chooses; those that read the same share the mark."""
    numbers = {(row, column): values[row][column] for row, column in cells}
    numbers = {cell: value for cell, value in numbers.items() if isinstance(value, (int, float))}
    if not numbers:
        return []
    best_row, best_column = pick(numbers, key=numbers.__getitem__)
    return [(row, column) for row, column in numbers if texts[row][column] == texts[best_row][best_column]]


def shown(value: object, form: str | None = None) -> str:
    """Return a value as a table shows it: a number to three digits, yes or no, nothing for None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, (int, float)):
        return str(value)
    if form:
        return format(value, form)
    return f"{value:,}" if isinstance(value, int) or not math.isfinite(value) else amount(value)


def standing_table(
    rows: Sequence[Row], *, y: str = "gb_per_s", variants: Collection[str] = (), title: str = ""
) -> Table:
    """Return how fast ours is at each shape beside every peer, and beside the best of them.

    rows: of one operation. y: `gb_per_s` or `tflop_per_s`. variants: more of our own variants to show.
    """
    places = standings(rows)
    labels, shared = shape_labels([place.ours for place in places])
    head = f"{UNITS[y]} at" + "".join(f" {name} {size}" for name, size in shared.items())
    names = {OURS: "ours"} | {name: named(name) for name in variants}
    names |= {name: named(name) for name in dict.fromkeys(row.variant for row in rows) if name in PEERS}
    several = len({row.dtype for row in rows}) > 1
    lines = []
    for place, label in zip(places, labels, strict=True):
        here = {row.variant: getattr(row, y) for row in select(rows, shape=place.ours.shape, dtype=place.ours.dtype)}
        line: dict[str, object] = {head: f"{label}, {place.ours.dtype}" if several else label}
        line |= {called: here.get(name) for name, called in names.items()}
        line |= {"× best peer": place.against_best, "of roof": place.ours.roof_share}
        lines.append(line)
    return table(lines, formats={"of roof": ".0%"}, across=list(names.values()), title=title)


def code_table(codes: Mapping[str, Any], count: Collection[str] = ()) -> Table:
    """Return what compiled kernels take of the hardware, and how many of some instructions they have, side by side.

    codes: name → `lab.compiler.Compiled`. count: the instructions to count.
    """
    facts = {
        "registers a thread": [code.registers for code in codes.values()],
        "values spilled": [code.spills for code in codes.values()],
        "shared memory a program, bytes": [code.shared for code in codes.values()],
        "warps a program": [code.num_warps for code in codes.values()],
        "occupancy": [f"{code.occupancy:.0%}" for code in codes.values()],
    }
    facts |= {instruction: [code.count(instruction) for code in codes.values()] for instruction in count}
    return table([{"": name} | dict(zip(codes, values, strict=True)) for name, values in facts.items()])
