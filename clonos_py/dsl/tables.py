"""Updating results: ``Table``, what is made of it, and how one comes about: aggregates without a window, top-n.

A table that is made of a table reads its deltas: a row that changed leaves its old place, also where that was in
another group. A group that loses rows is what makes rows of a table leave it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Generic, Self, TypeVar, overload

import pyarrow as pa

from clonos_py.dsl.aggregates import AggregateExpr
from clonos_py.dsl.aggregation import Aggregation, aggregation
from clonos_py.dsl.callsite import CallSite, located
from clonos_py.dsl.draft import Draft
from clonos_py.dsl.expressions import Expr, SortOrder, SortOrders, col
from clonos_py.dsl.functions import Shape, record_of, schema_of
from clonos_py.dsl.projection import carried
from clonos_py.dsl.shapes import filled, listed
from clonos_py.dsl.stream import Stream, Written
from clonos_py.dsl.timing import timed
from clonos_py.expressions.tree import Column, Node
from clonos_py.model.aggregates import RETRACTABLE
from clonos_py.model.connectors import SinkDefinition
from clonos_py.model.errors import GraphError
from clonos_py.model.hidden import hidden
from clonos_py.model.record import Record
from clonos_py.model.tables import CHANGE_COLUMN, SortKey, TableMode, kind_schema, weighted_schema
from clonos_py.model.windows import Hopping, Tumbling
from clonos_py.plan.logical import AggregateTable, EventTimeColumn, Port, TopTable, TopWindows

R = TypeVar("R")
S = TypeVar("S", bound=Record)

RANK = "rank_number"
"""The column in which ``top`` says which place a row has, if not told otherwise."""

BOUNDS: Mapping[str, pa.Field[Any]] = {
    name: pa.field(name, pa.int64(), nullable=False) for name in ("window_start", "window_end")
}
"""What a result of windows has beside its keys."""


class Table(Generic[R]):
    """An updating result. It becomes a stream in one of two ways, goes to a sink that takes updates, or another table
    is made of it. A later row replaces the earlier one of the same ``keys``."""

    def __init__(self, draft: Draft, port: Port, keys: tuple[str, ...], shrinks: bool = False) -> None:
        self._draft = draft
        self._port = port
        self._used: str | None = None
        self._schema = draft.nodes[port.node].schemas[0]
        self._shrinks = shrinks
        self.keys = keys

    @property
    def schema(self) -> pa.Schema:
        """The columns of its rows."""
        return self._schema

    def named(self, name: str) -> Self:
        """Gives the operator its stable name."""
        with located("named"):
            self._draft.name(self._port.node, name)
        return self

    def parallelism(self, tasks: int) -> Self:
        """Runs the operator in so many tasks, whatever the job's setting."""
        with located("parallelism"):
            self._draft.set_parallelism(self._port.node, tasks)
        return self

    @overload
    def changes(self) -> Stream[R]: ...
    @overload
    def changes(self, kind: str) -> Stream[Any]: ...
    def changes(self, kind: str | None = None) -> Stream[Any]:
        """A row for each change of a result: it replaces the earlier one of the same keys.

        ``kind``: a further column that says what happened: ``insert`` for a row of new keys, ``update`` for one that
        replaces another, ``delete`` for one that is there no more, as it was last. Whoever applies these rows in their
        order has the table. A table that loses rows, as a top-n does whose rows may move from group to group, needs it.
        """
        with located("changes"):
            if kind is None and self._shrinks:
                raise GraphError(
                    "rows may leave this table, which a row that replaces another cannot tell; name a column that says "
                    "what happened: .changes(kind='change')"
                )
            if kind is not None and kind in self.schema.names:
                raise GraphError(f"there is a column {kind!r} already: give kind= another name")
            return self._changes(kind)

    def at_end(self) -> Stream[R]:
        """The final results, when all input has ended."""
        with located("at_end"):
            return self._as("at_end", ".at_end()")

    def sink(self, definition: SinkDefinition) -> Written:
        """Keeps the results current in a sink that takes updates."""
        with located("sink"):
            if not getattr(definition, "upserts", False):
                raise GraphError(
                    f"{type(definition).__name__} only appends, and a result without a window changes; say which rows "
                    "you want: .changes() or .at_end()"
                )
            if self._shrinks and not getattr(definition, "deletes", False):
                raise GraphError(
                    f"rows may leave this table, and {type(definition).__name__} only replaces them; write the changes "
                    "with what happened: .changes(kind='change')"
                )
            return self._changes(CHANGE_COLUMN if self._shrinks else None).sink(definition)

    def key_by(self, *columns: str) -> KeyedTable[R]:
        """The rows by columns of the table, to be aggregated or ranked: when a row changes, so does what it counted
        for, and when another value of these columns takes it to another group, it leaves its old one."""
        with located("key_by"):
            if not columns:
                raise GraphError("it needs at least one column")
            if unknown := [column for column in columns if column not in self.schema.names]:
                raise GraphError(f"no column {unknown[0]!r} in this table; there are {listed(self.schema.names)}")
            return KeyedTable(self, columns)

    @overload
    def aggregate(self, into: type[S], /, **aggregates: Any) -> Table[S]: ...
    @overload
    def aggregate(self, into: pa.Schema | None = None, /, **aggregates: Any) -> Table[Any]: ...
    def aggregate(self, into: Shape | None = None, /, **aggregates: Any) -> Table[Any]:
        """One updating result over all rows of the table."""
        with located("aggregate"):
            return KeyedTable(self, ()).aggregate(into, **aggregates)

    @overload
    def top(self, n: int, by: SortOrders, into: type[S], rank: str = RANK) -> Table[S]: ...
    @overload
    def top(self, n: int, by: SortOrders, into: pa.Schema | None = None, rank: str = RANK) -> Table[Any]: ...
    def top(self, n: int, by: SortOrders, into: Shape | None = None, rank: str = RANK) -> Table[Any]:
        """The first ``n`` of all rows of the table, as they are now, on one instance; see ``KeyedTable.top``."""
        with located("top"):
            return KeyedTable(self, ()).top(n, by, into, rank)

    def _changes(self, kind: str | None) -> Stream[Any]:
        if kind is None:
            return self._as("changes", ".changes()")
        return self._as("changes", f".changes(kind={kind!r})", kind_schema(self.schema, kind), kind=kind)

    def _deltas(self, moved_by: tuple[str, ...] | None) -> Stream[Any]:
        """What another table is made of. ``moved_by``: only a row that changes in these columns is taken back."""
        label = "aggregated" if moved_by is None else f"ranked by {listed(moved_by) or 'nothing'}"
        return self._as("deltas", label, weighted_schema(self.schema), moved_by=moved_by)

    def _as(self, mode: TableMode, label: str, schema: pa.Schema | None = None, **changes: Any) -> Stream[Any]:
        if self._used not in (None, label):
            used = f"used as {self._used}" if self._used.startswith(".") else self._used
            raise GraphError(f"this table is {used} already; write it twice to have both")
        self._used = label
        node = self._draft.nodes[self._port.node]
        assert isinstance(node.work, AggregateTable | TopTable)
        self._draft.change(node.id, work=replace(node.work, mode=mode, **changes))
        if schema is not None:
            self._draft.change(node.id, schemas=(schema,), records=(None,))
        return Stream(self._draft, self._port)


