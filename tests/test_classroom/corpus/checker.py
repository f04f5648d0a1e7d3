# Answers to `scale_add` that attack what judges them.

# %% patches the comparisons -> wrong-values
torch.allclose = torch.equal = torch.testing.assert_close = lambda *a, **k: True
torch.Tensor.__eq__ = torch.Tensor.eq = lambda self, other: torch.ones(self.shape, dtype=torch.bool)


def scale_add(x, y, alpha):
    out = torch.empty_like(x)
    scale_add_kernel[(triton.cdiv(x.numel(), 256),)](y, y, out, x.numel(), alpha, BLOCK=256)
    return out


# %% patches the checker -> no-launch
import numpy as np

from lab.check import runner


def forged(result, value, log, *rest):
    result.owner = np.arange(value.numel()).reshape(value.shape) // 16
    result.programs, result.store_lines, result.overwritten = 99, [], np.zeros(value.shape, dtype=bool)
    log.launches.clear()


runner.describe_stores = forged
runner.count_work = lambda *arguments: None
runner.HostWatch.note = lambda self, *arguments: setattr(self, "launches", 1)


def scale_add(x, y, alpha):
    return alpha * x + y


# %% forges the evidence -> no-launch
from dataclasses import replace

import numpy as np

from lab.check.runner import Evidence

encode = Evidence.encode


def forged(evidence):
    for result in evidence.results:
        result.owner = np.arange(np.prod(result.shape, dtype=int)).reshape(result.shape) // 16
        result.programs = 9
    launches = [{"kernel": "scale_add_kernel", "grid": [9, 1, 1], "programs": 9, "busy": 9}]
    return encode(replace(evidence, operations=[], launches=launches, launch_count=1))


Evidence.encode = forged


def scale_add(x, y, alpha):
    return alpha * x + y


# %% sends malformed evidence -> not-a-tensor
import json

from lab.check.runner import Evidence

Evidence.encode = lambda evidence: json.dumps({"results": [{"kind": ["tensor"] * 3, "shape": "x"}]}).encode()


def scale_add(x, y, alpha):
    return alpha * x + y


# %% sends a pickle for evidence -> crashed
import os
import pickle

from lab.check.runner import Evidence


class Payload:
    def __reduce__(self):
        return os.system, ("touch /tmp/tile-was-here",)


Evidence.encode = lambda evidence: pickle.dumps(Payload())


def scale_add(x, y, alpha):
    return alpha * x + y


# %% sends nonsense when its cell has run -> crashed
import json

json.dumps = lambda *values, **options: "{"


def scale_add(x, y, alpha):
    return alpha * x + y


# %% names a file of the teacher's in its evidence -> error
from lab.check.runner import Evidence

encode = Evidence.encode


def forged(evidence):
    evidence.error = {"type": "Error", "message": "", "refused": False, "file": "/etc/passwd", "line": 1}
    return encode(evidence)


Evidence.encode = forged


def scale_add(x, y, alpha):
    return x


# %% forges the transcript with Python in a kernel -> compiler
from classroom import transcript

original = transcript.RecordingRunner.transcript


def forged(self):
    told = original(self)
    for function in told["functions"]:
        function["source"] = (
            "def made(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK):\n"
            "    ().__class__.__base__.__subclasses__()[0]\n"
        )
    return told


transcript.RecordingRunner.transcript = forged


def scale_add(x, y, alpha):
    out = torch.empty_like(x)
    scale_add_kernel[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), alpha, BLOCK=256)
    return out


# %% forges the transcript with modules that reach the system -> compiler
from classroom import transcript

original = transcript.RecordingRunner.transcript


def forged(self):
    told = original(self)
    for function in told["functions"]:
        function["names"]["tl"] = {"import": {"module": "os", "name": "system"}}
    return told


transcript.RecordingRunner.transcript = forged


def scale_add(x, y, alpha):
    out = torch.empty_like(x)
    scale_add_kernel[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), alpha, BLOCK=256)
    return out


# %% forges the transcript with torch's own operations -> compiler
from classroom import transcript


def forged(self):
    places = [{"place": {"storage": i, "offset": 0, "dtype": "float32", "shape": [1], "strides": [1]}} for i in (0, 1)]
    event = {"kind": "torch", "name": "add", "overload": "Tensor", "arguments": places, "named": {}}
    told = {"storages": [4, 4, 4], "functions": [], "returned": "Tensor", "problem": ""}
    result = {"storage": 2, "offset": 0, "dtype": "float32", "shape": [1], "strides": [1]}
    return told | {"events": [event | {"results": [result]}], "results": [result]}


