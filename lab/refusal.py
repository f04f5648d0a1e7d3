"""What the compiler refuses: its words, the line they are about, and what to do, in one sentence."""

import ast
import functools
import inspect
import re
import subprocess
import textwrap
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import triton
from triton.compiler.errors import CompilationError
from triton.runtime.errors import PTXASError
from triton.runtime.jit import JITFunction, get_jit_fn_file_line

from lab.words import counted, how_it_ended, text_of

TRITON = str(Path(triton.__file__).parent)
NAMES_SAY_NOTHING = ("AssertionError", "ValueError", "RuntimeError", "IncompatibleTypeErrorImpl")
HOST_CALL = re.compile(r"(?<![.\w])(torch|numpy|np)(?:\.\w+)+\(")
TOLD = 3  # errors of ptxas; what follows them mostly follows from them
PTXAS = re.compile(r"^ptxas (?:.*, line (\d+); )?(?:error|fatal) *: (.*)$", re.MULTILINE)
QUOTED_FOLDER = re.compile(r"(?<=['\"])/[^'\"\n]*/(?=[^'\"/\n]+['\"])")
FOLDER = re.compile(r"(?<![\w.:/~])/(?:[^\s/'\"]+/)+(?=[^\s/'\"])")

# The compiler's words → what to do about them, in one sentence.
ADVICE = (
    (r"Cannot access global variable (\w+)", "Pass {0} as an argument, or make it {0} = tl.constexpr(…)."),
    (r"Unsupported function referenced: <function (\w+)", "Mark {0} with @triton.jit, as all that a kernel calls."),
    (r"AST node type: (Break|Continue)", "A GPU loop cannot be left early: put its condition into a mask."),
    (r"AST node type: (\w+)", "{0} is Python that kernels do not have: keep to if, for, while, assignments and calls."),
    (r"`return` statements inside", "Compute a condition instead, and return after the loop."),
    (r"Mismatched type for (\w+) between", "Give {0} one type in both branches, for instance with .to(tl.float32)."),
    (r"Loop-carried variable (\w+)", "Start {0} with the type it has in the loop: tl.zeros(…, dtype=…) or .to(…)."),
    (r"K >= (\d+)", "Tensor cores multiply blocks whose inner size is at least {0}: pad with masked zeros."),
    (r"Nonrepresentable integer|integer to be specialized too large", "Integers in a kernel have at most 64 bits."),
    (r"num_warps must be", "Use 1, 2, 4, 8 or 16."),
    (r"power of 2", "Use the next power of two, triton.next_power_of_2(n), and mask what is too much."),
    (r"'range' object", "A block of offsets is tl.arange(0, BLOCK): range counts in a Python loop."),
    (r"arange\(\) missing .*'end'", "tl.arange takes both ends: tl.arange(0, BLOCK)."),
    (r"'tuple(?:_type)?' object has no attribute", "A tuple came for a number: pass x.stride(0), or *x.stride()."),
    (r"(?:cannot cast|unary \S+|type) \(?pointer<|pointer<\S+> and|(?:and|operands of type) pointer<",
     "A pointer is an address, and no number yet: tl.load(pointer) gives what lies there."),
    (r"Expected pointer argument to have shape|Mask argument cannot be block type",
     "Mask and pointers need one shape: for a row its axis's, mask_n; for a tile mask_m[:, None] & mask_n[None, :]."),
    (r"arange's arguments must be of type", "Sizes of blocks are fixed at compile time: declare it as tl.constexpr."),
    (r"'(?:int|constexpr)' object has no attribute '(\w+)'",
     "It is a plain number here (an argument that is 1 becomes one): write tl.full((), n, dtype) instead of .{0}."),
    (r"Expected dtype .*'fp32'.* but got (\w+)", "Convert to float32 first, x.to(tl.float32): there is none for {0}."),
    (r"KeyError: .*\.(bfloat16|float16)", "Convert to float32 first, x.to(tl.float32): libdevice has no {0}."),
    (r"module 'triton.language' has no attribute '(tanh|erf\w*|pow|log1p|expm1|sinh|cosh)'",
     "{0} lives in libdevice: from triton.language.extra import libdevice."),
    (r"module 'triton.language' has no attribute '(\w+)'", "Is {0} misspelt? tl has nothing of that name."),
    (r"must be real number, not tensor", "Python's math takes numbers only: use tl.exp, tl.sqrt and the like."),
    (r"_semantic", "A plain Python function met a tensor here: use what tl offers, such as tl.cdiv for triton.cdiv."),
    (r"NameError: (\w+) is not defined", "Is {0} misspelt? If not, give it a value on every path before it is used."),
    (r"ptxas.*too much shared data", "Use smaller blocks or a smaller num_stages."),
    (r"ptxas: ",
     "Does tl.inline_asm_elementwise bring PTX that this GPU does not know? If there is none, try another block size."),
    (r"ptxas (?:was killed|ended)", "Try another block size or num_warps."),
    (r"threads, and one program|resource: threads", "Use fewer warps."),
    (r"shared memory", "Use smaller blocks or a smaller num_stages."),
    (r"exceeds triton maximum tensor numel", "Use a smaller block and loop over the rest, or launch more programs."),
    (r"incompatible dimensions",
     "Blocks meet along axes of size 1 alone: `[:, None]` makes a column of a block, `[None, :]` a row."),
    (r"Unsupported ptr type .* in `tl\.(\w+)`", "tl.{0} takes a pointer: the tensor that is passed, plus offsets."),
    (r"unsupported tensor index", "No element of a block can be picked by its number: use a mask, tl.where or tl.sum."),
    (r"simultaneous multiple comparison", "Write two comparisons: (low <= x) & (x < high)."),
    (r"Boolean value of Tensor", "A condition is one number: choose lane by lane with tl.where, or by a mask."),
    (r"Keyword argument (\w+) was specified but unrecognised",
     "{0} is neither a parameter of the kernel nor an option of a launch, such as num_warps and num_stages."),
)  # fmt: skip


