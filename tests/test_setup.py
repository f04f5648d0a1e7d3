"""The set-up: what it says when something is missing, and that it works in any folder, twice, and after a half."""

import contextlib
import importlib.util
import os
import re
import resource
import shlex
import shutil
import socket
import subprocess
import sys
import threading
import zipfile
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

ROOT = Path(__file__).parents[1]
ODD_NAME = """a folder's "$HOME" & $nothing ümlaut `x` #1"""


def load_bootstrap(folder: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("bootstrap", folder / "bootstrap.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def bootstrap() -> ModuleType:
    return load_bootstrap(ROOT)


@pytest.fixture
def commands(tmp_path, monkeypatch) -> Path:
    """A folder that is the whole PATH; it holds the shell and make, and no Python."""
    folder = tmp_path / "commands"
    folder.mkdir()
    for name in ("sh", "make", "sed"):
        (folder / name).symlink_to(shutil.which(name))
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("PYTHON", raising=False)
    return folder


def write_command(path: Path, script: str) -> None:
    path.write_text("#!/bin/sh\n" + script)
    path.chmod(0o755)


def write_wheel(folder: Path, name: str, version: str, files: dict[str, str]) -> None:
    """Write the smallest wheel pip installs."""
    information = f"{name}-{version}.dist-info"
    files = files | {
        f"{information}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{information}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{file},,\n" for file in [*files, f"{information}/RECORD"])
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for file, text in (files | {f"{information}/RECORD": record}).items():
            wheel.writestr(file, text)


@pytest.fixture
def clone(tmp_path, monkeypatch) -> Path:
    """A course of the same set-up whose only pin is a torch of one line, served from the disk."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    write_wheel(wheels, "torch", "2.13.0+cpu", {"torch/version.py": "__version__ = '2.13.0+cpu'\n"})
    folder = tmp_path / ODD_NAME
    folder.mkdir()
    for name in ("bootstrap.py", "Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    (folder / "requirements.txt").write_text("torch==2.13.0\n")
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", wheels.as_uri())
    monkeypatch.setenv("PYTHON", sys.executable)
    return folder


def make(folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    command = [shutil.which("make"), "--no-print-directory", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


def test_no_python(commands):
    done = make(ROOT, "setup")
    assert done.returncode != 0
    assert done.stderr.startswith("There is no Python here. Install one")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("version", ["3.9", "3.15"])
def test_wrong_python(bootstrap, commands, version):
    write_command(commands / "python3", f"echo {version.replace('.', ' ')}")
    bootstrap.sys = SimpleNamespace(executable="")
    with pytest.raises(bootstrap.Trouble, match=rf"needs Python 3.10 to 3.14; here is {version}.*make lab PYTHON="):
        bootstrap.choose_python()


def test_python_without_venv(bootstrap, commands):
    hide = "import sys; sys.modules['ensurepip'] = None; exec(sys.argv[1])"
    write_command(commands / "python3.12", f"""exec {shlex.quote(sys.executable)} -I -c "{hide}" "$3"\n""")
    write_command(commands / "apt-get", "")
    bootstrap.sys = SimpleNamespace(executable="")
    version = f"python3.{sys.version_info[1]}-venv"
    with pytest.raises(bootstrap.Trouble, match=f"lacks its venv module. Install it.*apt install {version}$"):
        bootstrap.choose_python()


def test_newest_complete_python_is_taken(bootstrap, commands):
    write_command(commands / "python3.13", "echo pyenv: python3.13: command not found >&2; exit 127")
    write_command(commands / "python3.12", "echo 3 12; exit 1")  # no venv module
    write_command(commands / "python3.11", "echo 3 11")
    write_command(commands / "python3", "echo 3 14")
    assert bootstrap.choose_python() == (str(commands / "python3.11"), (3, 11))


def test_named_python_is_the_only_candidate(bootstrap, commands, monkeypatch):
    write_command(commands / "python3.11", "echo 3 11")
    monkeypatch.setenv("PYTHON", "/nowhere/python3.12")
    with pytest.raises(bootstrap.Trouble, match="/nowhere/python3.12 is none that runs"):
        bootstrap.choose_python()


@pytest.mark.parametrize(
    "system, machine, libc, says",
    [
        ("darwin", "arm64", ("", ""), "Linux only.*book/setup.md"),
        ("linux", "riscv64", ("glibc", "2.36"), "no Triton for this riscv64"),
        ("linux", "x86_64", ("", ""), "glibc 2.28.*not Alpine"),
        ("linux", "x86_64", ("glibc", "2.17"), "glibc 2.28"),
    ],
)
def test_wrong_platform(bootstrap, monkeypatch, system, machine, libc, says):
    monkeypatch.setattr(bootstrap.sys, "platform", system)
    monkeypatch.setattr(bootstrap.platform, "machine", lambda: machine)
    monkeypatch.setattr(bootstrap.platform, "libc_ver", lambda: libc)
    with pytest.raises(bootstrap.Trouble, match=says):
        bootstrap.check_platform()


def test_no_disk(bootstrap, monkeypatch):
    monkeypatch.setattr(bootstrap, "megabytes", lambda folder: 0.0)
    monkeypatch.setattr(bootstrap.shutil, "disk_usage", lambda folder: SimpleNamespace(free=1.2e9))
    with pytest.raises(bootstrap.Trouble, match="needs 3.0 GB here, 1.2 GB are free: make room"):
        bootstrap.check_disk("cpu")


def test_probe_gives_up_on_a_server_that_dribbles(bootstrap):
    enough = threading.Event()

    def dribble(server: socket.socket) -> None:
        connection, _ = server.accept()
        with contextlib.suppress(OSError), connection:
            connection.sendall(b"HTTP/1.1 200 OK\r\nX-More: ")
            for _ in range(600):
                connection.sendall(b".")
                if enough.wait(0.1):
                    return

    with socket.create_server(("127.0.0.1", 0)) as server:
        dribbling = threading.Thread(target=dribble, args=(server,), daemon=True)
        dribbling.start()
        assert not bootstrap.answers(f"http://127.0.0.1:{server.getsockname()[1]}/torch/", seconds=1)
        assert dribbling.is_alive(), "the probe gave up only when the server did"
        enough.set()
        dribbling.join()
    assert bootstrap.PROBE_SECONDS <= 3


def test_folder_with_a_colon(bootstrap, monkeypatch):
    monkeypatch.setattr(bootstrap, "ROOT", "/home/me/a:b")
    with pytest.raises(bootstrap.Trouble, match="colon in its name: rename it"):
        bootstrap.set_up()


@pytest.mark.parametrize(
    "gpu, index, build", [(True, True, "default"), (False, True, "cpu"), (False, False, "default")]
)
def test_build_of_torch(bootstrap, monkeypatch, gpu, index, build):
    monkeypatch.setattr(bootstrap, "has_nvidia_gpu", lambda: gpu)
    monkeypatch.setattr(bootstrap, "answers", lambda url: index)
    assert bootstrap.choose_build()[0] == build


@pytest.mark.parametrize(
    "log, says",
    [
        ("OSError: [Errno 28] No space left on device", "disk is full: make room"),
        ("SSLError: CERTIFICATE_VERIFY_FAILED", "PIP_CERT"),
        ("ProxyError('Cannot connect')\nERROR: No matching distribution found for torch", "proxy"),
        ("(from versions: 2.1.0)\nERROR: No matching distribution found for torch==2.13.0", "no torch==2.13.0"),
        ("ERROR: something new\n", "something new.*setup.log"),
    ],
)
def test_failure_of_pip_is_explained(bootstrap, monkeypatch, tmp_path, log, says):
    monkeypatch.setattr(bootstrap, "LOG", str(tmp_path / "log"))
    (tmp_path / "log").write_text(log)
    message = bootstrap.explain_pip()
    assert "\n" not in message
    with pytest.raises(bootstrap.Trouble, match=says):
        raise bootstrap.Trouble(message)


def test_any_folder_twice_changed_and_moved(clone):
    first = make(clone, "setup")
    assert first.returncode == 0, first.stdout + first.stderr
    assert "torch 2.13.0+cpu" in first.stdout.splitlines()[-1]

    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    second = make(clone, "setup")
    assert (second.returncode, second.stdout, second.stderr) == (0, "", "")
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before < 1

    with (clone / "requirements.txt").open("a") as file:
        file.write("# changed\n")
    assert "The pins have changed" in make(clone, "setup").stdout
    assert make(clone, "setup").stdout == ""

    moved = load_bootstrap(clone.rename(clone.with_name("moved")))
    assert moved.recorded() and not moved.recorded().startswith(moved.place())


def test_no_network_then_made_anew(clone, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setenv("PIP_NO_INDEX", "0")
        patch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9")
        patch.setenv("PIP_FIND_LINKS", "")
        patch.setenv("PIP_RETRIES", "1")
        half = make(clone, "setup")
    assert half.returncode != 0
    assert half.stderr.startswith("The package registry does not answer: check the network")
    assert "Traceback" not in half.stdout + half.stderr
    leftover = clone / ".venv" / "half"
    leftover.touch()
    assert make(clone, "setup").returncode == 0
    assert not leftover.exists()


def test_a_venv_of_someone_else_is_left_alone(clone):
    (clone / ".venv").mkdir()
    (clone / ".venv" / "pyvenv.cfg").write_text("mine")
    done = make(clone, "setup")
    assert done.returncode != 0
    assert ".venv is there already, but this set-up did not make it: move it away" in done.stderr
    assert (clone / ".venv" / "pyvenv.cfg").read_text() == "mine"


def test_torch_and_triton_are_a_pair(bootstrap):
    pins = (ROOT / "requirements.txt").read_text().split()
    assert bootstrap.torch_pin() == "torch==2.13.0"
    assert "triton==3.7.1" in pins


def test_help_lists_every_target():
    targets = re.findall(r"^([a-z]+):.* ## ", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert [line.split()[0] for line in make(ROOT).stdout.splitlines()] == targets
    assert {"lab", "test", "thorough", "book", "notebooks", "measure", "grade"} <= set(targets)


def test_setuptools_finds_a_folder_whose_name_looks_like_a_variable(bootstrap, monkeypatch, tmp_path):
    given = {}

    def popen(command, env, **options):
        given.update(env)
        raise OSError

    monkeypatch.setattr(bootstrap, "ROOT", "/some/$nothing and $HOME")
    monkeypatch.setattr(bootstrap, "TEMPORARY", str(tmp_path))
    monkeypatch.setattr(bootstrap.subprocess, "Popen", popen)
    with pytest.raises(OSError):
        bootstrap.pip_install([], None)
    assert given["nothing"] == "$nothing" and given["HOME"] == os.environ["HOME"]
