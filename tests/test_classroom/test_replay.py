"""What stands in a transcript, and what a replay does with it: nothing unread, and nothing that stays."""

import json
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl

from classroom.course import course_for_sandboxes, readable
from classroom.executor import evidence_from
from classroom.replay import Kernels, Refused, Repetition, Replay
from classroom.sandbox import Limits, Sandbox
from classroom.transcript import RecordingRunner
from lab.check.inputs import freeze
from lab.check.runner import Evidence
from lab.device import ON_CPU
from solutions.vector_add import scale_add

LANGUAGE = {"import": {"module": "triton.language", "name": None}}
LIBDEVICE = {"import": {"module": "triton.language.extra.libdevice", "name": None}}
OTHER = {"module": {"name": "other", "members": {"__name__": "math", "SIZE": 2}}}

on_cpu = pytest.mark.skipif(not ON_CPU, reason="launches are written down where kernels run on the CPU")


@triton.jit
def double_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, 2 * tl.load(x_ptr + offs, mask=offs < n), mask=offs < n)


SIZES = [triton.Config({"BLOCK": 64}, num_warps=64), triton.Config({"BLOCK": 128}), triton.Config({"BLOCK": 32})]
tuned_double_kernel = triton.autotune(configs=SIZES, key=["n"])(double_kernel)


def tuned_double(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    tuned_double_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel())
    return out


def double_compiled_before(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    compiled = double_kernel.warmup(x, out, x.numel(), BLOCK=64, grid=(2,))
    compiled[(2, 1, 1)](x, out, x.numel(), 64)
    return out


def told_of(function, *arguments) -> dict:
    """Return the transcript of one call."""
    runner = RecordingRunner(function)
    assert runner.run(freeze(arguments)).error is None
    return runner.transcript()


@on_cpu
@pytest.mark.parametrize(
    ("function", "grids"),
    [(tuned_double, [[1], [4], [1]]), (double_compiled_before, [[2, 1, 1]])],
    ids=["autotuned, too large at first", "compiled before"],
)
def test_what_ran_is_repeated(function, grids):
    told = told_of(function, torch.ones(100))
    assert [event["grid"] for event in told["events"] if event["kind"] == "launch"] == grids
    evidence = Evidence.decode(Replay().replay(json.dumps(told), freeze((torch.arange(100.0),)), None))
    assert torch.equal(evidence.results[0].tensor, 2 * torch.arange(100.0))


def packed(source: str) -> dict:
    """Return a function of a transcript."""
    names = {"tl": LANGUAGE, "libdevice": LIBDEVICE, "other": OTHER}
    return {"key": 0, "decorator": "jit", "options": {}, "file": "<a>", "line": 1, "source": source, "names": names}


def test_the_grader_compiles_nothing_that_comes_with_evidence():
    """The compiler's process runs the source it is given: a student's belongs into a sandbox."""
    assert evidence_from(Evidence(kernels=[packed("def made(): pass")]).encode(), frozenset()).kernels == []


def test_places_in_evidence_are_of_the_students_cells():
    memory = {"use": "made", "name": "x\x1b[2J", "result": False, "elements": 99, "file": "/etc/passwd", "line": 1}
    loads = {"position": 0, "loaded": True, "places": [["/etc/passwd", 1], ["<a>", 2]]}
    widest = {"kind": "load", "elements": 4, "file": "/etc/passwd", "line": 1}
    told = Evidence(memory=[memory], loads=[loads], widest=[widest])
    evidence = evidence_from(told.encode(), frozenset({"<a>"}))
    assert (evidence.memory[0]["name"], evidence.memory[0]["file"], evidence.widest[0]["line"]) == ("x·[2J", "", 0)
    assert evidence.loads[0]["places"] == [["<a>", 2]]


@pytest.mark.parametrize(
    "expression",
    ["getattr(tl, 'core')", "hasattr(tl, 'core')", "libdevice.core", "other.__dict__", "x.__class__", "tl.core"],
)
def test_what_reaches_beyond_triton_is_refused(expression):
    with pytest.raises(Refused):
        Kernels([packed(f"def made(x):\n    {expression}\n")])


def test_a_module_of_the_students_has_no_other_name():
    (made,) = Kernels([packed("def made(x):\n    other.SIZE\n")]).built.values()
    assert (made.__globals__["other"].__name__, made.__globals__["other"].SIZE) == ("student", 2)


def test_what_is_compiled_was_read():
    """Triton looks for `def NAME` in the text, and would take this text of a docstring for the function."""
    source = 'def \\\nmade(x):\n    """\ndef hidden(x):\n    pass\n#"""\n'
    (made,) = Kernels([packed(source)]).built.values()
    assert made.src == source


def test_a_launch_that_brings_its_own_code_is_refused():
    event = {"kind": "launch", "kernel": 0, "grid": [1], "arguments": [], "named": {"ir_override": "/tmp/x.ttir"}}
    transcript = {"storages": [], "functions": [packed("def made(BLOCK=1):\n    pass\n")], "problem": ""}
    with pytest.raises(Refused, match="ir_override"):
        Repetition(transcript | {"events": [event], "results": [], "returned": "tuple"}, ())()


@on_cpu
def test_what_was_compiled_for_a_student_goes_with_them():
    arguments = torch.ones(100), torch.ones(100), 2.0
    transcript, inputs = json.dumps(told_of(scale_add, *arguments)), freeze(arguments)
    course = course_for_sandboxes()
    with Sandbox("replay", course, readable(course), Limits(), sandboxed=False) as place:

        def compiled() -> list[Path]:
            return list(Path(place.scratch.name).rglob("*.ttir"))

        for _ in range(2):
            place.ask("fork", seconds=20)
            place.ask("begin", (), seconds=20)
            assert not compiled()
            assert not place.ask("replay", transcript, inputs, 0, seconds=20).startswith(b'{"refused"')
            assert len(compiled()) == 1
            place.ask("leave", seconds=20)
        assert not compiled()
