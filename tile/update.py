"""Take a new version of the course and keep one's answers."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from lab import notebook
from lab.answers import read_cells
from lab.generate import put_answers
from lab.notebook import ROOT, CourseError, back_up
from lab.task import exercises
from lab.words import text_of
from tile.carry import Written, put_own, written_in

SECONDS = 300  # a fetch over a slow link
ELSEWHERE = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR", "GIT_NAMESPACE")
AS_IT_WAS = "Nothing was changed."
CLONE_ANEW = (
    "Clone the course into a folder of its own, and copy your notebooks in exercises/ and the folder .tile there."
)
DISK = re.compile(
    r"read-only file system|no space left on device|disk quota exceeded|permission denied(?! \()|input/output error"
    r"|insufficient permission",
    re.IGNORECASE,
)
NETWORK = re.compile(
    r"could ?n[o']t (?:resolve|connect)|failed to connect|connection (?:refused|reset|closed|timed out)|timed out"
    r"|network is unreachable|no route to host|name resolution|hung up|early eof|took more than|\bssl\b|\btls\b|proxy",
    re.IGNORECASE,
)
NO_REPOSITORY = re.compile(r"does not appear to be a git repository|repository .*not (?:found|exist)", re.IGNORECASE)


class GitError(CourseError):
    """Git refused; the message is git's own."""


def git(*arguments: str) -> str:
    """Return what a git command prints. Raises GitError with git's words, CourseError where there is no git."""
    own = {name: value for name, value in os.environ.items() if name not in ELSEWHERE}
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=ROOT,
            env=own | {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"},
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
            stdin=subprocess.DEVNULL,
            timeout=SECONDS,
        )
    except (FileNotFoundError, PermissionError):
        raise CourseError("`tile update` needs git, which is not installed. Install it and try again.") from None
    except subprocess.TimeoutExpired:
        raise GitError(f"git {arguments[0]} took more than {SECONDS} s") from None
    if done.returncode:
        raise GitError(done.stderr.strip() or f"git {arguments[0]} failed")
    return done.stdout


def names(*arguments: str) -> list[str]:
    """Return the files that a `git diff` of these arguments names, relative to the root."""
    return [name for name in git("diff", "--name-only", "--no-renames", "-z", *arguments).split("\0") if name]


def update() -> None:
    """Fetch the newest version of the course and put what the learner wrote into it.

    Chapters and exercises that were changed here are backed up first. Raises CourseError, with every file as it was,
    when the new version cannot be taken.
    """
    refuse_other_repositories()
    refuse_without_upstream()
    print("Fetching the newest version …", flush=True)
    if not news():
        print("You have the newest version of the course.")
        return
    changed = changed_notebooks()
    backups = {path: back_up(path) for path in changed if path.exists()}
    mine = written(changed, backups)
    requirements = requirements_text()
    before = Before(changed, backups)
    try:
        if changed:
            git("checkout", "HEAD", "--", *map(str, changed))
        git("merge", "--ff-only", "--quiet", "@{upstream}")
        told = put_back(mine)
    except BaseException as error:
        state = before.restore()
        if isinstance(error, (GitError, OSError)):
            raise CourseError(why_not_taken(error, state)) from None
        raise
    for sentence in [*told, *(f"What you had is also kept in {backup}" for backup in backups.values())]:
        print(sentence)
    if requirements_text() != requirements:
        install()
    print("The course is up to date. Is a notebook open in JupyterLab? Then choose File → Reload Notebook from Disk.")


# What must be true before anything is fetched


def refuse_other_repositories() -> None:
    """Raise CourseError unless the course's folder is a repository of its own: git would update the one around it."""
    try:
        top = git("rev-parse", "--show-toplevel").removesuffix("\n")
    except GitError as error:
        if "not a git repository" not in str(error):
            raise not_fetched(error) from None
        raise CourseError(f"This folder was not made with `git clone`. {AS_IT_WAS} {CLONE_ANEW}") from None
    if Path(top).resolve() != ROOT:
        raise CourseError(
            f"The course lies inside another repository, {top}, which an update would change. {AS_IT_WAS} {CLONE_ANEW}"
        )


