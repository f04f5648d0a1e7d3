"""Marks as other programs read them, and a student's page."""

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from bs4 import BeautifulSoup

from classroom import console, exports
from classroom.assignment import Assignment
from classroom.feedback import feedback_page, feedback_path, write_feedback
from classroom.gradebook import Gradebook
from classroom.result import Result, TaskResult

ASSIGNMENT = Assignment("01_vector_add", {"scale_add": 1.0, "three_way_add": 2.5}, "", "")
PASSED = TaskResult("scale_add", "Scale and add", 1.0, 1.0, True, 9, 9, source="def scale_add():\n    pass\n")
FAILED = TaskResult(
    name="three_way_add",
    title="Three at once",
    points=0.0,
    of=2.5,
    passed=False,
    cases_passed=7,
    cases=9,
    reason="out-of-bounds",
    message="program 4 stores <28> elements past the end of `out`, at line 2: `tl.store(out, x)`.",
    advice=("Likely cause", "is the store masked? \x00"),
    case="one past a block",
    inputs="x: float32 [257]",
    notes=("this case fails as well: “bf16”.",),
    printed="<script>alert(1)</script>",
    source="a = '</code><script>'\ntl.store(out, x)\nb = 1\n",
    lines=(2,),
    picture='<figure role="img"><svg aria-label="error"></svg></figure>',
)
STUDENTS = ("lovelaceada_1234", '=HYPERLINK("x")_7', 'Zoë "the\nkernel" <b>O\'Néill</b>, 李')
REPORT = ({"cell": "three_way_add-check", "outcome": "failed", "text": "AssertionError <x>"},)
RESULTS = [
    Result(
        student, ASSIGNMENT.name, "d", "a", 1.0, 3.5, (PASSED, FAILED), findings=("A check was changed.",), seconds=2.0
    )
    for student in STUDENTS
]


def rows(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text)))


def test_the_table_holds_every_task_and_note():
    head, *lines = rows(exports.table_csv([replace(RESULTS[0], notes=("It is late.",))], ASSIGNMENT))
    assert dict(zip(head, lines[0], strict=True)) == {
        "student": "lovelaceada_1234",
        "scale_add": "1",
        "three_way_add": "0",
        "total": "1",
        "of": "3.5",
        "notes": "A check was changed. It is late.",
    }


def test_canvas_finds_a_student_by_number():
    head, possible, *lines = rows(exports.canvas_csv(RESULTS, ASSIGNMENT))
    assert head == ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", "01_vector_add"]
    assert possible[0].strip() == "Points Possible" and possible[-1] == "3.5"
    assert [(line[0], line[1], line[-1]) for line in lines] == [
        ("lovelaceada", "1234", "1"),
        ('\'=HYPERLINK("x")', "7", "1"),
        (STUDENTS[2], "", "1"),
    ]


def test_moodle_finds_a_participant_by_number():
    head, first, *_ = rows(exports.moodle_csv(RESULTS))
    assert head == ["Identifier", "Full name", "Grade", "Feedback comments"]
    assert first == ["Participant 1234", "lovelaceada", "1", "scale_add: 1 of 1; three_way_add: 0 of 2.5"]


def test_junit_counts_what_failed_and_why():
    root = ElementTree.fromstring(exports.junit_xml(RESULTS, ASSIGNMENT))
    suite = root.find("testsuite")
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    passed, failed = suite.findall("testcase")
    assert passed.find("failure") is None
    assert failed.find("failure").get("type") == "out-of-bounds"
    assert "past the end" in failed.find("failure").text and "\x00" not in failed.find("failure").text


def test_json_holds_every_mark():
    record = json.loads(exports.as_json(RESULTS, ASSIGNMENT))
    assert [student["student"] for student in record["students"]] == list(STUDENTS)
    assert record["students"][0]["tasks"][1] == {
        "name": "three_way_add",
        "points": 0.0,
        "of": 2.5,
        "passed": False,
        "reason": "out-of-bounds",
    }


