"""Marks for other programs: Canvas, Moodle, JUnit XML for GitHub Classroom, JSON, and one table for people."""

import csv
import io
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from lab import notebook as notebooks

if TYPE_CHECKING:
    from classroom.assignment import Assignment
    from classroom.result import Result

NUMBERED = re.compile(r"(?P<name>.+)_(?P<id>\d+)", re.DOTALL)  # as `classroom.collect` names Canvas's and Moodle's
FORMULA = ("=", "+", "-", "@", "\t", "\r")
NOT_IN_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_exports(folder: Path, results: Sequence["Result"], assignment: "Assignment") -> list[Path]:
    """Write every format into a folder and return the files' paths. Raises OSError."""
    texts = {
        "grades.csv": table_csv(results, assignment),
        "canvas.csv": canvas_csv(results, assignment),
        "moodle.csv": moodle_csv(results),
        "junit.xml": junit_xml(results, assignment),
        "grades.json": as_json(results, assignment),
    }
    for name, text in texts.items():
        notebooks.write_text(folder / name, text)
    return [folder / name for name in texts]


def table_csv(results: Iterable["Result"], assignment: "Assignment") -> str:
    """Return a line a student: points of each task, their sum, and what the teacher should know."""
    rows = [["student", *assignment.points, "total", "of", "notes"]]
    for result in results:
        earned = {task.name: task.points for task in result.tasks}
        points = [points_text(earned.get(task, 0)) for task in assignment.points]
        notes = " ".join([*result.findings, *result.notes])
        rows.append([result.student, *points, points_text(result.points), points_text(assignment.total), notes])
    return as_csv(rows)


def canvas_csv(results: Iterable["Result"], assignment: "Assignment") -> str:
    """Return what Canvas's gradebook imports. Students are known by the number in their files' names."""
    blank = ["", "", ""]
    rows = [["Student", "ID", "SIS User ID", "SIS Login ID", "Section", assignment.name]]
    rows.append(["    Points Possible", "", *blank, points_text(assignment.total)])
    for result in results:
        name, identity = name_and_number(result.student)
        rows.append([name, identity, *blank, points_text(result.points)])
    return as_csv(rows)


def moodle_csv(results: Iterable["Result"]) -> str:
    """Return a grading worksheet for Moodle. Students are known by the number in their files' names."""
    rows = [["Identifier", "Full name", "Grade", "Feedback comments"]]
    for result in results:
        name, identity = name_and_number(result.student)
        said = "; ".join(f"{task.name}: {points_text(task.points)} of {points_text(task.of)}" for task in result.tasks)
        rows.append([f"Participant {identity}" if identity else "", name, points_text(result.points), said])
    return as_csv(rows)


def junit_xml(results: Iterable["Result"], assignment: "Assignment") -> str:
    """Return JUnit XML: a suite a student, a test a task, which passes if it earned all its points."""
    root = ElementTree.Element("testsuites", name=assignment.name)
    for result in results:
        failed = [task for task in result.tasks if not task.passed]
        counts = {"tests": str(len(result.tasks)), "failures": str(len(failed)), "time": f"{result.seconds:.1f}"}
        suite = ElementTree.SubElement(root, "testsuite", name=xml(result.student), **counts)
        for task in result.tasks:
            case = ElementTree.SubElement(suite, "testcase", classname=assignment.name, name=task.name)
            if task in failed:
                cases = f"{task.cases_passed} of {task.cases} cases pass"
                failure = ElementTree.SubElement(case, "failure", type=task.reason, message=cases)
                failure.text = xml("\n".join([task.message, ": ".join(task.advice)]))
            points = f"{points_text(task.points)} of {points_text(task.of)} points"
            ElementTree.SubElement(case, "system-out").text = points
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def as_json(results: Iterable["Result"], assignment: "Assignment") -> str:
    """Return all marks with their reasons as JSON."""
    students = [
        {
            "student": result.student,
            "points": result.points,
            "tasks": [
                {"name": task.name, "points": task.points, "of": task.of, "passed": task.passed, "reason": task.reason}
                for task in result.tasks
            ],
            "findings": list(result.findings),
            "notes": list(result.notes),
            "submitted_at": result.submitted_at,
            "seconds": result.seconds,
        }
        for result in results
    ]
    record = {"assignment": assignment.name, "of": assignment.total, "due": assignment.due, "students": students}
    return json.dumps(record, indent=1, ensure_ascii=False) + "\n"


def name_and_number(student: str) -> tuple[str, str]:
    """Return a student's name, and the number that Canvas or Moodle gave them, "" where there is none."""
    numbered = NUMBERED.fullmatch(student)
    return (numbered["name"], numbered["id"]) if numbered else (student, "")


def points_text(points: float) -> str:
    """Return points without needless zeros."""
    return f"{round(points, 2):g}"


def as_csv(rows: Iterable[Sequence[str]]) -> str:
    """Return rows as CSV. What a spreadsheet would take for a formula gets an apostrophe in front."""
    text = io.StringIO()
    for row in rows:
        csv.writer(text, lineterminator="\n").writerow([f"'{cell}" if is_formula(cell) else cell for cell in row])
    return text.getvalue()


def is_formula(cell: str) -> bool:
    """Return whether a spreadsheet would compute a cell instead of showing it."""
    return cell.startswith(FORMULA) and not re.fullmatch(r"-?[\d.]+", cell)


def xml(text: str) -> str:
    """Return text without the characters that XML cannot hold."""
    return NOT_IN_XML.sub("�", text)
