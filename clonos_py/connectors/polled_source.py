"""A source that asks for new rows again and again, by a function of the user."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from typing_extensions import TypeVar

from clonos_py.columns.views import concat
from clonos_py.connectors.malformed import OnError, RequestedColumns
from clonos_py.connectors.resumable_feed import PASSING, ReceivedItem, Receiver, ResumableReader
from clonos_py.connectors.users_code import failures_of
from clonos_py.model.connectors import SourceDefinition
from clonos_py.model.errors import GraphError, SourceError
from clonos_py.model.operators import Source
from clonos_py.model.record import ArrowSchema, Record, schema_of
from clonos_py.model.record_codec import encode
from clonos_py.model.times import Duration, micros

R = TypeVar("R", bound=Record, default=Any)

Fetched = tuple[pa.RecordBatch | Sequence[Any], Any]
"""Rows, as a batch, records or dicts, and the cursor behind them."""


class PolledSource(SourceDefinition[R]):
    """Calls ``fetch(cursor)`` in one task, which returns the rows behind a cursor and the next cursor, such as those of
    an API by HTTP. ``rows`` is the class of the rows or their columns.

    The first cursor is ``start``; each is plain data: None, a number, text, or a list or dict of these. If there were
    rows, the next call follows at once, else after ``every``. None ends the source. A call that raises OSError or an
    error of httpx is repeated, at growing intervals, until ``away`` has passed; then, and after any other error, the
    job stops with a SourceError.

    The server may give other rows the next time, so they are written to the causal log. After a failure the next call
    has the cursor behind the last row that was read, or that of the checkpoint if the whole job goes back to it. No row
    is lost or read twice, as long as the server has the rows behind a cursor.
    """

    def __init__(
        self,
        fetch: Callable[[Any], Fetched | None],
        rows: type[R] | ArrowSchema,
        *,
        start: Any = None,
        every: Duration = "1s",
        away: Duration = "5m",
    ) -> None:
        if not callable(fetch):
            raise GraphError(f"PolledSource: {fetch!r} is no function of a cursor")
        self.schemas = (schema_of(rows),)
        self.records = (rows if isinstance(rows, type) else None,)
        self._fetch, self._start = fetch, start
        self._every_s, self._away_s = micros(every) / 1e6, micros(away) / 1e6

    def create(self, columns: tuple[tuple[str, ...] | None, ...], read_rows: int | None = None) -> Source:
        (requested,) = columns
        names = tuple(self.schemas[0].names) if requested is None else requested
        wanted = RequestedColumns(self.schemas[0], names, OnError.FAIL, None)
        return _PolledReader(_Poller(self._fetch, self.schemas[0], self._every_s), wanted, read_rows, self)

    @property
    def where(self) -> str:
        return f"PolledSource of {getattr(self._fetch, '__name__', 'a function')}"

    @property
    def limits(self) -> tuple[float, Any]:
        return self._away_s, self._start


class _Poller:
    """Calls the function."""

    def __init__(self, fetch: Callable[[Any], Fetched | None], schema: pa.Schema, every_s: float) -> None:
        self._fetch, self._schema, self._every_s = fetch, schema, every_s

    def receive(self, cursor: Any, put: Callable[[pa.RecordBatch, Any], bool]) -> float | None:
        with failures_of("fetch", SourceError):
            try:
                found = self._fetch(cursor)
            except PASSING as problem:
                passing = problem
            else:
                if found is None:
                    return None
                given, after = found
                rows = given if isinstance(given, pa.RecordBatch) else encode(given, self._schema)
                if rows.schema != self._schema:
                    raise SourceError(f"fetch gave the columns {rows.schema.names}, not {self._schema.names}")
                if rows.num_rows or after != cursor:
                    put(rows, after)
                return 0.0 if rows.num_rows else self._every_s
        raise passing

    def interrupt(self) -> None:
        """The call that is under way ends by itself."""

    def close(self) -> None: ...


class _PolledReader(ResumableReader[pa.RecordBatch]):
    def __init__(
        self, poller: _Poller, requested: RequestedColumns, read_rows: int | None, source: PolledSource[Any]
    ) -> None:
        away_s, start = source.limits
        super().__init__(requested, read_rows, source.where, away_s, start)
        self._poller = poller

    def receiver(self) -> Receiver[pa.RecordBatch]:
        return self._poller

    def rows_of(
        self, received: Sequence[ReceivedItem[pa.RecordBatch]], position: int
    ) -> tuple[pa.RecordBatch | None, pa.RecordBatch | None, dict[str, int]]:
        return self.requested.delivered(concat([item.content for item in received])), None, {}
