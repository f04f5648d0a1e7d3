"""An exercise as each editor writes it: `tile update`, `reset` and the grader find the answers in it all the same."""

import copy
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest

from classroom.assemble import assemble
from classroom.assignment import assignment_of
from lab import generate, notebook, progress, task
from lab.answers import find_answers, read_cells, same_text
from lab.generate import ANSWER, CHECK, answers_of, blank_form, put_answers, solved_form
from lab.notebook import CourseError
from lab.task import find_exercise
from tile.carry import put_own, written_in

ROOT = Path(__file__).parents[1]
EXERCISE = find_exercise("vector_add")
BLANK_FORM = blank_form(EXERCISE)
TEMPLATE = assignment_of(EXERCISE).notebook()
BLANK, SOLVED = answers_of(BLANK_FORM), answers_of(solved_form(EXERCISE))
FIRST, SECOND = "scale_add", "three_way_add"
KERNEL, HOST = SOLVED[FIRST].split("\n\n\ndef ")
HOST = f"def {HOST}"
EDITORS: dict[str, Callable[[dict], None]] = {}


def editor(change: Callable[[dict], None]) -> Callable[[dict], None]:
    """Keep a function that changes a solved notebook as an editor, or the person before it, does."""
    EDITORS[change.__name__] = change
    return change


def solved() -> dict:
    """Return the solved exercise as JSON."""
    return json.loads(json.dumps(solved_form(EXERCISE)))


def place(content: dict, name: str) -> int:
    return next(number for number, cell in enumerate(content["cells"]) if cell.get("id") == name)


def cell(content: dict, name: str) -> dict:
    return content["cells"][place(content, name)]


def code(source: str, name: str = "5f0c1e2d", **metadata: object) -> dict:
    return nbformat.v4.new_code_cell(source, id=name, metadata=metadata)


# Editors


@editor
def jupyterlab(content):
    pass


@editor
def colab(content):
    content["nbformat_minor"] = 0
    content["metadata"] = {"colab": {"provenance": []}, "language_info": {"name": "python"}}
    for one in content["cells"]:
        one["metadata"] |= {"id": one.pop("id"), "colab": {"base_uri": "https://localhost:8080/"}, "outputId": "0a"}


@editor
def colab_with_ids_of_its_own(content):
    colab(content)
    for number, one in enumerate(content["cells"]):
        one["metadata"] = {"id": f"hT3kQz{number:06}"}


@editor
def vs_code(content):
    for number, one in enumerate(content["cells"]):
        one |= {"id": f"{number:08x}", "metadata": one["metadata"] | {"vscode": {"languageId": "python"}}}


@editor
def vs_code_without_metadata(content):
    for number, one in enumerate(content["cells"]):
        one |= {"id": f"{number:08x}", "metadata": {"vscode": {"languageId": "python"}}}


@editor
def nbformat_4_4(content):
    content["nbformat_minor"] = 4
    for one in content["cells"]:
        del one["id"]


@editor
def nbformat_4_4_without_metadata(content):
    nbformat_4_4(content)
    for one in content["cells"]:
        one["metadata"] = {}


@editor
def nbformat_4_4_with_ids(content):
    content["nbformat_minor"] = 4


@editor
def nbformat_4_5_without_ids(content):
    nbformat_4_4(content)
    content["nbformat_minor"] = 5


# People


@editor
def split(content):
    """As JupyterLab does: both halves have new ids and the metadata."""
    content["cells"][place(content, FIRST + ANSWER)] = code(KERNEL, "1b2c", task=FIRST)
    content["cells"].insert(place(content, "1b2c") + 1, code(HOST, task=FIRST))


@editor
def split_and_the_kernel_kept_the_id(content):
    cell(content, FIRST + ANSWER)["source"] = KERNEL
    content["cells"].insert(place(content, FIRST + ANSWER) + 1, code(HOST))


@editor
def split_and_the_function_kept_the_id(content):
    cell(content, FIRST + ANSWER)["source"] = HOST
    content["cells"].insert(place(content, FIRST + ANSWER), code(KERNEL))


@editor
def split_without_any_mark(content):
    split(content)
    vs_code_without_metadata(content)


