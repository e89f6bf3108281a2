"""No example is longer than the same job for Bytewax, both declaring and checking their rows."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
COUNTERPARTS = sorted((ROOT / "bench" / "peers" / "user_jobs").glob("*.py"))


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
    document = (ROOT / "docs" / "coming-from.md").read_text()
    (row,) = [line for line in document.splitlines() if f"examples/{counterpart.name})" in line]
    assert row.endswith(f"| {ours} | {theirs} |")