def advice_on(words: str, code: str = "") -> str:
    """Return what to do about the compiler's words on a line of code, "" when they are not among the frequent ones."""
    if host := HOST_CALL.search(code):
        return f"A kernel computes with tl.… alone: {host[1]} belongs in the host function."
    for pattern, advice in ADVICE:
        if found := re.search(pattern, words):
            return advice.format(*found.groups())
    return ""


def useful_part(words: str) -> str:
    """Return the line of the compiler's words that says what is wrong, without folders, cut to a readable length."""
    lines = [line.strip() for line in words.splitlines() if line.strip()] or [words]
    line = ptxas_errors(words) or lines[-1 if lines[0].startswith("Traceback") else 0]
    line = without_folders(re.sub(r" at 0x[0-9a-f]+", "", line))
    sentence = re.match(r".*?[.!](?=\s|$)", line) if len(line) > 100 else None
    return textwrap.shorten(sentence[0] if sentence else line, 240, placeholder=" …")


def ptxas_errors(log: str) -> str:
    """Return on one line what ptxas reports as errors, each once and without its file, "" when it reports none."""
    found = [f"line {line} of the PTX: {text}" if line else text for line, text in PTXAS.findall(log)]
    errors = list(dict.fromkeys(text for text in found if not text.startswith("Ptx assembly aborted"))) or found[:1]
    left = [f"and {counted(len(errors) - TOLD, 'more error')}"] if len(errors) > TOLD else []
    return f"ptxas: {'; '.join(errors[:TOLD] + left)}" if errors else ""


def without_folders(text: str) -> str:
    """Return text that names files without the folders they lie in, which are of this machine alone."""
    return FOLDER.sub("", QUOTED_FOLDER.sub("", text))


@dataclass(frozen=True)
class Refusal:
    """The compiler's words, whole, and the place they are about: "", 0 and "" where it names none."""

    words: str
    file: str = ""
    line: int = 0
    code: str = ""


