"""Readers of a table's changes, driven by hand."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from clonos_py.connectors import PostgresSource
from clonos_py.connectors.postgres.change_reader import ChangeReader
from clonos_py.model.operators import End, Read, Wait
from tests.waiting import attempts


class Follower:
    """One attempt of a task that reads the source, and what it has read."""

    def __init__(self, source: PostgresSource, positions: Mapping[int, int] | None = None, saved: Any = None) -> None:
        made: PostgresSource = pickle.loads(pickle.dumps(source))
        reader = made.create((None,))
        assert isinstance(reader, ChangeReader)
        self.reader = reader
        self.reader.open(0, 1)
        if saved is not None:
            self.reader.restore(saved)
        self.reader.seek(positions or {})
        self.reads: list[Read] = []

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [row for read in self.reads for rows in read.rows if rows is not None for row in rows.to_pylist()]

    @property
    def position(self) -> int:
        return self.reads[-1].stop if self.reads else 0

    def step(self) -> bool:
        """Takes what is there. False at the end."""
        match self.reader.poll(1 + len(self.reads)):
            case Read() as read:
                self.reads.append(read)
            case Wait():
                self.reader.wait_for_rows()
            case End():
                return False
        return True

    def read(self, rows: int) -> list[dict[str, Any]]:
        """Reads on until it has so many rows in all."""
        for _ in attempts(lambda: self.rows, every_s=0):
            if len(self.rows) >= rows:
                return self.rows
            self.step()
        raise AssertionError

    def read_all(self) -> list[dict[str, Any]]:
        """Reads on until the end."""
        for _ in attempts(lambda: self.rows, every_s=0):
            if not self.step():
                return self.rows
        raise AssertionError


@contextmanager
def following(
    source: PostgresSource, positions: Mapping[int, int] | None = None, saved: Any = None
) -> Iterator[Follower]:
    follower = Follower(source, positions, saved)
    try:
        yield follower
    finally:
        follower.reader.close()


def applied(changes: list[dict[str, Any]], key: str = "id") -> dict[Any, dict[str, Any]]:
    """The rows after the changes, by key. An insertion of a row that is there, and a deletion of one that is not, are
    faults."""
    rows: dict[Any, dict[str, Any]] = {}
    for change in changes:
        row = {name: value for name, value in change.items() if name != "_change"}
        assert (row[key] in rows) == (change["_change"] != "insert"), change
        if change["_change"] == "delete":
            del rows[row[key]]
        else:
            rows[row[key]] = row
    return rows
