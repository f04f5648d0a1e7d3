"""Submissions in every layout they come in, and folders that mean harm."""

import os
from datetime import datetime, timezone
from pathlib import Path

import pytest

from classroom import collect
from classroom.assignment import Assignment
from classroom.collect import Submission, submissions
from lab.notebook import CourseError

ASSIGNMENT = Assignment("01_vector_add", {"scale_add": 1.0}, "", "")
FILE = "01_vector_add.ipynb"
ODD_NAME = """Zoë "the\nkernel" O'Néill $(id) 李"""


def put(folder: Path, name: str, text: str = "{}", age: int = 0) -> Path:
    """Write a file that is `age` seconds older than now."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    moment = datetime(2027, 1, 31, tzinfo=timezone.utc).timestamp() - age
    os.utime(path, (moment, moment))
    return path


def collected(folder: Path, assignment: Assignment = ASSIGNMENT) -> dict[str, Submission]:
    return {one.student: one for one in submissions(folder, assignment)}


def test_a_folder_a_student_whatever_the_name(tmp_path: Path):
    paths = {name: put(tmp_path, f"{name}/{FILE}") for name in ("ada", ODD_NAME, "-rf", "..hidden.not"[2:])}
    found = collected(tmp_path)
    assert {name: one.path for name, one in found.items()} == paths
    assert all(one.notes == () for one in found.values())
    assert found["ada"].submitted_at == datetime(2027, 1, 31, tzinfo=timezone.utc)


def test_canvas(tmp_path: Path):
    ada = put(tmp_path, f"lovelaceada_1234_98765_{FILE}")
    late = put(tmp_path, "hoppergrace_LATE_77_98766_01_vector_add-2.ipynb")
    put(tmp_path, "hoppergrace_LATE_77_98760_01_vector_add-1.ipynb", age=50)
    put(tmp_path, "grades.csv")
    found = collected(tmp_path)
    assert {name: one.path for name, one in found.items()} == {"lovelaceada_1234": ada, "hoppergrace_77": late}
    assert "late" in found["hoppergrace_77"].notes[0]
    assert "2 notebooks" in found["hoppergrace_77"].notes[1]


@pytest.mark.parametrize(
    ("names", "numbers"),
    [
        ([f"lovelaceada_12_98_{FILE}", "eve_5_6_bob_77_assignsubmission_file_.ipynb"], {"12", "5"}),
        (["eve_5_6_bob_77_assignsubmission_file_.ipynb"], {"5"}),
        (["eve_5_6_bob_77_1_01_vector_add.ipynb"], {"5"}),
        (
            [
                f"Ada_12_assignsubmission_file_{FILE}",
                f"Eve_5_assignsubmission_file_Bob_77_assignsubmission_file_{FILE}",
            ],
            {"12", "5"},
        ),
        ([f"Ada_12_assignsubmission_file_/{FILE}", f"Eve_9_5_assignsubmission_file_/{FILE}"], {"12", "5"}),
        ([f"ada/{FILE}", f"eve_77/{FILE}", f"bob_5_assignsubmission_file_/{FILE}"], {""}),
        ([f"01_vector_add-ada/exercises/{FILE}", f"01_vector_add-eve_77/exercises/{FILE}"], {""}),
    ],
)
def test_the_number_in_front_is_the_students_whatever_the_file_is_called(tmp_path: Path, names: list, numbers: set):
    for name in names:
        put(tmp_path, name)
    found = collected(tmp_path)
    assert len(found) == len(names)
    assert {one.number for one in found.values()} == numbers


def test_what_is_named_otherwise_than_the_folders_layout_is_a_note(tmp_path: Path):
    """Neither taken for somebody of another layout nor passed over."""
    put(tmp_path, f"lovelaceada_1234_1_{FILE}")
    put(tmp_path, f"hoppergrace_77_2_{FILE}")
    put(tmp_path, "turingalan.ipynb")
    put(tmp_path, f"Eve_77_assignsubmission_file_/{FILE}")
    found = collected(tmp_path)
    assert {name: one.number for name, one in found.items()} == {
        "lovelaceada_1234": "1234",
        "hoppergrace_77": "77",
        "turingalan.ipynb": "",
        "Eve_77_assignsubmission_file_": "",
    }
    noted = {name for name, one in found.items() if "not named as the layout" in " ".join(one.notes)}
    assert noted == {"turingalan.ipynb", "Eve_77_assignsubmission_file_"}


@pytest.mark.parametrize("separator", ["/", ""])
def test_moodle(tmp_path: Path, separator: str):
    ada = put(tmp_path, f"Ada Lovelace_1234_assignsubmission_file_{separator}{FILE}")
    put(tmp_path, "Ada Lovelace_1234_assignsubmission_onlinetext_/onlinetext.html")
    bob = put(tmp_path, f"Bob_Under_Score_5_assignsubmission_file_{separator}{FILE}")
    found = collected(tmp_path)
    assert {name: one.path for name, one in found.items()} == {"Ada Lovelace_1234": ada, "Bob_Under_Score_5": bob}


def test_github_classroom(tmp_path: Path):
    ada = put(tmp_path, f"01_vector_add-ada/exercises/{FILE}", age=100)
    put(tmp_path, f"01_vector_add-ada/notebooks/{FILE}")
    put(tmp_path, f"01_vector_add-ada/.git/{FILE}")
    bob = put(tmp_path, f"vector-add-bob-b/exercises/{FILE}")
    other = put(tmp_path, f"homework-cy/exercises/{FILE}")
    found = collected(tmp_path)
    assert {name: one.path for name, one in found.items()} == {"ada": ada, "bob-b": bob, "homework-cy": other}


def test_the_newest_with_the_right_name_is_taken(tmp_path: Path):
    put(tmp_path, f"ada/{FILE}", age=100)
    newest = put(tmp_path, "ada/again/01_vector_add (1).ipynb", age=10)
    put(tmp_path, "ada/scratch.ipynb")
    put(tmp_path, f"ada/.ipynb_checkpoints/{FILE}")
    (one,) = submissions(tmp_path, ASSIGNMENT)
    assert one.path == newest
    assert "2 notebooks" in one.notes[0]


def test_another_name_is_taken_with_a_note(tmp_path: Path):
    path = put(tmp_path, "ada/my answer.ipynb")
    (one,) = submissions(tmp_path, ASSIGNMENT)
    assert one.path == path
    assert "“my answer.ipynb”, not 01_vector_add.ipynb" in one.notes[0]


def test_who_handed_in_nothing_is_listed(tmp_path: Path):
    put(tmp_path, "ada/answer.txt")
    (one,) = submissions(tmp_path, ASSIGNMENT)
    assert (one.student, one.path, one.read()) == ("ada", None, b"")
    assert one.notes == ("There is no notebook.",)


def test_links_are_not_followed(tmp_path: Path):
    secret = put(tmp_path, f"teacher/{FILE}", "secret")
    folder = tmp_path / "all"
    (folder / "ada").mkdir(parents=True)
    (folder / "ada" / FILE).symlink_to(secret)
    (folder / "bob").symlink_to(secret.parent)
    (folder / "cy").mkdir()
    (folder / "cy" / "inside").symlink_to(secret.parent)
    (folder / "dan").mkdir()
    (folder / "dan" / "loop").symlink_to("..")
    found = collected(folder)
    assert {name: one.path for name, one in found.items()} == dict.fromkeys(["ada", "bob", "cy", "dan"])
    assert all("is a link, and was not followed" in one.notes[0] for one in found.values())
    assert Submission("ada", folder / "ada" / FILE).read() == b""


def test_a_pipe_does_not_keep_the_class_waiting(tmp_path: Path):
    (tmp_path / "ada").mkdir()
    os.mkfifo(tmp_path / "ada" / FILE)
    (one,) = submissions(tmp_path, ASSIGNMENT)
    assert one.path is None
    assert Submission("ada", tmp_path / "ada" / FILE).read() == b""


def test_thousands_of_files_end_the_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(collect, "FILES", 20)
    for number in range(30):
        put(tmp_path, f"ada/{number}.txt")
    (one,) = submissions(tmp_path, ASSIGNMENT)
    assert "the rest was not looked at" in one.notes[0]


def test_a_huge_file_is_read_no_further_than_to_see_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(collect, "LARGEST", 100)
    path = put(tmp_path, f"ada/{FILE}")
    os.truncate(path, 1 << 40)
    assert len(submissions(tmp_path, ASSIGNMENT)[0].read()) == 101


def test_a_name_that_is_no_text_can_be_written_down(tmp_path: Path):
    folder = os.path.join(os.fsencode(tmp_path), b"\xff\xfeada")
    os.mkdir(folder)
    Path(os.fsdecode(folder), FILE).write_text("{}")
    (one,) = submissions(tmp_path, ASSIGNMENT)
    assert one.student.encode() == rb"\xff\xfeada"
    assert one.read() == b"{}"


def test_lateness_is_a_note(tmp_path: Path):
    put(tmp_path, f"ada/{FILE}")
    due = Assignment("01_vector_add", {}, "", "", due="2027-01-29T21:30:00+00:00")
    assert "1 d 2 h after the due date" in collected(tmp_path, due)["ada"].notes[0]


@pytest.mark.parametrize("make, says", [("missing", "cannot be read"), ("empty", "no submissions"), ("file", "unpack")])
def test_a_folder_without_submissions_says_what_belongs_there(tmp_path: Path, make: str, says: str):
    folder = tmp_path / "submissions"
    if make == "empty":
        put(folder, "read me.txt")
    elif make == "file":
        folder.write_text("a zip")
    with pytest.raises(CourseError, match=says):
        submissions(folder, ASSIGNMENT)
