"""The site and JupyterLab as a person meets them: in a real browser, with no network."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import which
from typing import NamedTuple

import nbformat
import pytest

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")
CHROMIUM = which("chromium") or which("chromium-browser") or which("google-chrome")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium"),
]

ROOT = Path(__file__).parents[1]
CHAPTERS = sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))
PHONE, DESKTOP = (360, 740), (1280, 900)
AA_TEXT, AA_GRAPHIC = 4.5, 3.0  # WCAG 2 contrast, level AA

# Every visible piece of text in the article whose contrast is below what its kind needs.
FAINT_TEXT = """
([text, graphic]) => {
  const context = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const rgba = colour => {
    context.clearRect(0, 0, 1, 1);
    context.fillStyle = colour;
    context.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = context.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = ([r, g, b, a], below) => [r, g, b].map((value, i) => value * a + below[i] * (1 - a));
  const light = rgb => rgb.map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = element => {
    if (!element) return [255, 255, 255];
    const colour = rgba(getComputedStyle(element).backgroundColor);
    return colour[3] === 1 ? colour.slice(0, 3) : over(colour, behind(element.parentElement));
  };
  const faint = [];
  const walker = document.createTreeWalker(document.querySelector("article"), NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const words = walker.currentNode.textContent.trim(), element = walker.currentNode.parentElement;
    if (!words || !element.checkVisibility() || element.closest("title, desc, script, style, mjx-container")) continue;
    const inPicture = element instanceof SVGElement, style = getComputedStyle(element), ground = behind(element);
    const ink = light(over(rgba(inPicture ? style.fill : style.color), ground)), paper = light(ground);
    const contrast = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
    if (contrast < (inPicture ? graphic : text)) faint.push(`${contrast.toFixed(2)}: ${words.slice(0, 40)}`);
  }
  return faint;
}
"""


class Tab(NamedTuple):
    """A page of the browser, and what went wrong in it."""

    page: "playwright.Page"
    troubles: list[str]


@pytest.fixture(scope="module")
def browser() -> Iterator["playwright.Browser"]:
    """Chromium without a window."""
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def open_tab(browser: "playwright.Browser") -> Iterator[Callable[..., Tab]]:
    """Open tabs that note script errors and every request that leaves the allowed addresses."""
    contexts = []

    def open_one(allowed: tuple[str, ...] = ("file:", "data:"), size=DESKTOP, scheme: str = "light") -> Tab:
        width, height = size
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        contexts.append(context)
        tab = Tab(context.new_page(), [])
        tab.page.on("pageerror", lambda error: tab.troubles.append(f"script error: {error}"))
        tab.page.on("console", lambda entry: entry.type == "error" and tab.troubles.append(f"console: {entry.text}"))
        tab.page.on("request", lambda request: request.url.startswith(allowed) or tab.troubles.append(request.url))
        return tab

    yield open_one
    for context in contexts:
        context.close()


def addresses(site: Path) -> list[str]:
    """Return the address of every page of the site in the file system."""
    return [page.as_uri() for page in sorted(site.rglob("*.html")) if "_static" not in page.parts]


def ground(page: "playwright.Page") -> str:
    """Return the page's background colour."""
    return page.evaluate("getComputedStyle(document.body).backgroundColor")


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_is_whole_fits_and_can_be_read(site: Path, open_tab: Callable[..., Tab], scheme: str, size: tuple):
    page, troubles = open_tab(size=size, scheme=scheme)
    for address in addresses(site):
        page.goto(address)
        page.wait_for_load_state("networkidle")
        if page.locator("article").count():
            troubles += [f"{address} is faint: {text}" for text in page.evaluate(FAINT_TEXT, [AA_TEXT, AA_GRAPHIC])]
        too_wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        if too_wide > 0:
            troubles.append(f"{address} is {too_wide} pixels too wide")
    assert not troubles


def test_colour_scheme_can_be_chosen(site: Path, open_tab: Callable[..., Tab]):
    page, troubles = open_tab(scheme="light")
    page.goto((site / "book" / "index.html").as_uri())
    seen = {ground(page)}
    for _ in range(3):
        page.locator("button.theme-switch-button:visible").first.click()
        seen.add(ground(page))
    assert len(seen) == 2
    assert not troubles


def test_search_finds_the_chapter_from_the_file_system(site: Path, open_tab: Callable[..., Tab]):
    page, troubles = open_tab()
    page.goto((site / "search.html").as_uri() + "?q=mask")
    page.locator("#search-results li").first.wait_for()
    found = page.locator("#search-results li a").evaluate_all("links => links.map(link => link.href)")
    assert any("notebooks/01_vector_add.html" in link for link in found)
    assert not troubles


def test_a_solution_is_folded_and_opens(site: Path, open_tab: Callable[..., Tab]):
    page, troubles = open_tab()
    page.goto((site / "exercises" / "01_vector_add.html").as_uri())
    box = page.locator("div.admonition.solution").first
    code = box.locator("pre")
    assert not code.is_visible()
    box.locator(".admonition-title").click()
    code.wait_for(state="visible")
    assert not troubles


def walk_through(page: "playwright.Page") -> None:
    """Step through the first figure that has steps, by button and by key; each step shows another program."""
    figure = page.locator("figure:has(input[type=range])").first
    slider, words = figure.locator("input[type=range]"), figure.locator("li:visible")
    first = words.inner_text()
    figure.get_by_label("next program").click()
    second = words.inner_text()
    assert slider.input_value() == "1" and second != first
    figure.get_by_label("next program").press("ArrowLeft")
    assert slider.input_value() == "0" and words.inner_text() == first


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_a_reader_steps_through_the_programs(site: Path, open_tab: Callable[..., Tab], size: tuple):
    page, troubles = open_tab(size=size)
    page.goto((site / "notebooks" / "01_vector_add.html").as_uri())
    walk_through(page)
    assert not troubles


# JupyterLab


SETTINGS = {
    # Else only the cells in sight are in the page.
    "@jupyterlab/notebook-extension/tracker": {"windowingMode": "none"},
    "@jupyterlab/apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}


@pytest.fixture
def jupyterlab(tmp_path: Path) -> Iterator[str]:
    """The address of a JupyterLab that serves unexecuted copies of the chapters, with settings and state of its own."""
    folders = {name: tmp_path / name for name in ("config", "data", "runtime", "settings", "workspaces", "notebooks")}
    for folder in folders.values():
        folder.mkdir()
    for name, values in SETTINGS.items():
        path = folders["settings"] / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values), encoding="utf-8")
    for chapter in CHAPTERS:
        notebook = nbformat.read(ROOT / "notebooks" / f"{chapter}.ipynb", as_version=4)
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.update(outputs=[], execution_count=None)
        nbformat.write(notebook, folders["notebooks"] / f"{chapter}.ipynb")
    environment = {
        **os.environ,
        "JUPYTER_CONFIG_DIR": str(folders["config"]),
        "JUPYTER_DATA_DIR": str(folders["data"]),
        "JUPYTER_RUNTIME_DIR": str(folders["runtime"]),
        "JUPYTERLAB_SETTINGS_DIR": str(folders["settings"]),
        "JUPYTERLAB_WORKSPACES_DIR": str(folders["workspaces"]),
        "TILE_STATE": str(tmp_path / "state"),
    }
    options = ["--no-browser", "--allow-root", "--port=0", "--IdentityProvider.token="]
    command = [sys.executable, "-m", "jupyterlab", *options, f"--ServerApp.root_dir={tmp_path}"]
    with (tmp_path / "server.log").open("w") as log:
        server = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=log, stderr=subprocess.STDOUT)
    try:
        yield server_address(server, folders["runtime"], tmp_path / "server.log")
    finally:
        server.terminate()
        server.wait(timeout=20)