def refuse_without_upstream() -> None:
    """Raise CourseError unless HEAD is on a branch that follows one of the course's."""
    try:
        branch = git("symbolic-ref", "--quiet", "--short", "HEAD").strip()
    except GitError:
        raise CourseError(
            f"Your copy stands at one commit and on no branch (a detached HEAD). {AS_IT_WAS} "
            f"`git switch {main_branch()}` leads back to the course; then try again."
        ) from None
    try:
        git("rev-parse", "--abbrev-ref", "@{upstream}")
    except GitError:
        if not git("remote").strip():
            raise CourseError(
                f"This repository was not made with `git clone`: it has no address to fetch from. {AS_IT_WAS} "
                f"{CLONE_ANEW}"
            ) from None
        raise CourseError(
            f"Your branch `{branch}` follows no branch of the course. {AS_IT_WAS} "
            f"`git branch --set-upstream-to=origin/{main_branch()}` connects the two; then try again."
        ) from None


def main_branch() -> str:
    """Return the name of the course's own branch."""
    try:
        return git("rev-parse", "--abbrev-ref", "origin/HEAD").strip().removeprefix("origin/")
    except GitError:
        return "main"


def news() -> bool:
    """Return whether a newer version exists, having fetched it. Raises CourseError when it cannot be taken."""
    try:
        git("fetch", "--quiet")
        theirs = int(git("rev-list", "--count", "HEAD..@{upstream}"))
        ours = int(git("rev-list", "--count", "@{upstream}..HEAD"))
    except GitError as error:
        raise not_fetched(error) from None
    if theirs and ours:
        raise CourseError(
            f"Your copy has commits of your own ({ours}), so the new version cannot simply be put on top; nothing was "
            "changed. `git pull --rebase` brings the two together."
        )
    return theirs > 0


# What went wrong, in words


def not_fetched(error: GitError) -> CourseError:
    """Return the error that says why the newest version did not come, and what to do."""
    words = str(error)
    if DISK.search(words):
        return CourseError(f"{disk_refuses(words)} {AS_IT_WAS}")
    if NETWORK.search(words):
        return CourseError(
            f"The course's server cannot be reached. {AS_IT_WAS} Check the network and the proxy (git takes "
            f"it from HTTPS_PROXY, or `git config --global http.proxy ADDRESS`), and try again. Git says:\n{words}"
        )
    if NO_REPOSITORY.search(words):
        return CourseError(
            f"The address that the course came from holds no course now. {AS_IT_WAS} "
            f"`git remote set-url origin ADDRESS` gives a new one; then try again. Git says:\n{words}"
        )
    return CourseError(f"The newest version could not be fetched. {AS_IT_WAS} Mend this and try again:\n{words}")


def why_not_taken(error: GitError | OSError, state: str) -> str:
    """Return the sentences that say why a fetched version was not taken, what state the copy is in, and what to do."""
    words = text_of(error)
    if isinstance(error, OSError) or DISK.search(words):
        return f"{disk_refuses(words)} {state}"
    return (
        f"The new version does not fit onto your copy. {state} Git says:\n{words}\n"
        "Move the files it names elsewhere, or undo your changes to them (`git checkout -- FILE`), and try again."
    )


def disk_refuses(words: str) -> str:
    """Return the sentence that says that files cannot be written, with the system's reason, and what to do."""
    found = DISK.search(words)
    return (
        f"Files of the course cannot be written ({found[0] if found else words}): free some space, or make the folder "
        f"{ROOT} and its disk writable, and try again."
    )


