"""`tile assign`, `tile grade` and `tile grades` as a teacher meets them."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from classroom import cluster, console, sandbox
from classroom.grade import digest_for, digest_of
from classroom.gradebook import Gradebook
from classroom.result import Result
from lab import notebook
from lab.generate import answers_of, blank_form, put_answers, solved_form
from lab.notebook import ROOT, CourseError
from lab.task import find_exercise

EXERCISE = find_exercise("vector_add")
NAME = EXERCISE.name


def tile(*arguments: object, **environment: str) -> subprocess.CompletedProcess:
    """Run `tile …`."""
    return subprocess.run(
        [sys.executable, "-m", "tile.cli", *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=280,
    )


def hand_in(folder: Path, student: str, *tasks: str) -> None:
    """Write a submission in which these tasks are solved."""
    content = blank_form(EXERCISE)
    solved = answers_of(solved_form(EXERCISE))
    put_answers(content, {task: solved[task] for task in tasks})
    (folder / student).mkdir(parents=True, exist_ok=True)
    notebook.write(folder / student / f"{NAME}.ipynb", content)


def test_the_program_in_front_waits_for_no_library_that_only_graders_need():
    """torch and Triton take seconds to import, and so does a grammar that nbformat would have built."""
    code = "import sys, classroom.console, nbformat; print({'torch', 'triton', 'lark'} & set(sys.modules))"
    told = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert told.stdout == "set()\n", told.stderr


@pytest.mark.slow
@pytest.mark.skipif(not sandbox.available(), reason="needs bubblewrap: apt install bubblewrap")
def test_a_class_from_assignment_to_grades(tmp_path: Path):
    assignment, handed_in, out = tmp_path / "the task", tmp_path / "handed in", tmp_path / "grades"
    made = tile("assign", NAME, "--out", assignment, "--points", "scale_add=2.5", "--due", "2027-01-31")
    assert made.returncode == 0, made.stderr
    hand_in(handed_in, "Ada 'L' \"\n李", "scale_add")
    (handed_in / "bob").mkdir()

    graded = tile("grade", handed_in, "--assignment", assignment, "--out", out)
    assert graded.returncode == 0, graded.stdout + graded.stderr
    assert "2 graded, 0 as before, 0 could not be graded." in graded.stdout
    lines = (out / NAME / "grades.csv").read_text()
    assert '李",2.5,0,0,0,0,2.5,16.5,' in lines and "\nbob,0,0,0,0,0,0,16.5," in lines
    assert "There is no notebook." in lines
    assert os.stat(out / "secret").st_mode & 0o077 == 0

    hand_in(handed_in, "bob")
    (page,) = (out / NAME / "feedback").glob("Ada*.html")
    page.unlink()
    again = tile("grade", handed_in, "--assignment", assignment, "--out", out)
    assert "1 graded, 1 as before, 0 could not be graded." in again.stdout, again.stdout + again.stderr
    assert "no notebook" not in (out / NAME / "grades.csv").read_text()
    assert page.exists()

    shown = tile("grades", out, COLUMNS="160")
    assert "bob" in shown.stdout and "2 students, mean 1.2, median 1.2 of 16.5 points" in shown.stdout


# Disks and folders that refuse


@pytest.fixture
def without_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every submission graded at once, with a mark of one point."""

    def spread(function, jobs, **options):
        for job in jobs:
            digests = digest_of(job.data), digest_for(job.assignment, job.secret)
            yield job, Result(job.submission.student, NAME, *digests, 1.0, 1.0, ())

    monkeypatch.setattr(cluster, "spread", spread)


def graded(folder: Path) -> list[str]:
    """Grade the submissions of Ada and Bob; return who is in grades.csv."""
    for student in ("ada", "bob"):
        hand_in(folder / "in", student)
    console.grade(folder / "in", NAME, folder / "out", sandboxed=False)
    return [line.split(",")[0] for line in (folder / "out" / NAME / "grades.csv").read_text().splitlines()[1:]]


