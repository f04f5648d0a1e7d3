"""The command line, as a learner meets it."""

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import nbformat
import pytest
from jupyter_client.session import Session
from tornado.websocket import websocket_connect
from typer.testing import CliRunner

from classroom import console
from classroom.gradebook import Gradebook
from classroom.result import Result
from lab import notebook
from lab.generate import answers_of, blank_form, put_answers, solved_form
from lab.task import exercises, find_card, find_exercise
from tile import cli

ROOT = Path(__file__).parents[2]
EXERCISE = Path("exercises/01_vector_add.ipynb")
NAMES = ("lab", "tile", "solutions", "exercises")


def tile(*arguments: str, course: Path = ROOT, **environment: str) -> subprocess.CompletedProcess:
    """Run `tile …` in a copy of the course."""
    return subprocess.run(
        [sys.executable, "-m", "tile.cli", *arguments],
        cwd=course,
        env=os.environ | {"PYTHONPATH": str(course), "TILE_STATE": str(course / ".tile")} | environment,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=120,
    )


def test_help_names_every_command():
    told = CliRunner().invoke(cli.app, ["--help"]).output
    commands = "lab progress hint reset solution update new generate execute measure nbval assign grade grades"
    for command in commands.split():
        assert re.search(rf"^\W*{command}\s", told, re.MULTILINE), command


def test_pages_and_help_name_nbval_and_say_where_it_runs():
    for page in ("README.md", "book/teaching.md", "ARCHITECTURE.md"):
        assert "`tile nbval" in (ROOT / page).read_text(encoding="utf-8"), page
    told = CliRunner().invoke(cli.app, ["nbval", "--help"]).output
    assert "right answer's" in told and "sandbox" in told and "with your rights" in " ".join(told.split())


def test_a_mistake_is_one_message_and_a_status():
    result = CliRunner().invoke(cli.app, ["hint", "scale_ad"])
    assert result.exit_code == 1
    assert "Did you mean `scale_add`?" in result.output
    assert "Traceback" not in result.output


def test_a_task_is_found_in_capitals():
    points = cli.parse_points(["SCALE-ADD=2.5", "unheard_of=1"])
    assert points == {"scale_add": 2.5, "unheard_of": 1.0}


LARGE = "1" + "0" * 400
LONG = "x" * 5000


@pytest.mark.parametrize(
    "arguments, words",
    [
        (("lab", "--port", LARGE), "Invalid value for '--port'"),
        (("new", "twice_it", "--chapter", LARGE), "Invalid value for '--chapter'"),
        (
            ("grade", "in", "--assignment", "vector_add", "--out", "out", "--workers", LARGE),
            "Invalid value for '--workers'",
        ),
        (("lab", "--port", "1" * 5000), "Invalid value for '--port'"),
        (("assign", "vector_add", "--out", "out", "--points", f"scale_add={LARGE}"), "cannot be worth inf points"),
        (("execute", LONG), "cannot be read or written: File name too long."),
        (("grades", LONG), "cannot be read or written: File name too long."),
        (("hint", LONG), "There is no task called"),
    ],
)
def test_odd_arguments_end_in_a_sentence(arguments: tuple[str, ...], words: str):
    result = CliRunner().invoke(cli.app, arguments)
    assert result.exit_code and isinstance(result.exception, SystemExit), result.exception
    told = re.sub(r"[\s│]+", " ", result.output)  # without the frame and the wrapping
    assert words in told and "Traceback" not in told


def test_an_error_of_the_system_without_words_has_a_sentence_too():
    assert cli.refused_by_system(OSError()).startswith("The system refuses: OSError.")


