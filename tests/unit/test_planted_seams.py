"""Planted bugs use no private names, so that the structure of the engine can change without breaking them. Nor do
other simulated tests, apart from a list that may only become shorter."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SIMULATED = ROOT / "tests" / "sim"
PLANTED = SIMULATED / "planted"
OF_NAMED_TUPLES = {"_replace", "_asdict", "_fields", "_make"}
"""Public, in spite of their names."""
PRIVATE = re.compile(r"_[A-Za-z]\w*")
STILL = {
    "points.py": {"_checkpointing", "_aligning", "_epochs", "_progress", "_restoring"},
    "test_causal_sinks.py": {"_executor", "_roll_back"},
    "test_failure_points.py": {"_newest_attempts", "_context"},
    "test_lost_holders.py": {"_full_depth"},
    "test_parts.py": {"_marks"},
    "test_promotion_steps.py": {"_fleet"},
    "test_sharing_depth.py": {"_has_received", "_held_from"},
    "test_stops.py": {"_maybe_finished", "_passed_stop", "_stop_triggers", "_ending", "_end", "_name"},
}
"""By file of simulated tests: the private names of the engine that it still uses."""


def private_names(source: str) -> Iterator[str]:
    """The private names of other modules that a module reads, patches or imports."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Attribute(attr=name) | ast.Constant(value=str(name)) | ast.alias(name=name):
                if PRIVATE.fullmatch(name) and name not in OF_NAMED_TUPLES:
                    yield name


def own_names(source: str) -> set[str]:
    """The functions, classes and attributes of ``self`` that a module defines."""
    found = set[str]()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                found.add(name)
    return found


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


def test_names_that_a_module_defines_itself_are_told_apart() -> None:
    source = "class _A:\n    def f(self):\n        self._left = world._left\n        world._started = 1"
    assert own_names(source) == {"_A", "f", "_left"}


def test_no_other_simulated_test_begins_to_use_private_names_of_the_engine() -> None:
    files = {file.name: file.read_text() for file in sorted(SIMULATED.glob("*.py"))}
    assert len(files) > 20
    used = {name: set(private_names(source)) - own_names(source) for name, source in files.items()}
    assert {name: names for name, names in used.items() if names} == STILL
