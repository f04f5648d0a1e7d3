"""What a launch says when the compiler refuses a kernel: Triton's own error, with our advice at its end."""

import inspect
import pickle
import subprocess

import pytest
import torch
import triton
import triton.language as tl
from triton.compiler.errors import CompilationError, CompileTimeAssertionFailure, UnsupportedLanguageConstruct
from triton.runtime.errors import PTXASError

from lab.device import DEVICE
from lab.refusal import advice_on, explain, refusal_of, useful_part

LIMIT = 3


def plain(x):
    return x


@triton.jit
def helper(x):
    return x + LIMIT


@triton.jit
def global_kernel(x_ptr, BLOCK: tl.constexpr):
    tl.store(x_ptr, LIMIT)


@triton.jit
def helped_kernel(x_ptr, BLOCK: tl.constexpr):
    tl.store(x_ptr, helper(1))


@triton.jit
def library_kernel(x_ptr, BLOCK: tl.constexpr):
    tl.store(x_ptr, tl.sum(tl.load(x_ptr + tl.arange(0, BLOCK)), axis=1))


@triton.jit
def breaking_kernel(x_ptr, BLOCK: tl.constexpr):
    for i in range(BLOCK):
        if i > 3:
            break


@triton.jit
def misspelling_kernel(x_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(x_ptr + off, offs)  # noqa: F821


@triton.jit
def narrow_kernel(x_ptr, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), tl.arange(0, BLOCK) + tl.arange(0, 2 * BLOCK))


@triton.jit
def asserting_kernel(x_ptr, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK == 3, "three, please")


@triton.jit
def python_kernel(x_ptr, BLOCK: tl.constexpr):
    tl.store(x_ptr, plain(tl.load(x_ptr)))


@triton.jit
def torch_kernel(x_ptr, BLOCK: tl.constexpr):
    tl.store(x_ptr, torch.exp(tl.load(x_ptr)))


@triton.jit
def right_kernel(x_ptr, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), 1)


# kernel, options → error, the line it is about ("": of the launch), what its text ends with
REFUSED = [
    (global_kernel, {}, CompilationError, "tl.store(x_ptr, LIMIT)", "make it LIMIT = tl.constexpr(…)."),
    (helped_kernel, {}, CompilationError, "return x + LIMIT", "make it LIMIT = tl.constexpr(…)."),
    (library_kernel, {}, CompilationError, "tl.sum(", "invalid axis 1. Expected -1 <= axis < 1"),
    (breaking_kernel, {}, UnsupportedLanguageConstruct, "break", "put its condition into a mask."),
    (misspelling_kernel, {}, CompilationError, "x_ptr + off, offs", "on every path before it is used."),
    (narrow_kernel, {}, CompilationError, "2 * BLOCK", "`[None, :]` a row."),
    (asserting_kernel, {}, CompileTimeAssertionFailure, "three, please", "three, please"),
    (python_kernel, {}, RuntimeError, "plain(tl.load", "Mark plain with @triton.jit, as all that a kernel calls."),
    (torch_kernel, {}, RuntimeError, "torch.exp", "torch belongs in the host function."),
    (right_kernel, {"num_warps": 3}, AssertionError, "", "must be a power of 2. Use 1, 2, 4, 8 or 16."),
    (right_kernel, {"num_warp": 8}, KeyError, "", "such as num_warps and num_stages.'"),
]


@pytest.mark.parametrize("again", [False, True], ids=["once", "again"])
@pytest.mark.parametrize("kernel, options, error, code, end", REFUSED, ids=lambda given: getattr(given, "__name__", ""))
def test_the_text_of_a_refusal_ends_with_our_advice(kernel, options, error, code, end, again):
    x = torch.zeros(64, device=DEVICE)
    for _ in range(1 + again):
        with pytest.raises(error) as raised:
            kernel[(1,)](x, BLOCK=16, **options)
        assert str(raised.value).endswith(end)
    refusal = raised.value.refusal
    assert code in refusal.code and refusal.words
    if code:
        lines, _ = inspect.findsource(kernel.fn)
        assert refusal.file == __file__ and lines[refusal.line - 1].split("#")[0].strip() in refusal.code


