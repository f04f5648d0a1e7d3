"""What came of checking one answer, as text and as HTML."""

import html
import textwrap
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from lab.check.diagnose import guess_strides
from lab.check.finding import Finding
from lab.check.inputs import FrozenTensor
from lab.check.question import Question, is_floating, thawed
from lab.check.rerun import ALMOST_RIGHT
from lab.check.work import WASTE
from lab.words import SHOWN, capital, code_marked, counted, listed

if TYPE_CHECKING:
    from lab.plots import Figure

MOST_EXPLAINED = 2  # cases of which the cause is looked for, since each takes time
ADVISED = {  # reasons whose cause is plain, so that the verdict says what to do about it
    *("blank", "not-callable", "shape", "dtype", "device", "returns-input", "input-changed", "overwritten", "torch"),
    *("int32-overflow", "race", "one-program", "idle-programs", "compiler", "not-run", "not-a-tensor"),
    *("host", *WASTE),
}


@dataclass
class Verdict:
    """What came of checking one answer. `reason` is empty when it passed; `case` names the case that failed."""

    task: str
    passed: bool
    cases_passed: int
    cases_total: int
    reason: str = ""
    message: str = ""
    case: str = ""
    cause: str = ""
    known: str = ""  # what the cases that fail have in common, where no cause is known
    inputs: str = ""
    notes: list[str] = field(default_factory=list)
    picture: "Figure | None" = None  # of the elements that are wrong
    output: str = ""  # the beginning of what the answer printed

    @property
    def headline(self) -> str:
        """One line: how many cases pass."""
        return f"{self.task}: {self.cases_passed} of {self.cases_total} cases pass"

    def __str__(self) -> str:
        if self.passed:
            return self.headline
        parts = [self.headline]
        if self.case:
            parts.append(f"The case “{self.case}” fails, with {self.inputs}.")
        parts += [f"What happened: {self.message}", ": ".join(self.advice)]
        parts += [f"Note: {note}" for note in self.notes]
        parts += [f"Your code printed:\n{textwrap.indent(self.printed, '    ')}"] * bool(self.printed)
        fill = textwrap.TextWrapper(110, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False).fill
        return "\n".join(fill(line) for part in parts for line in part.splitlines())

    def tell(self, finding: Finding, question: Question | None = None) -> None:
        """Take over what was found wrong, and draw where."""
        self.reason, self.message, self.cause = finding.reason, finding.message, finding.cause
        if question is not None:
            self.case, self.inputs = question.case.name, question.describe()
        if finding.excess is not None and finding.excess.size:
            from lab.plots import error_map

            self.picture = error_map(finding.excess, finding.owner)

    def take_objections(self, objections: list[str]) -> None:
        """Fail an answer that is right otherwise by what a GPU's compiler says against its kernels."""
        if objections:
            self.passed = False
            self.tell(Finding("compiler", "the values are right here, but " + "\n".join(objections)))

    @property
    def advice(self) -> tuple[str, str]:
        """What to think of, or to do, next: a label and a sentence."""
        if self.cause:
            return "What to do" if self.reason in ADVISED else "Likely cause", self.cause
        if self.reason == "error":
            return "What to do", "that line stopped with this message: mend it, run its cell again, then this one."
        if self.reason == "compiler":
            return "What to do", "change what it refuses, run that cell again, then this one."
        hint = f'follow one wrong element by hand; `hint("{self.task}")` asks a question that may help.'
        return ("What is known", f"{self.known} {capital(hint)}") if self.known else ("What to do", hint)

    @property
    def printed(self) -> str:
        """The first lines of what the answer printed."""
        lines = self.output.strip().splitlines()
        return "\n".join([line[:100] for line in lines[:SHOWN]] + ["…"] * (len(lines) > SHOWN))

    def _repr_html_(self) -> str:
        safe = html.escape
        colour = "#2e8b57" if self.passed else "#c4541a"
        parts = [f"<strong>{safe(self.headline)}</strong>"]
        if self.case:
            parts.append(f"The case <strong>{safe(self.case)}</strong> fails, with <code>{safe(self.inputs)}</code>.")
        parts += [code_marked(capital(self.message))] * bool(self.message)
        parts += ["<em>{}:</em> {}".format(*map(code_marked, self.advice))] * (not self.passed)
        parts += [f"<em>Note:</em> {code_marked(note)}" for note in self.notes]
        body = "".join(f'<p style="margin:.4em 0">{part}</p>' for part in parts)
        if self.picture is not None:
            body += self.picture._repr_mimebundle_()["text/html"]
        if self.printed and not self.passed:
            body += f"<p>Your code printed:</p><pre>{safe(self.printed)}</pre>"
        return f'<div role="status" style="border-left:4px solid {colour};padding:.2em 1em">{body}</div>'


