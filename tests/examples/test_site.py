"""The site of the documents: it is built without a warning, contains the files outside of the folder, too, and loads
nothing from other hosts."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urljoin

import pytest

from clonos_py import connectors

ROOT = Path(__file__).resolve().parents[2]
# What Material's script loads from other hosts, and what in a page makes it do so.
# Browsers since 2020 do not need the last.
LOADED_FOR = {
    "https://unpkg.com/mermaid@11/dist/mermaid.min.js": 'class="mermaid"',
    "https://api.github.com/repos/${e}/${t}": 'data-md-component="source"',
    "https://api.github.com/users/${e}": 'data-md-component="source"',
    "https://${e}/api/v4/projects/${encodeURIComponent(t)}": 'data-md-component="source"',
    "https://unpkg.com/resize-observer-polyfill": None,
}


class Loads(HTMLParser):
    """The addresses of what a page loads when it is opened, scripts among them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.all: list[str] = []
        self.scripts: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "link" and values.get("rel") not in ("prev", "next", "canonical"):
            self.all.append(values["href"] or "")
        if (source := values.get("src")) is not None:
            self.all.append(source)
            self.scripts |= {source} if tag == "script" else set()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, str]:
    return {page: page.read_text(encoding="utf-8") for page in site.rglob("*.html")}


@pytest.fixture(scope="module")
def loads(pages: dict[Path, str]) -> dict[Path, Loads]:
    return {page: Loads(text) for page, text in pages.items()}


def test_every_document_is_a_page(site: Path) -> None:
    documents = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    pages = {path.relative_to(site) for path in site.rglob("*.html")}
    assert {page.with_name("index.html") if page.stem == "README" else page for page in documents} <= pages
    assert {Path(name) for name in ("index.html", "architecture.html", "changelog.html", "glossary.html")} <= pages


def test_links_to_source_files_lead_to_pages(site: Path) -> None:
    guide = (site / "guide.html").read_text(encoding="utf-8")
    assert re.search(r'href="source/examples/fraud\.py\.html"', guide)
    assert "class Fraud" in re.sub(r"<[^>]+>", "", (site / "source/examples/fraud.py.html").read_text(encoding="utf-8"))


def test_the_reference_has_what_jobs_are_written_with(site: Path) -> None:
    pages = [path.read_text(encoding="utf-8") for path in (site / "reference").glob("*.html")]
    functions = {"state", "list_state", "map_state", "event_timer", "processing_timer", "tumbling", "session", "as_of"}
    names = {"col", "lit", "when", "apply", "count", "aggregate_by", "UserAggregate", "Http", "Options", "Context"}
    names |= functions | {"Money", "Instant", "DeadLetter", "Record", "Process", "CoProcess", "service"}
    assert {name for name in names if not any(re.search(rf'id="[\w.]*\.{name}"', page) for page in pages)} == set()


def test_the_reference_has_every_connector(site: Path) -> None:
    page = (site / "reference" / "connectors.html").read_text(encoding="utf-8")
    missing = [name for name in connectors.__all__ if not re.search(rf'id="[\w.]*\.{name}"', page)]
    assert missing == []


def test_pages_and_styles_load_nothing_from_other_hosts(site: Path, loads: dict[Path, Loads]) -> None:
    assert [
        (page.name, url) for page, found in loads.items() for url in found.all if re.match("(https?:)?//", url)
    ] == []
    styles = [path.read_text(encoding="utf-8") for path in (*site.rglob("*.css"), *site.glob("diagrams/*.svg"))]
    assert [found for style in styles for found in re.findall(r"(?:url\(|@import)\W*(?:https?:)?//[^)]*", style)] == []


def test_scripts_load_nothing_from_other_hosts(site: Path, pages: dict[Path, str], loads: dict[Path, Loads]) -> None:
    sources = {urljoin(page.as_uri(), source) for page, found in loads.items() for source in found.scripts}
    scripts = [path for path in site.rglob("*.js") if path.as_uri() in sources or path.parent.name == "workers"]
    assert {"iframe-worker", "bundle", "search"} <= {path.name.split(".")[0] for path in scripts}
    literal = re.compile(r"""["'`](https?://[^"'`]+)["'`]""")
    loaded = {url for path in scripts for url in literal.findall(path.read_text(encoding="utf-8"))}
    assert {url for url in loaded if not url.startswith("http://www.w3.org/")} <= set(LOADED_FOR)
    assert [page.name for page, text in pages.items() for cause in LOADED_FOR.values() if cause and cause in text] == []


def test_the_search_works_in_pages_that_are_opened_as_files(site: Path) -> None:
    assert (site / "search" / "search_index.js").read_text(encoding="utf-8").startswith("var __index = {")
    assert 'src="../assets/iframe-worker.js"' in (site / "design" / "processes.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["index.html", "how-it-works.html", "design/processes.html"])
def test_diagrams_are_drawn_when_the_site_is_built(site: Path, loads: dict[Path, Loads], name: str) -> None:
    drawings = [url for url in loads[site / name].all if "diagrams/" in url and url.endswith(".svg")]
    assert drawings
    assert all(((site / name).parent / url).read_text(encoding="utf-8").startswith("<svg ") for url in drawings)
