"""Whatever a student hands in becomes the teacher's notebook with the student's answers in it, and never a crash."""

import json

import pytest

from classroom.assemble import UNCOMPARED, assemble
from classroom.assignment import assignment_of
from lab.generate import ANSWER, answers_of, blank_source, solved_form
from lab.task import find_exercise

EXERCISE = find_exercise("vector_add")
TEMPLATE = assignment_of(EXERCISE).notebook()
SOLVED = answers_of(solved_form(EXERCISE))
BLANK = answers_of(TEMPLATE)


def handed_in() -> dict:
    """Return a solved notebook as JSON."""
    return json.loads(json.dumps(solved_form(EXERCISE)))


def cell(notebook: dict, name: str) -> dict:
    return next(cell for cell in notebook["cells"] if cell["id"] == name)


def assembled(notebook):
    return assemble(json.dumps(notebook).encode(), TEMPLATE)


def others(notebook) -> list[tuple[str, str]]:
    """Return id and source of all cells but the answers."""
    return [(cell.id, cell.source) for cell in notebook.cells if not cell.id.endswith(ANSWER)]


def test_answers_are_taken_and_nothing_else():
    notebook = handed_in()
    for one in notebook["cells"]:
        one["metadata"] = {"tags": ["raises-exception", "skip", "nbval-skip"], "task": "row_add"}
        one["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "scale_add: 9 of 9 cases pass"}]
        if one["id"].endswith("-check"):
            one["source"] = "print('scale_add: 9 of 9 cases pass')"
    assembly = assembled(notebook)
    assert assembly.answers == SOLVED == answers_of(assembly.notebook)
    assert others(assembly.notebook) == others(TEMPLATE)
    for mine, theirs in zip(assembly.notebook.cells, TEMPLATE.cells, strict=True):
        own = {"tags": UNCOMPARED} if mine.id.endswith(ANSWER) else {}
        assert (mine.metadata, mine.get("outputs")) == (theirs.metadata | own, theirs.get("outputs"))
    assert len([finding for finding in assembly.findings if "was changed" in finding]) == len(SOLVED)


def test_the_hand_out_itself_gives_nothing_to_tell():
    assembly = assembled(json.loads(json.dumps(TEMPLATE)))
    assert (assembly.answers, assembly.findings) == (BLANK, [])


@pytest.mark.parametrize(
    ("data", "finding"),
    [
        (b"", "empty"),
        (b"  \n", "empty"),
        (b"\x00" * 100, "no notebook"),
        (b"\x89PNG\r\n\x1a\n", "no notebook"),
        (json.dumps(solved_form(EXERCISE)).encode()[:-500], "no notebook"),
        (b"[" * 100_000, "no notebook"),
        (b'{"a":' * 100_000, "no notebook"),
        (b"[]", "no list of cells"),
        (b'{"cells": {"id": "scale_add-answer"}}', "no list of cells"),
        (b'{"cells": [null, 3, [], {}, {"source": 7}, {"id": ["x"], "source": {}, "metadata": []}]}', "is missing"),
        (b'{"cells": [], "metadata": 5}', ""),
        (b'{"worksheets": [{"cells": []}], "nbformat": 3}', "no list of cells"),
        (b" " * ((64 << 20) + 1), "larger than"),
        ("not a notebook ä".encode("latin-1"), "latin-1"),
    ],
    ids=lambda value: str(value[:20]),
)
def test_broken_files_are_findings(data, finding):
    assembly = assemble(data, TEMPLATE)
    assert assembly.answers == {}
    assert any(finding in text for text in assembly.findings) or not finding
    assert answers_of(assembly.notebook) == BLANK


def test_every_cut_of_a_file_is_survived():
    data = json.dumps(solved_form(EXERCISE)).encode()
    for length in range(0, len(data), 997):
        assert assemble(data[:length], TEMPLATE).answers == {}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_encodings(encoding):
    assert assemble(json.dumps(handed_in()).encode(encoding), TEMPLATE).answers == SOLVED


def test_half_a_character_is_survived():
    notebook = handed_in()
    cell(notebook, "scale_add-answer")["source"] = "name = '\ud800'"
    assert "?" in assembled(notebook).answers["scale_add"]


def test_missing_cell():
    notebook = handed_in()
    notebook["cells"].remove(cell(notebook, "row_add-answer"))
    assembly = assembled(notebook)
    assert assembly.answers.keys() == SOLVED.keys() - {"row_add"}
    assert "The answer cell of `row_add` is missing." in assembly.findings


@pytest.mark.parametrize("rename", ["id", "vscode", "older", "colab"])
def test_renamed_cells_are_found(rename):
    """Other programs give cells other ids; then the metadata tell, or what the cell defines. No student did that."""
    notebook = handed_in()
    for number, one in enumerate(notebook["cells"]):
        if rename == "colab":
            one["metadata"] = {"id": one.pop("id")}
            continue
        one["id"] = f"cell-{number}"
        if rename in ("vscode", "older"):
            one["metadata"] = {"vscode": {"languageId": "python"}}
        if rename == "older":
            del one["id"]
    assert (assembled(notebook).answers, assembled(notebook).findings) == (SOLVED, [])


def test_an_answer_outside_its_own_cell_is_told():
    notebook = handed_in()
    cell(notebook, "row_add-answer").update(id="mine", metadata={})
    assembly = assembled(notebook)
    assert assembly.answers == SOLVED
    assert [finding.split(";")[0] for finding in assembly.findings] == [
        "The answer to `row_add` is not in its own cell"
    ]


def test_of_duplicates_the_last_changed_counts():
    notebook = handed_in()
    first = cell(notebook, "scale_add-answer")
    blank = first | {"source": BLANK["scale_add"]}
    second = SOLVED["scale_add"].replace("256", "512")
    notebook["cells"] += [first | {"source": second}, blank]
    assembly = assembled(notebook)
    assert assembly.answers["scale_add"] == second
    assert any("3 answer cells of `scale_add`" in finding for finding in assembly.findings)


def test_order_kind_and_language_do_not_matter():
    notebook = handed_in()
    notebook["cells"].reverse()
    notebook["metadata"]["kernelspec"] = {"name": "ir", "language": "R"}
    cell(notebook, "row_add-answer")["cell_type"] = "markdown"
    assembly = assembled(notebook)
    assert assembly.answers == SOLVED
    for words in ("another order", "'r'", "no longer a code cell"):
        assert any(words in finding for finding in assembly.findings)


def test_definitions_in_added_cells_are_taken_along():
    """What an honest answer needs and nothing else: neither statements that do something, nor names of the course's."""
    notebook = handed_in()
    cell(notebook, "scale_add-answer")["source"] = SOLVED["scale_add"].replace("256", "blocks(SIZE)")
    helper = "import os, math\nSIZE = 256\nprint('gone')\n\n\n@cache\ndef blocks(size):\n    return math.floor(size)\n"
    notebook["cells"].insert(5, {"cell_type": "code", "id": "mine", "source": helper + "\n\ncheck = print\n"})
    start = cell(notebook, "start-code-2")
    start["source"] += "\nfrom functools import cache"
    assembly = assembled(notebook)
    added = cell(assembly.notebook, "scale_add-added")["source"]
    assert added.split("\n\n\n") == [
        "from functools import cache",
        "import os, math",
        "SIZE = 256",
        "@cache\ndef blocks(size):\n    return math.floor(size)",
    ]
    assert [one.id for one in assembly.notebook.cells if one.id.endswith("-added")] == ["scale_add-added"]
    assert any("which another cell defines" in finding for finding in assembly.findings)


def test_blank_answers_stay_blank():
    notebook = handed_in()
    for one in notebook["cells"]:
        one["source"] = BLANK.get(one["id"].removesuffix(ANSWER), one["source"])
    assert assembled(notebook).answers == BLANK
    assert blank_source(BLANK["scale_add"]) == BLANK["scale_add"]