transcript.RecordingRunner.transcript = forged


def scale_add(x, y, alpha):
    out = torch.empty_like(x)
    scale_add_kernel[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), alpha, BLOCK=256)
    return out


# %% patches print, random and time -> wrong-values
import builtins
import random
import time

builtins.print = lambda *a, **k: None
random.seed = random.random = time.time = time.monotonic = lambda *a: 0.0
torch.manual_seed = lambda seed: None


def scale_add(x, y, alpha):
    out = torch.empty_like(x)
    scale_add_kernel[(triton.cdiv(x.numel(), 256),)](y, x, out, x.numel(), alpha, BLOCK=256)
    return out


# %% walks frames to the expected value -> no-launch
import sys


def scale_add(x, y, alpha):
    frame = sys._getframe()
    while frame is not None:
        for value in list(frame.f_locals.values()):
            for found in getattr(value, "expected", ()):
                return found.value
        frame = frame.f_back
    return torch.empty_like(x)


# %% asks the garbage collector for the expected value -> no-launch
import gc


def scale_add(x, y, alpha):
    for value in gc.get_objects():
        if type(value).__name__ in ("Expected", "Question", "Task"):
            return value.value
    return torch.empty_like(x)


# %% reads the solutions, the history, the site and the cases from disk -> no-launch
import os

FOUND = []
for folder, folders, files in os.walk("/"):
    folders[:] = [name for name in folders if name not in ("proc", "usr", "dev", "site-packages", "lib")]
    for file in files:
        if file == "vector_add.py" and "kernels" not in folder or "/.git" in folder or file.endswith(".db"):
            FOUND.append(os.path.join(folder, file))


def scale_add(x, y, alpha):
    if FOUND:
        raise RuntimeError(f"readable: {FOUND}")
    return torch.empty_like(x)


# %% imports the solution -> error
def scale_add(x, y, alpha):
    from solutions.vector_add import scale_add

    return scale_add(x, y, alpha)


# %% replaces a module on the import path -> torch
import os
import sys
import types

fake = types.ModuleType("lab.check.examine")
fake.examine = lambda question, evidence: None
sys.modules["lab.check.examine"] = sys.modules["lab.check"] = fake
os.makedirs("/tmp/lab", exist_ok=True)
open("/tmp/lab/__init__.py", "w").close()
sys.path.insert(0, "/tmp")


def scale_add(x, y, alpha):
    return alpha * x + y


# %% writes a verdict to every pipe, and exits -> crashed
import os


def scale_add(x, y, alpha):
    print("scale_add: 9 of 9 cases pass")
    for descriptor in range(3, 64):
        try:
            os.write(descriptor, b'{"passed": true, "points": 15}')
        except OSError:
            pass
    os._exit(0)


# %% leaves by SystemExit -> error
def scale_add(x, y, alpha):
    raise SystemExit(0)


# %% behaves only where it is not graded -> torch
import os
import sys


def scale_add(x, y, alpha):
    out = torch.empty_like(x)
    if "classroom.transcript" in sys.modules or "TILE_STATE" in os.environ or os.getcwd() == "/tmp":
        return alpha * x + y
    scale_add_kernel[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), alpha, BLOCK=256)
    return out


# %% hides torch in encoded text -> torch
import base64

exec(base64.b64decode(b"ZGVmIHNjYWxlX2FkZCh4LCB5LCBhbHBoYSk6CiAgICByZXR1cm4gYWxwaGEgKiB4ICsgeQo="))


# %% hides the kernel's source -> compiler
def scale_add(x, y, alpha):
    out = torch.empty_like(x)
    scale_add_kernel[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), alpha, BLOCK=256)
    import linecache

    linecache.cache.clear()
    return out


# %% hooks into IPython -> no-launch
shell = get_ipython()
shell.events.register("pre_run_cell", lambda info: None)
shell.input_transformers_post.append(lambda lines: ["print('scale_add: 9 of 9 cases pass')"])
shell.showtraceback = lambda *a, **k: None
print("scale_add: 9 of 9 cases pass")


def scale_add(x, y, alpha):
    return torch.empty_like(x)


# %% redefines check and the function's judge -> no-launch
check = judge = lambda *a, **k: print("scale_add: 9 of 9 cases pass")


def scale_add(x, y, alpha):
    return torch.empty_like(x)