def conclude(verdict: Verdict, failed: list[tuple[Question, Finding]], passed: list[Question]) -> None:
    """Tell of the case that failed whose cause is clearest, and name the others.

    That work was done in vain is told where nothing worse is wrong.
    """
    verdict.passed = not failed
    if failed:
        worse = [pair for pair in failed if pair[1].reason not in WASTE]
        finding, question = most_telling(worse or failed)
        verdict.tell(finding, question)
        verdict.known = "" if verdict.cause else known(finding, [question for question, _ in failed], passed)
    others = [q.case.name for q, _ in failed if q.case.name != verdict.case]
    untried = verdict.cases_total - verdict.cases_passed - len(failed)
    if others:
        these = "this case fails" if len(others) == 1 else "these cases fail"
        verdict.notes.append(f"{these} as well: " + ", ".join(f"“{name}”" for name in others) + ".")
    if untried:
        verdict.notes.append(f"{counted(untried, 'more case')} could not be tried.")


def most_telling(failed: list[tuple[Question, Finding]]) -> tuple[Finding, Question]:
    """Return the failure whose cause is known, of those that fail for the reason of the first; else the clearest.

    To be almost right says no more: what is far off in one case may come near in another by luck.
    """
    alike = sorted([pair for pair in failed if pair[1].reason == failed[0][1].reason], key=unclear)
    for question, finding in alike[:MOST_EXPLAINED]:
        finding.explain()
        if finding.cause not in ("", ALMOST_RIGHT):
            return finding, question
    question, finding = alike[0]
    if finding.reason == "wrong-values" and not finding.cause:
        finding.cause = guess_strides([question for question, _ in failed])
    return finding, question


def unclear(pair: tuple[Question, Finding]) -> tuple[bool, bool, bool]:
    """Return what makes a case hide a mistake: an axis of one element, constant inputs, few digits, one program."""
    question, finding = pair
    inputs = [argument for argument in thawed(question.inputs) if is_floating(argument) and argument.numel()]
    constant = bool(inputs) and all(bool((tensor == tensor.reshape(-1)[:1]).all()) for tensor in inputs)
    single = any(1 in one.value.shape or one.value.dim() == 0 for one in question.expected)
    single = single or any(1 in tensor.shape for tensor in inputs)
    narrow = any(one.value.dtype in (torch.float16, torch.bfloat16) for one in question.expected)
    return constant or single, narrow, finding.diagnose is not None and question.case.programs < 2


# What is known without a cause


def known(finding: Finding, failed: list[Question], passed: list[Question]) -> str:
    """Return where the wrong elements are, and in which cases: facts, without a cause."""
    return " ".join(filter(None, [capital(finding.known), capital(in_common(failed, passed))]))


def in_common(failed: list[Question], passed: list[Question]) -> str:
    """Return what all cases that fail have, and none that pass: lengths above a number, a dtype, strides."""
    passed = [question for question in passed if all(one.value.numel() for one in question.expected)]
    if not passed or len(failed) < 2:
        return ""
    for position, axis in axes_of(failed + passed):
        lengths = [[length_of(question, position, axis) for question in group] for group in (failed, passed)]
        if min(lengths[0]) > max(lengths[1]) > 1:
            what = f"axis {axis} of `{failed[0].name(position)}`"
            return (
                f"every case in which {what} has up to {max(lengths[1])} elements passes, and every longer one fails."
            )
    for position, argument in enumerate(failed[0].inputs.arguments):
        if isinstance(argument, FrozenTensor):
            bad, good = ({q.inputs.arguments[position].dtype for q in group} for group in (failed, passed))
            if not bad & good:
                names = listed([str(dtype).removeprefix("torch.") for dtype in sorted(bad, key=str)])
                return f"all cases of {names} fail, and all others pass."
    return ""


def axes_of(questions: list[Question]) -> list[tuple[int, int]]:
    """Return position and axis of the inputs that have that axis in every case."""
    first = questions[0].inputs.arguments
    axes = [(i, axis) for i, a in enumerate(first) if isinstance(a, FrozenTensor) for axis in range(len(a.shape))]
    return [each for each in axes if all(has_axis(question, *each) for question in questions)]


def has_axis(question: Question, position: int, axis: int) -> bool:
    argument = question.inputs.arguments[position]
    return isinstance(argument, FrozenTensor) and len(argument.shape) > axis


def length_of(question: Question, position: int, axis: int) -> int:
    return question.inputs.arguments[position].shape[axis]
