"""Streams by key, windows over them, and process functions. Updating results are in ``dsl.tables``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

import pyarrow as pa

from clonos_py.dsl.aggregation import aggregation
from clonos_py.dsl.callsite import located
from clonos_py.dsl.changelogs import refuse_changes
from clonos_py.dsl.draft import Draft
from clonos_py.dsl.expressions import SortOrders
from clonos_py.dsl.functions import Shape
from clonos_py.dsl.processes import process_types
from clonos_py.dsl.projection import carried
from clonos_py.dsl.shapes import check_row, listed
from clonos_py.dsl.stream import Stream
from clonos_py.dsl.tables import BOUNDS, RANK, Table, aggregated, first_of_windows, first_rows, ranked
from clonos_py.dsl.timing import timed
from clonos_py.model.errors import GraphError
from clonos_py.model.record import DeadLetter, Record
from clonos_py.model.times import micros
from clonos_py.model.windows import Hopping, Session, Tumbling, Window
from clonos_py.plan.logical import AggregateWindows, EventTimeColumn, Port, RunProcess

if TYPE_CHECKING:
    from clonos_py.operators.process import Process

R = TypeVar("R")
S = TypeVar("S", bound=Record)
A = TypeVar("A", bound=Record)
B = TypeVar("B", bound=Record)
C = TypeVar("C", bound=Record)


class KeyedStream(Generic[R]):
    """A stream whose rows of equal keys are brought together. No keys: all rows are brought together."""

    def __init__(self, stream: Stream[R], keys: tuple[str, ...]) -> None:
        self._stream = stream
        self._keys = keys

    def window(self, window: Window, *, lateness: str | int = 0) -> WindowedStream[R]:
        """Windows for each key. Rows later than ``lateness`` after their window's end are late: see ``with_late``."""
        with located("window"):
            refuse_changes(self._stream, instead="write the window before what makes the table")
            if not isinstance(window, Tumbling | Hopping | Session):
                raise GraphError(f"{window!r} is no window: use tumbling(...), hopping(...) or session(...)")
            lateness_us = micros(lateness)
            if lateness_us < 0 or (lateness_us and window.processing_time):
                raise GraphError(f"lateness is {lateness!r}: it is at least 0, and 0 in processing time")
            return WindowedStream(self._stream, self._keys, window, lateness_us)

    @overload
    def aggregate(self, into: type[S], /, **aggregates: Any) -> Table[S]: ...
    @overload
    def aggregate(self, into: pa.Schema | None = None, /, **aggregates: Any) -> Table[Any]: ...
    def aggregate(self, into: Shape | None = None, /, **aggregates: Any) -> Table[Any]:
        """An updating result per key: a Table. Its rows have the keys and the named aggregates, or are of a class whose
        fields these fill by name."""
        with located("aggregate") as site:
            refuse_changes(self._stream, instead="write .key_by(...).aggregate(...) on the table")
            found = aggregation(self._stream.schema, self._keys, {}, into, aggregates)
            return aggregated(self._stream, self._keys, found, site)

    @overload
    def top(self, n: int, by: SortOrders, into: type[S], rank: str = RANK) -> Table[S]: ...
    @overload
    def top(self, n: int, by: SortOrders, into: pa.Schema | None = None, rank: str = RANK) -> Table[Any]: ...
    def top(self, n: int, by: SortOrders, into: Shape | None = None, rank: str = RANK) -> Table[Any]:
        """The first ``n`` rows of each key, as they are now, with their place (1, 2, ...) in the column ``rank``:
        ``top(10, by=col("price").desc())``. Of rows that are equal in this order the one that came first is first, so
        say all that matters: ``by=[col("price").desc(), "at"]``. With n = 1 it is the highest bid, or the last row of a
        key; then there is no ``rank`` unless ``into`` has it."""
        with located("top") as site:
            refuse_changes(self._stream, instead="write .key_by(...).top(...) on the table")
            schema = ranked(self._stream.schema, {}, n, into, rank)
            return first_rows(self._stream, self._keys, n, by, into, rank, site, schema)

    def process(self, process: type[Process[Any, S]], *, in_order: bool = False) -> Processed[S]:
        """Runs a process function for each key: its state and timers are declared in the class. ``in_order`` gives it
        rows and timers in event-time order."""
        with located("process") as site:
            if not self._keys:
                raise GraphError("a process keeps its state by key: write key_by before it")
            row, outputs = process_types(process)
            check_row(row.schema(), self._stream.schema, row.__name__)
            if in_order and self._stream._time is None:
                raise GraphError("in_order=True needs event time: say which column it is at job.source(event_time=...)")
            stream, time = timed(self._stream, site) if self._stream._time else (self._stream, None)
            work = RunProcess(process, self._keys, row, outputs, in_order, time)
            records: tuple[type[Record], ...] = (*outputs, DeadLetter)
            schemas = tuple(record.schema() for record in records)
            times = tuple(carried(self._stream._time, output.schema()) for output in outputs)
            node = stream._draft.add("process", work, (stream._port,), schemas, site, records, times)
            return Processed(stream._draft, Port(node.id))


