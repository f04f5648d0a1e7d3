"""Imports run one way: which room may import which, as ARCHITECTURE.md draws it, and no module in a circle."""

import ast
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("book", "classroom", "exercises", "kernels", "lab", "notebooks", "solutions", "tile")
# Room → the rooms that its modules may import, besides its own.
ALLOWED = {
    "book": {"kernels", "lab"},
    "classroom": {"lab", "solutions"},
    "exercises": {"kernels", "lab"},
    "kernels": set(),
    "lab": set(),
    "notebooks": {"kernels", "lab"},
    "solutions": {"lab"},
    "tile": {"classroom", "lab"},
}
# Importer → imported, where one is allowed all the same, and why.
EXCEPTIONS = {
    (
        "solutions.dropout",
        "kernels.dropout",
    ): "its references draw the kernel's random numbers",
}


def sources() -> Iterator[tuple[str, str]]:
    """Yield the path and the Python of every module and notebook of the rooms."""
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            if "skeleton" not in path.parts:  # templates
                yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
        for path in sorted((ROOT / room).glob("[!.]*.ipynb")):
            cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
            code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
            # An exercise's blanks are Python: a name of underscores. What is not, such as a magic, imports nothing.
            yield path.relative_to(ROOT).as_posix(), "\n".join(filter(is_python, code))


def is_python(code: str) -> bool:
    try:
        ast.parse(code)
    except SyntaxError:
        return False
    return True


def module_of(path: str) -> str:
    """Return the dotted name of a module's file."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def imports(path: str, text: str) -> Iterator[tuple[str, bool]]:
    """Yield what a file imports, wherever in it, by its full dotted name, and whether only for its types."""
    tree = ast.parse(text)
    for_types = {
        id(node)
        for guard in ast.walk(tree)
        if isinstance(guard, ast.If) and ast.unparse(guard.test).endswith("TYPE_CHECKING")
        for statement in guard.body
        for node in ast.walk(statement)
    }
    package = path.rpartition("/")[0].split("/")
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, id(node) in for_types) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *filter(None, [node.module])])
            for alias in node.names:
                name = f"{origin}.{alias.name}"
                yield (name if is_module(name) else origin), id(node) in for_types
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            yield from ((name.value, False) for name in node.args[:1] if isinstance(name, ast.Constant))


def is_module(name: str) -> bool:
    """Return whether a dotted name is a module or a package of ours, and not something in one."""
    place = ROOT / name.replace(".", "/")
    return place.with_suffix(".py").is_file() or (place / "__init__.py").is_file()


@cache
def arrows() -> dict[str, set[str]]:
    """Return module or notebook → the modules of ours that it imports when it runs."""
    found = {}
    for path, text in sources():
        name = module_of(path)
        targets = {target for target, for_types in imports(path, text) if not for_types}
        found[name] = {target for target in targets if target.split(".")[0] in ROOMS} - {name}
    return found


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_what_stands_below_it(room: str):
    wrong = [
        f"{name} imports {target}"
        for name, targets in arrows().items()
        for target in sorted(targets)
        if name.split(".")[0].split("/")[0] == room and target.split(".")[0] not in ALLOWED[room] | {room}
        if (name, target) not in EXCEPTIONS
    ]
    assert not wrong, f"{room}/ may import {', '.join(sorted(ALLOWED[room])) or 'no other room'}: {'; '.join(wrong)}"


def test_kernels_import_each_other_by_relative_imports_alone():
    """The folder works under any name."""
    named = [name for name, text in sources() if name.startswith("kernels/") and "kernels" in absolute_rooms(text)]
    assert not named, f"write `from .launch import …` in {', '.join(named)}"


def test_exceptions_are_needed():
    assert all(target in arrows()[name] for name, target in EXCEPTIONS)


def absolute_rooms(text: str) -> set[str]:
    """Return the first parts of the names that a file imports in full."""
    nodes = list(ast.walk(ast.parse(text)))
    plain = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    return {
        name.split(".")[0]
        for name in [*plain, *[n.module for n in nodes if isinstance(n, ast.ImportFrom) and not n.level]]
    }


def test_what_ships_imports_no_ladder():
    wrong = [
        f"{name} imports {target}"
        for name, targets in arrows().items()
        for target in targets
        if name.startswith("kernels.")
        and not name.startswith("kernels.ladders")
        and target.startswith("kernels.ladders")
    ]
    assert not wrong


def test_the_machine_stands_alone():
    wrong = [
        f"{name} imports {target}"
        for name, targets in arrows().items()
        for target in targets
        if name.startswith("lab.machine") and not target.startswith("lab.machine")
    ]
    assert not wrong


def assert_no_circle(graph: dict[str, set[str]]) -> None:
    """Fail with the first way that leads from a node back to itself."""
    done: set[str] = set()

    def walk(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, f"a circle: {' → '.join([*path[path.index(name) :], name])}"
        if name not in done:
            for target in sorted(graph.get(name, ())):
                walk(target, (*path, name))
            done.add(name)

    for name in graph:
        walk(name, ())


def test_no_module_imports_itself_round_about():
    """No circle, whether a module is imported at once or only when it is needed."""
    assert_no_circle(arrows())


def test_no_package_of_the_lab_imports_itself_round_about():
    graph: dict[str, set[str]] = {}
    for name, targets in arrows().items():
        if name.startswith("lab."):
            part = ".".join(name.split(".")[:2])
            graph.setdefault(part, set()).update(
                {".".join(target.split(".")[:2]) for target in targets} - {part, "lab"}
            )
    assert_no_circle(graph)


def test_the_page_names_what_is_there():
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    places = re.findall(r"`((?:tile|lab|classroom|kernels|solutions|tests)/[\w./]*)`", page)
    assert len(places) > 20 and not [place for place in places if not (ROOT / place).exists()]
    steps = re.findall(r"^\| (\d+) \| `([\w.]+)` \| (?:`(.+?)`|the notebook) \|", page, re.MULTILINE)
    assert [int(number) for number, _, _ in steps] == list(range(1, len(steps) + 1))
    for _, call, file in steps:
        if file:
            names = [node.name for node in ast.walk(ast.parse((ROOT / file).read_text())) if hasattr(node, "name")]
            assert set(call.split(".")) <= set(names), f"{file} has no {call}"
    files = {file for _, _, file in steps if file} | {"solutions/vector_add.py"}
    words = ["ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen"]
    assert f"{words[len(steps) - 10]} calls in {words[len(files) - 10]} files".capitalize() in page


def test_the_reader_of_imports_reads_all_kinds():
    text = (
        "import lab.trace\nfrom lab import plots\nfrom lab.show import show\nfrom . import matmul\n"
        "from .launch import custom_op\n"
        "def f():\n    from kernels.softmax import softmax\n    importlib.import_module('tile.cli')\n"
        "if TYPE_CHECKING:\n    from classroom import grade\n"
    )
    found = set(imports("kernels/gelu.py", text))
    at_run_time = {
        "lab.trace",
        "lab.plots",
        "lab.show",
        "kernels.matmul",
        "kernels.launch",
        "kernels.softmax",
        "tile.cli",
    }
    assert found == {(name, False) for name in at_run_time} | {("classroom.grade", True)}
