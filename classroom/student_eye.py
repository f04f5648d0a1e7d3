"""Run a notebook through nbval, inside a sandbox, as its student would see it. A report, not a verdict."""

import os
import re
from pathlib import Path

import pytest

from lab import notebook as notebooks  # before nbval imports nbformat, which it spares a second

CELL_SECONDS = 30
SHOWN = 3000  # characters of one cell's report
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class Reports:
    """A plugin of pytest that keeps what became of each cell."""

    def __init__(self):
        self.cells: dict[str, str] = {}  # name of the test → id of the cell
        self.kept: list[dict] = []

    def pytest_collection_modifyitems(self, items) -> None:
        self.cells = {item.nodeid: item.cell.get("id", "") for item in items if hasattr(item, "cell")}

    def pytest_runtest_logreport(self, report) -> None:
        if report.when == "call" or report.failed:
            text = COLOURS.sub("", report.longreprtext)
            if len(text) > SHOWN:  # what happened stands at the end
                text = f"{text[: SHOWN // 2]}\n…\n{text[-SHOWN // 2 :]}"
            self.kept.append({"cell": self.cells.get(report.nodeid, ""), "outcome": report.outcome, "text": text})


class StudentEye:
    """Runs notebooks through nbval."""

    def run(self, text: str) -> list[dict]:
        """Return what became of each cell of a notebook, given as its file's text: its id, outcome and report."""
        path = Path.cwd() / "submission.ipynb"
        notebooks.write_text(path, text)
        reports = Reports()
        os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # all others take time to import
        options = ["--nbval", f"--nbval-cell-timeout={CELL_SECONDS}", "--nbval-kernel-name=python3", "-q"]
        options += ["-p", "no:cacheprovider", "-p", "nbval.plugin", "-p", "conftest", f"--rootdir={path.parent}"]
        options += ["--assert=plain"]  # nothing here asserts, and rewriting the plugins takes time as well
        pytest.main([*options, str(path)], plugins=[reports])
        return reports.kept