class KeyedTable(Generic[R]):
    """A table by some of its columns."""

    def __init__(self, table: Table[R], keys: tuple[str, ...]) -> None:
        self._table = table
        self._keys = keys

    @overload
    def aggregate(self, into: type[S], /, **aggregates: Any) -> Table[S]: ...
    @overload
    def aggregate(self, into: pa.Schema | None = None, /, **aggregates: Any) -> Table[Any]: ...
    def aggregate(self, into: Shape | None = None, /, **aggregates: Any) -> Table[Any]:
        """An updating result per key, of the rows as they are now: counts, sums and means. A key that has no rows any
        more has no result."""
        with located("aggregate") as site:
            for name, found in aggregates.items():
                if isinstance(found, AggregateExpr) and found.function not in RETRACTABLE:
                    raise GraphError(
                        f"{name}={found}: rows of a table change, and {found.function} cannot take a value back; there "
                        f"are {listed(RETRACTABLE)}"
                    )
            found = aggregation(self._table.schema, self._keys, {}, into, aggregates)
            return aggregated(self._table._deltas(None), self._keys, found, site, weighted=True, shrinks=self._shrinks)

    @overload
    def top(self, n: int, by: SortOrders, into: type[S], rank: str = RANK) -> Table[S]: ...
    @overload
    def top(self, n: int, by: SortOrders, into: pa.Schema | None = None, rank: str = RANK) -> Table[Any]: ...
    def top(self, n: int, by: SortOrders, into: Shape | None = None, rank: str = RANK) -> Table[Any]:
        """The first ``n`` rows of each key among the rows of the table as they are now, with their place (1, 2, ...) in
        the column ``rank``: of running totals the highest, ``totals.key_by("category").top(3,
        by=col("total").desc())``. A row that changes leaves its old place, and who was behind it moves up. Of rows that
        are equal in this order the one with the lesser keys of the table is first. For ``n`` = 1 and ``into`` see
        ``KeyedStream.top``."""
        with located("top") as site:
            table = self._table
            if missing := [key for key in table.keys if key not in table.schema.names]:
                raise GraphError(
                    f"rows of this table are known by {missing[0]!r}, which is none of its columns: "
                    f"{listed(table.schema.names)}"
                )
            schema = ranked(table.schema, {}, n, into, rank)
            _order(table.schema, by)
            stream = table._deltas(self._keys)
            return first_rows(stream, self._keys, n, by, into, rank, site, schema, table.keys, self._shrinks)

    @property
    def _shrinks(self) -> bool:
        """Whether a key may have fewer rows than before."""
        return self._table._shrinks or not set(self._keys) <= set(self._table.keys)


