"""Exercises: forms, names, progress, hints and resets, in a copy of the course."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lab import generate, notebook, task
from lab import progress as progress_module
from lab.generate import answers_of, blank_form, blank_source, put_answers, read_script, solved_source
from lab.notebook import CourseError
from lab.progress import hint, next_page, progress, record, reset, solution
from lab.task import UnknownTask, exercises, find_card, find_exercise, find_task, spelt

ROOT = Path(__file__).parents[2]
STEM = "vector_add"
TASK = "scale_add"


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the exercises with a learner's state of its own."""
    for folder in ("solutions", "exercises"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for module in (generate, notebook, progress_module, task):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setenv("TILE_STATE", str(tmp_path / ".tile"))
    return tmp_path


def write_answer(path: Path, task: str, source: str) -> None:
    """Do as a learner does: change one answer cell."""
    learner = notebook.read(path)
    assert not put_answers(learner, {task: source})
    notebook.write(path, learner)


@pytest.mark.parametrize(
    ("line", "blank"),
    [
        ("    mask = offs < n  # blank: mask = ____", "    mask = ____"),
        ("    x = 1  # blank:", ""),
        ("    x = 1  # why it is so", "    x = 1  # why it is so"),
        ('    s = "# hash"  # blank: s = ____', "    s = ____"),
        ("# blank: x = ____\nx = 1", "x = ____"),
        ("if y:\n    # blank: x = ____\n    x = f(\n        1,\n    )\n    z = 2", "if y:\n    x = ____\n    z = 2"),
        ("x = 1\n# blank:\nfor y in z:\n    x = y\nw = 2", "x = 1\nw = 2"),
    ],
)
def test_a_noted_line_becomes_its_blank_form(line: str, blank: str):
    assert blank_source(line) == blank
    assert "# blank" not in solved_source(line)


def test_specs_are_read_without_torch():
    program = "import sys; from lab.task import exercises; print(len(exercises()[0].cards), 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60)
    cards, torch = done.stdout.split()
    assert int(cards) >= 3, done.stderr
    assert torch == "False"


def test_static_reading_agrees_with_the_tasks():
    for one in exercises():
        for card in one.cards:
            task = find_task(card.name)
            assert (task.name, task.title, task.points, task.hints) == tuple(card)


def test_an_unknown_task_names_the_closest():
    with pytest.raises(UnknownTask, match="`scale_ad`.*`scale_add`.*tile progress"):
        find_task("scale_ad")


@pytest.mark.parametrize("name", ["SCALE_ADD", "Scale_Add", "scale-add", " scale_add "])
def test_a_task_is_found_in_either_case_and_with_hyphens(course: Path, capsys: pytest.CaptureFixture, name: str):
    assert find_card(name).name == find_task(name).name == TASK
    hint(name)
    hint(TASK)
    first, second, _ = find_card(TASK).hints
    assert capsys.readouterr().out == f"Hint 1 of 3: {first}\nHint 2 of 3: {second}\n"
    record(name)
    solution(name)
    assert json.loads((course / ".tile" / "progress.json").read_text())["passed"].keys() == {TASK}


@pytest.mark.parametrize("name", ["SCALE-ADD", "exercises/scale_add", "scale_add.py"])
def test_a_reset_by_another_spelling_is_of_that_task_alone(course: Path, name: str):
    path = course / "exercises" / "01_vector_add.ipynb"
    write_answer(path, TASK, "mine")
    write_answer(path, "row_add", "also mine")
    reset(name)
    answers = answers_of(notebook.read(path))
    assert answers["row_add"] == "also mine" and answers[TASK] != "mine"


def test_of_two_names_that_differ_in_case_the_exact_one_is_meant():
    assert task.matching("Add", ["add", "Add"]) == "Add"
    assert task.matching("ADD", ["add", "Add"]) is None


class Mute(Exception):
    def __str__(self):
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    "name, told",
    [
        (10**400, "1000"),
        (10**5000, "`int`"),
        (["scale_add"], "Did you mean `scale_add`"),
        (Mute(), "`Mute`"),
        (None, "`None`"),
        ("", "``"),
        ("a\x1b[31m", "`a·[31m`"),
        ("SCALE_AD", "Did you mean `scale_add`"),
    ],
    ids=["long", "endless", "list", "mute", "none", "empty", "escape", "capitals"],
)
@pytest.mark.parametrize("ask", [hint, reset, solution, find_task])
def test_odd_names_end_in_one_sentence(course: Path, ask, name, told: str):
    with pytest.raises(UnknownTask) as refused:
        ask(name)
    assert told in str(refused.value) and "tile progress" in str(refused.value)
    assert len(str(refused.value)) < 250


