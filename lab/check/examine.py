"""Find the first thing that is wrong with one run of an answer, from the evidence that the run left."""

import re
from functools import partial

import numpy as np
import torch

from lab.check.coverage import cause_not_written, cause_out_of_bounds
from lab.check.diagnose import guess_by_place, likely_cause
from lab.check.finding import Finding
from lab.check.inputs import FrozenTensor
from lab.check.question import Expected, Question, excess_of, thawed
from lab.check.rerun import Study, no_study
from lab.check.runner import Evidence, Result
from lab.check.work import examine_work, places_in_words, programs_named
from lab.device import DEVICE
from lab.refusal import advice_on, useful_part
from lab.task import drawing_of
from lab.words import (
    all_programs,
    article,
    capital,
    code_at,
    counted,
    element,
    elements_in_words,
    listed,
    number,
    place_of,
    was,
)

SOURCES = (
    "NaN comes of 0 / 0, 0 · inf, inf − inf, and the root or logarithm of a negative number; inf of a division by 0, "
    "the logarithm of 0, and a number too large for its dtype; and both come of an inf that went in: which is it here?"
)
CURES = (  # words of Python's own errors in a host function → what to do about them
    (r"'function' object is not subscriptable", "the kernel has no `@triton.jit` on the line above its `def`."),
    (
        r"missing \d+ required positional arguments?: (.*)",
        "the call passes nothing for {0}: compare its arguments with the parameters, in their order. A tuple such as "
        "`x.stride()` is one argument, and `*x.stride()` one for each axis.",
    ),
    (r"takes from \d+ to \d+ positional arguments|got multiple values for argument", "the call passes too many "
     "arguments, or one twice: compare them with the kernel's parameters, in their order."),
    (r"(?:to|and) ?'?torch.Size|'torch.Size' and", "`x.shape` is a tuple of sizes: take `x.shape[0]` or `x.numel()`."),
    (r"division by zero", "a divisor is 0 in this case: which of its arguments makes it so?"),
    (r"'(\w+)' object has no attribute '(\w+)'", "is `{1}` misspelt? A {0} has nothing of that name."),
    (r"'tuple' and 'int'|'int' and 'tuple'", "`x.stride()` is a tuple: take `x.stride(0)`, the stride of one axis."),
)  # fmt: skip


def examine(question: Question, evidence: Evidence, study: Study = no_study, repeated: bool = False) -> Finding | None:
    """Return the first thing that is wrong with one run, in the order in which one explains the next.

    study: runs the answer once more, on inputs of its own, where values are wrong and the cause is looked for.
    repeated: whether all launches were repeated from a transcript, those of autotuning as well: they are not counted.
    """
    values = partial(examine_values, study=study)
    for examiner in (examine_run, examine_form, examine_memory, examine_stores, values):
        finding = examiner(question, evidence)
        if finding is not None:
            return finding
    waste = None if repeated else examine_work(question, evidence)
    return waste or examine_programs(question, evidence)


def examine_run(question: Question, evidence: Evidence) -> Finding | None:
    """Return what stopped a run: an exception, the compiler, or an access outside the tensors."""
    error = evidence.error
    if error is not None:
        code = code_at(error["file"], error["line"])
        where = f"{place_of(error['file'], error['line'])}{code}"
        if error["refused"]:
            message = f"the compiler stopped at {where}: {useful_part(error['message'])}"
            return Finding("compiler", message, advice_on(error["message"], code))
        message = f"{error['type']} at {where}: {error['message'] or 'no message'}"
        return Finding("error", message, cause_of_error(error, code))
    if evidence.out_of_bounds:
        return out_of_bounds(question, evidence)
    return None


def cause_of_error(error: dict, code: str) -> str:
    """Return what made an exception on a line of code, "" where its message must do."""
    text = error["message"]
    if error["type"] == "SystemExit":
        return "something called `sys.exit()` or `exit()`; a function must return."
    if error["type"] == "NameError":
        return "the name is misspelt, or the cell that defines it has not been run."
    if "has no len()" in error["message"] and "](" in code:
        return "a grid is a tuple of one to three whole numbers: `kernel[(4,)](…)`."
    return next((advice.format(*found.groups()) for words, advice in CURES if (found := re.search(words, text))), "")


