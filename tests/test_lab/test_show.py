"""Source on the page: the right lines under the right title, for a person and for a comparison of outputs."""

import functools
import html
import linecache
import re
import textwrap
from pathlib import Path

import pytest

import lab.device  # noqa: F401
from kernels import vector_add as module
from kernels.vector_add import vector_add, vector_add_kernel
from lab import show as show_module
from lab.show import ROOT, show

# isort: split
import triton
import triton.language as tl


def code_of(page: str) -> str:
    """Return the code that one copies from the HTML: what stands in <code>, without tags."""
    return html.unescape(re.sub(r"<[^>]+>", "", re.search(r"<code>(.*)</code>", page, re.DOTALL)[1]))


FILE = (ROOT / "kernels" / "vector_add.py").read_text()


def test_kernel_stands_as_in_its_file():
    source = show(vector_add_kernel)
    assert source.text in FILE
    assert source.text.startswith("@triton.jit\ndef vector_add_kernel(") and "tl.store" in source.text.splitlines()[-1]
    last = source.first + len(source.text.splitlines()) - 1
    assert source.title == f"kernels/vector_add.py, lines {source.first} to {last}"
    assert FILE.splitlines()[source.first - 1] == "@triton.jit"


@pytest.mark.parametrize("thing", [vector_add, vector_add_kernel, module, "kernels/vector_add.py", show_module.Source])
def test_html_and_text_carry_the_same_code(thing):
    source = show(thing)
    bundle = source._repr_mimebundle_()
    assert code_of(bundle["text/html"]) == source.text
    assert bundle["text/plain"] == f"{source.title}\n\n{source.text}" == str(source) == repr(source)


@pytest.mark.parametrize("thing", [module, "kernels/vector_add.py", ROOT / "kernels" / "vector_add.py"])
def test_whole_file(thing):
    assert show(thing).text == FILE.rstrip("\n") and show(thing).first == 1


def test_an_excerpt_goes_from_the_line_that_begins_so_to_the_next_that_does():
    whole = show(vector_add_kernel)
    part = show(vector_add_kernel, start="# Widen", stop="offs =")
    assert part.text.startswith("# Widen") and part.text.splitlines()[-1].startswith("offs =")
    assert part.text in textwrap.dedent("\n".join(whole.text.splitlines()[2:]))
    assert FILE.splitlines()[part.first - 1].strip() == part.text.splitlines()[0]
    last = whole.first + whole.text.count("\n")
    assert show(vector_add_kernel, start="tl.store").title == f"kernels/vector_add.py, line {last}"
    assert show(vector_add_kernel, stop="@triton.jit").title == f"kernels/vector_add.py, line {whole.first}"


@pytest.mark.parametrize(
    "words", [{"start": "no such line"}, {"stop": "no such"}, {"start": "tl.store", "stop": "pid"}]
)
def test_an_excerpt_that_is_not_there(words):
    with pytest.raises(ValueError, match="has the source changed?"):
        show(vector_add_kernel, **words)


@pytest.mark.parametrize(("thing", "error"), [(3, TypeError), (len, TypeError), ("no/such.py", FileNotFoundError)])
def test_things_without_a_source(thing, error):
    with pytest.raises(error, match="show takes a kernel|give a path"):
        show(thing)


def test_under_autotune_and_wraps():
    tuned = triton.autotune([triton.Config({"BLOCK": 16})], key=["n"])(vector_add_kernel)
    assert show(tuned) == show(vector_add_kernel)

    @functools.wraps(vector_add)
    def wrapped(*arguments):
        return vector_add(*arguments)

    assert show(wrapped) == show(vector_add)


def test_notebook_cell_shows_no_path_of_this_machine():
    file, text = "/tmp/ipykernel_7/1.py", "@triton.jit\ndef f(x, B: tl.constexpr):\n    tl.store(x, '<&>')\n"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    names = {"triton": triton, "tl": tl}
    exec(compile(text, file, "exec"), names)
    source = show(names["f"])
    assert source.title == "a notebook cell, lines 1 to 3" and source.text == text.rstrip()
    assert "&lt;&amp;&gt;" in source.html and code_of(source.html) == source.text


def test_numbers_are_those_of_the_file_and_are_not_copied():
    source = show(vector_add_kernel)
    numbers = [int(number) for number in re.findall(r'data-n="(\d+)"', source.html)]
    assert numbers == list(range(source.first, source.first + len(numbers)))
    assert len(numbers) == len(source.text.splitlines())


def test_colours_are_legible_on_light_and_dark():
    for theme in (0, 1):
        background = luminance(show_module.COLOURS["background"][theme])
        for name, pair in list(show_module.COLOURS.items())[1:]:
            high, low = sorted((luminance(pair[theme]), background), reverse=True)
            assert (high + 0.05) / (low + 0.05) >= 4.5, name


def luminance(colour: str) -> float:
    """Return the relative luminance of "#rrggbb" as WCAG defines it."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_asks_nothing_from_outside():
    page = show(Path("kernels/vector_add.py")).html
    assert "http" not in re.sub(r"<code>.*</code>", "", page, flags=re.DOTALL) and "url(" not in page
    assert page == show("kernels/vector_add.py").html


class Endless:
    """Answers to every name, with itself."""

    def __getattr__(self, name):
        return self


@pytest.mark.parametrize("thing", [None, [1], 10**5000, len, Endless()], ids=lambda value: type(value).__name__)
def test_what_has_no_source_ends_in_a_sentence(thing):
    with pytest.raises(TypeError, match="^no source for .*: show takes a kernel, function, class, module or path"):
        show(thing)


@pytest.mark.parametrize("words", [[1], 7, 10**5000, b"x", len], ids=lambda value: type(value).__name__)
def test_odd_first_words_end_in_a_sentence(words):
    for place in ("start", "stop"):
        with pytest.raises(TypeError, match="^start and stop are the first words of a line, not "):
            show(vector_add, **{place: words})
