"""A hook of MkDocs that adds pages to the site: documents of the root, and source files that pages link to.

On GitHub the same links lead to the files themselves.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
DOCUMENTS = {"README.md": "index.md", "ARCHITECTURE.md": "architecture.md", "CHANGELOG.md": "changelog.md"}
DOCUMENTS["GLOSSARY.md"] = "glossary.md"
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    texts = {path: path.read_text(encoding="utf-8") for path in (*DOCS.rglob("*.md"), *map(ROOT.joinpath, DOCUMENTS))}
    linked = {(path.parent / link).resolve() for path, text in texts.items() for link in LINK.findall(text)}
    for path in sorted(linked - set(texts)):
        if path.is_file() and path.is_relative_to(ROOT):
            files.append(File.generated(config, place(path), content=source_page(path)))
    for name, uri in DOCUMENTS.items():
        files.append(File.generated(config, uri, content=texts[ROOT / name]))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    uri = page.file.src_uri
    folder = (DOCS / uri).parent if uri not in DOCUMENTS.values() else ROOT

    def linked(found: re.Match[str]) -> str:
        target = place((folder / found[1]).resolve())
        return f"]({posixpath.relpath(target, posixpath.dirname(uri) or '.')}"

    return markdown if uri.startswith("source/") else LINK.sub(linked, markdown)


def place(path: Path) -> str:
    """The path in the site of a file of the repository."""
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    name = path.relative_to(ROOT).as_posix()
    return DOCUMENTS.get(name, f"source/{name}.md")


def source_page(path: Path) -> str:
    name = path.relative_to(ROOT).as_posix()
    language = {".py": "python", ".sql": "sql", ".yaml": "yaml"}.get(path.suffix, "text")
    return f"# {name}\n\n````{language}\n{path.read_text(encoding='utf-8')}````\n"
