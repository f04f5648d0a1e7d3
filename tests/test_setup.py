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


@pytest.fixture
def no_proxies(monkeypatch):
    """An environment that names no proxy."""
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)


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


def test_probe_gives_up_on_a_server_that_dribbles(bootstrap, no_proxies):
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


@pytest.mark.slow
def test_no_network_then_made_anew(clone, no_proxies, monkeypatch):
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


REFUSED = "NewConnectionError('Failed to establish a new connection: [Errno 111] Connection refused')"


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "http_proxy", "PIP_PROXY"])
@pytest.mark.parametrize("address", ["http://127.0.0.1:9", "http://ada:secret@127.0.0.1:9/", "127.0.0.1:9"])
def test_a_proxy_that_is_not_there_is_named(bootstrap, no_proxies, monkeypatch, name, address):
    monkeypatch.setenv(name, address)
    message = bootstrap.explain_proxy(f"WARNING: Retrying after connection broken by 'ProxyError({REFUSED})'")
    assert message == (
        f"The proxy 127.0.0.1:9 that {name} names cannot be reached (Connection refused): mend or unset {name}."
    )


@pytest.mark.parametrize(
    "address, log, says",
    [
        ("http://127.0.0.1:abc", "ERROR: Failed to parse: http://127.0.0.1:abc", "HTTPS_PROXY holds no address of a"),
        ("http://[::1", "ERROR: Failed to parse: http://[::1", "HTTPS_PROXY holds no address of a proxy: it should"),
        ("http://", REFUSED, "HTTPS_PROXY holds no address of a proxy: it should read like http://proxy"),
        ("socks5://127.0.0.1:9", "ERROR: Missing dependencies for SOCKS support.", "cannot use the SOCKS proxy 127."),
        (
            "http://no-such-host.invalid:3128",
            "ProxyError",
            "The proxy no-such-host.invalid:3128 that HTTPS_PROXY names",
        ),
        ("http://127.0.0.1:9", "ERROR: something new", "^$"),
        ("", REFUSED, "^$"),
    ],
)
def test_what_is_wrong_with_a_proxy_is_told(bootstrap, no_proxies, monkeypatch, address, log, says):
    monkeypatch.setenv("HTTPS_PROXY", address)
    message = bootstrap.explain_proxy(log)
    assert re.search(says, message) and "\n" not in message


def test_a_proxy_is_blamed_only_for_what_it_does(bootstrap, no_proxies, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = f"127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setenv("https_proxy", f"http://ada:secret@{place}")
        assert bootstrap.explain_proxy(REFUSED) == ""
        log = "ProxyError('Cannot connect', OSError('Tunnel connection failed: 407 Proxy Authentication Required'))"
        assert bootstrap.explain_proxy(log) == (
            f"The proxy {place} that https_proxy names refuses (407 Proxy Authentication Required): ask who runs it."
        )


@pytest.mark.parametrize("address", ["http://127.0.0.1:9", "http://127.0.0.1:abc"])
def test_a_probe_through_a_proxy_that_is_not_there_says_nothing(bootstrap, no_proxies, monkeypatch, capfd, address):
    monkeypatch.setenv("https_proxy", address)
    assert not bootstrap.answers(bootstrap.CPU_INDEX)
    assert capfd.readouterr().err == ""


@pytest.mark.slow
def test_a_set_up_behind_a_proxy_that_is_not_there_names_it_in_one_line(clone, no_proxies, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "0")
    monkeypatch.setenv("PIP_INDEX_URL", "https://registry.invalid/simple")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    monkeypatch.setenv("PIP_RETRIES", "1")
    monkeypatch.setenv("https_proxy", "http://ada:secret@127.0.0.1:9")
    done = make(clone, "setup")
    assert done.returncode != 0
    assert done.stderr.splitlines()[0] == (
        "The proxy 127.0.0.1:9 that https_proxy names cannot be reached (Connection refused): mend or unset "
        "https_proxy. Then run this again."
    )
    assert "secret" not in done.stdout + done.stderr and "Traceback" not in done.stdout + done.stderr


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
