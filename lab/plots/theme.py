"""The look of every chart: one theme for Matplotlib, and its SVG made fit to stand inside any page.

Matplotlib takes most of a second to import, so the drawing functions import it, and `import lab.plots` does not.
"""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from lab.plots.figure import WIDTH, Canvas, escaped

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

INK = "#010203"  # stands for the page's own text colour: no page draws in it, and `painted` replaces it
FAINT = 0.72  # opacity of what explains: axis labels, units, the corner

THEME = {
    "axes.edgecolor": INK,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.labelcolor": INK,
    "axes.labelsize": 10,
    "axes.linewidth": 0.8,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.dpi": 72,  # a point of Matplotlib is a unit of the viewBox
    "figure.facecolor": "none",
    "font.size": 10,
    "grid.alpha": 0.2,
    "grid.color": INK,
    "grid.linewidth": 0.6,
    "legend.fontsize": 10,
    "legend.frameon": False,
    "legend.handlelength": 2.6,
    "lines.linewidth": 2,
    "lines.markersize": 5,
    "svg.fonttype": "none",
    "svg.hashsalt": "tile-by-tile",
    "text.color": INK,
    "xtick.color": INK,
    "xtick.labelsize": 10,
    "ytick.color": INK,
    "ytick.labelsize": 10,
    "ytick.major.size": 0,
}
KEPT = (
    "fill",
    "fill-opacity",
    "font-size",
    "font-weight",
    "opacity",
    "stroke",
    "stroke-dasharray",
    "stroke-opacity",
    "stroke-width",
    "text-anchor",
)
SVG, LINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}href"


@contextmanager
def themed(height: float) -> Iterator["Drawing"]:
    """Give an empty drawing, WIDTH by `height` units, on which Matplotlib draws in the course's theme alone."""
    with quiet_matplotlib():
        import matplotlib
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure as Drawing

        with matplotlib.rc_context():
            matplotlib.rcdefaults()  # a reader's own matplotlibrc must not change a byte
            matplotlib.rcParams.update(THEME)
            drawing = Drawing(figsize=(WIDTH / 72, height / 72))
            FigureCanvasSVG(drawing)
            yield drawing


@contextmanager
def quiet_matplotlib() -> Iterator[None]:
    """Keep Matplotlib from telling a notebook that it builds a cache of fonts, or where."""
    log = logging.getLogger("matplotlib")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(level)


def canvas_of(drawing: "Drawing") -> Canvas:
    """Return a canvas with all that was drawn: no ids, no styles, no fonts, nothing that reaches outside itself."""
    text = StringIO()
    drawing.savefig(text, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    root = ElementTree.fromstring(text.getvalue())
    shapes = {shape.get("id"): shape for shape in root.iter(f"{SVG}path") if shape.get("id")}
    canvas = Canvas()
    for part in visible(root):
        if part.tag == f"{SVG}text":
            add_text(canvas, part)
        elif part.tag == f"{SVG}use":
            shape = shapes[part.get(LINK).removeprefix("#")]
            add_mark(canvas, shape, rounded(part.get("x")), rounded(part.get("y")), painted(shape) | painted(part))
        else:
            add_path(canvas, part, painted(part))
    return canvas


def visible(part: ElementTree.Element) -> Iterator[ElementTree.Element]:
    """Give every path, text and use that is drawn where it stands."""
    for child in part:
        if child.tag in (f"{SVG}path", f"{SVG}text", f"{SVG}use"):
            yield child
        elif child.tag != f"{SVG}defs":
            yield from visible(child)


def painted(part: ElementTree.Element) -> dict[str, str]:
    """Return how a part is painted, as attributes, with the page's own colour for INK."""
    style = dict(re.findall(r"([\w-]+): ([^;]+)", part.get("style", "")))
    if style.get("fill-opacity") == "0":  # how Matplotlib writes a hollow mark
        style |= {"fill": "none"}
        del style["fill-opacity"]
    return {name: style[name].replace(INK, "currentColor").removesuffix("px") for name in KEPT if name in style}


def add_path(canvas: Canvas, shape: ElementTree.Element, paint: dict[str, str], **more) -> None:
    """Draw a path, unless there is nothing to see of it."""
    paint = {"fill": "currentColor"} | paint  # SVG fills in black what says nothing
    if paint["fill"] != "none" or "stroke" in paint:
        canvas.add("path", d=rounded(" ".join(shape.get("d").split())), **paint, **more)


def add_mark(canvas: Canvas, shape: ElementTree.Element, x: str, y: str, paint: dict[str, str]) -> None:
    """Draw a mark or a tick at its place; Matplotlib makes a round mark of eight curves, where a circle will do."""
    if shape.get("d").count("C") == 8:
        canvas.add("circle", cx=x, cy=y, r=rounded(shape.get("d").split()[2]), **paint)
    else:
        add_path(canvas, shape, paint, transform=f"translate({x} {y})")


def add_text(canvas: Canvas, part: ElementTree.Element) -> None:
    """Write a text in the page's font; only one that is turned keeps its transform."""
    paint = {"fill": "currentColor"} | painted(part)
    turn = None if part.get("transform").startswith("rotate(-0 ") else rounded(part.get("transform"))
    place = {name: rounded(part.get(name)) for name in ("x", "y")}
    canvas.add("text", escaped(part.text), **place, **paint, transform=turn)


def rounded(numbers: str) -> str:
    """Return text with every number in it cut to two digits after the point."""
    return re.sub(r"-?\d+\.\d+(?:e-?\d+)?", lambda found: short(float(found[0])), numbers)


def short(value: float) -> str:
    return f"{round(value, 2) + 0.0:.2f}".rstrip("0").rstrip(".")  # adding zero turns -0 into 0
