"""A figure, and the canvas it is drawn on."""

import hashlib
import html
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from lab.words import code_marked

# Told apart by colour-blind readers, and at least 3:1 against white and against near-black; a test measures both.
BLUE, ORANGE, GREEN, PINK = PALETTE = ("#2b6be0", "#d9601a", "#259e78", "#ba3a9c")
GREY = "#808891"

WIDTH = 360  # units of the viewBox: about as many pixels as a phone has, so that text stays readable there


@dataclass(frozen=True)
class Figure:
    """A picture under its title, with a caption on how to read it and a text alternative that says what it shows."""

    svg: str
    title: str
    caption: str
    alt: str
    controls: str = ""

    @property
    def html(self) -> str:
        """The figure as HTML that needs nothing from outside itself."""
        return (
            '<figure class="tile-figure" style="max-width:30rem;margin:1.5rem auto">'
            f'<div style="font-weight:600;line-height:1.35;margin-bottom:.7em">{code_marked(self.title)}</div>'
            f'{self.svg}{self.controls}<figcaption style="font-size:.9em;line-height:1.45;margin-top:.6em;'
            f'text-align:left;padding:0">{code_marked(self.caption)}</figcaption></figure>'
        )

    def save(self, path: str | Path) -> None:
        """Write the picture alone as an SVG file that follows the reader's light or dark setting."""
        style = (
            "<style>svg{color:#1f2328;font-family:system-ui,sans-serif}"
            "@media (prefers-color-scheme:dark){svg{color:#e6e6e6}}</style>"
        )
        start = self.svg.index(">") + 1
        Path(path).write_text(self.svg[:start] + style + self.svg[start:] + "\n", encoding="utf-8")

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict[str, str]:
        return {"text/html": self.html, "text/plain": self.alt}

    def __repr__(self) -> str:
        return self.alt


def coordinate(value: float) -> str:
    return f"{round(float(value), 1) + 0.0:g}"  # adding zero turns -0 into 0


def _attributes(attributes: Mapping[str, object]) -> str:
    given = {name.replace("_", "-"): value for name, value in attributes.items() if value is not None}
    written = {name: coordinate(value) if isinstance(value, float) else str(value) for name, value in given.items()}
    return "".join(f' {name}="{html.escape(value)}"' for name, value in written.items())


def escaped(text: str) -> str:
    return html.escape(text, quote=False)


class Canvas:
    """An SVG picture under construction; lengths are units of the viewBox, WIDTH across."""

    def __init__(self, size: float = 11):
        self.size = size
        self.parts: list[str] = []

    def add(self, name: str, content: str | None = None, **attributes) -> None:
        inner = "/>" if content is None else f">{content}</{name}>"
        self.parts.append(f"<{name}{_attributes(attributes)}{inner}")

    def text(
        self, x: float, y: float, text: str, *, size: float | None = None, anchor="start", faint=False, **more
    ) -> None:
        """Write `text` with its baseline at y."""
        self.add(
            "text",
            escaped(text),
            x=float(x),
            y=float(y),
            fill="currentColor",
            font_size=None if size is None else float(size),
            text_anchor=None if anchor == "start" else anchor,
            opacity=0.72 if faint else None,
            **more,
        )

    def box(
        self, x: float, y: float, width: float, height: float, colour: str, *, fill=0.0, stroke=1.0, **more
    ) -> None:
        """Draw a box with an outline in `colour` and the inside tinted by `fill` (0 is hollow)."""
        self.add(
            "rect",
            x=float(x),
            y=float(y),
            width=float(width),
            height=float(height),
            fill=colour if fill else "none",
            fill_opacity=f"{fill:g}" if 0 < fill < 1 else None,
            stroke=colour if stroke else None,
            stroke_width=f"{stroke:g}" if stroke else None,
            **more,
        )

    def ghost(self, x: float, y: float, width: float, height: float, **more) -> None:
        """Draw a lane that the mask switches off: hollow and dashed."""
        self.box(x, y, width, height, "currentColor", stroke=0.8, stroke_dasharray="2 2", opacity=0.6, **more)

    def line(self, x1: float, y1: float, x2: float, y2: float, colour="currentColor", width=1.0, **more) -> None:
        self.add(
            "line",
            x1=float(x1),
            y1=float(y1),
            x2=float(x2),
            y2=float(y2),
            stroke=colour,
            stroke_width=f"{width:g}",
            **more,
        )

    def path(self, points: Iterable[tuple[float, float]], *, closed=False, **attributes) -> None:
        steps = "L".join(f"{coordinate(x)} {coordinate(y)}" for x, y in points)
        self.add("path", d=f"M{steps}{'Z' if closed else ''}", **attributes)

    def squares(self, corners: Iterable[tuple[float, float]], size: float, **attributes) -> None:
        """Draw many squares of one size and look as one path."""
        side = coordinate(size)
        steps = [f"M{coordinate(x)} {coordinate(y)}h{side}v{side}h-{side}z" for x, y in corners]
        if steps:
            self.add("path", d="".join(steps), **attributes)

    def group(self, other: "Canvas", **attributes) -> None:
        self.add("g", "".join(other.parts), **attributes)

    def figure(self, height: float, title: str, caption: str, alt: str, controls: str = "") -> Figure:
        """Close the picture; its ids come from its content, so that several stand on one page."""
        name = "tile-" + hashlib.sha256("".join([*self.parts, title, alt]).encode()).hexdigest()[:10]
        svg = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {coordinate(height)}" role="img" '
            f'aria-labelledby="{name}-title {name}-desc" font-size="{self.size:g}" '
            'style="display:block;width:100%;height:auto;overflow:visible">'
            f'<title id="{name}-title">{html.escape(title)}</title><desc id="{name}-desc">{html.escape(alt)}</desc>'
            f"{''.join(self.parts)}</svg>"
        )
        return Figure(svg, title, caption, alt, controls)
