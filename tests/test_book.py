"""The site: it builds without a warning, is whole in itself, and can be read without seeing its pictures."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import yaml
from bs4 import BeautifulSoup, Tag

from lab.generate import BLANK
from lab.task import Exercise, exercises

ROOT = Path(__file__).parents[1]
CHAPTERS = sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))
LOADING = {
    "audio": "src",
    "embed": "src",
    "iframe": "src",
    "img": "src",
    "link": "href",
    "object": "data",
    "script": "src",
    "source": "src",
    "video": "src",
}
FOR_READERS_ONLY = {"canonical", "next", "prev", "search", "author", "index", "top"}  # rel of links that load nothing


def pages(site: Path) -> list[Path]:
    """Return every page of the site; `_static` holds templates of the theme."""
    return sorted(page for page in site.rglob("*.html") if "_static" not in page.parts)


def soup(page: Path) -> BeautifulSoup:
    """Return the parsed page."""
    return BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser")


def loaded(page: BeautifulSoup) -> list[str]:
    """Return the address of everything that a browser fetches to show the page."""
    return [
        tag[LOADING[tag.name]]
        for tag in page.find_all(list(LOADING))
        if tag.get(LOADING[tag.name]) and not FOR_READERS_ONLY & set(tag.get("rel", ()))
    ]


def is_described(picture: Tag) -> bool:
    """Return whether a picture tells a screen reader what it shows, or that it shows nothing."""
    if picture.name == "img":
        return bool(picture.get("alt", "").strip())
    named = picture.get("aria-label") or picture.find("title")
    return picture.get("aria-hidden") == "true" or bool(picture.get("role") == "img" and named)


def test_builds_in_time(site: Path):
    cpu_seconds = float((site.parents[1] / "cpu_seconds").read_text())
    assert cpu_seconds <= 20


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_every_chapter_has_its_pages(site: Path, chapter: str):
    for folder in ("notebooks", "exercises"):
        assert (site / folder / f"{chapter}.html").exists(), f"book/_toc.yml does not list {folder}/{chapter}"
    cards = {card["href"] for card in soup(site / "book" / "index.html").select(".path a[href]")}
    assert f"../notebooks/{chapter}.html" in cards, f"book/index.md has no card for {chapter}"


def test_nothing_is_loaded_from_elsewhere(site: Path):
    outside = {
        f"{page.relative_to(site)}: {address}"
        for page in pages(site)
        for address in loaded(soup(page))
        if urlsplit(address).scheme not in ("", "data") or address.startswith("//")
    }
    assert not outside


def test_no_style_sheet_loads_from_elsewhere(site: Path):
    sheets = [*site.rglob("*.css"), *pages(site)]
    loads = re.compile(r"""(?:@import\s+|url\()\s*["']?(?:https?:)?//""")
    assert sheets and not [sheet for sheet in sheets if loads.search(sheet.read_text(encoding="utf-8"))]


def test_what_pages_load_and_link_to_exists(site: Path):
    parsed = {page: soup(page) for page in pages(site)}
    anchors = {page: {tag["id"] for tag in tree.find_all(id=True)} for page, tree in parsed.items()}
    missing = []
    for page, tree in parsed.items():
        for address in {*loaded(tree), *(link["href"] for link in tree.select("a[href]"))}:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            anchor = unquote(parts.fragment)
            if not target.exists() or (anchor and target in anchors and anchor not in anchors[target]):
                missing.append(f"{page.relative_to(site)} → {address}")
    assert not missing


def test_every_picture_has_a_text_alternative(site: Path):
    silent = [
        f"{page.relative_to(site)}: {str(picture)[:120]}"
        for page in pages(site)
        for picture in soup(page).find_all(["img", "svg"])
        if not is_described(picture)
    ]
    assert not silent


@pytest.mark.parametrize("word", ["mask", "bandwidth", "grid", "program"])
def test_search_index_knows_the_first_chapter(site: Path, word: str):
    script = (site / "searchindex.js").read_text(encoding="utf-8")
    index = json.loads(script.removeprefix("Search.setIndex(").rstrip().removesuffix(")"))
    found = set()
    for part in ("terms", "titleterms"):
        numbers = index[part].get(word, [])
        found |= {index["docnames"][number] for number in (numbers if isinstance(numbers, list) else [numbers])}
    assert "notebooks/01_vector_add" in found


@pytest.mark.parametrize("exercise", exercises(), ids=lambda exercise: exercise.name)
def test_each_task_has_its_solution_folded_below(site: Path, exercise: Exercise):
    boxes = soup(site / "exercises" / f"{exercise.name}.html").select("div.admonition.solution")
    solutions = {box.select_one(".admonition-title").text: box.select_one("pre").text for box in boxes}
    assert set(solutions) == {f"Solution of {card.name}" for card in exercise.cards}
    for code in solutions.values():
        compile(code, "solution", "exec")
        assert BLANK not in code and "# blank" not in code


def launch_buttons(site: Path) -> set[str]:
    """Return the services that the first chapter offers to run it on."""
    page = (site / "notebooks" / "01_vector_add.html").read_text(encoding="utf-8")
    return {service for service in ("colab.research.google.com", "mybinder.org") if service in page}


def test_launch_buttons_appear_with_the_address(site: Path, tmp_path: Path, build_book: Callable[..., float]):
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    assert bool(launch_buttons(site)) == bool(config["repository"]["url"])
    config["repository"]["url"] = "https://github.com/someone/course"
    config["sphinx"]["local_extensions"] = {"site_extension": str(ROOT / "book")}
    toc = {"format": "jb-book", "root": "notebooks/01_vector_add"}
    for name, content in (("_config.yml", config), ("_toc.yml", toc)):
        (tmp_path / name).write_text(yaml.safe_dump(content), encoding="utf-8")
    build_book(tmp_path, "--config", str(tmp_path / "_config.yml"), "--toc", str(tmp_path / "_toc.yml"))
    assert len(launch_buttons(tmp_path / "_build" / "html")) == 2