def refusal_of(error: BaseException, places: dict[str, tuple[str, int]]) -> Refusal:
    """Return what an exception of the compiler says, and about which line.

    places: source text of each function that it may be about → its file, and the line of its `def`. Of those that call
    each other, the innermost is named.
    """
    chain = list(causes(error))
    logs = [ptxas_errors(text_of(step)) for step in chain if isinstance(step, PTXASError)]
    said = (getattr(step, "error_message", None) or own_words(step) for step in reversed(chain))
    words = unquoted(next(filter(None, [*logs, *said]), type(error).__name__))
    found = Refusal(words)
    for step in chain:
        text, node = (step.src, step.node) if isinstance(step, CompilationError) else last_read(step)
        if text in places and hasattr(node, "lineno"):
            file, first = places[text]
            found = Refusal(words, file, first + node.lineno - 1, text.split("\n")[node.lineno - 1].strip())
    return found


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, then what caused it, down to the first."""
    while error is not None:
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def last_read(error: BaseException) -> tuple[str, ast.AST | None]:
    """Return which function, as text, and which part of it were read last when an error was raised that tells neither:
    functions are searched for what they refer to before they are compiled.
    """
    text, node = "", None
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_filename.startswith(TRITON):
            reader, part = frame.f_locals.get("self"), frame.f_locals.get("node")
            text = reader.src if isinstance(reader, JITFunction) else text
            node = part if isinstance(part, ast.AST) else node
    return text, node


def own_words(error: BaseException) -> str:
    """Return what an error says, without the source excerpt or the command line that it may carry along."""
    if isinstance(error, CompilationError):
        return ""
    if isinstance(error, subprocess.CalledProcessError):
        return tool_words(error)
    return named_words(type(error).__name__, text_of(error))


def tool_words(error: subprocess.CalledProcessError) -> str:
    """Return how a tool of the compiler ended, and the first line of what it printed, without its command line."""
    tool = error.cmd if isinstance(error.cmd, str) else text_of(error.cmd[0])
    printed = error.stderr.decode(errors="replace") if isinstance(error.stderr, bytes) else error.stderr or ""
    told = useful_part(printed)
    return f"{Path(tool).name} {how_it_ended(error.returncode)}" + f": {told}" * bool(told)


def unquoted(words: str) -> str:
    """Return what NameError('x is not defined') says where the compiler quotes an exception's repr."""
    quoted = re.fullmatch(r"(\w+Error\w*)\(((['\"]).*\3)\)", words, re.DOTALL)
    try:
        inner = ast.literal_eval(quoted[2]) if quoted else None
    except (ValueError, SyntaxError):
        inner = None
    return named_words(quoted[1], inner) if quoted and isinstance(inner, str) else words


def named_words(name: str, words: str) -> str:
    """Return an exception's words, after its name where that adds something."""
    return words if name in NAMES_SAY_NOTHING else f"{name}: {words}" if words else name


# For whoever launches a kernel

compiling = threading.RLock()  # in Python 3.11, two threads that parse at the same time can fail


def explain_refusals() -> None:
    """See to it that what ends the compilation of a launch has a `refusal`, and that its text ends with our advice."""
    for name in ("_pack_args", "_do_compile"):
        setattr(JITFunction, name, explained(getattr(JITFunction, name)))


def explained(compile_part: Callable) -> Callable:
    @functools.wraps(compile_part)
    def explaining(kernel, *arguments, **named):
        try:
            with compiling:
                return compile_part(kernel, *arguments, **named)
        except NotImplementedError:  # the kernel is right, and no CPU can run it
            raise
        except Exception as error:
            explain(error, kernel)
            forget_search(error)
            raise

    return explaining


def explain(error: Exception, kernel: JITFunction) -> None:
    error.refusal = refusal_of(error, places_of(kernel))
    words, advice = error.refusal.words, advice_on(error.refusal.words, error.refusal.code)
    if isinstance(error, CompilationError):
        said = "" if error.error_message else useful_part(words)  # what is refused in a helper is said of its call too
        error.message = "\n".join(filter(None, (error.message, said, advice)))
    elif isinstance(error, PTXASError):  # its text and its cause are the command line
        error.error_message = "\n".join(filter(None, (useful_part(words).removeprefix("ptxas: "), advice)))
        error.__cause__, error.__suppress_context__ = None, True
    elif advice and len(error.args) == 1 and isinstance(error.args[0], str):
        error.args = (f"{error.args[0]}. {advice}",)


def forget_search(error: Exception) -> None:
    """Let functions be searched again: Triton takes one for searched as soon as it has begun, and would let a second
    launch of what it has just refused pass.
    """
    for frame, _ in traceback.walk_tb(error.__traceback__):
        function = frame.f_locals.get("self")
        if isinstance(function, JITFunction) and str(function.hash).startswith("recursion:"):
            function.hash = None


def places_of(kernel: JITFunction) -> dict[str, tuple[str, int]]:
    """Return where a kernel and what it calls stand, by their text: all but what belongs to Triton's library."""
    places = {function.src: get_jit_fn_file_line(function) for function in called_from(kernel)}
    return {text: place for text, place in places.items() if not place[0].startswith(TRITON)}


def called_from(kernel: JITFunction) -> list[JITFunction]:
    """Return a jitted function, and the jitted functions that its code and theirs name."""
    found, pending = [], [kernel]
    while pending:
        function = pending.pop()
        if function in found:
            continue
        found.append(function)
        named = inspect.getclosurevars(function.fn)
        values = [*named.globals.values(), *named.nonlocals.values()]
        modules = [value for value in values if isinstance(value, ModuleType)]
        values += [vars(module).get(name) for module in modules for name in function.fn.__code__.co_names]
        pending += [value for value in values if isinstance(value, JITFunction)]
    return found
