"""Set up .venv: find a Python, install the pins of requirements.txt, and say what happens.

`make` runs this before everything else; when .venv is up to date it returns at once. Standard library only, and
written for every Python from 3.6 on, because it must be able to say that a Python is too old.
"""

import contextlib
import glob
import hashlib
import os
import platform
import re
import runpy
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request

ROOT = os.path.dirname(os.path.abspath(__file__))
VENV = os.path.join(ROOT, ".venv")
VENV_PYTHON = os.path.join(VENV, "bin", "python")
READY = os.path.join(VENV, "ready")  # holds the fingerprint of a finished set-up
LOG = os.path.join(VENV, "setup.log")  # also the mark that this .venv is ours to remake
TEMPORARY = os.path.join(VENV, "tmp")  # pip's downloads, since /tmp is small on many machines

OLDEST, NEWEST = 10, 14  # Python 3.x that all pins offer wheels for
PREFERRED = (13, 12, 11, 10)  # the tested ones, best first
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
PROBE_SECONDS = 3
DISK_GB = {"cpu": 3.0, "default": 8.5}  # .venv, and beside it the downloads until they are unpacked
DOWNLOAD_GB = {"cpu": 0.6, "default": 2.9}

ASK_PYTHON = """
import sys
print(*sys.version_info[:2])
import ensurepip, venv
"""
NETWORK_TROUBLE = (
    "NewConnectionError|NameResolutionError|Temporary failure in name resolution|Name or service not known|"
    "Network is unreachable|Connection refused|Connection reset|Connection broken|IncompleteRead|"
    "ConnectTimeout|ReadTimeout|Read timed out|timed out|ProxyError|Max retries exceeded"
)


class Trouble(Exception):
    """What went wrong and what to do about it, in one line for the person at the terminal."""


def check_platform():
    """Raise Trouble where Triton and PyTorch publish no packages."""
    machine = platform.machine()
    if not sys.platform.startswith("linux"):
        raise Trouble("Triton runs on Linux only: take WSL, a container, Colab or Binder: see book/setup.md.")
    if machine not in ("x86_64", "aarch64") or sys.maxsize < 2**32:
        raise Trouble(f"There is no Triton for this {machine} system: take a 64-bit Python on 64-bit x86 or ARM Linux.")
    libc, version = platform.libc_ver()
    if libc != "glibc" or tuple(map(int, version.split(".")[:2])) < (2, 28):
        raise Trouble("PyTorch needs glibc 2.28: take Debian 10, Ubuntu 20.04, Fedora 29 or newer, not Alpine.")


def ask_python(command):
    """Return (path, (major, minor), has venv) of a Python command, or None where it does not run."""
    path = shutil.which(command)
    if path is None:
        return None
    try:
        ask = [path, "-I", "-c", ASK_PYTHON]
        asked = subprocess.run(ask, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=20)
        major, minor = map(int, asked.stdout.split())
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return path, (major, minor), asked.returncode == 0


def choose_python():
    """Return (path, version) of the newest Python that can carry the course. Raises Trouble when there is none.

    The environment variable PYTHON, if set, names the only candidate.
    """
    named = os.environ.get("PYTHON")
    commands = [named] if named else [f"python3.{minor}" for minor in PREFERRED] + ["python3", sys.executable]
    found = [python for python in map(ask_python, commands) if python]
    fitting = [python for python in found if (3, OLDEST) <= python[1] <= (3, NEWEST)]
    for path, version, complete in fitting:
        if complete:
            return path, version
    if fitting:
        raise Trouble(without_venv(*fitting[0][:2]))
    here = ", ".join(sorted(f"{major}.{minor}" for _, (major, minor), _ in found)) or "none that runs"
    raise Trouble(
        f"The course needs Python 3.{OLDEST} to 3.{NEWEST}; {named or 'here'} is {here}. Install one (Debian, Ubuntu: "
        "apt install python3 python3-venv), or name the one to take: make lab PYTHON=/path/to/python3.12"
    )


