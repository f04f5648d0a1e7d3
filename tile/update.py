"""Take a new version of the course and keep one's answers."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from lab import notebook
from lab.generate import answers_of, put_answers, read_answers
from lab.notebook import ROOT, CourseError, back_up
from lab.task import exercises

SECONDS = 300  # a fetch over a slow link


class GitError(CourseError):
    """Git refused; the message is git's own."""


def git(*arguments: str) -> str:
    """Return what a git command prints. Raises GitError with git's words, CourseError where there is no git."""
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=ROOT,
            env=os.environ | {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"},
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=SECONDS,
        )
    except FileNotFoundError:
        raise CourseError("`tile update` needs git, which is not installed. Install it and try again.") from None
    except subprocess.TimeoutExpired:
        raise GitError(f"git {arguments[0]} took more than {SECONDS} s") from None
    if done.returncode:
        raise GitError(done.stderr.strip() or f"git {arguments[0]} failed")
    return done.stdout


def update() -> None:
    """Fetch the newest version of the course and put the learner's answers into it, by cell id.

    Chapters and exercises that were changed here are backed up first. Raises CourseError, with every file as it was,
    when the new version cannot be taken.
    """
    print("Fetching the newest version …", flush=True)
    if not news():
        print("You have the newest version of the course.")
        return
    changed = changed_notebooks()
    backups = {path: back_up(path) for path in changed if path.exists()}
    answers = written_answers(changed)
    requirements = requirements_text()
    try:
        if changed:
            git("checkout", "HEAD", "--", *map(str, changed))
        git("merge", "--ff-only", "--quiet", "@{upstream}")
    except BaseException as error:
        for path, backup in backups.items():
            shutil.copy2(backup, path)
        if not isinstance(error, GitError):
            raise
        raise CourseError(
            f"The new version does not fit onto your copy, which is as it was. Git says:\n{error}\n"
            "Move the files it names elsewhere, or undo your changes to them (`git checkout -- FILE`), and try again."
        ) from None
    put_back(answers)
    for backup in backups.values():
        print(f"What you had is also kept in {backup}")
    if requirements_text() != requirements:
        install()
    print("The course is up to date. Is a notebook open in JupyterLab? Then choose File → Reload Notebook from Disk.")


def news() -> bool:
    """Return whether a newer version exists, having fetched it. Raises CourseError when it cannot be taken."""
    try:
        git("rev-parse", "--git-dir")
        git("fetch", "--quiet")
        theirs = int(git("rev-list", "--count", "HEAD..@{upstream}"))
        ours = int(git("rev-list", "--count", "@{upstream}..HEAD"))
    except GitError as error:
        raise CourseError(
            f"The newest version could not be fetched; nothing was changed. Git says:\n{error}\n"
            "Check the network, and that this folder was made with `git clone`, and try again."
        ) from None
    if theirs and ours:
        raise CourseError(
            f"Your copy has commits of your own ({ours}), so the new version cannot simply be put on top; nothing was "
            "changed. `git pull --rebase` brings the two together."
        )
    return theirs > 0


def changed_notebooks() -> list[Path]:
    """Return the chapters and exercises that differ from the version they came from."""
    names = git("diff", "--name-only", "-z", "HEAD", "--", "exercises", "notebooks").split("\0")
    return [ROOT / name for name in names if name]


def written_answers(changed: list[Path]) -> dict[str, str]:
    """Return task → answer for every answer cell that the learner changed; a damaged notebook has none to give."""
    answers = {}
    for path in changed:
        if path.parent.name != "exercises" or not path.exists():
            continue
        try:
            mine = read_answers(path)
        except notebook.NotebookError as error:
            print(f"{error} It is kept in the backups, and the new version takes its place.", file=sys.stderr)
            continue
        blank = notebook.parse(git("show", f"HEAD:./{path.relative_to(ROOT).as_posix()}"), path)
        original = answers_of(blank)
        answers |= {task: source for task, source in mine.items() if source != original.get(task)}
    return answers


def put_back(answers: dict[str, str]) -> None:
    """Put answers into the exercises of the new version, and say which have no place there."""
    for new in exercises():
        mine = {card.name: answers[card.name] for card in new.cards if card.name in answers}
        if not mine:
            continue
        fresh = notebook.read(new.path)
        homeless = put_answers(fresh, mine)
        notebook.write(new.path, fresh)
        for task in mine.keys() - homeless:
            print(f"Your answer to `{task}` is back in {new.path.relative_to(ROOT)}")
            del answers[task]
    for task in answers:
        print(f"The new version has no task `{task}` any more; your answer to it is in the backup.")


def requirements_text() -> str:
    """Return what the course needs installed, "" where no file says."""
    path = ROOT / "requirements.txt"
    return path.read_text(encoding="utf-8") if path.exists() else ""


def install() -> None:
    """Install what the new version needs. Raises CourseError, saying how to go on."""
    print("The new version needs other packages; installing them …", flush=True)
    own = Path(sys.prefix) == ROOT / ".venv"
    command = ["-I", "bootstrap.py"] if own else ["-m", "pip", "install", "--quiet", "-r", "requirements.txt"]
    if subprocess.run([sys.executable, *command], cwd=ROOT, stdin=subprocess.DEVNULL).returncode:
        raise CourseError("The course and your answers are in place, its packages are not: `make lab` installs them.")
