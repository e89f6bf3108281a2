"""The answer of query 8, computed without the engine, and the comparison of rows as multisets: they check the demo.

The computation shares only the generator's events with the engine. Rows are tuples in the order of the query's columns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

from clonos_py.evaluation.nexmark.source import NexmarkSource

Row: TypeAlias = tuple[Any, ...]

WINDOW_US = 10_000_000


def new_users(source: NexmarkSource) -> Iterator[Row]:
    """The people who have opened an auction in the window of ten seconds in which they registered."""
    sellers = {(seller, time // WINDOW_US) for seller, time in rows_of(source, "auction", "seller", "date_time")}
    new = {(row[0], row[1], row[2] // WINDOW_US) for row in rows_of(source, "person", "id", "name", "date_time")}
    for person, name, window in new:
        if (person, window) in sellers:
            yield person, name, window * WINDOW_US


def difference(expected_rows: Iterable[Row], actual_rows: Iterable[Row]) -> str | None:
    """None if both are the same multiset; otherwise a line that counts missing and surplus rows, with examples."""
    expected, found = Counter(expected_rows), Counter(actual_rows)
    missing, surplus = expected - found, found - expected
    if not missing and not surplus:
        return None
    parts = [
        f"{count} {word} (such as {example})"
        for word, rows in (("missing", missing), ("too many", surplus))
        for count, example in [(sum(rows.values()), min(rows, default=()))]
        if count
    ]
    return f"of {sum(expected.values())} rows " + ", ".join(parts)


def rows_of(source: NexmarkSource, kind: str, *columns: str) -> Iterator[Row]:
    """Columns of the events of a kind, as rows."""
    for events in source.generator.events(0, source.events):
        yield from zip(*(getattr(events, kind).column(column).to_pylist() for column in columns), strict=True)