@pytest.mark.parametrize("full", ["bob-", "grades.csv", "canvas.csv", "grades.json"])
def test_a_full_disk_is_one_line_and_costs_no_mark(without_work, tmp_path: Path, monkeypatch, full: str):
    """The files of before are whole, and the same command goes on where it stopped."""
    hand_in(tmp_path / "in", "zoe")
    out = tmp_path / "out"
    console.grade(tmp_path / "in", NAME, out, sandboxed=False)
    before = {path: path.read_bytes() for path in (out / NAME).rglob("*.*")}
    write = Path.write_text

    def write_half(path: Path, text: str, **options) -> None:
        write(path, text[: len(text) // 2] if full in path.name else text, **options)
        if full in path.name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as disk, pytest.raises(CourseError, match="No space left") as told:
        disk.setattr(Path, "write_text", write_half)
        graded(tmp_path)
    assert "Every mark that was done is kept" in str(told.value) and "\n" not in str(told.value)
    assert all(path.stat().st_size >= len(was) for path, was in before.items())
    assert not list((out / NAME).rglob(".*"))
    with Gradebook(out / console.GRADEBOOK) as gradebook:
        assert len(gradebook.rows()) >= 2
    assert graded(tmp_path) == ["ada", "bob", "zoe"]


@pytest.mark.parametrize("file", ["out", f"out/{NAME}", f"out/{NAME}/feedback", f"out/{NAME}/grades.csv/x"])
def test_an_output_folder_that_is_a_file_is_one_line(without_work, tmp_path: Path, file: str):
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text("mine")
    with pytest.raises(CourseError, match="is a file|cannot be written") as told:
        graded(tmp_path)
    assert "\n" not in str(told.value) and "Errno" not in str(told.value)
    assert (tmp_path / file).read_text() == "mine"


@pytest.mark.parametrize(("refused", "says"), [("mkdir", "as a gradebook"), ("replace", "is kept in")])
def test_a_read_only_output_folder_is_one_line(without_work, tmp_path: Path, monkeypatch, refused: str, says: str):
    """Before the first run, and after one; imitated, since whoever runs the tests may be allowed everything."""
    if refused == "replace":
        graded(tmp_path)
    hand_in(tmp_path / "in", "zoe")

    def refuse(*arguments, **options):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(tmp_path / "out"))

    monkeypatch.setattr(os, refused, refuse)
    with pytest.raises(CourseError, match=r"\(Read-only file system\)") as told:
        console.grade(tmp_path / "in", NAME, tmp_path / "out", sandboxed=False)
    assert says in str(told.value) and "\n" not in str(told.value) and "Errno" not in str(told.value)


@pytest.mark.parametrize(
    "arguments, says",
    [
        (("assign", "no_such", "--out", "new"), "no exercise or task called `no_such`"),
        (("assign", NAME, "--out", "new", "--points", "scale_add"), "write `--points scale_add=2.5`"),
        (("grade", "missing", "--assignment", NAME, "--out", "new"), "missing cannot be read"),
        (("grade", ".", "--assignment", NAME, "--out", "new"), "holds no submissions"),
        (("grades", "missing"), "There is no gradebook in missing"),
        (("nbval", f"{NAME}.ipynb"), f"{NAME}.ipynb cannot be read or written: No such file"),
        (("nbval", "."), "cannot be read or written: Is a directory"),
        (("nbval", str(ROOT / "pyproject.toml")), "say which it is with `--assignment`"),
    ],
)
def test_a_mistake_is_one_message_and_a_status(tmp_path, monkeypatch, arguments: tuple, says: str):
    from typer.testing import CliRunner

    from tile import cli

    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(cli.app, list(arguments))
    assert result.exit_code == 1
    assert says in result.output and "Traceback" not in result.output


def test_without_bubblewrap_nothing_runs(tmp_path: Path):
    hand_in(tmp_path / "all", "ada", "scale_add")
    refused = tile("grade", tmp_path / "all", "--assignment", NAME, "--out", tmp_path / "out", PATH=str(tmp_path))
    assert refused.returncode == 1
    assert "apt install bubblewrap" in refused.stderr and "--no-sandbox" in refused.stderr
    assert "Traceback" not in refused.stderr


# nbval
@pytest.mark.slow
def test_a_blank_exercise_that_was_run_and_saved_passes_plain_nbval_alone(tmp_path: Path):
    """What its checks say of blanks has become what is expected of them; the course expects a right answer's line."""
    path = tmp_path / f"{NAME}.ipynb"
    notebook.write(path, notebook.run(blank_form(EXERCISE), ROOT))
    options = ["--nbval", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", f"--rootdir={ROOT}", f"--confcutdir={ROOT}"]
    plain = subprocess.run([sys.executable, "-m", "pytest", *options, path], cwd=ROOT, capture_output=True, timeout=180)
    assert plain.returncode == 0
    told = tile("nbval", path)
    assert told.returncode == 1, told.stderr
    *lines, summary = told.stdout.splitlines()
    assert [line.split("-check: did not print")[0] for line in lines] == [card.name for card in EXERCISE.cards]
    assert "7 of 12 code cells" in summary


@pytest.mark.slow
@pytest.mark.parametrize("in_a_sandbox", [True, False])
def test_nbval_passes_right_answers_whatever_else_the_file_holds(tmp_path: Path, in_a_sandbox: bool):
    """Cells with other ids, prints, stored outputs of another day, a cell that fails, a check that is gone."""
    content = solved_form(EXERCISE)
    for cell in content.cells:
        if cell.id.endswith("-answer"):
            cell.source = cell.source.replace("return out", "print('called')\n    return out") + "\nprint('mine')"
        cell |= {"id": f"vs-{cell.id}"[:8] + str(len(cell.source)), "metadata": {}}
        cell |= {"outputs": []} if cell.cell_type == "code" else {}
    content.cells[-2].source = "raise ValueError"
    path = tmp_path / f"ada_1_2_{NAME}-1.ipynb"
    notebook.write(path, content)
    told = tile("nbval", path, **({} if in_a_sandbox else {"PATH": str(tmp_path)}))
    assert told.returncode == 0, told.stdout + told.stderr
    assert told.stdout.splitlines()[-1] == f"{NAME}: 12 of 12 code cells do what they do for a right answer."


@pytest.mark.slow
def test_nbval_says_what_a_cell_did_instead(tmp_path: Path):
    content = solved_form(EXERCISE)
    put_answers(
        content, {"scale_add": "raise ValueError('mine')" + "\n# long" * 900, "row_add": "while True:\n    pass"}
    )
    content.cells = [cell for cell in content.cells if cell.id != "clamped_add-answer"]
    for cell in content.cells:
        cell.metadata["tags"] = ["nbval-skip", "raises-exception"]
    notebook.write(tmp_path / "mine.ipynb", content)
    told = tile("nbval", tmp_path / "mine.ipynb", "--assignment", "vector_add")
    assert told.returncode == 1
    for line in (
        "The answer cell of `clamped_add` is missing.",
        "scale_add-answer: ValueError: mine",
        "scale_add-check: NameError: name 'scale_add' is not defined",
        "row_add-answer: Timeout of 30 seconds exceeded executing cell",
    ):
        assert line in told.stdout.splitlines(), told.stdout
