"""What a verdict tells a beginner: the cause that fits, the line that is theirs, and what to do next."""

import pytest

from lab.check import judge
from lab.device import ON_CPU
from lab.task import find_task
from tests.test_lab.edited import edited

pytestmark = pytest.mark.skipif(not ON_CPU, reason="causes are told from the trace")


# task, what the solution says, what the learner wrote → reason, and words of the advice
ADVICE = [
    ("scale_add", "offs < n", "offs <= n", "out-of-bounds", "one element too many"),
    ("scale_add", "offs < n", "offs > n", "out-of-bounds", "wrong way round"),
    ("scale_add", "offs < n", "offs >= 0", "out-of-bounds", "false for every offset past the end"),
    ("scale_add", "offs < n", "offs < n - 1", "not-written", "one element early"),
    ("scale_add", "mask = offs", "mask = off", "compiler", "misspelt"),
    ("scale_add", "x.numel()", "x.nume()", "error", "is `nume` misspelt?"),
    ("scale_add", "scale_add_kernel[(triton.cdiv(n, 256),)](", "scale_add_kernel(", "error", "mend it"),
    ("three_way_add", "triton.cdiv(n, BLOCK)", "n // BLOCK", "not-written", "rounds up"),
    ("three_way_add", "triton.cdiv(n, BLOCK)", "n", "idle-programs", "for each block"),
    ("three_way_add", "pid * BLOCK + tl", "pid * 128 + tl", "not-written", "begin where the one before it ends"),
    ("three_way_add", "pid * BLOCK + tl", "tl", "not-written", "`tl.program_id(0)`"),
    ("three_way_add", "load(z_ptr", "load(y_ptr", "wrong-values", "`y` is used where `z` belongs"),
    ("strided_copy", "n = x.numel()", "x, n = x.contiguous(), x.numel()", "torch", "the kernel is to do this"),
    ("row_add", "program_id(1)", "program_id(0)", "not-written", "of each axis"),
    ("row_add", "mask_m[:, None] & mask_n[None, :]", "mask_m & mask_n", "compiler", "`[:, None]` makes a column"),
    (
        "clamped_add",
        "tl.minimum(tl.maximum(x + y, low), high)",
        "tl.maximum(x + y, low)",
        "wrong-values",
        "`high` limits nothing",
    ),
    ("clamped_add", "offs * stride_y", "offs * stride_x", "wrong-values", "`y` is read with the strides of `x`, [2]"),
    ("clamped_add", "BLOCK=256", "BLOCK=300", "compiler", "power of two"),
    ("clamped_add", "tl.minimum(tl.maximum(x + y, low), high)", "torch.clamp(x + y, low, high)", "compiler", "host"),
]


@pytest.mark.parametrize("task, before, after, reason, words", ADVICE)
def test_the_advice_fits_the_mistake(tmp_path, task, before, after, reason, words):
    verdict = judge(task, edited(tmp_path, task, before, after))
    assert verdict.reason == reason, str(verdict)
    assert words in verdict.advice[1], str(verdict)


@pytest.mark.parametrize("grid", ["[triton.cdiv(n, 256)]", "[(n / 256,)]"])
def test_a_grid_that_is_none_is_refused_at_the_line_of_the_launch(tmp_path, grid):
    verdict = judge("scale_add", edited(tmp_path, "scale_add", "[(triton.cdiv(n, 256),)]", grid))
    assert verdict.reason == "error" and "answer.py" in verdict.message, str(verdict)
    assert "a grid is a tuple" in str(verdict)


def test_one_program_too_many_is_no_mistake(tmp_path):
    verdict = judge("three_way_add", edited(tmp_path, "three_way_add", "triton.cdiv(n, BLOCK)", "n // BLOCK + 1"))
    assert verdict.passed, str(verdict)


def test_the_case_shown_has_more_than_one_element_where_it_can(tmp_path):
    verdict = judge("scale_add", edited(tmp_path, "scale_add", "offs < n", "offs < n - 1"))
    assert find_task("scale_add").cases[0].name == "one element" != verdict.case
    assert "element 99" in verdict.message


@pytest.mark.parametrize(
    "before, after, label", [("return out", "return x + y", "What to do"), ("< n", "<= n", "Likely")]
)
def test_what_is_an_instruction_is_called_one(tmp_path, before, after, label):
    assert judge("scale_add", edited(tmp_path, "scale_add", before, after)).advice[0].startswith(label)
