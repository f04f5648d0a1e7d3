"""What GitHub reads, held to GitHub's own schemas: workflows and issue forms cannot be run here."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted(path for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config")
SCHEMAS = dict.fromkeys(WORKFLOWS, "github-workflows") | dict.fromkeys(FORMS, "github-issue-forms")
SCHEMAS |= {ROOT / ".github" / "ISSUE_TEMPLATE" / "config.yml": "github-issue-config"}
SCHEMAS |= {ROOT / "CITATION.cff": "citation-file-format"}


def complaints(schema: str, path: Path) -> str:
    """Return what is wrong with a file by one of the schemas that check-jsonschema brings along, "" for nothing."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return "" if done.returncode == 0 else done.stdout + done.stderr


@pytest.mark.parametrize("path, schema", SCHEMAS.items(), ids=[path.name for path in SCHEMAS])
def test_schema(path: Path, schema: str):
    assert not complaints(schema, path)


@pytest.mark.parametrize(
    "path, key, other",
    [(WORKFLOWS[0], "runs-on:", "run-on:"), (FORMS[0], "type: dropdown", "type: menu"), (FORMS[0], "body:", "bodies:")],
)
def test_schemas_find_faults(tmp_path: Path, path: Path, key: str, other: str):
    text = path.read_text(encoding="utf-8")
    assert key in text
    (tmp_path / path.name).write_text(text.replace(key, other), encoding="utf-8")
    assert complaints(SCHEMAS[path], tmp_path / path.name)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_call_what_is_here(path: Path):
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    targets = re.findall(r"^([a-z]+):.* ## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    ours = [step["run"] for step in steps if "run" in step and not step["run"].startswith("git ")]
    assert ours
    for command in ours:
        program, *arguments = command.split()
        assert arguments[0] in targets if program == "make" else (ROOT / program).stat().st_mode & 0o100, command
    for action in (step["uses"] for step in steps if "uses" in step):
        assert re.fullmatch(r"actions/[a-z-]+@v\d+", action), f"{action}: take GitHub's own actions, by their version"


def test_workflows_write_nothing_but_the_site():
    """A workflow's token may read; only the job that publishes may write, and only pages."""
    for path in WORKFLOWS:
        workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert workflow["permissions"] == {"contents": "read"}, path.name
        granted = [job["permissions"] for job in workflow["jobs"].values() if "permissions" in job]
        assert granted in ([], [{"pages": "write", "id-token": "write"}]), path.name


def test_one_version_everywhere():
    version = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == version[1]


@pytest.mark.parametrize("page", sorted(ROOT.glob("*.md")), ids=lambda page: page.name)
def test_links_at_the_top_lead_somewhere(page: Path):
    text = page.read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]
    assert not [link for link in links if not (ROOT / link.partition("#")[0]).exists()]
