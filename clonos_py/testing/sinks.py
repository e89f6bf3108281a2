"""``check_sink``: checks that a sink keeps the contract for exactly-once output."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from clonos_py.model.connectors import Delivery, SinkDefinition
from clonos_py.model.errors import GraphError
from clonos_py.model.record import Record
from clonos_py.testing import idempotent_sinks, transactional_sinks, upserting_sinks
from clonos_py.testing.scenarios import SinkCheck


class CheckedRow(Record):
    """The rows written if the caller gives none. ``number`` is the key."""

    number: int
    text: str


def numbered_row(number: int) -> CheckedRow:
    """The row with this number."""
    return CheckedRow(number, f"row {number}")


def check_sink(
    sink: SinkDefinition,
    read: Callable[[], Iterable[Any]],
    *,
    row: Callable[[int], Record] = numbered_row,
    later: Callable[[int], Record] | None = None,
    deaths: int = 40,
) -> None:
    """Checks a sink. Raises AssertionError naming the broken rule and its remedy.

    ``read``: returns all rows that a reader of the output sees now, as records or dicts with the types of ``row``.
    ``row(n)``: a row with key n. ``later(n)``: another row with that key; give it to check upserts and deletes. The
    sink writes rows of many tasks and several runs of jobs, so give it an output of its own.

    Attempts of a task fail between all steps. They also fail ``deaths`` times between two lines of your code: within a
    commit or, for an idempotent sink, while it writes. The next attempt restarts from the last checkpoint. Replaced
    attempts also go on running.

    Raises GraphError for a sink that is not transactional or idempotent.
    """
    if later is not None and not sink.upserts:
        raise GraphError(f"{type(sink).__name__} does not upsert: omit later=, or set upserts = True")
    check = SinkCheck(sink, read, row, later)
    match sink.delivery:
        case Delivery.TRANSACTIONAL:
            transactional_sinks.check(check, deaths)
        case Delivery.IDEMPOTENT:
            idempotent_sinks.check(check, deaths)
        case _:
            raise GraphError(
                f"{type(sink).__name__} has delivery {sink.delivery!r}: check_sink checks sinks that are "
                "transactional or idempotent; others make no promise that it could check"
            )
    if later is not None:
        upserting_sinks.check(check)