def test_a_terminal_of_ascii_alone_gets_every_page(tmp_path: Path):
    """Ada's name, the hint's and the histogram's characters are not in ASCII."""
    with Gradebook(tmp_path / console.GRADEBOOK) as book:
        book.record(Result("Ada Lovelace, née Byron", "01_vector_add", "d", "d", 1.0, 2.0, ()))
    ascii_only = {"PYTHONIOENCODING": "ascii", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    hints = [("hint", card.name, "--all") for exercise in exercises() for card in exercise.cards]
    odd = [hint for hint in hints if not "".join(find_card(hint[1]).hints).isascii()]
    for arguments in [("--help",), ("progress",), *odd[:2], ("grades", str(tmp_path)), ("hint", "…")]:
        done = tile(*arguments, **ascii_only, TILE_STATE=str(tmp_path))
        assert done.returncode == (arguments[-1] == "…"), done.stderr
        assert "UnicodeEncodeError" not in done.stderr and (done.stdout + done.stderr).isascii()
    assert "Ada Lovelace, n?e Byron" in tile("grades", str(tmp_path), **ascii_only, COLUMNS="160").stdout


def test_light_commands_start_at_once(tmp_path: Path):
    program = "import sys, tile.cli; print('torch' in sys.modules, 'nbformat' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["False", "False"], done.stderr


def test_text_browsers_never_take_the_terminal(monkeypatch: pytest.MonkeyPatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "WSL_DISTRO_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(cli.sys, "platform", "linux")
    assert not cli.has_screen()
    monkeypatch.setenv("DISPLAY", ":0")
    assert cli.has_screen()


def test_lab_serves_the_next_page_at_a_free_port_and_stops_on_interrupt(tmp_path: Path):
    """A browser gets the printed address and the course's files, whatever settings this machine is used to.

    No proxy stands between the parts of JupyterLab: one that does not exist stops nothing.
    """
    folders = {f"JUPYTER_{kind}_DIR": str(tmp_path / kind) for kind in ("CONFIG", "DATA", "RUNTIME")}
    elsewhere = {"root_dir": str(tmp_path), "base_url": "/mine/", "certfile": str(tmp_path / "none.pem")}
    display = {"custom_display_url": "https://my.server/", "port_retries": 0, "sock": str(tmp_path / "socket")}
    habits = {
        "PasswordIdentityProvider": {"hashed_password": "argon2:somebody's"},
        "ServerApp": elsewhere | display,
        "KernelSpecManager": {"allowed_kernelspecs": ["somebody's"]},
    }
    (tmp_path / "CONFIG").mkdir()
    (tmp_path / "CONFIG" / "jupyter_server_config.json").write_text(json.dumps(habits))
    browser = tmp_path / "browser"
    browser.write_text('#!/bin/sh\necho "$1" >"$0.opened"\n')
    browser.chmod(0o755)
    screen = {"BROWSER": str(browser), "DISPLAY": ":0"}
    schemes = [f"{scheme}_proxy" for scheme in ("http", "https", "all")]
    proxies = dict.fromkeys([*schemes, *(scheme.upper() for scheme in schemes)], "http://127.0.0.1:9") | {
        "no_proxy": ""
    }
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = subprocess.Popen(
            [sys.executable, "-m", "tile.cli", "lab", f"--port={port}"],
            cwd=tmp_path,
            env=os.environ | folders | screen | proxies | {"PYTHONPATH": str(ROOT), "JUPYTER_TOKEN": "mine"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # Started in the background, a shell's children ignore Ctrl-C, and theirs after them.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        try:
            told = []
            while not (address := re.search(r"http://127\.0\.0\.1:(\d+)/lab/tree/(\S+)\?token=\w+", "".join(told))):
                assert server.poll() is None, "".join(told)
                told.append(server.stdout.readline())
            assert address[2] == "notebooks/01_vector_add.ipynb"
            assert int(address[1]) != port
            with opened(address[0], server) as page:
                assert page.status == 200 and page.url == address[0]
            files = re.sub(r"/lab/tree/(\S+)\?", r"/api/contents/\1?content=0&", address[0])
            with opened(files, server) as found:
                assert json.load(found)["path"] == "notebooks/01_vector_add.ipynb"
            with opened(re.sub(r"/lab/tree/\S+\?", "/api/kernelspecs?", address[0]), server) as found:
                assert "python3" in json.load(found)["kernelspecs"]
            assert asyncio.run(
                printed_by_a_kernel(address[0], "import os; print(os.environ['https_proxy'])", server)
            ) == ("http://127.0.0.1:9\n")
            server.send_signal(signal.SIGINT)
            told.append(server.communicate(timeout=60)[0])
            assert server.returncode == 0
            assert "Traceback" not in "".join(told) and len("".join(told).splitlines()) < 12, "".join(told)
            assert (tmp_path / "browser.opened").read_text().strip() == address[0]
        finally:
            server.kill()


def opened(address: str, server: subprocess.Popen, data: bytes | None = None):
    """Return the page at an address, which a server prints a moment before it listens there."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # as browsers reach this machine
    while True:
        try:
            return direct.open(address, data, timeout=60)
        except urllib.error.URLError as error:
            assert isinstance(error.reason, ConnectionRefusedError) and server.poll() is None, error
            time.sleep(0.05)


async def printed_by_a_kernel(address: str, code: str, server: subprocess.Popen) -> str:
    """Return what a new kernel prints, asked for over a socket as a browser asks."""
    with opened(re.sub(r"/lab/tree/\S+\?", "/api/kernels?", address), server, b"{}") as started:
        kernel = json.load(started)["id"]
    channels = re.sub(r"^http(.*)/lab/tree/\S+\?", rf"ws\1/api/kernels/{kernel}/channels?", address)
    socket_to_kernel = await websocket_connect(channels)
    request = Session().msg("execute_request", {"code": code, "silent": False})
    await socket_to_kernel.write_message(json.dumps(request | {"channel": "shell"}, default=str))
    while True:
        message = json.loads(await asyncio.wait_for(socket_to_kernel.read_message(), 60))
        if message["msg_type"] == "stream":
            socket_to_kernel.close()
            return message["content"]["text"]


# A new version of the course


class Courses:
    """The published course and a learner's clone of it."""

    def __init__(self, folder: Path):
        self.published, self.mine = folder / "published", folder / "my course"
        for name in NAMES:
            shutil.copytree(ROOT / name, self.published / name, ignore=shutil.ignore_patterns("__pycache__"))
        (self.published / "requirements.txt").write_text("")
        (self.published / ".gitignore").write_text(".tile/\n__pycache__/\n")
        (self.published / "notebooks").mkdir()
        shutil.copy(ROOT / EXERCISE, self.published / "notebooks" / "01_vector_add.ipynb")
        git(self.published, "init", "--quiet", "--initial-branch=main")
        self.publish("first")
        git(folder, "clone", "--quiet", str(self.published), str(self.mine))

    def publish(self, message: str) -> None:
        git(self.published, "add", "--all")
        git(self.published, "commit", "--quiet", "--message", message)

    def change(self, course: Path, task: str, source: str) -> None:
        content = notebook.read(course / EXERCISE)
        put_answers(content, {task: source})
        notebook.write(course / EXERCISE, content)

    def new_text(self) -> None:
        """Publish a version whose exercise has another first cell."""
        content = notebook.read(self.published / EXERCISE)
        content.cells[0].source = "# A better introduction"
        notebook.write(self.published / EXERCISE, content)
        self.publish("better introduction")

    def backups(self) -> list[Path]:
        return sorted((self.mine / ".tile" / "backups").rglob("*.ipynb"))


def git(folder: Path, *arguments: str) -> None:
    """Run git with a name to commit under and no settings of this machine."""
    person = {f"GIT_{role}_{key}": "learner" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}
    settings = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    subprocess.run(["git", *arguments], cwd=folder, env=os.environ | person | settings, check=True, timeout=60)


@pytest.fixture
def courses(tmp_path: Path) -> Courses:
    return Courses(tmp_path)


def test_update_brings_the_new_version_and_keeps_the_answers(courses: Courses):
    courses.change(courses.mine, "scale_add", "mine = 1")
    courses.new_text()
    courses.change(courses.published, "row_add", "a new blank = ____")
    courses.publish("new blank")
    done = tile("update", course=courses.mine)
    assert done.returncode == 0, done.stderr
    content = notebook.read(courses.mine / EXERCISE)
    answers = answers_of(content)
    assert content.cells[0].source == "# A better introduction"
    assert answers["scale_add"] == "mine = 1"
    assert answers["row_add"] == "a new blank = ____"
    (backup,) = courses.backups()
    assert answers_of(notebook.read(backup))["scale_add"] == "mine = 1"
    assert "scale_add" in done.stdout


def test_update_with_nothing_new_says_so_and_touches_nothing(courses: Courses):
    courses.change(courses.mine, "scale_add", "mine = 1")
    before = (courses.mine / EXERCISE).read_bytes()
    done = tile("update", course=courses.mine)
    assert done.returncode == 0, done.stderr
    assert "newest version" in done.stdout
    assert (courses.mine / EXERCISE).read_bytes() == before
    assert not courses.backups()


def test_update_puts_aside_a_chapter_that_was_run(courses: Courses):
    chapter = courses.mine / "notebooks" / "01_vector_add.ipynb"
    chapter.write_text(chapter.read_text() + "\n")
    mine = chapter.read_text()
    (courses.published / "notebooks" / "01_vector_add.ipynb").write_text("new chapter")
    courses.publish("new chapter")
    done = tile("update", course=courses.mine)
    assert done.returncode == 0, done.stderr
    assert chapter.read_text() == "new chapter"
    (backup,) = courses.backups()
    assert backup.read_text() == mine


@pytest.mark.parametrize("trouble", ["offline", "own commit", "changed kernel", "no git"])
def test_an_update_that_fails_leaves_the_answers_and_says_how_to_go_on(courses: Courses, trouble: str):
    courses.new_text()
    advice = "try again"
    if trouble == "offline":
        courses.published.rename(courses.published.with_name("gone"))
    elif trouble == "own commit":
        git(courses.mine, "commit", "--quiet", "--allow-empty", "--message", "mine")
        advice = "git pull --rebase"
    elif trouble == "changed kernel":
        for course in (courses.mine, courses.published):
            script = course / "solutions" / "__init__.py"
            script.write_text(script.read_text() + f"# {course.name}\n")
        courses.publish("kernel")
        advice = "git checkout -- FILE"
    elif trouble == "no git":
        shutil.rmtree(courses.mine / ".git")
        advice = "Clone the course into a folder of its own"
    courses.change(courses.mine, "scale_add", "mine = 1")
    before = (courses.mine / EXERCISE).read_bytes()
    done = tile("update", course=courses.mine, GIT_CEILING_DIRECTORIES=str(courses.mine.parent))
    assert done.returncode == 1
    assert advice in done.stderr
    assert "Traceback" not in done.stderr
    assert (courses.mine / EXERCISE).read_bytes() == before


def content_of(folder: Path) -> dict[Path, bytes]:
    """Return every file of a folder but those of git, and git's own list of what differs from the last commit."""
    paths = (path for path in folder.rglob("*") if path.is_file() and not {".git", "__pycache__"} & set(path.parts))
    kept = {path.relative_to(folder): path.read_bytes() for path in paths if ".tile" not in path.parts}
    status = subprocess.run(["git", "status", "--porcelain"], cwd=folder, capture_output=True, timeout=60)
    return kept | {Path(".git/status"): status.stdout}


@pytest.mark.parametrize(
    "state, words",
    [
        ("detached", "(a detached HEAD).*`git switch main`"),
        ("no upstream", "Your branch `mine` follows no branch of the course.*--set-upstream-to=origin/main"),
        ("no remote", "no address to fetch from.*Clone the course"),
        ("download", "not made with `git clone`.*Clone the course"),
        ("inside another", "inside another repository, .*around.*Clone the course"),
    ],
)
def test_a_copy_that_cannot_be_updated_is_told_what_it_is_and_what_to_do(courses: Courses, state: str, words: str):
    courses.new_text()
    courses.change(courses.mine, "scale_add", "mine = 1")
    around = courses.mine.parent / "around"
    if state == "detached":
        git(courses.mine, "checkout", "--quiet", "--detach")
    elif state == "no upstream":
        git(courses.mine, "checkout", "--quiet", "-b", "mine")
    elif state == "no remote":
        git(courses.mine, "remote", "remove", "origin")
    else:
        shutil.rmtree(courses.mine / ".git")
    if state == "inside another":  # which has a newer version of its own, so that git would have something to take
        git(courses.mine.parent, "clone", "--quiet", str(courses.published), str(around))
        git(around, "reset", "--quiet", "--hard", "HEAD~1")
        courses.mine = courses.mine.rename(around / "my course")
    before = content_of(around if around.exists() else courses.mine)
    done = tile("update", course=courses.mine, GIT_CEILING_DIRECTORIES=str(courses.published.parent))
    assert done.returncode == 1
    assert re.search(words.replace("(", r"\(").replace(")", r"\)"), done.stderr), done.stderr
    assert "Nothing was changed." in done.stderr and "fatal:" not in done.stderr
    assert content_of(around if around.exists() else courses.mine) == before
    assert not courses.backups()


def test_update_stays_in_its_own_repository_whatever_the_environment_says(courses: Courses, tmp_path: Path):
    git(tmp_path, "clone", "--quiet", str(courses.published), "other")
    courses.new_text()
    before = content_of(tmp_path / "other")
    done = tile("update", course=courses.mine, GIT_DIR=str(tmp_path / "other" / ".git"))
    assert done.returncode == 0, done.stderr
    assert content_of(tmp_path / "other") == before
    assert (courses.mine / EXERCISE).read_bytes() == (courses.published / EXERCISE).read_bytes()


def with_git(folder: Path, command: str, script: str) -> dict[str, str]:
    """Return an environment in which one of git's commands is a shell script, that knows the real one as $GIT."""
    wrapper = folder / "bin" / "git"
    wrapper.parent.mkdir()
    wrapper.write_text(
        f'#!/bin/sh\nGIT={shutil.which("git")}\nif [ "$1" = {command} ]; then\n{script}\nfi\nexec "$GIT" "$@"\n'
    )
    wrapper.chmod(0o755)
    return {"PATH": f"{wrapper.parent}{os.pathsep}{os.environ['PATH']}"}


@pytest.mark.parametrize(
    "says, words",
    [
        ("ssh: Could not resolve hostname course.org: Name or service not known", "server cannot be reached"),
        ("fatal: unable to access 'https://c.org/': Failed to connect to c.org port 443", "server cannot be reached"),
        ("error: cannot open '.git/FETCH_HEAD': Read-only file system", r"cannot be written \(Read-only file system\)"),
        ("fatal: write error: No space left on device", r"cannot be written \(No space left on device\)"),
        ("error: cannot open '.git/FETCH_HEAD': Permission denied", r"cannot be written \(Permission denied\)"),
        ("git@c.org: Permission denied (publickey).", "could not be fetched.*\n.*publickey"),
        ("fatal: repository 'https://c.org/' not found", "holds no course now.*git remote set-url"),
    ],
)
def test_what_keeps_a_fetch_from_coming_has_its_own_sentence(courses: Courses, tmp_path: Path, says: str, words: str):
    courses.new_text()
    courses.change(courses.mine, "scale_add", "mine = 1")
    before = content_of(courses.mine)
    done = tile("update", course=courses.mine, **with_git(tmp_path, "fetch", f'echo "{says}" >&2; exit 128'))
    assert done.returncode == 1
    assert re.search(words, done.stderr) and "try again" in done.stderr, done.stderr
    assert "Nothing was changed." in done.stderr
    assert content_of(courses.mine) == before


FULL = "echo 'error: unable to write file: No space left on device' >&2; exit 128"


@pytest.mark.parametrize(
    "command, script",
    [
        ("checkout", f'[ "$2" = HEAD ] && {{ {FULL}; }}'),
        ("merge", f'"$GIT" show "@{{upstream}}:exercises/01_vector_add.ipynb" > lab/words.py; rm lab/show.py; {FULL}'),
        ("merge", f'"$GIT" checkout --quiet "@{{upstream}}" -- new.py lab/words.py; {FULL}'),
        ("merge", '"$GIT" "$@"; mkdir "exercises/.01_vector_add.ipynb.$PPID"; exit 0'),
    ],
    ids=["checkout", "half a merge", "half a merge, staged", "answers"],
)
def test_a_disk_that_fills_up_on_the_way_leaves_every_file_as_it_was(
    courses: Courses, tmp_path: Path, command: str, script: str
):
    for name in ("new.py", "lab/words.py", "lab/show.py"):
        with open(courses.published / name, "a") as file:
            file.write("# newer\n")
    courses.new_text()
    courses.change(courses.mine, "scale_add", "mine = 1")
    chapter = courses.mine / "notebooks" / "01_vector_add.ipynb"
    chapter.unlink()
    (courses.mine / "lab" / "plots" / "figure.py").write_text("# mine\n")
    before = content_of(courses.mine)
    done = tile("update", course=courses.mine, **with_git(tmp_path, command, script))
    assert done.returncode == 1
    assert "cannot be written" in done.stderr and "Your copy is as it was." in done.stderr, done.stderr
    assert "is back in" not in done.stdout
    assert content_of(courses.mine) == before
    done = tile("update", course=courses.mine)
    assert done.returncode == 0, done.stderr
    assert answers_of(notebook.read(courses.mine / EXERCISE))["scale_add"] == "mine = 1"


@pytest.mark.parametrize(
    "text, words",
    [
        ("{ damaged", "The file is no notebook"),
        ('{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}', "It has no cells."),
        (
            '{"worksheets": [], "metadata": {}, "nbformat": 3, "nbformat_minor": 0}',
            "The file is a notebook of nbformat 3",
        ),
    ],
)
def test_update_replaces_an_exercise_without_answers_and_keeps_it(courses: Courses, text: str, words: str):
    courses.new_text()
    (courses.mine / EXERCISE).write_text(text)
    done = tile("update", course=courses.mine)
    assert done.returncode == 0, done.stderr
    (backup,) = courses.backups()
    assert f"No answer could be taken from {EXERCISE}. {words}" in done.stderr
    assert f"It is kept in {backup}, and the new version takes its place." in done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert (courses.mine / EXERCISE).read_bytes() == (courses.published / EXERCISE).read_bytes()
    assert backup.read_text() == text


def test_update_keeps_what_another_editor_wrote(courses: Courses):
    """Colab's file: an older format, no ids, an answer that is gone, and a note."""
    exercise = find_exercise("vector_add")
    solved, blank = answers_of(solved_form(exercise)), answers_of(blank_form(exercise))
    courses.change(courses.mine, "scale_add", solved["scale_add"])
    content = json.loads((courses.mine / EXERCISE).read_text())
    content["cells"] = [cell for cell in content["cells"] if cell["id"] != "row_add-answer"]
    for number, cell in enumerate(content["cells"]):
        cell["metadata"] = {"id": f"hT3kQz{number:06}"}
        del cell["id"]
    content["cells"].append({"cell_type": "markdown", "metadata": {}, "source": "My note"})
    (courses.mine / EXERCISE).write_text(json.dumps(content | {"nbformat_minor": 0}))
    courses.new_text()
    done = tile("update", course=courses.mine)
    assert done.returncode == 0 and not done.stderr, done.stderr
    now = notebook.read(courses.mine / EXERCISE)
    assert answers_of(now) == blank | {"scale_add": solved["scale_add"]}
    assert (now.cells[0].source, now.cells[-1].source) == ("# A better introduction", "My note")
    (backup,) = courses.backups()
    for sentence in (
        f"Your answer to `scale_add` is back in {EXERCISE}",
        f"Your own cells are back in {EXERCISE}",
        "No answer to `row_add` was found: its cell is gone. The new version has its blank.",
        f"What you had is also kept in {backup}",
    ):
        assert sentence in done.stdout.splitlines()


def test_update_without_the_task_or_the_exercise_says_where_they_are(courses: Courses):
    courses.change(courses.mine, "scale_add", "mine = 1")
    content = notebook.read(courses.mine / EXERCISE)
    content.cells.append(nbformat.v4.new_markdown_cell("My note"))
    notebook.write(courses.mine / EXERCISE, content)
    for path in (EXERCISE, Path("solutions/vector_add.py")):
        (courses.published / path).unlink()
    courses.publish("no vector add")
    done = tile("update", course=courses.mine)
    assert done.returncode == 0, done.stderr
    assert "The new version has no task `scale_add` any more; your answer to it is in the backup." in done.stdout
    assert "no exercise `vector_add` any more; your own cells are in the backup." in done.stdout
    (backup,) = courses.backups()
    assert f"What you had is also kept in {backup}" in done.stdout


def test_update_installs_what_the_new_version_needs(courses: Courses):
    (courses.published / "requirements.txt").write_text("./no-such-package\n")
    courses.publish("needs more")
    done = tile("update", course=courses.mine)
    assert "installing" in done.stdout
    assert done.returncode == 1
    assert "make lab" in done.stderr
