"""How much faster kernels run than in Triton's interpreter, which the course used until commit 52d6ebe.

    python tests/test_lab/test_machine/benchmark.py

Both run on the same inputs, one after the other, each in a process of its own: the old way from that commit, which git
must have. Prints milliseconds and the ratio, without a trace and with one.
"""

import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[3]
BEFORE = "52d6ebe"
REPEATS = 5


def workloads() -> dict:
    """Return name → function that launches; the inputs are made once."""
    import torch

    from kernels.attention import attention
    from kernels.dropout import dropout
    from kernels.matmul import matmul
    from kernels.softmax import softmax
    from kernels.vector_add import vector_add

    generator = torch.Generator().manual_seed(0)

    def randn(*shape, dtype=torch.float32):
        return torch.randn(shape, generator=generator).to(dtype)

    n = 2**20
    x, y, square = randn(n), randn(n), randn(1000, 1000)
    a, b = randn(300, 500, dtype=torch.bfloat16), randn(500, 400, dtype=torch.bfloat16)
    q, k, v = (randn(4, 8, 512, 64, dtype=torch.bfloat16) for _ in range(3))
    few, more = randn(100), randn(100)
    return {
        "vector add of 2^20": lambda: vector_add(x, y),
        "softmax 1000 x 1000": lambda: softmax(square),
        "matmul 300 x 400 x 500": lambda: matmul(a, b),
        "attention 4 x 8 x 512 x 64": lambda: attention(q, k, v),
        "dropout of 2^20": lambda: dropout(x, 0.5, seed=0),
        "one program": lambda: vector_add(few, more),
    }


def measure() -> None:
    """Print, as JSON, the ms of each workload: {name: [first call, best of the others, best with a trace]}."""
    import lab.device  # noqa: F401  the old way, it had to come before Triton
    from lab.trace import trace

    results = {}
    for name, work in workloads().items():
        times = []
        for _ in range(1 + REPEATS):
            start = time.perf_counter()
            work()
            times.append(1e3 * (time.perf_counter() - start))
            if sum(times) > 20_000:
                break
        traced = []
        for _ in range(3):
            start = time.perf_counter()
            with trace():
                work()
            traced.append(1e3 * (time.perf_counter() - start))
            if sum(traced) > 20_000:
                break
        results[name] = [times[0], min(times[1:] or times), min(traced)]
    print(json.dumps(results))


def run_in(tree: Path, cache: Path) -> dict[str, list[float]]:
    """Return what `measure` prints in a process that imports the course from a tree, with an empty cache."""
    environment = os.environ | {"PYTHONPATH": str(tree), "TRITON_CACHE_DIR": str(cache)}
    command = [sys.executable, __file__, "--measure"]
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        before = Path(folder) / "before"
        archive = subprocess.run(["git", "archive", BEFORE], cwd=ROOT, capture_output=True, check=True).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(before)
        old, new = run_in(before, Path(folder) / "old"), run_in(ROOT, Path(folder) / "new")
    print(
        f"{'ms':28}{'before':>10}{'now':>10}{'ratio':>8}{'traced before':>16}{'now':>10}{'ratio':>8}{'first call':>12}"
    )
    for name, (_, plain, traced) in old.items():
        first, plain_now, traced_now = new[name]
        row = (plain, plain_now, plain / plain_now, traced, traced_now, traced / traced_now, first)
        print(f"{name:28}" + "".join(f"{value:15.2f}" for value in row))


if __name__ == "__main__":
    measure() if "--measure" in sys.argv else main()