def test_every_format_is_written(tmp_path: Path):
    paths = exports.write_exports(tmp_path / "new", RESULTS, ASSIGNMENT)
    assert {path.name for path in paths} == {"grades.csv", "canvas.csv", "moodle.csv", "junit.xml", "grades.json"}
    assert all(path.stat().st_size for path in paths)


# A student's page


@pytest.fixture(scope="module")
def page() -> str:
    return feedback_page(replace(RESULTS[2], report=REPORT, notes=("for the teacher alone",)), ASSIGNMENT)


def test_a_page_tells_points_verdict_cause_and_picture(page: str):
    tree = BeautifulSoup(page, "html.parser")
    section = tree.select_one("section#three_way_add")
    told = section.get_text()
    for words in (
        "0 of 2.5 points",
        "7 of 9",
        "one past a block",
        "float32 [257]",
        "<28> elements past",
        "is the store",
    ):
        assert words in told
    assert section.select_one("figure[role=img]")
    assert tree.select_one("section#scale_add.passed")
    assert "1 of 3.5 points" in tree.header.get_text()
    assert "A check was changed." in tree.get_text()


def test_the_line_is_marked_in_the_students_own_code(page: str):
    section = BeautifulSoup(page, "html.parser").select_one("section#three_way_add")
    assert [line.get_text() for line in section.select(".line")] == FAILED.source.splitlines()
    assert [line.get_text() for line in section.select(".line.marked")] == ["tl.store(out, x)"]


def test_a_page_is_whole_and_runs_nothing(page: str):
    tree = BeautifulSoup(page, "html.parser")
    assert not tree.find_all(["script", "link", "iframe", "img", "b"])
    assert not re.search(r"\son\w+=|url\(|@import|javascript:", page)
    assert {tag["href"][0] for tag in tree.find_all(href=True)} == {"#"}
    assert "default-src 'none'" in tree.find("meta", attrs={"http-equiv": True})["content"]
    assert "\x00" not in page and "\n<b>" not in page


def test_a_page_knows_of_nobody_else_and_keeps_the_teachers_notes(page: str):
    assert "lovelaceada" not in page
    assert "for the teacher alone" not in page


def test_every_student_has_a_page_of_their_own(tmp_path: Path):
    names = [*STUDENTS, "", "../../etc/passwd", "a" * 300, "a/b", "a_b", "A_B", "..", "李" * 100]
    paths = {name: write_feedback(tmp_path, replace(RESULTS[0], student=name), ASSIGNMENT) for name in names}
    assert len({str(path).lower() for path in paths.values()}) == len(names)
    assert all(path.parent == tmp_path and path.exists() for path in paths.values())
    assert feedback_path(tmp_path, STUDENTS[0]) == paths[STUDENTS[0]]


def test_very_long_code_is_cut(tmp_path: Path):
    task = replace(FAILED, source="x = 1\n" * 5000 + "y" * 10**6)
    page = feedback_page(replace(RESULTS[0], tasks=(task,)), ASSIGNMENT)
    assert "more lines" in page and len(page) < 300_000


# The class in a terminal


def test_grades_shows_a_table_and_a_histogram(tmp_path: Path, capsys: pytest.CaptureFixture):
    with Gradebook(tmp_path / console.GRADEBOOK) as gradebook:
        for result in RESULTS:
            gradebook.record(result)
    console.grades(tmp_path)
    told = capsys.readouterr().out
    assert "lovelaceada_1234" in told.replace("\n", "") and "3 students, mean 1.0, median 1.0 of 3.5 points" in told
    assert re.search(r"0\.7 to 1\.1 +█+ 3", told)


def test_a_histogram_holds_everybody():
    told = console.histogram([0, 0.1, 3.5, 3.5, 1.75], 3.5)
    assert [int(line.split()[-1]) for line in told.splitlines()[:-1]] == [2, 0, 0, 0, 0, 1, 0, 0, 0, 2]
    assert "5 students" in console.histogram([0] * 5, 0)
