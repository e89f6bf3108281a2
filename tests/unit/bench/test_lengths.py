"""No example is longer than the same job for Bytewax, both declaring and checking their rows. Each that rewrites one of
another engine's documentation is shorter than that."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
COUNTERPARTS = sorted((ROOT / "bench" / "peers" / "user_jobs").glob("*.py"))
DOCUMENT = (ROOT / "docs" / "coming-from.md").read_text(encoding="utf-8")
EXAMPLE = re.compile(r"\(\.\./examples/(?P<file>\w+\.py)\)")


def rows_of(section: str) -> dict[str, list[str]]:
    """By the file of an example the cells of its row."""
    text = DOCUMENT.split(f"\n## {section}\n")[1].split("\n## ")[0]
    rows = {found["file"]: line for line in text.splitlines() if (found := EXAMPLE.search(line)) and line[0] == "|"}
    return {file: [cell.strip() for cell in line.strip("|").split("|")] for file, line in rows.items()}


REWRITTEN = rows_of("The same job there and here")


def lines_of_code(text: str) -> int:
    """The lines without blank lines, comments, docstrings and imports."""
    tree = ast.parse(text)
    left_out = {line for node in _no_code(tree) for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    lines = enumerate(text.splitlines(), 1)
    return sum(1 for number, line in lines if number not in left_out and line.strip() and line.strip()[0] != "#")


def _no_code(tree: ast.Module) -> Iterator[ast.stmt]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from node.body[:1] if ast.get_docstring(node) is not None else []


SAMPLE = '''"""A module."""

import os
from a import (
    b,
)

# why
def f():
    """Does it."""
    return (
        b
    )  # so
'''


def test_blank_lines_comments_and_docstrings_are_not_counted() -> None:
    assert lines_of_code(SAMPLE) == len(["def f():", "return (", "b", ")"])


def test_all_eight_jobs_have_a_counterpart() -> None:
    assert len(COUNTERPARTS) == 8


@pytest.mark.parametrize("counterpart", COUNTERPARTS, ids=lambda path: path.stem)
def test_an_example_is_no_longer_than_its_counterpart(counterpart: Path) -> None:
    ours = lines_of_code((ROOT / "examples" / counterpart.name).read_text())
    theirs = lines_of_code(counterpart.read_text())
    assert ours <= theirs
    assert rows_of("Bytewax")[counterpart.name][1:] == [f"{ours}", f"{theirs}"]


def test_examples_of_four_engines_are_rewritten() -> None:
    engines = [original.split(",")[0] for _, original, _, _ in REWRITTEN.values()]
    assert {engine: engines.count(engine) for engine in set(engines)} == {
        "Flink": 6, "Flink CDC": 1, "Kafka Streams": 4, "Bytewax": 2, "Polars": 2
    }  # fmt: skip


@pytest.mark.parametrize("file", REWRITTEN)
def test_an_example_is_shorter_than_the_original(file: str) -> None:
    _, original, there, here = REWRITTEN[file]
    ours = lines_of_code((ROOT / "examples" / file).read_text(encoding="utf-8"))
    assert here == f"{ours}"
    assert ours < int(there)
    (name,) = re.findall(r"\[(.+)\]", original)
    assert re.search(rf"(?m)^\[{name}\]: https://github\.com/\S+/(?:[0-9a-f]{{40}}|release-[\d.]+)/", DOCUMENT)
