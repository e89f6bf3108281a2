"""The side input of query 13: 10,000 rows, whose value is the key as text."""

from __future__ import annotations

from clonos_py import Record
from clonos_py.connectors import MemorySource

ROWS = 10_000


class SideRow(Record):
    key: int
    value: str


def value_of(key: int) -> str:
    return str(key)


def side_input() -> MemorySource:
    return MemorySource([SideRow(key, value_of(key)) for key in range(ROWS)])
