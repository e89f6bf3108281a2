"""A hook of MkDocs that adds files to the site: documents of the root, source files that pages link to, and diagrams.

On GitHub the same links lead to the files themselves, and the same diagrams are drawn there. Here they are drawn when
the site is built: a page that draws them itself loads Mermaid from another host.
"""

from __future__ import annotations

import posixpath
import re
from hashlib import sha256
from pathlib import Path

import mmdr
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
DOCUMENTS = {"README.md": "index.md", "ARCHITECTURE.md": "architecture.md", "CHANGELOG.md": "changelog.md"}
DOCUMENTS["GLOSSARY.md"] = "glossary.md"
DIAGRAM = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
KINDS = {"flowchart": "Flowchart", "sequenceDiagram": "Sequence diagram", "stateDiagram-v2": "State diagram"}
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    texts = {path: path.read_text(encoding="utf-8") for path in (*DOCS.rglob("*.md"), *map(ROOT.joinpath, DOCUMENTS))}
    linked = {(path.parent / link).resolve() for path, text in texts.items() for link in LINK.findall(text)}
    for path in sorted(linked - set(texts)):
        if path.is_file() and path.is_relative_to(ROOT):
            files.append(File.generated(config, place(path), content=source_page(path)))
    for name, uri in DOCUMENTS.items():
        files.append(File.generated(config, uri, content=texts[ROOT / name]))
    for diagram in {source for text in texts.values() for source in DIAGRAM.findall(text)}:
        files.append(File.generated(config, drawing(diagram), content=drawn(diagram)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    uri = page.file.src_uri
    folder = (DOCS / uri).parent if uri not in DOCUMENTS.values() else ROOT

    def relative(target: str) -> str:
        return posixpath.relpath(target, posixpath.dirname(uri) or ".")

    def linked(found: re.Match[str]) -> str:
        return f"]({relative(place((folder / found[1]).resolve()))}"

    def shown(found: re.Match[str]) -> str:
        return f"![{KINDS[found[1].split()[0]]}]({relative(drawing(found[1]))})"

    return markdown if uri.startswith("source/") else DIAGRAM.sub(shown, LINK.sub(linked, markdown))


def place(path: Path) -> str:
    """The path in the site of a file of the repository."""
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    name = path.relative_to(ROOT).as_posix()
    return DOCUMENTS.get(name, f"source/{name}.md")


def drawing(diagram: str) -> str:
    """The path in the site of a diagram, given in the language of Mermaid."""
    return f"diagrams/{sha256(diagram.encode()).hexdigest()[:12]}.svg"


def drawn(diagram: str) -> str:
    """A diagram as SVG, as wide as it is drawn: without a width it would be as wide as the page."""
    svg = mmdr.render(diagram).svg()
    width = svg.partition('viewBox="')[2].split()[2]
    return svg.replace('width="100%"', f'width="{width}"', 1)


def source_page(path: Path) -> str:
    name = path.relative_to(ROOT).as_posix()
    language = {".py": "python", ".sql": "sql", ".yaml": "yaml"}.get(path.suffix, "text")
    return f"# {name}\n\n````{language}\n{path.read_text(encoding='utf-8')}````\n"