def without_venv(path, version):
    """Return what to install where Python lacks its venv module, as Debian and Ubuntu ship it."""
    if shutil.which("apt-get") is None:
        return f"{path} lacks its modules venv and ensurepip: install them, or name another: make lab PYTHON=/path"
    sudo = "" if os.geteuid() == 0 else "sudo "
    package = f"python{version[0]}.{version[1]}-venv"
    return f"{path} lacks its venv module. Install it, then run this again: {sudo}apt install {package}"


def has_nvidia_gpu():
    """Return whether an NVIDIA GPU is within reach, also from WSL and from a container."""
    if glob.glob("/dev/nvidia[0-9]*"):
        return True
    command = shutil.which("nvidia-smi") or "/usr/lib/wsl/lib/nvidia-smi"
    try:
        return b"GPU 0" in subprocess.check_output([command, "-L"], stderr=subprocess.DEVNULL, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return False


def answers(url, seconds=PROBE_SECONDS):
    """Return whether a server answers within `seconds`, all in all."""
    replies = []

    def ask():
        with contextlib.suppress(Exception):  # the address of a proxy may be anything
            replies.append(urllib.request.urlopen(url, timeout=seconds).status == 200)

    # A thread, because no time limit of urlopen covers looking up the name.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(seconds)
    return replies == [True]


def choose_build():
    """Return ("cpu" or "default", why) for PyTorch."""
    if has_nvidia_gpu():
        return "default", "the CUDA build, for the NVIDIA GPU here"
    if answers(CPU_INDEX + "/torch/"):
        return "cpu", "the CPU build, since there is no NVIDIA GPU here"
    return "default", "the registry's own build (no NVIDIA GPU here, but PyTorch's index of CPU builds does not answer)"


def megabytes(folder):
    """Return the size of all files below a folder, in MB."""
    total = 0
    for here, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):  # pip may have moved it meanwhile
                total += os.lstat(os.path.join(here, name)).st_size
    return total / 1e6


def check_disk(build):
    """Raise Trouble when the disk cannot take this build of PyTorch and the rest."""
    needed = DISK_GB[build] - megabytes(VENV) / 1e3
    free = shutil.disk_usage(ROOT).free / 1e9
    if free < needed:
        raise Trouble(f"The set-up needs {needed:.1f} GB here, {free:.1f} GB are free: make room, then run this again.")


def place():
    """Return what .venv cannot survive a change of: this folder, which pip writes into it, and the Python below it."""
    return f"{ROOT}\n{os.path.realpath(VENV_PYTHON)}\n"


def pins():
    """Return a digest of what .venv must hold."""
    digest = hashlib.sha256()
    for name in ("requirements.txt", "pyproject.toml"):
        with open(os.path.join(ROOT, name), "rb") as file:
            digest.update(file.read())
    return digest.hexdigest()


def recorded():
    """Return what the last finished set-up left as its mark; empty when there is none, or its Python is gone."""
    if not os.access(VENV_PYTHON, os.X_OK):
        return ""
    try:
        with open(READY, errors="surrogateescape") as file:
            return file.read()
    except OSError:
        return ""


def make_venv(python):
    """Make an empty .venv in place of an unfinished one. Raises Trouble when a .venv is there that is not ours."""
    if os.path.isdir(VENV) and os.listdir(VENV) and not os.path.exists(LOG):
        raise Trouble(".venv is there already, but this set-up did not make it: move it away, then run this again.")
    os.makedirs(VENV, exist_ok=True)
    for entry in list(os.scandir(VENV)):
        shutil.rmtree(entry.path) if entry.is_dir(follow_symlinks=False) else os.remove(entry.path)
    with open(LOG, "wb") as log:
        run = subprocess.run([python, "-I", "-m", "venv", VENV], stdout=log, stderr=subprocess.STDOUT)
    if run.returncode:
        raise Trouble(f"{python} could not make .venv: {last_line()}")


