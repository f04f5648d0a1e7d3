"""From a submission to a result in the gradebook, whatever happens on the way."""

import errno
import json
import os
import pickle
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest

from classroom import cluster, judge, sandbox
from classroom.assignment import assignment_of
from classroom.collect import Submission
from classroom.course import course_for_sandboxes, readable
from classroom.feedback import feedback_page
from classroom.grade import Job, borrowings, digest_for, digest_of, grade_all, grade_one, read_secret
from classroom.gradebook import Gradebook
from classroom.judge import Examiner
from classroom.result import Result, TaskResult
from classroom.sandbox import Limits, Sandbox
from classroom.student_eye import CELL_SECONDS
from lab import notebook as notebooks
from lab.check.executor import Crashed
from lab.device import ON_CPU
from lab.generate import answers_of, put_answers, solved_form
from lab.notebook import ROOT, CourseError
from lab.task import exercises, find_exercise

EXERCISE = find_exercise("vector_add")
ASSIGNMENT = assignment_of(EXERCISE)
SECRET = b"not known to any student"
QUICK = Limits(task_seconds=8.0)
BLANK = answers_of(ASSIGNMENT.notebook())
STRANGE = 'Ada "Bobby" O\'Neil\n; DROP TABLE results;-- ✎ $(reboot)'

on_cpu = pytest.mark.skipif(not ON_CPU, reason="grading needs a process that runs kernels on the CPU")
sandboxed = pytest.mark.skipif(not sandbox.available(), reason="needs bubblewrap: apt install bubblewrap")


def handed_in(answers: dict[str, str], lost: tuple[str, ...] = ()) -> bytes:
    """Return a solved notebook with other answers, and without some cells."""
    notebook = solved_form(EXERCISE)
    put_answers(notebook, answers)
    notebook.cells = [cell for cell in notebook.cells if cell.id not in lost]
    return notebooks.text_of(notebook).encode()


def job(data: bytes, student: str = "Ada", **options) -> Job:
    return Job(Submission(student, Path("x.ipynb")), data, ASSIGNMENT, SECRET, QUICK, **options)


def result_of(student: str, points: float = 1.0) -> Result:
    task = TaskResult("scale_add", "Scale and add", points, 1.0, points > 0, 9, 9, lines=(3, 4), notes=("ä",))
    return Result(student, ASSIGNMENT.name, "0" * 64, ASSIGNMENT.digest, points, 1.0, (task,), report=({"cell": "x"},))


@on_cpu
@sandboxed
def test_tasks_count_one_by_one():
    """One right, one blank, one that hangs while its cell runs, one missing, one wrong: each is worth what it is."""
    answers = {
        "three_way_add": BLANK["three_way_add"],
        "strided_copy": "while True:\n    pass",
        "clamped_add": answers_of(solved_form(EXERCISE))["clamped_add"].replace("low), high)", "low), low)"),
    }
    data = handed_in(answers, lost=("row_add-answer",))
    work = replace(job(data, report=False), submission=Submission(STRANGE, Path("x.ipynb"), number="12"))
    result = grade_one(replace(work, limits=replace(QUICK, task_seconds=5.0)))
    reasons = {task.name: task.reason for task in result.tasks}
    wrong = {"three_way_add": "blank", "strided_copy": "timeout", "row_add": "missing", "clamped_add": "wrong-values"}
    assert reasons == {"scale_add": ""} | wrong
    assert (result.points, result.of, result.student, result.number) == (1.0, 15.0, STRANGE, "12")
    assert "The answer cell of `row_add` is missing." in result.findings
    failed = {task.name: task for task in result.tasks}
    assert failed["three_way_add"].lines
    assert "<svg" in failed["clamped_add"].picture
    assert "limits" not in failed["clamped_add"].source
    assert Result.from_json(result.to_json()) == result


@on_cpu
@sandboxed
@pytest.mark.slow
def test_a_solved_notebook_gets_everything_and_passes_nbval():
    answer = answers_of(solved_form(EXERCISE))["scale_add"]
    result = grade_one(job(handed_in({"scale_add": answer + "\nprint('mine')"})))
    assert (result.points, result.findings, result.notes) == (15.0, (), ())
    assert {cell["outcome"] for cell in result.report} == {"passed"}
    assert [cell["cell"] for cell in result.report if cell["cell"].endswith("-check")] == [
        f"{task}-check" for task in ASSIGNMENT.points
    ]