@editor
def merged_with_its_check(content):
    check = content["cells"].pop(place(content, FIRST + CHECK))
    cell(content, FIRST + ANSWER)["source"] += "\n\n" + check["source"]


@editor
def merged_into_its_check(content):
    answer = content["cells"].pop(place(content, FIRST + ANSWER))
    check = cell(content, FIRST + CHECK)
    check["source"] = f"{answer['source']}\n\n{check['source']}"


@editor
def two_tasks_in_one_cell(content):
    second = content["cells"].pop(place(content, SECOND + ANSWER))
    cell(content, FIRST + ANSWER)["source"] += "\n\n\n" + second["source"]


@editor
def two_tasks_in_one_cell_without_mark(content):
    two_tasks_in_one_cell(content)
    vs_code_without_metadata(content)


@editor
def two_tasks_in_the_second_cell(content):
    second = cell(content, SECOND + ANSWER)
    first = content["cells"].pop(place(content, FIRST + ANSWER))
    second["source"] = f"{first['source']}\n\n\n{second['source']}"


@editor
def two_tasks_in_the_first_cell_and_the_second_blank(content):
    cell(content, FIRST + ANSWER)["source"] += "\n\n\n" + SOLVED[SECOND]
    cell(content, SECOND + ANSWER)["source"] = BLANK[SECOND]


@editor
def copied_below(content):
    """The copy has the metadata and is solved, the cell itself is blank."""
    cell(content, FIRST + ANSWER)["source"] = BLANK[FIRST]
    content["cells"].insert(place(content, FIRST + ANSWER) + 1, code(SOLVED[FIRST], task=FIRST))


@editor
def copied_above_without_mark(content):
    cell(content, FIRST + ANSWER)["source"] = BLANK[FIRST]
    content["cells"].insert(place(content, FIRST + ANSWER), code(SOLVED[FIRST]))


@editor
def copied_with_its_id(content):
    cell(content, FIRST + ANSWER)["source"] = BLANK[FIRST]
    content["cells"].insert(place(content, FIRST + ANSWER) + 1, code(SOLVED[FIRST], FIRST + ANSWER))


@editor
def begun_and_finished_in_another_cell(content):
    cell(content, FIRST + ANSWER)["source"] = "# First try\n" + BLANK[FIRST]
    content["cells"].insert(place(content, FIRST + ANSWER) + 1, code(SOLVED[FIRST]))


@editor
def the_kernel_defined_twice(content):
    cell(content, FIRST + ANSWER)["source"] = HOST
    at = place(content, FIRST + ANSWER)
    content["cells"][at:at] = [code("def scale_add_kernel():\n    first_try", "1"), code(KERNEL, "2")]


@editor
def an_experiment_below_the_check(content):
    content["cells"].insert(place(content, FIRST + CHECK) + 1, code("def scale_add(x, y, alpha):\n    return x"))


@editor
def an_old_version_in_a_string(content):
    vs_code_without_metadata(content)
    content["cells"].append(code(f"'''\n{BLANK[FIRST]}\n'''"))


@editor
def the_function_is_given_an_attribute(content):
    content["cells"].insert(place(content, FIRST + ANSWER) + 1, code("scale_add.tries = 3"))


@editor
def mark_lost(content):
    cell(content, FIRST + ANSWER).update(id="5f0c1e2d", metadata={})


@editor
def moved_to_the_end(content):
    content["cells"].append(content["cells"].pop(place(content, FIRST + ANSWER)))


@editor
def moved_to_the_end_and_no_mark(content):
    moved_to_the_end(content)
    vs_code_without_metadata(content)


@editor
def became_a_text(content):
    answer = cell(content, FIRST + ANSWER)
    answer["cell_type"] = "markdown"
    del answer["outputs"], answer["execution_count"]


@pytest.mark.parametrize("change", EDITORS.values(), ids=EDITORS)
def test_update_and_grader_find_every_answer(change: Callable[[dict], None]):
    content = solved()
    change(content)
    data = json.dumps(content).encode()
    mine = written_in(read_cells(data, []), BLANK_FORM, EXERCISE.stem)
    assert mine.missing == []
    assembly = assemble(data, TEMPLATE)
    for name, answer in SOLVED.items():
        assert same_text(mine.answers[name], answer)
        assert same_text(assembly.answers[name], answer)
        assert same_text(answers_of(assembly.notebook)[name], answer)
    assert not any("The check" in finding for finding in assembly.findings)