class Before:
    """The files as they were before an update, as far as it may change them."""

    def __init__(self, changed: list[Path], backups: dict[Path, Path]):
        self.backups = backups
        self.head = git("rev-parse", "HEAD").strip()
        self.staged = names("--cached", "HEAD")
        self.edited = set(names("HEAD"))
        self.touched = set(names("HEAD", "@{upstream}"))
        paths = {*changed, *(ROOT / name for name in self.touched)}
        self.absent = [path for path in paths if not os.path.lexists(path)]

    def restore(self) -> str:
        """Put back every file. Return the sentence that says so, or what could not be put back."""
        try:
            if git("rev-parse", "HEAD").strip() != self.head or names("--cached", "HEAD") != self.staged:
                git("reset", "--quiet", self.head)
            ours = (name for name in names(self.head) if name in self.touched or name.startswith("exercises/"))
            half_done = [name for name in ours if name not in self.edited]
            if half_done:
                git("checkout", self.head, "--", *half_done)
            for path in self.absent:
                path.unlink(missing_ok=True)
            for path, backup in self.backups.items():
                if not path.exists() or path.read_bytes() != backup.read_bytes():
                    copy_over(backup, path)
        except (GitError, OSError) as error:
            kept = "".join(f"\nWhat you had is kept in {backup}" for backup in self.backups.values())
            return f"Not all of your copy could be put back as it was: {text_of(error)}{kept}"
        return "Your copy is as it was."


def copy_over(source: Path, target: Path) -> None:
    """Replace a file by a copy of another, in one step. Raises OSError."""
    draft = target.with_name(f".{target.name}.{os.getpid()}.copy")
    try:
        shutil.copy2(source, draft)
        os.replace(draft, target)
    finally:
        draft.unlink(missing_ok=True)


# What the learner wrote


def changed_notebooks() -> list[Path]:
    """Return the chapters and exercises that differ from the version they came from."""
    return [ROOT / name for name in names("--diff-filter=a", "HEAD", "--", "exercises", "notebooks")]


def written(changed: list[Path], backups: dict[Path, Path]) -> list[Written]:
    """Return what the learner wrote in each exercise. Says which cannot be read, and where they are kept."""
    found = []
    for path in changed:
        if path.parent.name != "exercises" or not path.exists():
            continue
        findings: list[str] = []
        cells = read_cells(path.read_bytes(), findings)
        name = path.relative_to(ROOT).as_posix()
        if cells:
            blank = notebook.parse(git("show", f"HEAD:./{name}"), path)
            found.append(written_in(cells, blank, path.stem.partition("_")[2]))
        else:
            print(
                f"No answer could be taken from {name}. {' '.join(findings) or 'It has no cells.'} It is kept in "
                f"{backups[path]}, and the new version takes its place.",
                file=sys.stderr,
            )
    return found


def put_back(mine: list[Written]) -> list[str]:
    """Put what the learner wrote into the exercises of the new version. Return what became of it, in sentences."""
    told = []
    left = {task: source for each in mine for task, source in each.answers.items()}
    own = {each.stem: each.own for each in mine if each.own}
    for new in exercises():
        answers = {card.name: left.pop(card.name) for card in new.cards if card.name in left}
        cells = own.pop(new.stem, [])
        if not (answers or cells):
            continue
        fresh = notebook.read(new.path)
        homeless = put_answers(fresh, answers)
        put_own(fresh, cells)
        notebook.write(new.path, fresh)
        left |= {task: answers[task] for task in homeless}
        name = new.path.relative_to(ROOT)
        told += [f"Your answer to `{task}` is back in {name}" for task in answers if task not in homeless]
        told += [f"Your own cells are back in {name}"] * bool(cells)
    missing = [task for each in mine for task in each.missing]
    return [
        *told,
        *(f"No answer to `{task}` was found: its cell is gone. The new version has its blank." for task in missing),
        *(f"The new version has no task `{task}` any more; your answer to it is in the backup." for task in left),
        *(f"The new version has no exercise `{stem}` any more; your own cells are in the backup." for stem in own),
    ]


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
