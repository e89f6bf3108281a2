"""The documents show what runs: every Python block is copied from a tested file, and every setting, command, target,
link, file and name exists. So do the decisions that code cites."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest

from clonos_py.cli.main import COMMANDS
from clonos_py.settings.resolution import resolve
from deploy import reference
from tests.examples.documents import BLOCK, ROOT, TEXTS, command_lines

README_WORDS_MAX = 700
CODE = ("clonos_py", "operators", "services", "bench", "tests", "examples")

LINK = re.compile(r"\]\((?!https?:)(?P<file>[^)#\s]*)(?:#(?P<heading>[^)\s]+))?\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
FILE = re.compile(r"`([\w./-]+/[\w.-]+\.(?:py|md|toml))`")
NAMES_BEHIND = re.compile(r"`(?P<file>[\w./-]+/[\w.-]+\.py)` \((?:class )?(?P<names>`[\w.]+`(?:, `[\w.]+`)*)\)")
NAME_BEFORE = re.compile(r"(?P<names>`[\w.]+`) in\s+`(?P<file>[\w./-]+/[\w.-]+\.py)`")
CITATION = re.compile(r"\b[DEFP]\d{1,2}\b")


class Block(NamedTuple):
    """``origin``: the file that it is copied from, as the comment before it says."""

    document: Path
    origin: str | None
    text: str

    def __str__(self) -> str:
        return f"{self.document.relative_to(ROOT)}: {self.origin or self.text.splitlines()[0]}"


def blocks(language: str) -> list[Block]:
    return [
        Block(document, found["origin"], found["text"])
        for document, text in TEXTS.items()
        for found in BLOCK.finditer(text)
        if found["language"] == language
    ]


def prose(document: Path) -> str:
    return BLOCK.sub("", TEXTS[document])


def inline_code() -> list[str]:
    return [code for document in TEXTS for code in re.findall(r"`([^`]+)`", prose(document))]


def anchors(document: Path) -> set[str]:
    """The names by which GitHub links to headings."""
    return {re.sub(r"[^\w\- ]", "", found.lower()).replace(" ", "-") for found in HEADING.findall(prose(document))}


def named_file(path: str) -> Path | None:
    """A file that a document names, from the root or from the package."""
    return next((folder / path for folder in (ROOT, ROOT / "clonos_py") if (folder / path).is_file()), None)


def test_the_readme_shows_python() -> None:
    assert any(block.document == ROOT / "README.md" for block in blocks("python"))


def test_the_readme_is_short() -> None:
    assert len(prose(ROOT / "README.md").split()) <= README_WORDS_MAX


@pytest.mark.parametrize("block", blocks("python"), ids=str)
def test_a_python_block_is_copied_from_a_tested_file_word_for_word(block: Block) -> None:
    assert block.origin is not None
    file = (ROOT / block.origin).read_text(encoding="utf-8")
    assert block.text in file or textwrap.indent(block.text, "    ") in file


def test_pages_that_are_made_from_the_code_are_those_of_now(tmp_path: Path) -> None:
    """In a process of its own: Click keeps parts of the help that it has printed first."""
    subprocess.run([sys.executable, "-m", "deploy.reference", str(tmp_path)], cwd=ROOT, check=True)
    for page in reference.PAGES:
        made, written = ((folder / page).read_text(encoding="utf-8") for folder in (tmp_path, reference.FOLDER))
        assert written == made, f"{page}: run make reference"


@pytest.mark.parametrize("block", blocks("toml"), ids=str)
def test_a_settings_file_in_the_documents_can_be_read(block: Block) -> None:
    values = tomllib.loads(block.text)
    assert {key for key, _, origin in resolve(file=values).shown() if origin == "clonos.toml"} == set(values)


def test_the_commands_in_the_documents_exist() -> None:
    lines = [line for line in command_lines() if line.startswith("clonos ")]
    assert lines
    for line in lines:
        words = shlex.split(line, comments=True)
        assert words[1] in COMMANDS
        assert all((ROOT / word).exists() for word in words if word.endswith(".py"))


def test_the_benchmarks_in_the_documents_exist() -> None:
    scripts = {
        name
        for text in (*inline_code(), *command_lines())
        for name in re.findall(r"^python -m clonos_py\.bench ([a-z_]+)", text)
    }
    assert scripts
    for name in scripts:
        assert (ROOT / "bench" / f"{name}.py").exists() or (ROOT / "bench" / name).is_dir(), name


def test_the_make_targets_in_the_documents_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    shown = (*inline_code(), *command_lines())
    targets = {target for text in shown for target in re.findall(r"^make (\w+)", text)}
    assert {"check", "test", "demo"} <= targets
    for target in targets:
        assert re.search(rf"(?m)^(?:\w+ )*{target}(?: \w+)*:", makefile), target


@pytest.mark.parametrize("document", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_have_existing_targets(document: Path) -> None:
    for found in LINK.finditer(prose(document)):
        target = (document.parent / found["file"]).resolve() if found["file"] else document
        assert target.exists(), found[0]
        assert found["heading"] is None or found["heading"] in anchors(target), found[0]


@pytest.mark.parametrize("document", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_named_in_the_documents_exist(document: Path) -> None:
    for path in FILE.findall(prose(document)):
        assert named_file(path) is not None, path


@pytest.mark.parametrize("document", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_names_beside_a_file_are_in_that_file(document: Path) -> None:
    text = prose(document)
    for found in (*NAMES_BEHIND.finditer(text), *NAME_BEFORE.finditer(text)):
        file = named_file(found["file"])
        assert file is not None, found[0]
        code = file.read_text(encoding="utf-8")
        for name in re.findall(r"\w+", found["names"]):
            assert re.search(rf"\b{name}\b", code), found[0]


def test_decisions_that_code_cites_exist() -> None:
    written = {
        heading.split(".")[0]
        for document in TEXTS
        if document.parent.name == "design"
        for heading in HEADING.findall(prose(document))
    }
    cited = {
        (citation, file)
        for room in CODE
        for file in (ROOT / room).rglob("*.py")
        for citation in CITATION.findall(file.read_text(encoding="utf-8"))
    }
    assert cited
    assert {(citation, file) for citation, file in cited if citation not in written} == set()
