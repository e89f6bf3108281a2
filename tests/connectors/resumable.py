"""Numbered rows, and what a reader gives that goes on behind a cursor."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from clonos_py import Record
from clonos_py.model.connectors import SourceDefinition
from clonos_py.model.operators import End, Read, Source, Wait
from tests.waiting import attempts


class Row(Record):
    number: int
    text: str | None


def rows(*numbers: int) -> list[Row]:
    return [Row(number, f"row {number}") for number in numbers]


def contents(*numbers: int) -> list[str]:
    return [json.dumps({"number": number, "text": f"row {number}"}) for number in numbers]


def opened(source: SourceDefinition, cursor: Any = None) -> Source:
    """The reader of a task, which goes on from a checkpoint with this cursor."""
    reader = source.create((None,) * len(source.schemas))
    reader.open(0, 1)
    if cursor is not None:
        reader.restore({"cursor": cursor, "over": False})
    reader.seek({} if cursor is None else {0: 1})
    return reader


def read_until(reader: Source, enough: Callable[[list[Read]], bool]) -> list[Read]:
    """Reads until there is enough, or to the end."""
    found: list[Read] = []
    for _ in attempts(lambda: found, every_s=0):
        match reader.poll(1):
            case Read() as read:
                found.append(read)
            case End():
                return found
            case Wait():
                reader.wait_for_rows()
        if enough(found):
            return found
    raise AssertionError


def numbers(reads: list[Read]) -> list[int]:
    batches = [read.rows[0] for read in reads]
    return [row["number"] for rows in batches if rows is not None for row in rows.to_pylist()]


def read_all(source: SourceDefinition, cursor: Any = None) -> list[int]:
    reader = opened(source, cursor)
    found = numbers(read_until(reader, lambda _: False))
    reader.close()
    return found
