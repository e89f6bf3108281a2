"""The site of the documents: it is built without a warning, and contains the files outside of the folder, too."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from clonos_py import connectors

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return folder


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