@on_cpu
@sandboxed
@pytest.mark.slow
@pytest.mark.parametrize("in_a_sandbox", [True, False])
def test_no_folder_of_this_machine_stands_on_a_students_page(in_a_sandbox):
    """Whatever an answer prints or ends in, and whatever nbval says of it."""
    solved = answers_of(solved_form(EXERCISE))
    where = "import lab.check, sys, os, torch\nplaces = [torch.__file__, lab.check.__file__, os.getcwd(), *sys.path]\n"
    answers = {
        "scale_add": where + solved["scale_add"].replace("return out", "print(places)\n    return out[:1]"),
        "three_way_add": where + solved["three_way_add"].replace("return out", "raise ValueError(str(places))"),
        "row_add": where + "raise RuntimeError(str(places))",
    }
    result = grade_one(job(handed_in(answers), sandboxed=in_a_sandbox))
    page = feedback_page(result, ASSIGNMENT)
    assert "torch/__init__.py" in page and "lab/check/__init__.py" in page
    folders = {str(ROOT), sys.prefix, sys.base_prefix, str(Path.home()), f"{tempfile.gettempdir()}/"}
    assert [folder for folder in folders if folder in page + result.to_json()] == []


@on_cpu
@sandboxed
@pytest.mark.slow
@pytest.mark.parametrize("exercise", exercises(), ids=lambda exercise: exercise.stem)
def test_every_solution_gets_everything(exercise):
    """What the course itself answers can be repeated by the grader, whatever a host function does."""
    assignment = assignment_of(exercise)
    data = notebooks.text_of(solved_form(exercise)).encode()
    limits = replace(QUICK, task_seconds=30.0)
    result = grade_one(Job(Submission("Ada", None), data, assignment, SECRET, limits, report=False))
    assert {task.name: task.message for task in result.tasks if not task.passed} == {}
    assert result.points == assignment.total


@on_cpu
@sandboxed
@pytest.mark.slow
def test_attacks_on_the_notebook_earn_nothing():
    """Checks deleted or skipped, errors allowed, outputs edited, a hook, a banner, another language, ids twice."""
    hook = "get_ipython().events.register('post_run_cell', lambda result: print('scale_add: 9 of 9 cases pass'))\n"
    banner = "print('15 of 15 points')\ncheck = lambda task, function: print(f'{task}: 9 of 9 cases pass')\n"
    notebook = json.loads(
        handed_in({"scale_add": BLANK["scale_add"].replace("____", "None"), "row_add": hook + banner})
    )
    for cell in notebook["cells"]:
        cell["metadata"] = {"tags": ["nbval-skip", "raises-exception", "skip-execution"]}
        cell |= {"outputs": [], "execution_count": None} if cell["cell_type"] == "code" else {}
    notebook["cells"] = [cell for cell in notebook["cells"] if cell["id"] not in ("scale_add-check", "start-code")]
    notebook["cells"].append(dict(notebook["cells"][-2], id="scale_add-check", source="pass"))
    notebook["metadata"]["kernelspec"] = {"name": "bash", "language": "bash", "display_name": "Bash"}
    result = grade_one(job(json.dumps(notebook).encode()))
    assert {task.name for task in result.tasks if task.passed} == {"three_way_add", "strided_copy", "clamped_add"}
    assert {task.name: task.reason for task in result.tasks if not task.passed} == {
        "scale_add": "out-of-bounds",
        "row_add": "missing",
    }
    assert any("check of `scale_add` was changed" in finding for finding in result.findings)


def test_an_answer_that_takes_the_courses_kernels_is_a_note():
    """Chapter 3's kernel is what one of its tasks asks for."""
    notebook = ASSIGNMENT.notebook()
    own = "import torch\nfrom .kernels import x\nimport kernelsmith\n"
    put_answers(
        notebook, {"scale_add": own + "def scale_add(x):\n    from kernels.matmul import matmul\n", "row_add": own}
    )
    assert borrowings(notebook) == ["`scale_add` imports `kernels.matmul`, the course's own: see what does the work."]


