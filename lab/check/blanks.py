"""What can be said of an answer before it runs: it is no function, its cell did not run, or blanks are left in it."""

import ast
import inspect
import io
import linecache
import re
import sys
import textwrap
import tokenize
from types import FunctionType

from lab.check.finding import Finding
from lab.generate import BLANK
from lab.words import LAYERS, SHOWN, article, in_cell, place_of


def before_running(function) -> Finding | None:
    """Return why an answer need not run: it is no function, the one of a failed cell's past, or it has blanks."""
    if not callable(function):
        return Finding(
            "not-callable",
            f"`check` was given {article(type(function).__name__)}, not a function.",
            'give it the function itself, without calling it: `check("task", function)`.',
        )
    used = own_functions(function)
    failed = cell_that_failed(used)
    if failed is not None:
        return failed
    blanks = [blank for own in used for blank in blanks_of(own)]
    if not blanks:
        return None
    beside = [own for own in functions_beside(used[0]) if own not in used]
    blanks = [blank for own in beside for blank in blanks_of(own)] + blanks
    count = len(blanks)
    shown = "\n".join(blanks[: 2 * SHOWN] + [f"… and {count - 2 * SHOWN} more"] * (count > 2 * SHOWN))
    lines = "1 blank is" if count == 1 else f"{count} lines with blanks are"
    return Finding(
        "blank",
        f"{lines} still to be filled in:\n{shown}",
        f"put your code where `{BLANK}` stands, run that cell, then this one.",
    )


def cell_that_failed(functions: list[FunctionType]) -> Finding | None:
    """Return the finding that the cell of an answer ended in an error when it last ran, so that it defined nothing.

    What IPython remembers tells it: a later cell has the same `def`, the function comes from an earlier one.
    """
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is None or shell.history_manager is None:
        return None
    cells = list(shell.history_manager.input_hist_parsed)
    for function in functions:
        begins = re.compile(rf"^def {function.__name__}\b", re.MULTILINE)
        last = max((number for number, text in enumerate(cells) if begins.search(text)), default=0)
        file = function.__code__.co_filename
        source = "".join(linecache.getlines(file)).strip() if in_cell(file) else ""
        if source and last and source != cells[last].strip() and ended_in_error(shell, last):
            return Finding(
                "not-run",
                f"the answer's cell did not run: its last run ended in an error, so `{function.__name__}` is still the "
                "function of an earlier run.",
                "mend what the message below that cell says, run the cell again, then this one.",
            )
    return None


def ended_in_error(shell, number: int) -> bool:
    """Return whether a cell of IPython's history, by its number, is known to have ended in an error."""
    try:
        compile(shell.history_manager.input_hist_parsed[number], "cell", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return True
    return number in getattr(shell.history_manager, "exceptions", {})  # IPython 9 keeps them


def own_functions(function) -> list[FunctionType]:
    """Return the answer, and the kernels and functions of the same module or notebook that it uses."""
    found: list[FunctionType] = []
    pending = [function]
    while pending:
        candidate = undecorated(pending.pop(0))
        if not isinstance(candidate, FunctionType) or candidate in found:
            continue
        if found and candidate.__module__ != found[0].__module__:
            continue
        found.append(candidate)
        pending += [
            candidate.__globals__[name] for name in candidate.__code__.co_names if name in candidate.__globals__
        ]
    return found


def undecorated(value):
    """Return the function under a kernel's decorators (jit, autotune, heuristics), and anything else as it is."""
    for _ in range(LAYERS):
        if isinstance(value, FunctionType) or not hasattr(value, "fn"):
            break
        value = value.fn
    return value


def functions_beside(function: FunctionType) -> list[FunctionType]:
    """Return the kernels and functions of an answer's cell; of a file, those whose names begin with the answer's.

    A host function whose body is still a blank names no kernel.
    """
    file, name = function.__code__.co_filename, function.__name__
    values = [undecorated(value) for value in function.__globals__.values()]
    found = [value for value in values if isinstance(value, FunctionType) and value.__code__.co_filename == file]
    return [value for value in found if in_cell(file) or value.__name__.startswith(name)]


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
