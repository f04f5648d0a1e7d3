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
NUMBERS = ("1234", "7", "")
REPORT = ({"cell": "three_way_add-check", "outcome": "failed", "text": "AssertionError <x>"},)
RESULT = Result("", ASSIGNMENT.name, "d", "a", 1.0, 3.5, (PASSED, FAILED), findings=("A check was changed.",))
RESULTS = [
    replace(RESULT, student=student, number=number, seconds=2.0)
    for student, number in zip(STUDENTS, NUMBERS, strict=True)
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


def test_a_number_is_only_what_canvas_or_moodle_gave():
    """A folder of a student's own may end in a number that is somebody else's."""
    own = replace(RESULT, student="bob_77")
    assert rows(exports.canvas_csv([own], ASSIGNMENT))[2][:2] == ["bob_77", ""]
    assert rows(exports.moodle_csv([own]))[1][:2] == ["", "bob_77"]


def test_two_students_of_one_number_are_a_note_and_never_exchanged(tmp_path: Path, capsys: pytest.CaptureFixture):
    two = [replace(RESULT, student=f"{name}_12", number="12") for name in ("ada", "eve")]
    apart = exports.told_apart([*two, RESULTS[0], replace(two[0], assignment="02_dropout")])
    assert [one.number for one in apart] == ["", "", "1234", "12"]
    assert ["“ada_12” and “eve_12” have the number 12 alike" in " ".join(one.notes) for one in apart] == [1, 1, 0, 0]
    with Gradebook(tmp_path / console.GRADEBOOK) as gradebook:
        for result in two:
            gradebook.record(result)
    console.grades(tmp_path)
    assert len(re.findall(r"│ 1 +│\n", capsys.readouterr().out)) == 2


@pytest.mark.parametrize(
    "name",
    ["=1+1", " =1+1", "\u00a0=1", "\u200b=1", "＝1+1", "＠SUM(1)", "a;=1", "a; =1", 'a";=1', "a\t=1", "a\r=1", "a|=1"]
    + ["a\n=1", "a,=1", "\tx", "\rx", "-x", "+1-1", "@x"],
)
def test_no_table_holds_a_formula(name: str):
    """Whichever sign a spreadsheet takes for the end of a cell, quoted or not."""
    result = replace(RESULT, student=name, findings=(name,))
    for text in (
        exports.table_csv([result], ASSIGNMENT),
        exports.canvas_csv([result], ASSIGNMENT),
        exports.moodle_csv([result]),
    ):
        cells = [cell for separator in ",;\t|\r" for line in text.split("\n") for cell in line.split(separator)]
        assert not [cell for cell in cells if cell.strip('\u200b" ').startswith(tuple("=+-@＝＋－＠"))]
        assert not [cell for row in rows(text) for cell in row if cell.startswith(("\t", "\r"))]


def test_a_name_without_formulas_and_points_stay_as_they_are():
    harmless = ["Ada-Lou O'Neil", "a=b", "x@y.org", "-1.5", "3 + 4; 5"]
    assert rows(exports.as_csv([harmless])) == [harmless]


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