@pytest.mark.parametrize("name", ["vector_add", "01-Vector-Add", "exercises/01_VECTOR_ADD.IPYNB", "row_add"])
def test_an_exercise_answers_to_several_names(name: str):
    assert find_exercise(name).stem == STEM


def test_ids_tell_task_and_role_and_are_unique():
    cells = read_script(find_exercise(STEM)).cells
    ids = [cell.id for cell in cells]
    assert len(set(ids)) == len(ids)
    assert {f"{TASK}-text", f"{TASK}-answer", f"{TASK}-check", "start-text", "end-text"} <= set(ids)


def test_specs_stay_out_of_the_notebook():
    text = notebook.text_of(blank_form(find_exercise(STEM)))
    assert "Task(" not in text
    assert "# blank" not in text
    assert "reference" not in text


def test_hints_come_one_by_one(course: Path, capsys: pytest.CaptureFixture):
    hints = find_card(TASK).hints
    for tier in range(3):
        hint(TASK)
        assert hints[tier] in capsys.readouterr().out
    hint(TASK)
    told = capsys.readouterr().out
    assert hints[2] in told
    assert f"tile solution {TASK} --yes" in told


def test_advice_is_spelt_for_where_the_reader_is(course: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(task.shutil, "which", lambda name: None)
    assert spelt("reset", TASK) == f"`.venv/bin/tile reset {TASK}`"
    monkeypatch.setattr(task.shutil, "which", lambda name: f"/bin/{name}")
    assert spelt("solution", TASK, "--yes") == f"`tile solution {TASK} --yes`"
    monkeypatch.setattr(task, "in_notebook", lambda: True)
    assert spelt("progress") == "`progress()`"
    assert spelt("solution", TASK, "--yes") == f'`solution("{TASK}", anyway=True)`'


def test_all_hints_at_once(course: Path, capsys: pytest.CaptureFixture):
    hint(TASK, every=True)
    told = capsys.readouterr().out
    assert all(text in told for text in find_card(TASK).hints)


def test_a_solution_waits_until_the_task_is_passed(course: Path, capsys: pytest.CaptureFixture):
    with pytest.raises(CourseError, match="not passed yet.*tile hint"):
        solution(TASK)
    record(TASK, "answer")
    solution(TASK)
    assert "mask = offs < n\n" in capsys.readouterr().out


def test_a_recorded_pass_shows_and_leads_on(course: Path, capsys: pytest.CaptureFixture):
    assert next_page() == Path("notebooks/01_vector_add.ipynb")
    record(TASK, "answer")
    progress()
    told = capsys.readouterr().out
    assert "passed" in told
    points = sum(card.points for one in exercises() for card in one.cards)
    assert f"1 of {points} points" in told
    assert "`three_way_add`" in told
    assert next_page() == Path("exercises/01_vector_add.ipynb")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"passed": 3, "hints": {}}',
        '{"passed": {}, "hints": {"scale_add": "x"}}',
        '{"passed": {}, "hints": {"scale_add": Infinity}}',
        "[" * 100_000,
    ],
    ids=range(7),
)
def test_damaged_progress_is_kept_aside(course: Path, capsys: pytest.CaptureFixture, text: str):
    path = course / ".tile" / "progress.json"
    path.parent.mkdir()
    path.write_text(text)
    record(TASK, "answer")
    assert TASK in json.loads(path.read_text())["passed"]
    assert "damaged" in capsys.readouterr().err
    (kept,) = (course / ".tile" / "backups").rglob("progress.json")
    assert kept.read_text() == text


