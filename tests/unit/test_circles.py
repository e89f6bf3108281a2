"""No cycles of imports: not between files, not between rooms (the packages below ``clonos_py``). Imports inside
functions and for type checkers only count, too: they hide a cycle, they do not remove it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import grimp
import pytest

Imports = Mapping[str, set[str]]
"""By module: what it imports."""


def imports_of(package: str) -> Imports:
    graph = grimp.build_graph(package, cache_dir=None)
    return {module: set(graph.find_modules_directly_imported_by(module)) for module in graph.modules}


def between_rooms(imports: Imports) -> Imports:
    """The same between the entries directly below the package. The package itself, which exports names, is none."""
    found: dict[str, set[str]] = {}
    for module, imported in imports.items():
        rooms = found.setdefault(_room(module), set())
        rooms |= {room for other in imported if (room := _room(other)) != _room(module)}
    return found


def _room(module: str) -> str:
    return ".".join(module.split(".")[:2])


def circles(imports: Imports) -> set[frozenset[str]]:
    """Sets of modules each of which imports all others of its set, directly or not."""
    reached = {module: _reached(module, imports) for module in imports}
    return {
        frozenset(other for other in reached[module] if module in reached[other])
        for module in imports
        if module in reached[module]
    }


def _reached(module: str, imports: Imports) -> set[str]:
    found: set[str] = set()
    waiting = [module]
    while waiting:
        fresh = imports.get(waiting.pop(), set()) - found
        found |= fresh
        waiting.extend(fresh)
    return found


def test_files_have_no_import_cycle() -> None:
    assert circles(imports_of("clonos_py")) == set()


def test_rooms_have_no_import_cycle() -> None:
    assert circles(between_rooms(imports_of("clonos_py"))) == set()


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of two rooms with two files each, which import nothing."""
    for file in ("__init__", "a/__init__", "a/one", "a/two", "b/__init__", "b/one", "b/two"):
        path = tmp_path / "planted" / f"{file}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path / "planted"


@pytest.mark.parametrize(
    "back",
    [
        "from planted.a import one\n",
        "def late() -> None:\n    import planted.a.one\n",
        "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    from planted.a.one import Thing\n",
    ],
    ids=["plain", "inside a function", "for type checkers"],
)
def test_the_check_finds_a_cycle_between_files_in_any_form(planted: Path, back: str) -> None:
    (planted / "a" / "one.py").write_text("from planted.a import two\n\nThing = two\n")
    (planted / "a" / "two.py").write_text(back)
    assert circles(imports_of("planted")) == {frozenset({"planted.a.one", "planted.a.two"})}


def test_the_check_finds_a_cycle_between_rooms_without_one_between_files(planted: Path) -> None:
    (planted / "a" / "one.py").write_text("import planted.b.one\n")
    (planted / "b" / "two.py").write_text("import planted.a.two\n")
    imports = imports_of("planted")
    assert circles(imports) == set()
    assert circles(between_rooms(imports)) == {frozenset({"planted.a", "planted.b"})}