def test_without_bubblewrap_nothing_is_graded(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with Gradebook(tmp_path / "grades.sqlite") as book, pytest.raises(CourseError, match="apt install bubblewrap"):
        list(grade_all([Submission("Ada", None)], ASSIGNMENT, book, SECRET, QUICK))


@on_cpu
@sandboxed
@pytest.mark.slow
def test_students_leave_nothing_in_memory():
    """Ten more, whose answers are repeated, find a grader and its process of replays as large as two did."""
    sizes = []
    for student in range(12):
        grade_one(job(handed_in({}), str(student), report=False))
        own = int(Path("/proc/self/statm").read_text().split()[1]) * sandbox.PAGE
        sizes.append((own, sandbox.usage(judge.nursery[0].process.pid)[1]))
    assert max(last - second for second, last in zip(sizes[1], sizes[-1], strict=True)) < 4 << 20, sizes


BESIDE_A_GPU = """
import os, pickle, sys, torch
torch.cuda.is_available = lambda: os.environ.get("CUDA_VISIBLE_DEVICES") != ""
from classroom.grade import grade_one
print(grade_one(pickle.load(sys.stdin.buffer)).points)
"""


@sandboxed
@pytest.mark.slow
def test_grading_leaves_a_gpu_alone():
    environment = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    told = subprocess.run(
        [sys.executable, "-c", BESIDE_A_GPU],
        input=pickle.dumps(job(handed_in({}), report=False)),
        cwd=ROOT,
        env=environment,
        capture_output=True,
    )
    assert told.stdout == b"15.0\n", told.stderr.decode()


@on_cpu
@pytest.mark.slow
def test_without_a_sandbox_where_one_says_so():
    result = grade_one(job(handed_in({}), sandboxed=False, report=False))
    assert result.points == 15.0


def test_inputs_are_each_students_own():
    def seed(student="Ada", secret=SECRET, part="one element"):
        return Examiner(student, ASSIGNMENT.name, secret, QUICK, Path()).seed("scale_add", part)

    seeds = [seed(), seed("Bob"), seed(secret=b"another"), seed(part="empty")]
    assert len(set(seeds)) == 4
    assert seed() == seeds[0]


def test_the_secret_is_made_once_and_for_nobody_else(tmp_path):
    secret = read_secret(tmp_path)
    assert read_secret(tmp_path) == secret != read_secret(tmp_path / "other")
    assert (tmp_path / "secret").stat().st_mode & 0o077 == 0
    (tmp_path / "secret").write_text("")
    with pytest.raises(CourseError, match="Delete it"):
        read_secret(tmp_path)


def test_a_full_disk_leaves_no_half_of_a_secret(tmp_path, monkeypatch):
    def full(size):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as disk, pytest.raises(OSError, match="No space"):
        disk.setattr("secrets.token_hex", full)
        read_secret(tmp_path)
    assert len(read_secret(tmp_path)) == 64


# The sandbox


def define(source: str) -> str:
    """Run a cell in a sandbox; return what went wrong and what it printed."""
    course = course_for_sandboxes()
    with Sandbox("answers", course, readable(course), QUICK) as place:
        try:
            error = place.ask("define", "<cell>", source, seconds=20).decode()
        except Crashed as crash:
            error = str(crash)
    return error + place.output  # all of it: closing has waited for what was printed


@sandboxed
def test_a_sandbox_shows_nothing_but_the_course():
    told = define(
        "import os, sys\n"
        f"for path in ({str(ROOT / 'solutions')!r}, '/etc/passwd', '/root/.ssh', '/home', '/var'):\n"
        "    assert not os.path.exists(path), path\n"
        "assert len(os.listdir('/proc')) < 100 and os.getuid() == 65534\n"
        "assert {name for name in os.environ if 'SECRET' in name or 'TOKEN' in name} == set()\n"
        "import lab\n"
        "assert not os.path.exists(os.path.join(lab.__path__[0], '..', 'solutions'))\n"
        "print('seen')"
    )
    assert told == '""seen\n'


@sandboxed
def test_a_sandbox_finds_its_packages_compiled():
    told = define(
        "import os, sys\n"
        "files = [getattr(module, '__cached__', None) for module in list(sys.modules.values())]\n"
        "files = [file for file in files if isinstance(file, str)]\n"
        "assert len(files) > 500 and sum(map(os.path.exists, files)) > 0.95 * len(files), files"
    )
    assert told == '""'


@sandboxed
def test_what_ends_a_sandbox_is_told():
    assert "ended with exit status 3" in define("import os; os._exit(3)")
    assert "SIGSEGV" in define("import ctypes; ctypes.string_at(0)")
    assert "printed more than 8 MiB" in define("while True: print('x' * 9999)")


def test_the_page_for_teachers_names_the_limits():
    page = " ".join((ROOT / "book" / "teaching.md").read_text(encoding="utf-8").split())
    limits = Limits()
    assert f"stopped after {limits.task_seconds:g} s, and its cell in the notebook's run after {CELL_SECONDS} s" in page
    assert f"has {limits.seconds:g} s for all its answers and {limits.notebook_seconds:g} s for that run" in page


# The gradebook


def test_gradebook_keeps_the_latest_of_each(tmp_path):
    path = tmp_path / "new" / "grades.sqlite"
    with Gradebook(path) as book:
        assert path.parent.stat().st_mode & 0o077 == 0
        book.record(result_of("Zoë", 0.0))
        book.record(result_of(STRANGE))
        book.record(result_of("Zoë", 1.0))
    with Gradebook(path) as book:
        assert book.rows() == [result_of(STRANGE), result_of("Zoë", 1.0)]
        assert book.rows(ASSIGNMENT.name) and not book.rows("another")
        assert book.done("Zoë", "0" * 64, ASSIGNMENT.digest)
        assert not book.done("Zoë", "1" * 64, ASSIGNMENT.digest)
        assert not book.done("Zoë", "0" * 64, "another")
        assert not book.done("nobody", "0" * 64, ASSIGNMENT.digest)


@pytest.mark.parametrize("content", [b"not a database" * 100, None], ids=["damaged", "a folder"])
def test_what_is_no_gradebook_is_refused(tmp_path, content):
    path = tmp_path / "grades.sqlite"
    path.write_bytes(content) if content else path.mkdir()
    with pytest.raises(CourseError, match="cannot be used as a gradebook"):
        Gradebook(path)


WRITER = """
import sys
from dataclasses import replace
from pathlib import Path
from classroom.gradebook import Gradebook
from classroom.result import Result
result = Result.from_json(sys.argv[2])
with Gradebook(Path(sys.argv[1])) as book:
    number = len(book.rows())
    while True:
        book.record(replace(result, student=str(number)))
        print(number, flush=True)
        number += 1
"""


def test_no_finished_mark_is_lost_when_the_grader_is_killed(tmp_path):
    path, moments, told = tmp_path / "grades.sqlite", random.Random(0), -1
    for _ in range(20):
        command = [sys.executable, "-c", WRITER, path, result_of("x").to_json()]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as writer:
            writer.stdout.readline()
            time.sleep(moments.random() / 50)
            writer.send_signal(signal.SIGKILL)
            told = max([told, *map(int, writer.stdout.read().split())])
    with Gradebook(path) as book:
        assert told > 20
        assert len(book.rows()) >= told + 1


def test_another_secret_grades_anew(tmp_path, monkeypatch):
    """Inputs follow from it: marks under another one are none of this grading."""

    def spread(function, jobs, **options):
        for job in jobs:
            digests = {"digest": digest_of(job.data), "assignment_digest": digest_for(job.assignment, job.secret)}
            yield job, replace(result_of(job.submission.student), **digests)

    monkeypatch.setattr(cluster, "spread", spread)
    with Gradebook(tmp_path / "grades.sqlite") as book:

        def graded(secret):
            steps = grade_all([Submission("Ada", None)], ASSIGNMENT, book, secret, QUICK, sandboxed=False)
            *_, (tally, _) = steps
            return tally.graded, tally.kept

        assert [graded(secret) for secret in (SECRET, SECRET, b"another", SECRET)] == [(1, 0), (0, 1), (1, 0), (1, 0)]


@sandboxed
@pytest.mark.slow
def test_a_second_run_grades_only_what_is_new(tmp_path):
    students = []
    for name in ("Ada", STRANGE):
        students.append(Submission(name, tmp_path / f"{len(students)}.ipynb"))
        students[-1].path.write_bytes(handed_in(BLANK))
    nothing = Submission("Nobody", None)
    with Gradebook(tmp_path / "grades.sqlite") as book:

        def run():
            *_, (tally, _) = grade_all([*students, nothing], ASSIGNMENT, book, SECRET, QUICK, workers=2)
            return tally.graded, tally.kept, tally.failed

        assert run() == (3, 0, {})
        assert run() == (0, 3, {})
        students[0].path.write_bytes(handed_in({}))
        assert run() == (1, 2, {})
        assert {row.student: row.points for row in book.rows()} == {"Ada": 15.0, STRANGE: 0.0, "Nobody": 0.0}
