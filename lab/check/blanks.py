"""What can be said of an answer before it runs: it is no function, or blanks are left in it."""

import ast
import inspect
import io
import textwrap
import tokenize
from types import FunctionType

from lab.check.examine import Finding
from lab.generate import BLANK
from lab.words import SHOWN, article, place_of


def before_running(function) -> Finding | None:
    """Return what can be said of an answer without running it: it is no function, or blanks are left in it."""
    if not callable(function):
        return Finding(
            "not-callable",
            f"`check` was given {article(type(function).__name__)}, not a function.",
            'give it the function itself, without calling it: `check("task", function)`.',
        )
    blanks = [blank for own in own_functions(function) for blank in blanks_of(own)]
    if not blanks:
        return None
    count = len(blanks)
    shown = "\n".join(blanks[: 2 * SHOWN] + [f"… and {count - 2 * SHOWN} more"] * (count > 2 * SHOWN))
    lines = "1 blank is" if count == 1 else f"{count} lines with blanks are"
    return Finding(
        "blank",
        f"{lines} still to be filled in:\n{shown}",
        f"put your code where `{BLANK}` stands, run that cell, then this one.",
    )


def own_functions(function) -> list[FunctionType]:
    """Return the answer, and the kernels and functions of the same module or notebook that it uses."""
    found: list[FunctionType] = []
    pending = [function]
    while pending:
        candidate = pending.pop(0)
        while not isinstance(candidate, FunctionType) and hasattr(candidate, "fn"):  # jit, autotune, heuristics
            candidate = candidate.fn
        if not isinstance(candidate, FunctionType) or candidate in found:
            continue
        if found and candidate.__module__ != found[0].__module__:
            continue
        found.append(candidate)
        pending += [
            candidate.__globals__[name] for name in candidate.__code__.co_names if name in candidate.__globals__
        ]
    return found


def blanks_of(function: FunctionType) -> list[str]:
    """Return in words each line of a function that has a blank, or the place of its empty body."""
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError):
        found = BLANK in function.__code__.co_names
        return [f"  in `{function.__name__}`"] * found
    source = textwrap.dedent("".join(lines))
    first = max(first, 1)
    numbers = {
        token.start[0]
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.NAME and token.string == BLANK
    }
    numbers = numbers or empty_body(source)
    file = function.__code__.co_filename
    return [f"  {place_of(file, first + n - 1)}: `{source.splitlines()[n - 1].strip()}`" for n in sorted(numbers)]


def empty_body(source: str) -> set[int]:
    """Return the number of the last line of a function that does nothing; nothing for any other source."""
    try:
        (function,) = ast.parse(source).body
    except (SyntaxError, ValueError):  # a lambda's line need not be a statement
        return set()
    if not isinstance(function, ast.FunctionDef):
        return set()
    idle = (ast.Pass, ast.Constant)
    does_nothing = all(
        isinstance(getattr(node, "value", node), idle) and not isinstance(node, ast.Return) for node in function.body
    )
    last = function.body[-1]
    return {last.end_lineno or last.lineno} if does_nothing else set()