@pytest.mark.parametrize("name", [name for name in EDITORS if name != "an_experiment_below_the_check"])
def test_a_blank_exercise_holds_no_answer_whatever_the_editor(name: str, monkeypatch: pytest.MonkeyPatch):
    blank_kernel, blank_host = BLANK[FIRST].split("\n\n\ndef ")
    monkeypatch.setitem(globals(), "KERNEL", blank_kernel)
    monkeypatch.setitem(globals(), "HOST", f"def {blank_host}")
    monkeypatch.setitem(globals(), "SOLVED", BLANK)
    content = json.loads(json.dumps(BLANK_FORM))
    EDITORS[name](content)
    mine = written_in(read_cells(json.dumps(content).encode(), []), BLANK_FORM, EXERCISE.stem)
    assert not mine.missing
    for name, answer in mine.answers.items():
        assert same_text(answer.removeprefix("# First try"), BLANK[name])


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "latin-1"])
def test_answers_survive_another_encoding(encoding: str):
    content = solved()
    cell(content, FIRST + ANSWER)["source"] += "  # größer"
    cells = read_cells(json.dumps(content, ensure_ascii=False).encode(encoding, "replace"), [])
    assert find_answers(cells, BLANK_FORM)[FIRST].source == SOLVED[FIRST] + "  # größer"


@pytest.mark.parametrize("broken", ["\n)", "\n%%timeit", "\n!pip list"])
@pytest.mark.parametrize("change", [vs_code_without_metadata, mark_lost, jupyterlab])
def test_an_answer_that_is_no_python_is_found(change: Callable[[dict], None], broken: str):
    content = solved()
    cell(content, FIRST + ANSWER)["source"] += broken
    change(content)
    mine = written_in(read_cells(json.dumps(content).encode(), []), BLANK_FORM, EXERCISE.stem)
    assert mine.answers == SOLVED | {FIRST: SOLVED[FIRST] + broken}


def test_what_stands_between_two_answers_goes_with_what_follows_it():
    content = solved()
    helper = "# mine\nSIZE = 256\n\n\n"
    cell(content, FIRST + ANSWER)["source"] += "\n\n\n" + helper + SOLVED[SECOND] + "\n\nprint('both')  # end"
    content["cells"].pop(place(content, SECOND + ANSWER))
    answers = find_answers(read_cells(json.dumps(content).encode(), []), BLANK_FORM)
    assert answers[FIRST].source == SOLVED[FIRST]
    assert same_text(answers[SECOND].source, helper + SOLVED[SECOND] + "\nprint('both')  # end")


def test_two_answers_in_a_cell_that_is_no_python_are_kept_whole():
    content = solved()
    two_tasks_in_one_cell(content)
    whole = cell(content, FIRST + ANSWER)["source"] = cell(content, FIRST + ANSWER)["source"] + "\n)"
    answers = find_answers(read_cells(json.dumps(content).encode(), []), BLANK_FORM)
    assert answers[FIRST].source == answers[SECOND].source == whole


def test_a_notebook_of_nbformat_3_is_called_so():
    findings: list[str] = []
    old = {"worksheets": [{"cells": [], "metadata": {}}], "nbformat": 3, "nbformat_minor": 0, "metadata": {}}
    assert read_cells(json.dumps(old).encode(), findings) == []
    assert findings == [
        "The file is a notebook of nbformat 3, which has no list of cells: open it in JupyterLab and save it, which "
        "makes it one of nbformat 4."
    ]


# The learner's own cells


NOTE = {"cell_type": "markdown", "id": "77", "metadata": {}, "source": "My notes: **mask**!"}
PICTURE = {"image.png": {"image/png": "iVBORw0KGgo="}}


def carried(content: dict) -> "nbformat.NotebookNode":
    """Return a new version of the exercise after an update."""
    mine = written_in(read_cells(json.dumps(content).encode(), []), BLANK_FORM, EXERCISE.stem)
    new = copy.deepcopy(BLANK_FORM)
    new.cells[0].source = "# A better introduction"
    put_answers(new, mine.answers)
    put_own(new, mine.own)
    nbformat.validate(new)
    return new


