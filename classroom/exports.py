"""Marks for other programs: Canvas, Moodle, JUnit XML for GitHub Classroom, JSON, and one table for people."""

import csv
import io
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from lab import notebook as notebooks
from lab.words import listed, one_line

if TYPE_CHECKING:
    from classroom.assignment import Assignment
    from classroom.result import Result

# Where a spreadsheet begins a formula: at a cell's start, or behind what it takes for the end of a cell, whatever
# cannot be seen in between.
FORMULA = re.compile(r"""(^|[;,|\t\n])(?=[\s"\x00-\x1f\u00ad\u200b-\u200f\u2060\ufeff]*[=+\-@＝＋－＠])|^(?=[\t\n])""")
NUMBER = re.compile(r"-?[\d.]+")
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
        rows.append([name_of(result), result.number, *blank, points_text(result.points)])
    return as_csv(rows)


def moodle_csv(results: Iterable["Result"]) -> str:
    """Return a grading worksheet for Moodle. Students are known by the number in their files' names."""
    rows = [["Identifier", "Full name", "Grade", "Feedback comments"]]
    for result in results:
        identity = f"Participant {result.number}" if result.number else ""
        said = "; ".join(f"{task.name}: {points_text(task.points)} of {points_text(task.of)}" for task in result.tasks)
        rows.append([identity, name_of(result), points_text(result.points), said])
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


def name_of(result: "Result") -> str:
    """Return a student's name without the number that Canvas or Moodle gave them."""
    return result.student.removesuffix(f"_{result.number}") if result.number else result.student


def told_apart(results: Iterable["Result"]) -> list["Result"]:
    """Return results in which no number stands for two students: those whose it is lose it, and have a note instead."""
    results = list(results)
    sharing: dict[tuple[str, str], list[str]] = {}
    for result in results:
        sharing.setdefault((result.assignment, result.number), []).append(f"“{one_line(result.student)}”")
    apart = []
    for result in results:
        students = sharing[result.assignment, result.number]
        if result.number and len(students) > 1:
            note = f"{listed(students)} have the number {result.number} alike: canvas.csv and moodle.csv leave it out."
            result = replace(result, number="", notes=(*result.notes, note))
        apart.append(result)
    return apart


def points_text(points: float) -> str:
    """Return points without needless zeros."""
    return f"{round(points, 2):g}"


def as_csv(rows: Iterable[Sequence[str]]) -> str:
    """Return rows as CSV, with an apostrophe in front of what a spreadsheet would take for a formula."""
    text = io.StringIO()
    for row in rows:
        csv.writer(text, lineterminator="\n").writerow(map(without_formulas, row))
    return text.getvalue()


def without_formulas(cell: str) -> str:
    """Return a cell that a spreadsheet shows and does not compute, whichever sign it takes for a separator."""
    text = cell.replace("\r\n", "\n").replace("\r", "\n")  # which `csv` leaves unquoted, and which ends a line
    return text if NUMBER.fullmatch(text) else FORMULA.sub(r"\1'", text)


def xml(text: str) -> str:
    """Return text without the characters that XML cannot hold."""
    return NOT_IN_XML.sub("�", text)
