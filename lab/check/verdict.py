"""What came of checking one answer, as text and as HTML."""

import html
import textwrap
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lab.check.diagnose import ALMOST_RIGHT, guess_strides
from lab.check.finding import Finding
from lab.check.question import Question
from lab.check.work import WASTE
from lab.words import SHOWN, capital, code_marked, counted

if TYPE_CHECKING:
    from lab.plots import Figure

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
        """Note what a GPU's compiler says against the kernels; where all else is right, the answer fails by it."""
        if self.passed and objections:
            self.passed = False
            self.tell(Finding("compiler", "the values are right here, but " + "\n".join(objections)))
        else:
            self.notes += objections

    @property
    def advice(self) -> tuple[str, str]:
        """What to think of, or to do, next: a label and a sentence."""
        if self.cause:
            return "What to do" if self.reason in ADVISED else "Likely cause", self.cause
        if self.reason == "error":
            return "What to do", "that line stopped with this message: mend it, run its cell again, then this one."
        if self.reason == "compiler":
            return "What to do", "change what it refuses, run that cell again, then this one."
        return "What to do", f'follow one wrong element by hand; `hint("{self.task}")` asks a question that may help.'

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


def conclude(verdict: Verdict, failed: list[tuple[Question, Finding]]) -> None:
    """Tell of the first case that failed, or of one like it whose cause is known, and name the others.

    That work was done in vain is told where nothing worse is wrong.
    """
    verdict.passed = not failed
    if failed:
        worse = [pair for pair in failed if pair[1].reason not in WASTE]
        verdict.tell(*most_telling(worse or failed))
    others = [q.case.name for q, _ in failed if q.case.name != verdict.case]
    untried = verdict.cases_total - verdict.cases_passed - len(failed)
    if others:
        these = "this case fails" if len(others) == 1 else "these cases fail"
        verdict.notes.append(f"{these} as well: " + ", ".join(f"“{name}”" for name in others) + ".")
    if untried:
        verdict.notes.append(f"{counted(untried, 'more case')} could not be tried.")


def most_telling(failed: "list[tuple[Question, Finding]]") -> "tuple[Finding, Question]":
    """Return the first failure, or one for the same reason that says more: its cause is known, it has elements.

    To be almost right says no more: what is far off in one case may come near in another by luck.
    """
    alike = [pair for pair in failed if pair[1].reason == failed[0][1].reason]
    if failed[0][1].reason == "wrong-values" and not failed[0][1].cause:
        failed[0][1].cause = guess_strides([question for question, _ in failed])
    explained = [pair for pair in alike if pair[1].cause not in ("", ALMOST_RIGHT)]
    question, finding = max(explained or alike, key=lambda pair: pair[0].expected[0].value.numel() > 1)
    return finding, question
