"""What the site adds to Jupyter Book: solutions folded under exercises, launch buttons only if they lead somewhere."""

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.errors import ExtensionError

from lab.generate import answers_of, is_withheld, read_script, solved_source
from lab.task import find_exercise


def fold_solutions(app: Sphinx, document: nodes.document) -> None:
    """Put the solution under each answer cell of an exercise's page. Raises ExtensionError for a task that has none."""
    folder, _, name = app.env.docname.partition("/")
    if folder != "exercises":
        return
    exercise = find_exercise(name)
    app.env.note_dependency(str(exercise.script))
    answers = answers_of(read_script(exercise))
    for cell in [cell for cell in document.findall(nodes.container) if "task" in cell.get("cell_metadata", {})]:
        task = cell["cell_metadata"]["task"]
        if task not in answers:
            raise ExtensionError(f"{exercise.path} asks for {task}, which {exercise.script} lacks: run `tile generate`")
        if not is_withheld(answers[task]):
            cell.parent.insert(cell.parent.index(cell) + 1, folded(f"Solution of {task}", solved_source(answers[task])))


def folded(title: str, code: str) -> nodes.admonition:
    """Return a box with Python code that opens on a click."""
    block = nodes.literal_block(code, code, language="python")
    return nodes.admonition("", nodes.title("", title), block, classes=["dropdown", "solution"])


def drop_buttons_to_nowhere(app: Sphinx, config: Config) -> None:
    """Leave out Colab and Binder while `repository.url` in `_config.yml` is empty, where the theme would raise."""
    if not config.html_theme_options.get("repository_url"):
        config.html_theme_options.pop("launch_buttons", None)


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the extension."""
    app.connect("config-inited", drop_buttons_to_nowhere)
    app.connect("doctree-read", fold_solutions)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
