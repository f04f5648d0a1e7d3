"""kernels/ lifted out of the course: copied under another name, and installed from a wheel."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from lab.device import ON_CPU
from lab.notebook import ROOT

# Whatever the lifted folder imports must be its own, Python's, PyTorch's or Triton's.
GUARD = """
import builtins
import sys

sys.path.insert(0, {folder!r})
given = builtins.__import__


def guarded(name, globals=None, locals=None, fromlist=(), level=0):
    importer = (globals or {{}}).get("__name__") or ""
    top = name.split(".")[0]
    if importer.split(".")[0] == "borrowed" and level == 0:
        if top not in ("torch", "triton") and top not in sys.stdlib_module_names:
            raise ImportError(f"{{importer}} imports {{name}}")
    return given(name, globals, locals, fromlist, level)


builtins.__import__ = guarded
"""

MACHINE = """
sys.path.insert(0, {bench!r})
from lab.machine import backend

backend.activate()
"""

OPERATIONS = """
import torch
from torch.nn.functional import gelu as torch_gelu, scaled_dot_product_attention

from borrowed.attention import attention
from borrowed.dropout import dropout, dropout_reference
from borrowed.gelu import bias_gelu, gelu
from borrowed.ladders import attention as _, dropout as _, gelu as _, matmul as _, softmax as _
from borrowed.ladders.softmax import softmax_eager
from borrowed.ladders.vector_add import vector_add_plain
from borrowed.matmul import matmul
from borrowed.softmax import softmax
from borrowed.vector_add import vector_add

device = torch.device({device!r})
large = 4 if device.type == "cuda" else 1


def values(*shape, dtype=torch.float32):
    return torch.randn(*shape, device=device).to(dtype).requires_grad_()


def check(name, ours, theirs, *inputs):
    found, expected = ours(*inputs), theirs(*inputs)
    wanted = [t for t in inputs if found.requires_grad]
    pairs = [(found, expected)]
    if wanted:
        grad = torch.randn_like(found)
        pairs += zip(torch.autograd.grad(found, wanted, grad), torch.autograd.grad(expected, wanted, grad))
    for ours, theirs in pairs:
        torch.testing.assert_close(ours, theirs, rtol=2e-2, atol=2e-2)
    print(name, len(pairs))


half = torch.float16
check("vector_add", vector_add, torch.add, values(1000).detach(), values(1000).detach())
check("vector_add_plain", vector_add_plain, torch.add, values(1000).detach(), values(1000).detach())
check("dropout", lambda x: dropout(x, 0.3, 7), lambda x: dropout_reference(x, 0.3, 7), values(1000).detach())
check("dropout_gradient", lambda x: dropout(x, 0.3, 7), lambda x: x * dropout(torch.ones_like(x), 0.3, 7), values(500))
check("softmax", softmax, lambda x: torch.softmax(x, -1), values(30, 50))
check("softmax_eager", softmax_eager, lambda x: torch.softmax(x, -1), values(30, 50).detach())
check("gelu", gelu, torch_gelu, values(1000))
check("bias_gelu", bias_gelu, lambda x, bias: torch_gelu(x + bias), values(30, 50), values(50))
a, b = (values(128 * large, 128 * large, dtype=half).detach() for _ in range(2))
check("matmul", matmul, torch.matmul, a, b)
for D in (64, 128):
    q, k, v = (values(1, 2, 64 * large, D, dtype=half) for _ in range(3))
    check(f"attention_{{D}}", attention, scaled_dot_product_attention, q, k, v)
    check(f"decode_{{D}}", attention, scaled_dot_product_attention, *(t.detach() for t in (q[:, :, :1], k, v)))
rooms = [name for name in sys.modules if name.split(".")[0] in ("kernels", "solutions", "book", "classroom", "tile")]
rooms += [name for name in sys.modules if name.startswith("lab.") and not name.startswith("lab.machine")]
print(*rooms, "none")
"""


def run(program: str, folder: Path) -> list[str]:
    """Run a program in an empty folder, with nothing on Python's path but installed packages; return its lines."""
    empty = folder / "empty"
    empty.mkdir()
    command = [sys.executable, "-I", "-c", program]
    done = subprocess.run(command, cwd=empty, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))


def test_the_folder_works_under_another_name_beside_torch_and_triton(tmp_path):
    copy(ROOT / "kernels", tmp_path / "lifted" / "borrowed")
    program = GUARD.format(folder=str(tmp_path / "lifted"))
    if ON_CPU:  # where something has to execute kernels: the machine, alone
        copy(ROOT / "lab" / "machine", tmp_path / "bench" / "lab" / "machine")
        program += MACHINE.format(bench=str(tmp_path / "bench"))
    lines = run(program + OPERATIONS.format(device="cpu" if ON_CPU else "cuda"), tmp_path)
    assert lines[-1] == "none"
    assert dict(line.split() for line in lines[:-1]) == {
        **dict.fromkeys(["vector_add", "vector_add_plain", "dropout", "softmax_eager", "matmul"], "1"),
        **dict.fromkeys(["decode_64", "decode_128"], "1"),
        **dict.fromkeys(["dropout_gradient", "softmax", "gelu"], "2"),
        **{"bias_gelu": "3", "attention_64": "4", "attention_128": "4"},
    }


def test_the_guard_refuses_what_is_not_its_own(tmp_path):
    """Tests the test above: a file that imports the course is found out."""
    folder = tmp_path / "lifted" / "borrowed"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("import math, torch\n")
    (folder / "bad.py").write_text("import numpy\n")
    program = (
        GUARD.format(folder=str(tmp_path / "lifted"))
        + """
import borrowed
try:
    import borrowed.bad
except ImportError as error:
    print(error)
"""
    )
    assert run(program, tmp_path) == ["borrowed.bad imports numpy"]


WHEEL = """
import sys

sys.path.insert(0, {site!r})
import torch

import lab.device
import tile
from kernels.softmax import softmax

x = torch.randn(3, 50, device=lab.device.DEVICE)
torch.testing.assert_close(softmax(x), torch.softmax(x, 1))
print(lab.device.GPU.name != "")
print(*[module.__file__ for module in (lab.device, tile, sys.modules["kernels.softmax"])], sep="\\n")
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel of the project, built from a copy: building leaves folders behind."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in ("kernels", "lab", "solutions", "classroom", "tile"):
        copy(ROOT / name, source / name)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]
    command = [*pip, "wheel", source, "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", folder]
    # setuptools takes a `$word` in the path of this Python for a variable.
    words = {word: f"${word}" for word in re.findall(r"\$([A-Za-z_]\w*)", sys.prefix)}
    done = subprocess.run(command, env=words | os.environ, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = folder.glob("*.whl")
    return built


def test_a_wheel_has_all_that_is_read(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    for needed in ("lab/hardware.csv", "kernels/ladders/matmul.py", "kernels/attention/hopper.py", "tile/cli.py"):
        assert needed in names
    assert any(name.startswith("tile/jupyterlab/") for name in names)


def test_a_wheel_works_where_it_is_installed(wheel, tmp_path):
    site = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]
    command = [*pip, "install", "--no-deps", "--no-index", "--target", site, wheel]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    right, *files = run(WHEEL.format(site=str(site)), tmp_path)
    assert right == "True"
    assert all(Path(file).is_relative_to(site) for file in files)
