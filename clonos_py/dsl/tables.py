"""Updating results: ``Table``, what is made of it, and how one comes about: aggregates without a window, top-n."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Generic, Self, TypeVar, overload

import pyarrow as pa

from clonos_py.dsl.aggregates import AggregateExpr
from clonos_py.dsl.aggregation import aggregation
from clonos_py.dsl.callsite import CallSite, located
from clonos_py.dsl.draft import Draft
from clonos_py.dsl.expressions import Expr, Order, Orders, col
from clonos_py.dsl.functions import Shape, record_of, schema_of
from clonos_py.dsl.projection import carried
from clonos_py.dsl.shapes import filled, listed
from clonos_py.dsl.stream import Stream, Written
from clonos_py.dsl.timing import timed
from clonos_py.dsl.tree import Column, Node
from clonos_py.model.aggregates import RETRACTABLE
from clonos_py.model.connectors import SinkDefinition
from clonos_py.model.errors import GraphError
from clonos_py.model.record import Record
from clonos_py.model.tables import SortKey, TableMode, weighted_schema
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
    """An updating result. It becomes a stream in one of two ways, goes to a sink that takes updates, or is aggregated
    further. A later row replaces the earlier one of the same ``keys``."""

    def __init__(self, draft: Draft, port: Port, keys: tuple[str, ...]) -> None:
        self._draft = draft
        self._port = port
        self._used: str | None = None
        self.keys = keys

    @property
    def schema(self) -> pa.Schema:
        """The columns of its rows."""
        return self._draft.nodes[self._port.node].schemas[0]

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

    def changes(self) -> Stream[R]:
        """A row for each change of a result."""
        with located("changes"):
            return self._as("changes")

    def at_end(self) -> Stream[R]:
        """The final results, when all input has ended."""
        with located("at_end"):
            return self._as("at_end")

    def sink(self, definition: SinkDefinition) -> Written:
        """Keeps the results current in a sink that takes updates."""
        with located("sink"):
            if not getattr(definition, "upserts", False):
                raise GraphError(
                    f"{type(definition).__name__} only appends, and a result without a window changes; say which rows "
                    "you want: .changes() or .at_end()"
                )
            return self._as("changes").sink(definition)

    def key_by(self, *columns: str) -> KeyedTable[R]:
        """The rows by some of the table's ``keys``, to be aggregated: when a row changes, so does what it counted for.

        A row of a table stays where it is: by another column it would move from group to group.
        """
        with located("key_by"):
            if unknown := [column for column in columns if column not in self.keys]:
                raise GraphError(
                    f"{unknown[0]!r} is no key of this table, whose rows would move between groups; its keys are "
                    f"{listed(self.keys)}"
                )
            return KeyedTable(self, columns)

    @overload
    def aggregate(self, into: type[S], /, **aggregates: Any) -> Table[S]: ...
    @overload
    def aggregate(self, into: pa.Schema | None = None, /, **aggregates: Any) -> Table[Any]: ...
    def aggregate(self, into: Shape | None = None, /, **aggregates: Any) -> Table[Any]:
        """One updating result over all rows of the table."""
        with located("aggregate"):
            return KeyedTable(self, ()).aggregate(into, **aggregates)

    def _as(self, mode: TableMode) -> Stream[R]:
        if self._used not in (None, mode):
            used = "aggregated" if self._used == "deltas" else f"used as .{self._used}()"
            raise GraphError(f"this table is {used} already; write it twice to have both")
        node = self._draft.nodes[self._port.node]
        assert isinstance(node.work, AggregateTable | TopTable)
        changes: dict[str, Any] = {"work": replace(node.work, mode=mode)}
        if mode == "deltas" and self._used is None:
            changes |= {"schemas": (weighted_schema(node.schemas[0]),), "records": (None,)}
        self._used = mode
        self._draft.change(node.id, **changes)
        return Stream(self._draft, self._port)


class KeyedTable(Generic[R]):
    """A table by some of its keys."""

    def __init__(self, table: Table[R], keys: tuple[str, ...]) -> None:
        self._table = table
        self._keys = keys

    @overload
    def aggregate(self, into: type[S], /, **aggregates: Any) -> Table[S]: ...
    @overload
    def aggregate(self, into: pa.Schema | None = None, /, **aggregates: Any) -> Table[Any]: ...
    def aggregate(self, into: Shape | None = None, /, **aggregates: Any) -> Table[Any]:
        """An updating result per key, of the rows as they are now: counts, sums and means."""
        with located("aggregate") as site:
            for name, found in aggregates.items():
                if isinstance(found, AggregateExpr) and found.function not in RETRACTABLE:
                    raise GraphError(
                        f"{name}={found}: rows of a table change, and {found.function} cannot take a value back; there "
                        f"are {listed(RETRACTABLE)}"
                    )
            return aggregated(self._table._as("deltas"), self._keys, into, aggregates, site, weighted=True)


def aggregated(
    stream: Stream[Any],
    keys: tuple[str, ...],
    into: Shape | None,
    aggregates: Mapping[str, Any],
    site: CallSite,
    weighted: bool = False,
) -> Table[Any]:
    """Adds an aggregate without a window; ``weighted``: of the deltas of a table."""
    found = aggregation(stream.schema, keys, {}, into, aggregates)
    stream = stream._extended(found.computed, site)
    work = AggregateTable(keys, found.aggregates, "changes", weighted)
    node = stream._draft.add("aggregate", work, (stream._port,), (found.schema,), site, (found.record,))
    return Table(stream._draft, Port(node.id), keys)


def first_rows(
    stream: Stream[Any], keys: tuple[str, ...], n: int, by: Orders, into: Shape | None, rank: str, site: CallSite
) -> Table[Any]:
    """Adds a running top-n."""
    schema = _ranked(stream.schema, {}, n, into, rank)
    order, computed = _order(stream, by)
    stream = stream._extended(computed, site)
    work = TopTable(keys, n, order, "changes", rank if rank in schema.names else None)
    record = None if into is None else record_of(into)
    time = carried(stream._time, schema) if n == 1 else None  # of several, old rows come again with new ranks
    node = stream._draft.add("top", work, (stream._port,), (schema,), site, (record,), (time,))
    return Table(stream._draft, Port(node.id), (*keys, rank) if n > 1 else keys)


def first_of_windows(
    stream: Stream[Any],
    keys: tuple[str, ...],
    window: Tumbling | Hopping,
    n: int,
    by: Orders,
    into: Shape | None,
    rank: str,
    site: CallSite,
) -> Stream[Any]:
    """Adds a top-n of windows."""
    schema = _ranked(stream.schema, BOUNDS, n, into, rank)
    order, computed = _order(stream, by)
    stream, time = timed(stream._extended(computed, site), site)
    work = TopWindows(keys, window, n, order, time, rank if rank in schema.names else None)
    record = None if into is None else record_of(into)
    closed = EventTimeColumn("window_end", -1) if "window_end" in schema.names else None
    node = stream._draft.add("top", work, (stream._port,), (schema,), site, (record,), (closed,))
    return Stream(stream._draft, Port(node.id))


def _ranked(
    schema: pa.Schema, further: Mapping[str, pa.Field[Any]], n: int, into: Shape | None, rank: str
) -> pa.Schema:
    """The columns of a top-n: those of its input, ``further`` ones and the rank, or those that ``into`` has of them."""
    if type(n) is not int or n < 1:
        raise GraphError(f"{n!r} is no number of rows: it is at least 1")
    if taken := [name for name in (rank, *further) if schema.get_field_index(name) >= 0]:
        raise GraphError(f"there is a column {taken[0]!r} already: give it another name, or the rank by rank=")
    wanted = None if into is None else schema_of(into)
    name = getattr(into, "__name__", "the schema")
    ranked = n > 1 if wanted is None else rank in wanted.names
    if n > 1 and not ranked:
        raise GraphError(f"of {n} rows per key each is known by its rank: {name} needs a field {rank!r}")
    available = {field.name: field for field in schema} | dict(further)
    if ranked:
        available[rank] = pa.field(rank, pa.int64(), nullable=False)
    return filled(wanted, available, (), name)


def _order(stream: Stream[Any], by: Orders) -> tuple[tuple[SortKey, ...], list[tuple[str, Node]]]:
    """What to sort by, and the columns that have to be computed for it."""
    keys: list[SortKey] = []
    computed: list[tuple[str, Node]] = []
    for number, given in enumerate([by] if isinstance(by, str | Order | Expr) else by):
        found = Order(col(given)) if isinstance(given, str) else given
        if not isinstance(found, Order):
            raise GraphError(f"by={given!r}: write a column, col('price').desc() or col('price').asc()")
        if pa.types.is_nested(found.by.node.bind(stream.schema).type):
            raise GraphError(f"by={found.by}: lists and structs have no order")
        name = found.by.node.name if isinstance(found.by.node, Column) else f"_order_{number}"
        if not isinstance(found.by.node, Column):
            computed.append((name, found.by.node))
        keys.append(SortKey(name, found.descending))
    if not keys:
        raise GraphError("by=[]: say in which order the rows are, such as by=col('price').desc()")
    return tuple(keys), computed
