"""Put elements, places, numbers and lists into the words of a message."""

import html
import linecache
import re
import signal
from pathlib import Path

import numpy as np

LAYERS = 8  # decorators that a kernel may have; an object may answer to any name, and never come to an end
LONGEST = 100  # letters of a value that a message repeats
SHOWN = 4  # elements, programs or lines named before "and so on"
UNSHOWABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def in_cell(file: str) -> bool:
    """Return whether code by this file's name stands in a notebook's cell."""
    return "ipykernel" in file or file.startswith("<")


def place_of(file: str, line: int) -> str:
    """Return a place in words: "line 7" of a notebook's cell, "vector_add.py, line 7" of a file."""
    if not line:
        return "an unknown line"
    return f"line {line}" if in_cell(file) else f"{Path(file).name}, line {line}"


def code_at(file: str, line: int) -> str:
    """Return ": `the line itself`", or nothing if its source is not there."""
    text = linecache.getline(file, line).strip() if line else ""
    return f": `{text}`" if text else ""


def article(name: str) -> str:
    """Return a type's name as a person would say it."""
    if name == "NoneType":
        return "nothing (None)"
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def capital(text: str) -> str:
    """Return text that begins with a capital letter."""
    return text[:1].upper() + text[1:]


def clean(text: str) -> str:
    """Return text with "·" for what steers a terminal, turns the direction of a page or cannot be encoded."""
    return UNSHOWABLE.sub("·", text.replace("\r\n", "\n"))


def text_of(value: object) -> str:
    """Return str(value), and "" where that fails: an error's text may raise another, and 10**5000 has none."""
    try:
        return str(value)
    except Exception:
        return ""


def shown(value: object) -> str:
    """Return repr(value) on one line, and what it is where that fails, as for 10**5000, or is long."""
    try:
        text = one_line(repr(value))
    except Exception:
        text = ""
    return text if 0 < len(text) <= LONGEST else article(type(value).__name__)


def one_line(text: str) -> str:
    """Return text on one line, with "·" for what cannot be shown."""
    return "".join(letter if letter.isprintable() else "·" for letter in text)


def how_it_ended(status: int) -> str:
    """Return the exit status of a process in words; a negative one is a signal's number, as `subprocess` has it."""
    if -status in set(signal.Signals):
        return f"was killed by {signal.Signals(-status).name} ({signal.strsignal(-status)})"
    return f"ended with exit status {status}"


def code_marked(text: str) -> str:
    """Return text as HTML: escaped, with `code` marked and line breaks kept."""
    pieces = html.escape(text).split("`")
    if len(pieces) % 2 == 0:  # an odd backtick: leave them all as they are
        return html.escape(text).replace("\n", "<br>")
    marked = [f"<code>{piece}</code>" if index % 2 else piece for index, piece in enumerate(pieces)]
    return "".join(marked).replace("\n", "<br>")


def counted(count: int, noun: str) -> str:
    """Return "1 case" or "1,200 cases"."""
    return f"{count:,} {noun}" + "s" * (count != 1)


def all_programs(count: int) -> str:
    return "both programs" if count == 2 else f"all {count} programs"


def was(elements: "np.ndarray | int", one: str = "was", more: str = "were") -> str:
    """Return the verb for a number of things, or for the elements of an array that are true."""
    return one if int(np.sum(elements)) == 1 else more


def listed(words: list[str]) -> str:
    """Return "a, b and c", or "a, b, c, d and 7 more"."""
    if len(words) > SHOWN:
        return f"{', '.join(words[:SHOWN])} and {len(words) - SHOWN} more"
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def number(value, digits: int = 6) -> str:
    """Return a number as text, a float to so many significant digits."""
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)


def element(index: tuple) -> str:
    """Return "element 7", or "element (2, 5)"."""
    numbers = [int(i) for i in index]
    return f"element {numbers[0]}" if len(numbers) == 1 else f"element {tuple(numbers)}" if numbers else "the element"


def elements_in_words(chosen: np.ndarray) -> str:
    """Return which elements of an array are true: "elements 96 to 99", "elements (0, 3) and (0, 7)"."""
    flat = np.flatnonzero(chosen)
    if flat.size == chosen.size:
        return "all elements" if chosen.size > 1 else "the only element"
    if flat.size == 1:
        return element(np.unravel_index(flat[0], chosen.shape))
    indices = [element(np.unravel_index(i, chosen.shape)).removeprefix("element ") for i in [*flat[:SHOWN], flat[-1]]]
    if flat[-1] - flat[0] + 1 == flat.size:
        return f"elements {indices[0]} to {indices[-1]}"
    if flat.size <= SHOWN:
        return f"elements {listed(indices[:-1])}"
    return f"{flat.size:,} of {chosen.size:,} elements ({', '.join(indices[:-1])}, …)"