def last_line():
    """Return the last line of the log that says something, preferring pip's own errors."""
    with open(LOG, errors="replace") as log:
        lines = [line.strip() for line in log if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    return (errors or lines or ["it left no message"])[-1][:300]


class Progress:
    """One line that tells what pip is doing: rewritten in a terminal, repeated now and then in a log."""

    def __init__(self):
        self.start = time.time()
        self.doing = "asking the registry"
        self.packages = 0
        self.live = sys.stdout.isatty()
        self.shown = 0.0

    def hear(self, line):
        """Take in one line of pip's output."""
        words = line.split()
        if line.startswith("Collecting "):
            self.packages += 1
            self.doing = f"resolving: {self.packages} packages"
        elif line.startswith("Downloading ") and len(words) > 1:
            name = words[1].split("/")[-1].split("-")[0]
            size = re.search(r"\(([^()]*B)\)", line)
            self.doing = f"downloading {name}" + (f" ({size.group(1)})" if size else "")
        elif line.startswith("Installing collected packages"):
            self.doing = f"unpacking {len(words) - 3} packages"

    def show(self):
        """Show the state, in a terminal at once, elsewhere every ten seconds."""
        seconds = int(time.time() - self.start)
        if not self.live and time.time() - self.shown < 10:
            return
        self.shown = time.time()
        text = f"  {seconds // 60}:{seconds % 60:02}  {self.doing}, {megabytes(VENV):.0f} MB in .venv"
        if self.live:
            text = "\r\033[K" + text[: shutil.get_terminal_size().columns - 1]
        print(text, end="" if self.live else "\n", flush=True)

    def close(self):
        """Clear the line."""
        if self.live:
            print("\r\033[K", end="", flush=True)


def pip_install(arguments, progress):
    """Return whether pip installed what the arguments name; its words go to the log."""
    os.makedirs(TEMPORARY, exist_ok=True)
    # setuptools takes `$word` in a folder's name for a variable, and stops at one that it does not find.
    as_they_are = {word: "$" + word for word in re.findall(r"\$([A-Za-z_]\w*)", ROOT)}
    environment = dict(as_they_are, **os.environ)
    environment.update(TMPDIR=TEMPORARY, PIP_USER="0", PYTHONUNBUFFERED="1")
    # Byte code is left to the first import: compiling all of it takes longer than unpacking, and most is never run.
    command = [VENV_PYTHON, "-I", "-m", "pip", "install", "--no-input", "--no-compile", "--disable-pip-version-check"]
    process = subprocess.Popen(
        command + ["--progress-bar", "off"] + arguments,
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )

    def listen():
        with open(LOG, "ab") as log:
            for line in process.stdout:
                log.write(line)
                progress.hear(line.decode(errors="replace").strip())

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    try:
        while listener.is_alive():
            progress.show()
            listener.join(2 if progress.live else 0.5)
    finally:
        if process.poll() is None:
            process.terminate()
        progress.close()
    return process.wait() == 0


def explain_pip():
    """Return what pip's failure means and what to do."""
    with open(LOG, errors="replace") as log:
        text = log.read()
    missing = re.findall(r"No matching distribution found for (\S+)", text)
    if "No space left on device" in text or "Disk quota exceeded" in text:
        return "The disk is full: make room (3 GB; 8.5 GB for the CUDA build of PyTorch), then run this again."
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return "The registry's certificate is not trusted: set PIP_CERT to your organisation's, then run this again."
    proxy = explain_proxy(text)
    if proxy:
        return proxy + " Then run this again."
    if re.search(NETWORK_TROUBLE, text):
        return (
            "The package registry does not answer: check the network and the proxy (HTTPS_PROXY, `pip config list`), "
            "then run this again. What has arrived stays in pip's cache."
        )
    if missing:
        return (
            f"Your package registry has no {missing[-1]} for this Python, or does not answer: check the network and "
            "`pip config list`, then run this again; https://pypi.org/simple has it."
        )
    return f"pip stopped: {last_line()} The whole story is in .venv/setup.log; run this again once that is mended."


def explain_proxy(log):
    """Return which proxy stands in pip's way, by its log, and what to do; "" where none is known to."""
    if not re.search(NETWORK_TROUBLE + "|Failed to parse|SOCKS", log):
        return ""
    refused = re.search(r"Tunnel connection failed: (\d+[\w ]*)", log)
    for name, address in proxies():
        scheme, host, port = parts_of(address)
        if not host:
            return f"{name} holds no address of a proxy: it should read like http://proxy.example.org:3128."
        proxy = f"proxy {host}:{port} that {name} names"  # without a name and a password
        if scheme.startswith("socks"):
            return f"pip cannot use the SOCKS {proxy}: set HTTPS_PROXY to an HTTP proxy."
        try:
            socket.create_connection((host, port), PROBE_SECONDS).close()
        except OSError as error:
            reason = error.strerror or "it does not answer"
            return f"The {proxy} cannot be reached ({reason}): mend or unset {name}."
        if refused:
            return f"The {proxy} refuses ({refused.group(1).strip()}): ask who runs it."
    return ""


def proxies():
    """Return (variable, address) of each proxy that pip may have taken from the environment, the likeliest first."""
    found = [("PIP_PROXY", os.environ.get("PIP_PROXY"))]
    chosen = urllib.request.getproxies_environment()
    for scheme in ("https", "all", "http"):
        names = (scheme + "_proxy", scheme.upper() + "_PROXY")
        found += [(name, chosen[scheme]) for name in names if scheme in chosen and os.environ.get(name)][:1]
    return [(name, address) for name, address in found if address]


def parts_of(address):
    """Return scheme, host and port of a proxy's address; the host is "" where it is none."""
    try:
        url = urllib.parse.urlsplit(address if "://" in address else "http://" + address)
        return url.scheme, url.hostname or "", url.port or 80
    except ValueError:
        return "", "", 0


def torch_pin():
    """Return the line of requirements.txt that pins torch."""
    with open(os.path.join(ROOT, "requirements.txt")) as file:
        return re.search(r"^torch==[^\s;]+", file.read(), re.MULTILINE).group()


def installed_torch():
    """Return the build that was installed, such as "torch 2.13.0+cpu"."""
    (path,) = glob.glob(os.path.join(glob.escape(VENV), "lib", "python3*", "site-packages", "torch", "version.py"))
    return "torch " + runpy.run_path(path)["__version__"]


def install(build):
    """Install requirements.txt, torch first from its index of CPU builds where that was chosen. Raises Trouble."""
    progress = Progress()
    # Of that index only torch itself; all it depends on comes from the registry.
    if build == "cpu" and not pip_install(["--no-deps", "--index-url", CPU_INDEX, torch_pin()], progress):
        print("  The index of CPU builds did not deliver; taking the registry's own build of PyTorch.")
        check_disk("default")
        os.truncate(LOG, 0)
    if not pip_install(["-r", "requirements.txt"], progress):
        raise Trouble(explain_pip())
    shutil.rmtree(TEMPORARY)


def update():
    """Bring a finished .venv up to changed pins. Raises Trouble."""
    os.remove(READY)
    os.truncate(LOG, 0)
    print("The pins have changed: bringing .venv up to them.", flush=True)
    install(choose_build()[0])


def set_up():
    """Make .venv from nothing. Raises Trouble."""
    if os.pathsep in ROOT:
        raise Trouble(
            "Python refuses an environment below a folder with a colon in its name: rename it, then run this again."
        )
    check_platform()
    python, (major, minor) = choose_python()
    build, why = choose_build()
    check_disk(build)
    print(f"Setting up in .venv, once: about {DOWNLOAD_GB[build]} GB to download.")
    print(f"  Python {major}.{minor} from {python}")
    print(f"  PyTorch: {why}", flush=True)
    make_venv(python)
    install(build)


def make_ready():
    """Leave a .venv that is as requirements.txt wants it. Raises Trouble."""
    if recorded() == place() + pins():
        return
    start = time.time()
    update() if recorded().startswith(place()) else set_up()
    with open(READY, "w", errors="surrogateescape") as file:
        file.write(place() + pins())
    seconds = time.time() - start
    print(f"Ready after {seconds:.0f} s: {installed_torch()}, {megabytes(VENV):.0f} MB in .venv.", flush=True)


def main():
    """Set up unless that is done; return the exit status."""
    try:
        make_ready()
    except Trouble as trouble:
        print(trouble, file=sys.stderr)
        return 1
    except OSError as error:
        print(f"The set-up cannot go on: {error}. Mend that, then run this again.", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped. Run the same command to begin again; what has arrived stays in pip's cache.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