def server_address(server: subprocess.Popen, runtime: Path, log: Path) -> str:
    """Wait until a server has said where it listens."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and server.poll() is None:
        for path in runtime.glob("jpserver-*.json"):
            text = path.read_text(encoding="utf-8")
            if text:
                return json.loads(text)["url"]
        time.sleep(0.1)
    raise AssertionError(f"JupyterLab did not start:\n{log.read_text(encoding='utf-8')[-2000:]}")


def run_all(page: "playwright.Page") -> None:
    """Run every cell of the notebook in front, to the end."""
    page.get_by_text(re.compile(r"\| Idle")).first.wait_for(timeout=60_000)
    prompts = page.locator(".jp-CodeCell .jp-InputPrompt")
    for _ in range(5):  # a request that comes too early is lost
        page.get_by_role("menuitem", name="Run", exact=True).click()
        page.get_by_role("menuitem", name=re.compile("^Run All Cells")).first.click()
        try:
            prompts.filter(has_text=re.compile(r"\[(\*|\d+)\]")).first.wait_for(timeout=3_000)
            break
        except playwright.TimeoutError:
            continue
    playwright.expect(prompts.filter(has_text="[*]")).to_have_count(0, timeout=120_000)


FIRST, *OTHERS = CHAPTERS


@pytest.mark.parametrize("chapter", [FIRST, *(pytest.param(other, marks=pytest.mark.slow) for other in OTHERS)])
def test_jupyterlab_runs_the_chapter_to_its_end(jupyterlab: str, open_tab: Callable[..., Tab], chapter: str):
    page, troubles = open_tab(allowed=(jupyterlab, jupyterlab.replace("http", "ws", 1), "data:", "blob:"))
    page.goto(f"{jupyterlab}lab/tree/notebooks/{chapter}.ipynb?reset")
    run_all(page)
    # JupyterLab shows tracebacks as it shows stderr, and a chapter writes neither.
    assert page.locator("[data-mime-type='application/vnd.jupyter.stderr']").all_inner_texts() == []
    playwright.expect(page.locator(".jp-CodeCell .jp-InputPrompt").last).to_have_text(re.compile(r"\[\d+\]"))
    if page.locator("figure:has(input[type=range])").count():
        walk_through(page)
    assert not [trouble for trouble in troubles if trouble.startswith("http")]
