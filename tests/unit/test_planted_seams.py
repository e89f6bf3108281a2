"""Planted bugs use no private names, so that the structure of the engine can change without breaking them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLANTED = ROOT / "tests" / "sim" / "planted"
OF_NAMED_TUPLES = {"_replace", "_asdict", "_fields", "_make"}
"""Public, in spite of their names."""
PRIVATE = re.compile(r"_[A-Za-z]\w*")


def private_names(source: str) -> Iterator[str]:
    """The private names of other modules that a module reads, patches or imports."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Attribute(attr=name) | ast.Constant(value=str(name)) | ast.alias(name=name):
                if PRIVATE.fullmatch(name) and name not in OF_NAMED_TUPLES:
                    yield name


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("self._marks.pop()", ["_marks"]),
        ("footprints._Log", ["_Log"]),
        ("patch.setattr(World, '_start', begin)", ["_start"]),
        ("from clonos_py.job.loops import LoopEnds, _Detection", ["_Detection"]),
        ("point._replace(committables={})", []),
        ("patch.setattr(Pressure, '__init__', crowded)", []),
        ("_keep_connections(patch)", []),
    ],
)
def test_uses_of_private_names_are_found(source: str, found: list[str]) -> None:
    assert list(private_names(source)) == found


def test_no_planted_bug_uses_a_private_name() -> None:
    """Patch a public method of a part instead, wrap what goes in or comes out, replace a part by a faulty one, or alter
    a message; ``tests/sim/planted/seams.py`` helps."""
    files = sorted(PLANTED.glob("*.py"))
    assert len(files) > 10
    assert not {f"{file.name}: {name}" for file in files for name in private_names(file.read_text())}