@pytest.mark.parametrize("change", [jupyterlab, colab_with_ids_of_its_own, vs_code_without_metadata, nbformat_4_4])
def test_own_cells_stay_behind_the_cell_they_stood_behind(change: Callable[[dict], None]):
    content = solved()
    content["cells"].insert(place(content, FIRST + CHECK) + 1, NOTE | {"attachments": PICTURE})
    content["cells"].insert(place(content, FIRST + ANSWER), code("import math"))
    content["cells"].insert(place(content, "77") + 1, code("x = 1", "78"))
    content["cells"] += [code("y = 2", "79"), code("", "80")]
    content["cells"].insert(0, NOTE | {"source": "Ada's copy", "id": "76"})
    change(content)
    texts = [one.source for one in carried(content).cells]
    expected = [one.source for one in solved_form(EXERCISE).cells]
    expected[0] = "# A better introduction"
    at = expected.index(SOLVED[FIRST])
    expected[at : at + 2] = ["import math", *expected[at : at + 2], "My notes: **mask**!", "x = 1"]
    assert texts == ["Ada's copy", *expected, "y = 2"]
    note = carried(content).cells[texts.index("My notes: **mask**!")]
    assert (note.cell_type, note.attachments) == ("markdown", PICTURE)


def test_a_cell_of_the_course_that_was_changed_stands_behind_the_new_one():
    content = solved()
    start = cell(content, "start-code-2")
    start["source"] += "\nimport math"
    cells = carried(content).cells
    at = [one.source for one in cells].index(start["source"])
    assert cells[at - 1].id == "start-code-2"


def test_a_first_try_stays_in_front_of_the_answer():
    content = solved()
    begun_and_finished_in_another_cell(content)
    texts = [one.source for one in carried(content).cells]
    assert texts.index("# First try\n" + BLANK[FIRST]) == texts.index(SOLVED[FIRST]) - 1


def test_an_answer_that_is_gone_is_told():
    content = solved()
    del content["cells"][place(content, FIRST + ANSWER)]
    mine = written_in(read_cells(json.dumps(content).encode(), []), BLANK_FORM, EXERCISE.stem)
    assert mine.missing == [FIRST] and mine.answers.keys() == SOLVED.keys() - {FIRST}


# Reset


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the exercises with a learner's state of its own."""
    for folder in ("solutions", "exercises"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for module in (generate, notebook, progress, task):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setenv("TILE_STATE", str(tmp_path / ".tile"))
    return tmp_path


SHARED = [name for name in EDITORS if name.startswith("two_tasks")]
ALONE = [name for name in EDITORS if name not in SHARED]


@pytest.mark.parametrize("name", ALONE)
def test_reset_finds_the_cells_of_one_task(course: Path, name: str):
    content = solved()
    EDITORS[name](content)
    path = course / "exercises" / "01_vector_add.ipynb"
    path.write_text(json.dumps(content))
    progress.reset(FIRST)
    cells = read_cells(path.read_bytes(), [])
    assert any(one.kind == "code" and one.source.startswith(BLANK[FIRST]) for one in cells)
    assert not any(KERNEL in one.source for one in cells)
    assert sum('check("scale_add"' in one.source for one in cells) == 1
    now = find_answers(cells, BLANK_FORM)
    assert {other: now[other].source for other in SOLVED if other != FIRST}.items() <= SOLVED.items()
    (backup,) = (course / ".tile" / "backups").rglob("*.ipynb")
    assert json.loads(backup.read_text()) == content


@pytest.mark.parametrize("name", SHARED)
def test_reset_of_one_of_two_tasks_in_a_cell_is_refused(course: Path, name: str):
    content = solved()
    EDITORS[name](content)
    path = course / "exercises" / "01_vector_add.ipynb"
    path.write_text(json.dumps(content))
    with pytest.raises(CourseError, match="`scale_add` and `three_way_add` stand in one cell.*restores every cell"):
        progress.reset(FIRST)
    assert json.loads(path.read_text()) == content
