"""Write each student's page: what each task earned, what went wrong, where and why, and in which line of their code.

A page is whole in itself: it loads nothing, runs nothing, and knows of no other student.
"""

import hashlib
import html
import re
from pathlib import Path
from typing import TYPE_CHECKING

from classroom.assignment import PAGE, POLICY, STYLE, points_in_words
from lab import notebook as notebooks
from lab.show import COLOURS, highlighted
from lab.words import capital, clean, code_marked

if TYPE_CHECKING:
    from classroom.assignment import Assignment
    from classroom.result import Result, TaskResult

LONGEST = 500  # lines of code shown
WIDEST = 400  # characters of a line
COLOUR_SETS = [";".join(f"--c{i}:{pair[k]}" for i, pair in enumerate(COLOURS.values())) for k in (0, 1)]
OWN_STYLE = f"""
:root {{ {COLOUR_SETS[0]}; --mark: #fff1c2; --good: #1a7f37; --bad: #bc4c00 }}
@media (prefers-color-scheme: dark) {{ :root {{ {COLOUR_SETS[1]}; --mark: #4d3d0c; --good: #3fb950; --bad: #f0883e }} }}
section {{ border-left: 4px solid var(--bad); padding-left: 1rem; margin: 2.5rem 0; }}
section.passed {{ border-color: var(--good); }}
.code {{ background: var(--c0); color: var(--c1); border-radius: 6px; padding: .6rem 0; overflow-x: auto; }}
.code code {{ display: inline-block; min-width: 100%; }}
.line {{ display: block; padding: 0 1rem 0 3.6rem; text-indent: -2.8rem; white-space: pre; min-height: 1.5em; }}
.line::before {{ content: attr(data-n); display: inline-block; width: 1.8rem; margin-right: 1rem; text-align: right;
  text-indent: 0; color: var(--c2); }}
.line.marked {{ background: var(--mark); box-shadow: inset 3px 0 var(--bad); }}
{"".join(f".c{i} {{ color: var(--c{i}) }}" for i in range(3, len(COLOURS)))}
pre.output {{ background: var(--c0); padding: .6rem 1rem; border-radius: 6px; overflow-x: auto; }}
td.points {{ white-space: nowrap; text-align: right; }}
.passed .state {{ color: var(--good); }} .failed .state {{ color: var(--bad); }}
figure {{ margin: 1rem 0; }} svg {{ max-width: 100%; height: auto; }}
"""


def write_feedback(folder: Path, result: "Result", assignment: "Assignment") -> Path:
    """Write a student's page into a folder and return its path. Raises OSError."""
    path = feedback_path(folder, result.student)
    notebooks.write_text(path, feedback_page(result, assignment))
    return path


def feedback_path(folder: Path, student: str) -> Path:
    """Return where a student's page lies: the name as far as a file may bear it, and a digest to tell two apart."""
    plain = re.sub(r"[^\w.-]+", "_", student).strip("._-")[:40]
    return folder / f"{plain or 'student'}-{hashlib.sha256(student.encode()).hexdigest()[:8]}.html"


def feedback_page(result: "Result", assignment: "Assignment") -> str:
    """Return a student's page as HTML."""
    rows = "".join(map(row, result.tasks))
    body = f"""<header>
<h1>{text(result.student)}</h1>
<p><strong>{result.points:g} of {points_in_words(assignment.total)}</strong> for assignment {text(assignment.name)}.</p>
</header>
<table>
<thead><tr><th>Task</th><th>Result</th><th>Points</th></tr></thead>
<tbody>{rows}</tbody>
</table>
{about_the_file(result)}
{"".join(map(section, result.tasks))}
{run_in_a_notebook(result)}
<footer>
<p>Each answer ran on numbers of its own, on which nobody else's ran. {POLICY}</p>
</footer>"""
    return PAGE.format(title=f"{text(assignment.name)}: {text(result.student)}", style=STYLE + OWN_STYLE, body=body)


def row(task: "TaskResult") -> str:
    """Return a task's line of the table."""
    state = "passed" if task.passed else "failed"
    return (
        f'<tr class="{state}"><td><a href="#{task.name}"><code>{task.name}</code></a><br>{text(task.title)}</td>'
        f'<td class="state">{text(cases_in_words(task))}</td>'
        f'<td class="points">{task.points:g} of {task.of:g}</td></tr>'
    )


def cases_in_words(task: "TaskResult") -> str:
    """Return how many cases of a task pass."""
    return f"{task.cases_passed} of {task.cases} cases pass"


def about_the_file(result: "Result") -> str:
    """Return what was not as handed out, if anything was."""
    items = "".join(f"<li>{code_marked(clean(finding))}</li>" for finding in result.findings)
    return f"<h2>About your file</h2><ul>{items}</ul>" if items else ""


def section(task: "TaskResult") -> str:
    """Return all there is to say of a task."""
    state = "passed" if task.passed else "failed"
    parts = [
        f'<h2><code>{task.name}</code>: {text(task.title)}</h2><p class="state"><strong>{text(cases_in_words(task))}'
    ]
    parts.append(f"</strong>: {task.points:g} of {points_in_words(task.of)}.</p>")
    if not task.passed:
        parts += verdict(task)
    if task.source:
        shown = code(task.source, task.lines)
        parts.append(f"<details><summary>Your code</summary>{shown}</details>" if task.passed else shown)
    return f'<section id="{task.name}" class="{state}">{"".join(parts)}</section>'


def verdict(task: "TaskResult") -> list[str]:
    """Return what went wrong: the case, the message, what to think of, the picture, and what the answer printed."""
    parts = []
    if task.case:
        parts.append(
            f"<p>The case <strong>{text(task.case)}</strong> does not pass: <code>{text(task.inputs)}</code>.</p>"
        )
    parts.append(f"<p>{code_marked(capital(clean(task.message)))}</p>")
    parts.append("<p><em>{}:</em> {}</p>".format(*(code_marked(clean(words)) for words in task.advice)))
    parts += [f"<p><em>Note:</em> {code_marked(clean(note))}</p>" for note in task.notes]
    parts.append(task.picture)
    if task.printed:
        parts.append(f'<p>Your code printed:</p><pre class="output">{text(task.printed)}</pre>')
    return parts


def run_in_a_notebook(result: "Result") -> str:
    """Return how the notebook ran from top to bottom; no more than a report, on which no mark depends."""
    if not result.report:
        return ""
    failed = [cell for cell in result.report if cell["outcome"] != "passed"]
    count = len(result.report)
    said = f"<p>{count - len(failed)} of its {count} code cells ran and printed what was expected.</p>"
    details = "".join(
        f'<details><summary><code>{text(cell["cell"])}</code></summary><pre class="output">{text(cell["text"])}</pre>'
        "</details>"
        for cell in failed
    )
    return f"<h2>Your notebook, run from top to bottom</h2>{said}{details}"


def code(source: str, marked: "list[int] | tuple[int, ...]") -> str:
    """Return a student's code with line numbers, some lines marked."""
    given = clean(source).rstrip("\n").split("\n")
    shown = "\n".join(line[:WIDEST] for line in given[:LONGEST])
    lines = [
        f'<span class="line{" marked" * (number in marked)}" data-n="{number}">{line}</span>'
        for number, line in enumerate(highlighted(shown), start=1)
    ]
    more = f"<p>… and {len(given) - LONGEST} more lines.</p>" if len(given) > LONGEST else ""
    return f'<pre class="code" tabindex="0" aria-label="your code"><code>{"".join(lines)}</code></pre>{more}'


def text(raw: str) -> str:
    """Return any text as HTML."""
    return html.escape(clean(raw))