def fault_in_words(fault: dict) -> str:
    """Return what a fault of the trace says, with its place and the line itself."""
    where = f"{place_of(fault['file'], fault['line'])}{code_at(fault['file'], fault['line'])}"
    return f"{fault['text'].split(', line ')[0]}, at {where}."


def overflow(message: str) -> Finding:
    return Finding(
        "int32-overflow",
        message,
        "widen before multiplying: `tl.program_id(0).to(tl.int64)`; an index that meets a stride needs the same.",
    )


def out_of_bounds(question: Question, evidence: Evidence) -> Finding:
    """Return what was read or written outside the tensors; stores come first, for they destroy."""
    faults = evidence.out_of_bounds
    fault = min(faults, key=lambda f: (f["cause"] == "out-of-bounds", f["kind"] == "load"))
    message = fault_in_words(fault)
    others = {(f["program"], f["tensor"], f["line"]) for f in faults if f["cause"] == fault["cause"]}
    if len(others) > 1:
        message += f" {len(others) - 1} more {'access' if len(others) == 2 else 'accesses'} left a tensor."
    if fault["cause"] == "int32-overflow" or fault["extremes"][0] < -(2**30):  # no slip of the pen leads that far back
        return overflow(message)
    return Finding("out-of-bounds", message, cause_out_of_bounds(question, evidence, fault))


def examine_form(question: Question, evidence: Evidence) -> Finding | None:
    """Return what was returned in place of plain tensors of the right shape, dtype and device."""
    wanted, got = len(question.expected), len(evidence.results)
    if question.several != (evidence.returned in ("tuple", "list")) or wanted != got:
        need = f"{wanted} tensors" if question.several else "a tensor"
        gave = (
            counted(got, "value") + " in a tuple"
            if evidence.returned in ("tuple", "list")
            else article(evidence.returned)
        )
        cause = asked_for(question)
        cause = f"the `return` is missing: {cause}" if evidence.returned == "NoneType" else cause
        return Finding("not-a-tensor", f"it returned {gave}; {need} must come back.", cause)
    finding = examine_forms(question, evidence.results)
    if finding is not None and wanted > 1 and examine_forms(question, evidence.results[::-1]) is None:
        finding.message, finding.cause = f"the results have changed places: {finding.message}", asked_for(question)
    return finding


def asked_for(question: Question) -> str:
    """Return which tensors the task returns: "the task returns 2 tensors: float32 [16, 8] and float32 [16]."."""
    forms = [f"{dtype_of(expected.value)} {list(expected.value.shape)}" for expected in question.expected]
    if not question.several:
        return f"the task returns one tensor, here {forms[0]}."
    return f"the task returns {len(forms)} tensors, in this order: here {listed(forms)}."