class WindowedStream(Generic[R]):
    """A stream cut into windows."""

    def __init__(self, stream: Stream[R], keys: tuple[str, ...], window: Window, lateness_us: int) -> None:
        self._stream = stream
        self._keys = keys
        self._window = window
        self._lateness_us = lateness_us

    @overload
    def aggregate(self, into: type[S], /, **aggregates: Any) -> Windowed[S]: ...
    @overload
    def aggregate(self, into: pa.Schema | None = None, /, **aggregates: Any) -> Windowed[Any]: ...
    def aggregate(self, into: Shape | None = None, /, **aggregates: Any) -> Windowed[Any]:
        """One row per key and window: the keys, ``window_start``, ``window_end`` and the named aggregates, or the
        fields of a class that these fill by name."""
        with located("aggregate") as site:
            found = aggregation(self._stream.schema, self._keys, BOUNDS, into, aggregates)
            stream, time = self._stream._extended(found.computed, site), None
            if not self._window.processing_time:
                stream, time = timed(stream, site)
            work = AggregateWindows(self._keys, self._window, found.aggregates, time, self._lateness_us)
            closed = EventTimeColumn("window_end", -1) if time and "window_end" in found.schema.names else None
            schemas, records = (found.schema, stream.schema), (found.record, stream._node.records[stream._port.port])
            node = stream._draft.add("aggregate", work, (stream._port,), schemas, site, records, (closed,))
            return Windowed(stream._draft, Port(node.id), self._stream)

    @overload
    def top(self, n: int, by: SortOrders, into: type[S], rank: str = RANK) -> Stream[S]: ...
    @overload
    def top(self, n: int, by: SortOrders, into: pa.Schema | None = None, rank: str = RANK) -> Stream[Any]: ...
    def top(self, n: int, by: SortOrders, into: Shape | None = None, rank: str = RANK) -> Stream[Any]:
        """The first ``n`` rows of each key in each window, when it closes, with ``window_start``, ``window_end`` and
        their place in the column ``rank``; see ``KeyedStream.top``. For tumbling and hopping windows of event time."""
        with located("top") as site:
            if not isinstance(self._window, Tumbling | Hopping) or self._window.processing_time or self._lateness_us:
                raise GraphError("it takes tumbling or hopping windows in event time, and no lateness")
            return first_of_windows(self._stream, self._keys, self._window, n, by, into, rank, site)


class Windowed(Stream[R]):
    """Results of windows. ``rows``: what the windows are made of."""

    def __init__(self, draft: Draft, port: Port, rows: Stream[Any]) -> None:
        super().__init__(draft, port)
        self._rows = rows

    def with_late(self) -> tuple[Stream[R], Stream[Any]]:
        """The results, and the rows that came too late for them, as they were; these are counted either way."""
        with located("with_late") as site:
            work = self._node.work
            if not isinstance(work, AggregateWindows) or work.window.processing_time:
                raise GraphError("in processing time no row is late")
            self._draft.change(self._port.node, work=replace(work, late=True))
            late: Stream[Any] = Stream(self._draft, Port(self._port.node, 1))
            return Stream(self._draft, self._port), late._only(self._rows, site)


class Processed(Stream[R]):
    """What a process function yields."""

    def catch(self) -> tuple[Processed[R], Stream[DeadLetter]]:
        """Rows and timers on which the process fails no longer stop the job: they are counted, and are the second
        stream. Nothing of a failed call remains in the state and timers of its key, nor in the results."""
        with located("catch"):
            work = self._node.work
            assert isinstance(work, RunProcess)
            self._draft.change(self._port.node, work=replace(work, catch=True))
            return Processed(self._draft, self._port), Stream(self._draft, Port(self._port.node, len(work.outputs)))

    @overload
    def split(self, first: type[A], second: type[B], /) -> tuple[Stream[A], Stream[B]]: ...
    @overload
    def split(self, first: type[A], second: type[B], third: type[C], /) -> tuple[Stream[A], Stream[B], Stream[C]]: ...
    def split(self, *kinds: type[Any]) -> tuple[Stream[Any], ...]:
        """One stream for each class of row, in the order asked for."""
        with located("split"):
            work = self._node.work
            assert isinstance(work, RunProcess)
            if set(kinds) != set(work.outputs) or len(kinds) != len(work.outputs):
                asked, given = (listed(kind.__name__ for kind in found) for found in (kinds, work.outputs))
                raise GraphError(f"{work.process.__name__} yields {given}, split asks for {asked}")
            return tuple(Stream(self._draft, Port(self._port.node, work.outputs.index(kind))) for kind in kinds)

    def __iter__(self) -> Iterator[Any]:
        raise GraphError("to take the results apart write .split(A, B)")