def test_a_negative_count_of_hints_counts_as_none(course: Path, capsys: pytest.CaptureFixture):
    path = course / ".tile" / "progress.json"
    path.parent.mkdir()
    path.write_text('{"passed": {}, "hints": {"scale_add": -7}}')
    hint(TASK)
    assert capsys.readouterr().out.startswith("Hint 1 of 3: ")


@pytest.mark.parametrize("text", ["[" * 100_000, '{"cells": ' + "1" * 5000 + "}"], ids=["deep", "long number"])
def test_odd_notebooks_are_damaged_ones(course: Path, text: str):
    (course / "odd.ipynb").write_text(text)
    with pytest.raises(notebook.NotebookError, match="odd.ipynb is damaged and cannot be read as a notebook"):
        notebook.read(course / "odd.ipynb")


def test_an_error_without_text_damages_no_sentence():
    assert "(ValueError)" in str(notebook.damaged(Path("x.ipynb"), ValueError()))
    assert "(Mute)" in str(notebook.damaged(Path("x.ipynb"), Mute()))


def test_progress_that_cannot_be_saved_says_so_and_goes_on(course: Path, monkeypatch, capsys: pytest.CaptureFixture):
    def refuse(*_):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(notebook, "write_text", refuse)
    record(TASK, "answer")
    assert "not saved" in capsys.readouterr().err


def test_reset_of_a_task_leaves_the_others_alone(course: Path, capsys: pytest.CaptureFixture):
    path = course / "exercises" / "01_vector_add.ipynb"
    blank = answers_of(notebook.read(path))
    write_answer(path, TASK, "mine")
    write_answer(path, "row_add", "also mine")
    reset(TASK)
    assert answers_of(notebook.read(path)) == blank | {"row_add": "also mine"}
    (backup,) = (course / ".tile" / "backups").rglob("*.ipynb")
    assert answers_of(notebook.read(backup))[TASK] == "mine"
    assert str(backup) in capsys.readouterr().out


def test_reset_restores_a_damaged_notebook_and_keeps_it(course: Path):
    path = course / "exercises" / "01_vector_add.ipynb"
    path.write_bytes(b"\xff{ not a notebook")
    with pytest.raises(CourseError, match="damaged.*tile reset 01_vector_add"):
        reset(TASK)
    reset(STEM)
    assert path.read_bytes() == (ROOT / "exercises" / "01_vector_add.ipynb").read_bytes()
    (backup,) = (course / ".tile" / "backups").rglob("*.ipynb")
    assert backup.read_bytes() == b"\xff{ not a notebook"


def test_reset_without_a_backup_changes_nothing(course: Path, monkeypatch: pytest.MonkeyPatch):
    path = course / "exercises" / "01_vector_add.ipynb"
    write_answer(path, TASK, "mine")
    (course / "file").write_text("no folder")
    monkeypatch.setenv("TILE_STATE", str(course / "file"))
    with pytest.raises(CourseError, match="no backup could be made"):
        reset(STEM)
    assert answers_of(notebook.read(path))[TASK] == "mine"


def test_reset_on_a_read_only_disk_changes_nothing(course: Path, monkeypatch: pytest.MonkeyPatch):
    path = course / "exercises" / "01_vector_add.ipynb"
    write_answer(path, TASK, "mine")

    def refuse(*_):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(notebook.os, "replace", refuse)
    with pytest.raises(CourseError, match="is as it was: Read-only file system"):
        reset(STEM)
    assert answers_of(notebook.read(path))[TASK] == "mine"
