"""``Stream``: the verbs that a job is written with. Each adds a node to the job's graph and gives a new stream.

Errors are found where they are written: every verb checks columns and types at once and names the line of the call.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar, Unpack, overload

import pyarrow as pa

from clonos_py.dsl.callsite import CallSite, located
from clonos_py.dsl.draft import Draft
from clonos_py.dsl.expressions import Expr, SortOrders
from clonos_py.dsl.functions import Shape, is_record, record_of, returned, schema_of, signature_of
from clonos_py.dsl.naming import stem_of
from clonos_py.dsl.projection import carried, exactly, node_with, projected, result_fields
from clonos_py.dsl.shapes import check_row, same_columns
from clonos_py.dsl.waiting import WaitingOptions, waiting_of
from clonos_py.dsl.windows import AsOf, Between, Forever, Until
from clonos_py.model.connectors import SinkDefinition, SourceDefinition
from clonos_py.model.errors import GraphError
from clonos_py.model.record import DeadLetter, Record, record_type
from clonos_py.model.windows import Hopping, Tumbling, Window
from clonos_py.plan.logical import (
    CallPerBatch,
    CallPerRow,
    EventTimeColumn,
    FilterRows,
    Node,
    Port,
    ProjectColumns,
    Spread,
    Unite,
    WriteSink,
)

if TYPE_CHECKING:
    from clonos_py.dsl.keyed import KeyedStream, WindowedStream
    from clonos_py.dsl.tables import Table

R = TypeVar("R")
S = TypeVar("S", bound=Record)


class Stream(Generic[R]):
    """Rows of one schema; ``R`` is their class where there is one."""

    def __init__(self, draft: Draft, port: Port) -> None:
        self._draft = draft
        self._port = port

    @property
    def schema(self) -> pa.Schema:
        """The columns of its rows."""
        return self._node.schemas[self._port.port]

    @property
    def record(self) -> type[Record]:
        """The class of its rows: as declared, or made for the schema."""
        return self._node.records[self._port.port] or record_type(self.schema)

    def named(self, name: str) -> Self:
        """Gives the operator that this stream comes from its stable name."""
        with located("named"):
            self._draft.name(self._port.node, name)
        return self

    def parallelism(self, tasks: int) -> Self:
        """Runs the operator that this stream comes from in so many tasks, whatever the job's setting. What follows it
        without a shuffle runs in the same tasks; rows from more or fewer tasks are spread evenly over them."""
        with located("parallelism"):
            self._draft.set_parallelism(self._port.node, tasks)
        return self

    @overload
    def filter(self, condition: Expr) -> Stream[R]: ...
    @overload
    def filter(self, condition: Callable[..., Any], **waiting: Unpack[WaitingOptions]) -> Mapped[R]: ...
    def filter(self, condition: Expr | Callable[..., Any], **waiting: Any) -> Stream[R]:
        """Keeps the rows for which an expression, or a function of the row, is true. Null is not true. For
        ``async def`` functions see ``map``."""
        with located("filter") as site:
            if not isinstance(condition, Expr):
                return self._per_row("filter", condition, None, site, waiting)
            if waiting:
                raise GraphError(f"{next(iter(waiting))}= is for `async def` functions, and an expression is none")
            if not pa.types.is_boolean(condition.node.bind(self.schema).type):
                raise GraphError(f"{condition} is {condition.node.bind(self.schema).type}, not bool")
            return Stream(self._draft, self._same_rows("filter", FilterRows(condition.node), site))

    @overload
    def select(self, into: type[S], /, **columns: object) -> Stream[S]: ...
    @overload
    def select(self, /, *columns: str | Expr, **named: object) -> Stream[Any]: ...
    def select(self, /, *columns: Any, **named: object) -> Stream[Any]:
        """Rows of these columns only: names, expressions, ``name=expression``. With a Record class first, rows of that
        class, its fields filled by name from the expressions given and from the columns there are."""
        with located("select") as site:
            first: Any = next(iter(columns), None)
            if is_record(first) or isinstance(first, pa.Schema):
                if len(columns) > 1:
                    raise GraphError("with a class first, write everything else as name=expression")
                return self._projected("select", exactly(first, named, self.schema), site, record_of(first))
            return self._projected("select", projected(columns, named, self.schema), site)

    def with_columns(self, /, *columns: Expr, **named: object) -> Stream[Any]:
        """The rows with further columns, or other values for those of the same name."""
        with located("with_columns") as site:
            made = dict(projected(columns, named, self.schema))
            kept = [(name, made.pop(name, node_with(name))) for name in self.schema.names]
            return self._projected("with_columns", [*kept, *made.items()], site)

    @overload
    def map(
        self, function: Callable[..., Awaitable[S]], returns: None = None, **waiting: Unpack[WaitingOptions]
    ) -> Mapped[S]: ...
    @overload
    def map(self, function: Callable[..., S], returns: None = None) -> Mapped[S]: ...
    @overload
    def map(self, function: Callable[..., Any], returns: type[S], **waiting: Unpack[WaitingOptions]) -> Mapped[S]: ...
    @overload
    def map(
        self, function: Callable[..., Any], returns: pa.Schema, **waiting: Unpack[WaitingOptions]
    ) -> Mapped[Any]: ...
    def map(self, function: Callable[..., Any], returns: Shape | None = None, **waiting: Any) -> Mapped[Any]:
        """One row for each. The class that the function's parameter is annotated with is what it is given; a parameter
        ``ctx`` gets the Context. Results are of the class it returns, or ``returns``.

        An ``async def`` function, whose ``ctx`` is an AsyncContext, works on many rows at once: see WaitingOptions."""
        with located("map") as site:
            return self._per_row("map", function, returns, site, waiting)

    @overload
    def flat_map(
        self, function: Callable[..., AsyncIterator[S]], returns: None = None, **waiting: Unpack[WaitingOptions]
    ) -> Mapped[S]: ...
    @overload
    def flat_map(
        self, function: Callable[..., Awaitable[list[S]]], returns: None = None, **waiting: Unpack[WaitingOptions]
    ) -> Mapped[S]: ...
    @overload
    def flat_map(self, function: Callable[..., Iterator[S]], returns: None = None) -> Mapped[S]: ...
    @overload
    def flat_map(self, function: Callable[..., list[S]], returns: None = None) -> Mapped[S]: ...
    @overload
    def flat_map(
        self, function: Callable[..., Any], returns: type[S], **waiting: Unpack[WaitingOptions]
    ) -> Mapped[S]: ...
    @overload
    def flat_map(
        self, function: Callable[..., Any], returns: pa.Schema, **waiting: Unpack[WaitingOptions]
    ) -> Mapped[Any]: ...
    def flat_map(self, function: Callable[..., Any], returns: Shape | None = None, **waiting: Any) -> Mapped[Any]:
        """Any number of rows for each: an iterator or a list. ``returns`` is the class of one of them. For
        ``async def`` functions and generators see ``map``."""
        with located("flat_map") as site:
            return self._per_row("flat_map", function, returns, site, waiting)

    @overload
    def map_batches(self, function: Callable[..., pa.RecordBatch], returns: type[S]) -> Stream[S]: ...
    @overload
    def map_batches(self, function: Callable[..., pa.RecordBatch], returns: pa.Schema) -> Stream[Any]: ...
    def map_batches(self, function: Callable[..., pa.RecordBatch], returns: Shape) -> Stream[Any]:
        """Record batches in, record batches out. How rows are cut into batches must not matter to the function."""
        with located("map_batches") as site:
            signature = signature_of(function, site.names)
            shape = returned(signature, returns, many=False)
            work = CallPerBatch(function, signature.wants_ctx)
            return Stream(self._draft, self._derived("map_batches", work, schema_of(shape), record_of(shape), site))

    def key_by(self, *columns: str | Expr, **named: object) -> KeyedStream[R]:
        """Rows by key: columns, named expressions, ``name=expression``. A computed key becomes a column."""
        from clonos_py.dsl.keyed import KeyedStream

        with located("key_by") as site:
            made = projected(columns, named, self.schema)
            if not made:
                raise GraphError("it needs at least one column")
            computed = [(name, node) for name, node in made if node != node_with(name)]
            return KeyedStream(self._extended(computed, site), tuple(name for name, _ in made))

    def rebalance(self) -> Stream[R]:
        """Spreads rows evenly over all instances of what follows, in turn."""
        with located("rebalance") as site:
            return Stream(self._draft, self._same_rows("rebalance", Spread(), site))

    def union(self, *others: Stream[R]) -> Stream[R]:
        """All rows of several streams with the same columns."""
        with located("union") as site:
            for other in others:
                self._check_partner(other)
                different = same_columns(self.schema, other.schema)
                if different:
                    raise GraphError(f"the streams differ: {different}; select() brings them into line")
            every = (self, *others)
            if len({stream._port for stream in every}) < len(every):
                raise GraphError("a stream and itself: every row would count twice")
            times = {stream._time for stream in every}
            node = self._draft.add(
                "union", Unite(), tuple(stream._port for stream in every), (self.schema,), site,
                (self._node.records[self._port.port],), (self._time if len(times) == 1 else None,),
            )  # fmt: skip
            return Stream(self._draft, Port(node.id))

    @overload
    def join(self, other: Stream[Any], on: Keys, within: Within, into: type[S]) -> Stream[S]: ...
    @overload
    def join(self, other: Stream[Any], on: Keys, within: Within, into: pa.Schema | None = None) -> Stream[Any]: ...
    def join(self, other: Stream[Any], on: Keys, within: Within, into: Shape | None = None) -> Stream[Any]:
        """Pairs of rows with equal keys, in the same window, so far apart in event time (``between``), while the left
        row lasts (``until``), with the right row that holds at the time of the left one (``as_of``), or over all of
        history (``forever``).

        ``on``: one name for both sides, a pair of names (left, right), or a list of these. ``into``: the class of the
        pairs, its fields filled by name from either side, and, with a window, ``window_start`` and ``window_end``;
        without it they have all columns of both sides.
        """
        from clonos_py.dsl.joining import joined

        with located("join") as site:
            self._check_partner(other)
            return joined(self, other, on, within, into, site)

    @overload
    def enrich(self, side: SourceDefinition, on: Keys, into: type[S]) -> Stream[S]: ...
    @overload
    def enrich(self, side: SourceDefinition, on: Keys, into: pa.Schema | None = None) -> Stream[Any]: ...
    def enrich(self, side: SourceDefinition, on: Keys, into: Shape | None = None) -> Stream[Any]:
        """Each row with the rows of a bounded side input that have equal keys; rows without any are left out.

        Every task reads ``side``, a source that ends, whole before its first row and keeps it; it must stay as it is
        while the job runs. ``on`` and ``into`` as for ``join``, with the side input on the right.
        """
        from clonos_py.dsl.joining import enriched

        with located("enrich") as site:
            if not isinstance(side, SourceDefinition) or len(side.schemas) != 1:
                raise GraphError(f"{side!r} is no source of one stream, such as FileSource('rates.csv', 'csv', Rate)")
            return enriched(self, side, on, into, site)

    def window(self, window: Window, *, lateness: str | int = 0) -> WindowedStream[R]:
        """Windows over all rows together, on one instance. For windows by key write key_by before."""
        from clonos_py.dsl.keyed import KeyedStream

        with located("window"):
            return KeyedStream(self, ()).window(window, lateness=lateness)

    @overload
    def aggregate(self, into: type[S], /, **aggregates: Any) -> Table[S]: ...
    @overload
    def aggregate(self, into: pa.Schema | None = None, /, **aggregates: Any) -> Table[Any]: ...
    def aggregate(self, into: Shape | None = None, /, **aggregates: Any) -> Table[Any]:
        """One updating result over all rows."""
        from clonos_py.dsl.keyed import KeyedStream

        with located("aggregate"):
            return KeyedStream(self, ()).aggregate(into, **aggregates)

    @overload
    def top(self, n: int, by: SortOrders, into: type[S], rank: str = ...) -> Table[S]: ...
    @overload
    def top(self, n: int, by: SortOrders, into: pa.Schema | None = None, rank: str = ...) -> Table[Any]: ...
    def top(self, n: int, by: SortOrders, into: Any = None, rank: str = "rank_number") -> Table[Any]:
        """The first ``n`` of all rows, as they are now, on one instance; see ``KeyedStream.top``."""
        from clonos_py.dsl.keyed import KeyedStream

        with located("top"):
            return KeyedStream(self, ()).top(n, by, into, rank)

    def sink(self, definition: SinkDefinition) -> Written:
        """Ends the stream in a sink."""
        with located("sink") as site:
            if not isinstance(definition, SinkDefinition):
                raise GraphError(f"{definition!r} is no sink")
            definition.create(self.schema)
            node = self._draft.add(
                "sink", WriteSink(definition), (self._port,), (), site, (self.record,), stem=stem_of("sink", definition)
            )
            return Written(self._draft, node.id)

    @property
    def _node(self) -> Node:
        return self._draft.nodes[self._port.node]

    @property
    def _time(self) -> EventTimeColumn | None:
        return self._node.times[self._port.port]

    def _check_partner(self, other: Stream[Any]) -> None:
        if not isinstance(other, Stream):
            raise GraphError(f"{other!r} is no stream")
        if other._draft is not self._draft:
            raise GraphError(
                f"the other stream belongs to job {other._draft.job!r}, this one to {self._draft.job!r}; "
                "streams of two jobs meet only through a connector"
            )

    def _same_rows(self, verb: str, work: FilterRows | Spread, site: CallSite) -> Port:
        record = self._node.records[self._port.port]
        node = self._draft.add(verb, work, (self._port,), (self.schema,), site, (record,), (self._time,))
        return Port(node.id)

    def _derived(
        self, verb: str, work: CallPerRow | CallPerBatch, schema: pa.Schema, record: type[Record] | None, site: CallSite
    ) -> Port:
        """Rows made by a function: event time stays with the column of that name; port 1 are rows that failed."""
        schemas = (schema, DeadLetter.schema()) if isinstance(work, CallPerRow) else (schema,)
        times = (carried(self._time, schema),)
        node = self._draft.add(verb, work, (self._port,), schemas, site, (record, DeadLetter)[: len(schemas)], times)
        return Port(node.id)

    def _per_row(
        self,
        kind: Literal["map", "flat_map", "filter"],
        function: Callable[..., Any],
        returns: Shape | None,
        site: CallSite,
        options: Mapping[str, Any],
    ) -> Mapped[Any]:
        signature = signature_of(function, site.names, may_wait=True)
        row = signature.row if is_record(signature.row) else self._node.records[self._port.port]
        if row is not None:
            check_row(row.schema(), self.schema, row.__name__)
        work = CallPerRow(kind, function, row, signature.wants_ctx, waiting=waiting_of(signature, options))
        shape: Shape = self.schema if kind == "filter" else returned(signature, returns, kind == "flat_map")
        record = self._node.records[self._port.port] if kind == "filter" else record_of(shape)
        return Mapped(self._draft, self._derived(kind, work, schema_of(shape), record, site))

    def _projected(
        self, verb: str, columns: list[tuple[str, Any]], site: CallSite, record: type[Record] | None = None
    ) -> Stream[Any]:
        schema = result_fields(columns, self.schema) if record is None else record.schema()
        time = carried(self._time, schema, columns)
        work = ProjectColumns(tuple(columns))
        node = self._draft.add(verb, work, (self._port,), (schema,), site, (record,), (time,))
        return Stream(self._draft, Port(node.id))

    def _extended(self, columns: list[tuple[str, Any]], site: CallSite) -> Stream[Any]:
        """Itself with further computed columns, if there are any."""
        if not columns:
            return self
        kept = [(name, node_with(name)) for name in self.schema.names if name not in dict(columns)]
        return self._projected("with_columns", [*kept, *columns], site)

    def _only(self, rows: Stream[Any], site: CallSite) -> Stream[Any]:
        """Itself with the columns of the rows that it comes from, without those computed on the way."""
        if self.schema.names == rows.schema.names:
            return self
        record = rows._node.records[rows._port.port]
        return self._projected("with_late", [(name, node_with(name)) for name in rows.schema.names], site, record)


class Mapped(Stream[R]):
    """What a function of rows gives."""

    def catch(self) -> tuple[Stream[R], Stream[DeadLetter]]:
        """Rows on which the function fails no longer stop the job: they are counted, and are the second stream."""
        from dataclasses import replace

        with located("catch"):
            work = self._node.work
            if not isinstance(work, CallPerRow):
                raise GraphError(f"{self._node.verb} has nothing to catch")
            self._draft.change(self._port.node, work=replace(work, catch=True))
            return Stream(self._draft, self._port), Stream(self._draft, Port(self._port.node, 1))


class Written:
    """The end of a stream."""

    def __init__(self, draft: Draft, node: int) -> None:
        self._draft = draft
        self._node = node

    def named(self, name: str) -> Written:
        """Gives the sink its stable name."""
        with located("named"):
            self._draft.name(self._node, name)
        return self

    def parallelism(self, tasks: int) -> Written:
        """Writes in so many tasks, whatever the job's setting."""
        with located("parallelism"):
            self._draft.set_parallelism(self._node, tasks)
        return self


Keys = str | tuple[str, str] | list[str | tuple[str, str]]
Within = Tumbling | Hopping | Between | Until | AsOf | Forever