def dtype_of(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def examine_forms(question: Question, results: list[Result]) -> Finding | None:
    """Return how the first of the results that differs in form from what is right does so."""
    for position, (expected, result) in enumerate(zip(question.expected, results, strict=True), 1):
        finding = examine_one_form(question, expected.value, result)
        if finding is not None:
            if question.several:
                finding.message = finding.message.replace("the result ", f"{in_place(question, position)} ", 1)
            return finding
    return None


def examine_one_form(question: Question, value: torch.Tensor, result: Result) -> Finding | None:
    """Return how one result differs in form from the tensor that is right."""
    if result.kind != "tensor":
        cause = "the `return` is missing." if result.kind == "NoneType" else ""
        message = f"it returned {article(result.kind)}; a plain `torch.Tensor` must come back."
        return Finding("not-a-tensor", message, cause)
    if tuple(result.shape) != tuple(value.shape):
        return Finding(
            "shape",
            f"the result has shape {list(result.shape)}; {list(value.shape)} is right.",
            f"the task asks for {list(value.shape)} here: see how the output is allocated.",
        )
    dtype = dtype_of(value)
    if result.dtype != dtype:
        return Finding(
            "dtype",
            f"the result is {result.dtype}; {dtype} is right.",
            f"allocate the output with {dtype_in_words(question, value.dtype)}.",
        )
    if torch.device(result.device).type != DEVICE.type:
        return Finding(
            "device",
            f"the result lies on {result.device}; the inputs lie on {DEVICE}.",
            "allocate the output on the device of the input: `device=x.device`.",
        )
    if result.aliases:
        name = question.name(result.aliases[0])
        return Finding(
            "returns-input",
            f"the result is `{name}` itself or a view of it, not a new tensor.",
            "allocate an output and let the kernel store into that.",
        )
    return None


def dtype_in_words(question: Question, dtype: torch.dtype) -> str:
    """Return a dtype as the host function may spell it, and whether it is that of an input: it is in this case."""
    arguments = enumerate(question.inputs.arguments)
    names = [f"`{question.name(i)}`" for i, a in arguments if isinstance(a, FrozenTensor) and a.dtype == dtype]
    owners = f"{listed(names)} {was(len(names), 'has', 'have')}" if names else "no input has"
    return f"`dtype={dtype}`, which {owners} here"


def examine_memory(question: Question, evidence: Evidence) -> Finding | None:
    """Return what was changed beside the results: memory around a tensor, or an input."""
    if evidence.guards_broken:
        return Finding("guard", "memory just before or after a tensor was overwritten.", "is every store masked?")
    if evidence.changed:
        names = " and ".join(f"`{question.name(position)}`" for position in evidence.changed)
        return Finding(
            "input-changed",
            f"{names} no longer {was(len(evidence.changed), 'holds', 'hold')} what was in there before the call.",
            "inputs are read only: store into the output, use no in-place operations, and pass the kernel its "
            "arguments in the order of its parameters.",
        )
    return None


def examine_stores(question: Question, evidence: Evidence) -> Finding | None:
    """Return what else than stores of Triton kernels made a result, or which of its elements no store made."""
    if all(result.tensor.numel() == 0 for result in evidence.results):
        return None
    overwritten = find_overwritten(evidence)
    if overwritten is not None:
        return overwritten
    computing = [op for op in evidence.operations if op["computes"]]
    if computing:
        return torch_computes(evidence, computing)
    if evidence.launch_count == 0:
        return Finding(
            "no-launch",
            f"`{question.task.name}` returned without launching a kernel.",
            "a launch looks like `kernel[grid](…)`; is it there, and is it reached?",
        )
    for position, (expected, result) in enumerate(zip(question.expected, evidence.results, strict=True), 1):
        if result.owner is not None and (result.owner < 0).any():
            return not_written(evidence, expected, result, in_place(question, position) or "the result")
    return find_race(evidence)


def find_overwritten(evidence: Evidence) -> Finding | None:
    """Return what wrote into a result after the last launch, where anything did."""
    for result in evidence.results:
        elements = result.overwritten
        if result.owner is None and result.overwrites:
            elements = np.ones(result.shape, dtype=bool)
        if elements is None or not elements.any():
            continue
        message = f"after the last launch something else wrote into the result: {elements_in_words(elements)} changed."
        if result.overwrites:
            name, file, line = result.overwrites[-1]
            message += f" `torch` did, with `{name}` at {place_of(file, line)}{code_at(file, line)}."
        return Finding("overwritten", message, "what the kernel stored is the answer: return it as it is.")
    return None


def torch_computes(evidence: Evidence, computing: list[dict]) -> Finding:
    """Return which torch operations did the kernel's work."""
    names = list(dict.fromkeys(op["name"] for op in computing))
    op = computing[0]
    message = f"the host function computes with torch: {listed([f'`{n}`' for n in names])}"
    message += f", at {place_of(op['file'], op['line'])}{code_at(op['file'], op['line'])}."
    if evidence.launch_count == 0:
        message += " No kernel was launched."
    return Finding(
        "torch", message, "the kernel is to do this; the host function checks, allocates, launches and returns."
    )


def not_written(evidence: Evidence, expected: Expected, result: Result, which: str) -> Finding:
    """Return which elements no program stored, and why that may be. which: the result in words."""
    assert result.owner is not None
    missing = result.owner < 0
    message = f"{elements_in_words(missing)} of {which} {was(missing)} never written by a kernel."
    cause = cause_not_written(evidence, result)
    return Finding("not-written", message, cause, excess_of(expected, result.tensor), result.owner)


def find_race(evidence: Evidence) -> Finding | None:
    """Return which two programs met at one element, so that the outcome depends on which comes first."""
    harmful = [fault for fault in evidence.conflicts if not fault["same_value"]]
    if not harmful:
        return None
    fault = harmful[0]
    message = f"{fault_in_words(fault)} On a GPU programs run at the same time."
    return Finding("race", message, "give every element to one program, or add into it with `tl.atomic_add`.")


def examine_values(question: Question, evidence: Evidence, study: Study = no_study) -> Finding | None:
    """Return which elements are not what they must be, whose they are, and what may have made them so."""
    for position, (expected, result) in enumerate(zip(question.expected, evidence.results, strict=True), 1):
        actual = result.tensor
        excess = excess_of(expected, actual)
        wrong = ~(excess == 0)
        if not wrong.any():
            continue
        finite = expected.value.isfinite() if expected.budget is not None else torch.ones_like(actual, dtype=torch.bool)
        bad = (~actual.isfinite() & finite).numpy() if expected.budget is not None else np.zeros_like(wrong)
        reason = "not-finite" if bad.any() else "wrong-values"
        place = in_place(question, position)
        message = f"{place}: " * bool(place) + wrong_in_words(expected, actual, wrong, bad)
        message += programs_in_words(wrong, result, evidence) + drawn(question, actual)
        diagnose = partial(likely_cause, question, expected, result, wrong, bad, study)
        known = SOURCES if bad.any() else guess_by_place(expected, result, wrong)
        return Finding(reason, message, "", excess, result.owner, known, diagnose)
    return None


def in_place(question: Question, position: int) -> str:
    """Return "result 2 of 3" where there are several, else nothing."""
    return f"result {position} of {len(question.expected)}" if question.several else ""


def drawn(question: Question, actual: torch.Tensor) -> str:
    """Return a result as its task draws it in text, "" if it draws none."""
    draw = drawing_of(question.task)
    return "" if draw is None else f" {draw(actual, *thawed(question.inputs))}"


def wrong_in_words(expected: Expected, actual: torch.Tensor, wrong: np.ndarray, bad: np.ndarray) -> str:
    """Return which elements are wrong, and the one farthest off."""
    index = np.unravel_index(int(np.argmax(bad if bad.any() else wrong)), wrong.shape)
    got, right = actual[index].item(), expected.value[index].item()
    text = f"{elements_in_words(wrong)} {was(wrong, 'is', 'are')} wrong. "
    text += f"{capital(element(index))} is {number(got)}; {number(right)} is right"
    if expected.budget is not None and not bad.any():
        error, budget = abs(got - expected.exact[index].item()), expected.budget[index].item()
        text += f" (off by {number(error, 3)}; {number(budget, 3)} is allowed)"
    return text + "."


def programs_in_words(wrong: np.ndarray, result: Result, evidence: Evidence) -> str:
    """Return which programs wrote the wrong elements, and from which lines."""
    if result.owner is None or not result.store_lines:
        return ""
    programs = np.unique(result.owner[wrong])
    launched = max(launch["programs"] for launch in evidence.launches)
    who = f"{programs_named(programs.tolist())} of {launched}"
    who = all_programs(launched) if len(programs) == launched > 1 else who
    where = places_in_words(result.store_lines)
    return f" {'They were' if wrong.sum() > 1 else 'It was'} written by {who}, at {where}."


def examine_programs(question: Question, evidence: Evidence) -> Finding | None:
    """Return by how much too few programs took part, or too many were launched."""
    needed = question.case.programs
    for result in evidence.results:
        if result.owner is not None and result.owner.size and result.programs < needed:
            return Finding(
                "one-program",
                f"{counted(result.programs, 'program')} wrote the whole result; at least {needed} must share the work.",
                "a GPU runs programs side by side: give each a block of the output, and launch one for each block.",
            )
    nothing = all(result.tensor.numel() == 0 for result in evidence.results)
    for launch in evidence.launches:
        if not nothing and launch["programs"] > 2 * launch["busy"] + 1:
            return Finding(
                "idle-programs",
                f"of the {launch['programs']:,} programs of `{launch['kernel']}`, {launch['busy']:,} had anything to "
                "do; the others started for nothing.",
                "launch one program for each block, not for each element.",
            )
    return None
