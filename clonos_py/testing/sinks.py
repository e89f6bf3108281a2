"""``check_sink``: holds a sink to what exactly-once output needs of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from clonos_py.model.connectors import Delivery, SinkDefinition
from clonos_py.model.errors import GraphError
from clonos_py.model.record import Record
from clonos_py.testing import idempotent_sinks, transactional_sinks, upserting_sinks
from clonos_py.testing.scenarios import SinkCheck


class CheckedRow(Record):
    """What sinks are given where the check is given no rows. ``number`` is a key."""

    number: int
    text: str


def numbered_row(number: int) -> CheckedRow:
    """The row of this number."""
    return CheckedRow(number, f"row {number}")


def check_sink(
    sink: SinkDefinition,
    read: Callable[[], Iterable[Any]],
    *,
    row: Callable[[int], Record] = numbered_row,
    later: Callable[[int], Record] | None = None,
    deaths: int = 40,
) -> None:
    """Raises AssertionError naming a rule that ``sink`` breaks, and the remedy.

    ``read``: all rows that a reader of the output sees now, as records or dicts with the types of ``row``. ``row(n)``:
    a row of key n. ``later(n)``: another row of that key, where a sink that upserts or deletes is to be checked for
    that. The sink gets rows of many tasks and several runs of jobs, so give it a place of its own.

    Attempts of a task fail between all steps, and ``deaths`` times within a commit or, where the sink is idempotent,
    while it writes: between two lines of your code. The next attempt goes on from the last checkpoint. Attempts that
    were replaced go on, too.

    Raises GraphError for a sink that is not transactional or idempotent.
    """
    if later is not None and not sink.upserts:
        raise GraphError(f"{type(sink).__name__} does not upsert: leave later= away, or set upserts = True")
    check = SinkCheck(sink, read, row, later)
    match sink.delivery:
        case Delivery.TRANSACTIONAL:
            transactional_sinks.check(check, deaths)
        case Delivery.IDEMPOTENT:
            idempotent_sinks.check(check, deaths)
        case _:
            raise GraphError(
                f"{type(sink).__name__} has delivery {sink.delivery!r}: check_sink checks sinks that are "
                "transactional or idempotent; another one promises nothing that it could check"
            )
    if later is not None:
        upserting_sinks.check(check)