def test_a_call_of_a_helper_says_what_is_refused_in_it():
    with pytest.raises(CompilationError) as raised:
        helped_kernel[(1,)](torch.zeros(64, device=DEVICE), BLOCK=16)
    *_, words, advice = str(raised.value).splitlines()
    assert words == "NameError: Cannot access global variable LIMIT from within @jit'ed function."
    assert advice == "Pass LIMIT as an argument, or make it LIMIT = tl.constexpr(…)."
    assert isinstance(pickle.loads(pickle.dumps(raised.value)), CompilationError)


def test_what_is_not_refused_is_not_touched():
    with pytest.raises(TypeError, match=r"missing 1 required positional argument: 'BLOCK'$") as raised:
        right_kernel[(1,)](torch.zeros(64, device=DEVICE))
    assert not hasattr(raised.value, "refusal")
    right_kernel[(1,)](torch.zeros(64, device=DEVICE), BLOCK=16)


@pytest.mark.parametrize(
    "words, code, advice",
    [
        ("NameError: off is not defined", "x = tl.load(x_ptr + off)", "Is off misspelt?"),
        ("TypeError: exp() takes a Tensor", "y = torch.exp(x)", "torch belongs in the host function"),
        ("ValueError: power of 2", "y = tl.math.exp(x) + tl.np", "triton.next_power_of_2(n)"),
        ("something new", "x = 1", ""),
    ],
)
def test_advice_is_on_the_words_and_on_the_line(words, code, advice):
    assert advice in advice_on(words, code) and bool(advice) == bool(advice_on(words, code))


class Mute(Exception):
    """An exception whose text cannot be made."""

    def __str__(self):
        raise RuntimeError("no text")

    __repr__ = __str__


@pytest.mark.parametrize(
    "error, words",
    [
        (Mute(), "Mute"),
        (KeyError(), "KeyError"),
        (AssertionError(), "AssertionError"),
        (CompilationError("x", None, "ValueError('a', 'b')"), "ValueError('a', 'b')"),
        (CompilationError("x", None, "ValueError('a' or 'b')"), "ValueError('a' or 'b')"),
        (
            subprocess.CalledProcessError(-11, ["/opt/bin/ptxas", "-v"]),
            "ptxas was killed by SIGSEGV (Segmentation fault)",
        ),
        (
            subprocess.CalledProcessError(2, "/opt/bin/ld", stderr=b"ld: \xff no\nmore"),
            "ld ended with exit status 2: ld: \ufffd no",
        ),
    ],
    ids=["mute", "no key", "no text", "two texts", "no literal", "killed", "bytes"],
)
def test_odd_exceptions_have_words_too(error, words):
    assert refusal_of(error, {}).words == words


@pytest.mark.parametrize(
    "words, told",
    [
        ("fatal: '/home/me/my course/lab/x.py' is gone", "fatal: 'x.py' is gone"),
        ("PermissionError: /opt/bin/ptxas", "PermissionError: ptxas"),
        (
            "x / y and a/b/c, https://triton-lang.org/main/x.html",
            "x / y and a/b/c, https://triton-lang.org/main/x.html",
        ),
        ("Traceback (most recent call last):\n  File\nOSError: full", "OSError: full"),
        ("", ""),
    ],
)
def test_words_name_files_without_their_folders(words, told):
    assert useful_part(words) == told


def test_a_launch_that_ptxas_ends_shows_its_words_alone():
    command = subprocess.CalledProcessError(255, ["/opt/bin/ptxas", "/tmp/x.ptx"])
    log = "ptxas /tmp/my x.ptx, line 7; error   : Unknown symbol '%f1'\nptxas fatal   : Ptx assembly aborted"
    error = PTXASError(f"Internal Triton PTX codegen error\n`ptxas` stderr:\n{log}\nRepro command: /opt/bin/ptxas -v")
    error.__context__ = command
    explain(error, right_kernel)
    words, advice = str(error).splitlines()
    assert words == "PTXAS error: line 7 of the PTX: Unknown symbol '%f1'"
    assert "tl.inline_asm_elementwise" in advice
    assert error.__suppress_context__ and "/" not in error.refusal.words
