"""Reads a source of a table as a task does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clonos_py.model.connectors import SourceDefinition
from clonos_py.model.operators import End, Read, Source, Wait


def opened(definition: SourceDefinition[Any], index: int = 0, parallelism: int = 1, saved: Any = None) -> Source:
    source = definition.create((None,))
    source.open(index, parallelism)
    if saved is not None:
        source.restore(saved)
    return source


def taken(source: Source, positions: dict[int, int], seconds: int = 0) -> list[dict[str, Any]]:
    """The rows that there are after so many seconds. ``positions`` moves on."""
    rows: list[dict[str, Any]] = []
    while isinstance(read := source.poll(seconds * 1_000_000), Read):
        positions[read.partition] = read.stop
        for found in read.rows:
            rows.extend(() if found is None else found.to_pylist())
    assert isinstance(read, Wait | End)
    return rows


def numbers(source: Source, positions: dict[int, int], seconds: int = 0) -> list[int]:
    return sorted(row["number"] for row in taken(source, positions, seconds))


def sought(source: Source, positions: Mapping[int, int]) -> Source:
    source.seek(positions)
    return source