def aggregated(
    stream: Stream[Any],
    keys: tuple[str, ...],
    found: Aggregation,
    site: CallSite,
    weighted: bool = False,
    shrinks: bool = False,
) -> Table[Any]:
    """Adds an aggregate without a window; ``weighted``: of the deltas of a table; ``shrinks``: keys may lose all
    rows."""
    stream = stream._extended(found.computed, site)
    work = AggregateTable(keys, found.aggregates, "changes", weighted)
    node = stream._draft.add("aggregate", work, (stream._port,), (found.schema,), site, (found.record,))
    return Table(stream._draft, Port(node.id), keys, shrinks)


def first_rows(
    stream: Stream[Any],
    keys: tuple[str, ...],
    n: int,
    by: SortOrders,
    into: Shape | None,
    rank: str,
    site: CallSite,
    schema: pa.Schema,
    known_by: tuple[str, ...] | None = None,
    shrinks: bool = False,
) -> Table[Any]:
    """Adds a running top-n with the columns of ``schema``. ``known_by``: the stream has the deltas of a table whose
    rows are known by this; ``shrinks``: keys may lose rows."""
    order, computed = _order(stream.schema, by)
    stream = stream._extended(computed, site)
    work = TopTable(keys, n, order, "changes", rank if rank in schema.names else None, known_by)
    record = None if into is None else record_of(into)
    once = n == 1 and known_by is None  # of several, old rows come again with new ranks
    time = carried(stream._time, schema) if once else None
    node = stream._draft.add("top", work, (stream._port,), (schema,), site, (record,), (time,))
    return Table(stream._draft, Port(node.id), (*keys, rank) if n > 1 else keys, shrinks)


def first_of_windows(
    stream: Stream[Any],
    keys: tuple[str, ...],
    window: Tumbling | Hopping,
    n: int,
    by: SortOrders,
    into: Shape | None,
    rank: str,
    site: CallSite,
) -> Stream[Any]:
    """Adds a top-n of windows."""
    schema = ranked(stream.schema, BOUNDS, n, into, rank)
    order, computed = _order(stream.schema, by)
    stream, time = timed(stream._extended(computed, site), site)
    work = TopWindows(keys, window, n, order, time, rank if rank in schema.names else None)
    record = None if into is None else record_of(into)
    closed = EventTimeColumn("window_end", -1) if "window_end" in schema.names else None
    node = stream._draft.add("top", work, (stream._port,), (schema,), site, (record,), (closed,))
    return Stream(stream._draft, Port(node.id))


def ranked(schema: pa.Schema, further: Mapping[str, pa.Field[Any]], n: int, into: Shape | None, rank: str) -> pa.Schema:
    """The columns of a top-n: those of its input, ``further`` ones and the rank, or those that ``into`` has of them."""
    if type(n) is not int or n < 1:
        raise GraphError(f"{n!r} is no number of rows: it is at least 1")
    if taken := [name for name in (rank, *further) if schema.get_field_index(name) >= 0]:
        raise GraphError(f"there is a column {taken[0]!r} already: give it another name, or the rank by rank=")
    wanted = None if into is None else schema_of(into)
    name = getattr(into, "__name__", "the schema")
    has_rank = n > 1 if wanted is None else rank in wanted.names
    if n > 1 and not has_rank:
        raise GraphError(f"of {n} rows per key each is known by its rank: {name} needs a field {rank!r}")
    available = {field.name: field for field in schema} | dict(further)
    if has_rank:
        available[rank] = pa.field(rank, pa.int64(), nullable=False)
    return filled(wanted, available, (), name)


def _order(schema: pa.Schema, by: SortOrders) -> tuple[tuple[SortKey, ...], list[tuple[str, Node]]]:
    """What to sort by, and the columns that have to be computed for it."""
    keys: list[SortKey] = []
    computed: list[tuple[str, Node]] = []
    for number, given in enumerate([by] if isinstance(by, str | SortOrder | Expr) else by):
        found = SortOrder(col(given)) if isinstance(given, str) else given
        if not isinstance(found, SortOrder):
            raise GraphError(f"by={given!r}: write a column, col('price').desc() or col('price').asc()")
        if pa.types.is_nested(found.by.node.bind(schema).type):
            raise GraphError(f"by={found.by}: lists and structs have no order")
        name = found.by.node.name if isinstance(found.by.node, Column) else hidden(f"order_{number}", schema.names)
        if not isinstance(found.by.node, Column):
            computed.append((name, found.by.node))
        keys.append(SortKey(name, found.descending))
    if not keys:
        raise GraphError("by=[]: say in which order the rows are, such as by=col('price').desc()")
    return tuple(keys), computed
