"""The classes with which users write jobs: streams, keyed streams, windows and tables. Verbs add nodes to the graph.

Errors are found early: every verb checks columns and types at once and names the line of the call. The classes are in
one module because each has verbs that return others. Functions over an ``OutputPort`` decide what a verb adds
(``dsl.mapping``, ``dsl.joining``, ``dsl.aggregation``, ``dsl.ranking``).

A table is an updating result. A table made from another table reads its deltas: a row that changes leaves its old
place, even if that was in another group. A group that loses rows can remove rows from the table.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Self, TypeVar, Unpack, overload

import pyarrow as pa

from clonos_py.columns.frames import ArrowFrame
from clonos_py.dsl.aggregates import AggregateExpr
from clonos_py.dsl.aggregation import (
    aggregated,
    aggregated_in_count_windows,
    aggregated_in_windows,
    aggregation,
    reduced_by_aggregates,
)
from clonos_py.dsl.assigning import with_assigned_time
from clonos_py.dsl.callsite import located
from clonos_py.dsl.changed_rows import table_of_changes
from clonos_py.dsl.changelogs import refuse_changes
from clonos_py.dsl.draft import Draft
from clonos_py.dsl.duplicates import without_duplicates
from clonos_py.dsl.elsewhere import Helpful, shown
from clonos_py.dsl.emitting import EmittingWindows, aggregated_in_emitting_windows, emitting
from clonos_py.dsl.exploding import exploded
from clonos_py.dsl.expressions import Expr, SortOrders
from clonos_py.dsl.folding import FoldOptions, folded, reduced
from clonos_py.dsl.functions import Shape
from clonos_py.dsl.joining import How, Keys, Within, enriched, joined
from clonos_py.dsl.lookups import AskingOptions, with_answers
from clonos_py.dsl.loops import closed_loop, loop_head
from clonos_py.dsl.mapping import called_per_batch, called_per_row
from clonos_py.dsl.naming import stem_of
from clonos_py.dsl.ordering import Late, limited, sorted_by_time
from clonos_py.dsl.outputs import OutputPort
from clonos_py.dsl.over import aggregated_over, checked_last
from clonos_py.dsl.own_windows import aggregated_in_assigned_windows, assigned, mapped_windows, whole_windows
from clonos_py.dsl.processes import KeyedRowsOf, broadcast, connected, processed
from clonos_py.dsl.projection import condition_of, node_with, projected, replaced, selected
from clonos_py.dsl.ranking import RANK, first_of_windows, first_rows, ranked, sort_order
from clonos_py.dsl.resources import resources_of
from clonos_py.dsl.sampling import sample_of
from clonos_py.dsl.shapes import listed
from clonos_py.dsl.table_joining import joined_tables, joined_with_table
from clonos_py.dsl.tables import UpdatingRows, updating_rows
from clonos_py.dsl.timing import time_to_live, window_bounds
from clonos_py.dsl.unions import united
from clonos_py.dsl.waiting import WaitingOptions
from clonos_py.dsl.windows import AssignedBy, Forever
from clonos_py.model.aggregates import ORDERED
from clonos_py.model.connectors import SinkDefinition, SourceDefinition
from clonos_py.model.errors import GraphError
from clonos_py.model.hidden import check_names
from clonos_py.model.record import DeadLetter, Record, record_type
from clonos_py.model.tables import CHANGE_COLUMN
from clonos_py.model.times import Duration, micros
from clonos_py.model.windows import Assigned, Counted, Emit, Hopping, Last, Tumbling, Window
from clonos_py.plan.logical import (
    AggregateWindows,
    CallPerRow,
    FilterRows,
    LookUpRows,
    RunProcess,
    Spread,
    WriteSink,
)

if TYPE_CHECKING:
    from clonos_py.operators.process import BroadcastProcess, CoProcess, Process

R = TypeVar("R")
S = TypeVar("S", bound=Record)
T = TypeVar("T")
A = TypeVar("A", bound=Record)
B = TypeVar("B", bound=Record)
C = TypeVar("C", bound=Record)


class Stream(Helpful, Generic[R]):
    """A stream of rows with one schema; ``R`` is their class if they have one."""

    def __init__(self, output: OutputPort) -> None:
        self._output = output

    def __repr__(self) -> str:
        return shown(self, self.schema, self._output.node.name)

    @property
    def schema(self) -> pa.Schema:
        """The columns of its rows."""
        return self._output.schema

    @property
    def record(self) -> type[Record]:
        """The class of its rows: the declared one, or one made from the schema."""
        return self._output.record or record_type(self.schema)

    def named(self, name: str) -> Self:
        """Sets the stable name of the operator that makes this stream."""
        with located("named"):
            self._output.draft.name(self._output.port.node, name)
        return self

    def parallelism(self, tasks: int) -> Self:
        """Runs the operator that makes this stream in this many tasks, regardless of the job's setting. Verbs that
        follow without a shuffle run in the same tasks. Rows from another number of tasks are spread evenly over
        them."""
        with located("parallelism"):
            self._output.draft.set_parallelism(self._output.port.node, tasks)
        return self

    def resources(self, *, cpus: float = 0, memory: str | None = None, gpus: float = 0) -> Self:
        """Reserves processors, memory and GPUs for this operator in each of its tasks, on Ray. A task needs what its
        operators need together.

        ``memory``: such as "2GiB", at least "128MiB"; also the limit of the task's process: one that outgrows it fails
        alone. ``gpus``: a fraction of one, or a whole number; the task sees no other device.
        """
        with located("resources"):
            self._output.draft.set_resources(self._output.port.node, resources_of(cpus, memory, gpus))
        return self

    @overload
    def filter(self, condition: Expr) -> Stream[R]: ...
    @overload
    def filter(self, condition: Callable[..., Any], **waiting: Unpack[WaitingOptions]) -> Mapped[R]: ...
    def filter(self, condition: Expr | Callable[..., Any], **waiting: Any) -> Stream[R]:
        """Keeps the rows for which an expression, or a function of the row, is true; null is not true.

        For ``async def`` functions see ``map``.
        """
        with located("filter") as site:
            if not isinstance(condition, Expr):
                return Mapped(called_per_row(self._output, "filter", condition, None, site, waiting))
            if waiting:
                raise GraphError(f"{next(iter(waiting))}= is for `async def` functions, and an expression is not one")
            return Stream(self._output.same_rows("filter", FilterRows(condition_of(condition, self.schema)), site))

    @overload
    def select(self, into: type[S], /, **columns: object) -> Stream[S]: ...
    @overload
    def select(self, /, *columns: str | Expr, **named: object) -> Stream[Any]: ...
    def select(self, /, *columns: Any, **named: object) -> Stream[Any]:
        """Rows with only these columns: names, expressions, ``name=expression``. With a Record class first, rows of
        that class: its fields are filled by name from the expressions given, and otherwise from columns of the
        stream."""
        with located("select") as site:
            made, record = selected(columns, named, self.schema)
            return Stream(self._output.projected("select", made, site, record))

    def with_columns(self, /, *columns: Expr, **named: object) -> Stream[Any]:
        """Adds columns, or replaces those of the same name."""
        with located("with_columns") as site:
            return Stream(
                self._output.projected(
                    "with_columns", replaced(self.schema, projected(columns, named, self.schema)), site
                )
            )

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
        """Calls a function that returns one row for each row. The row has the class with which the function's parameter
        is annotated; a parameter ``ctx`` receives the Context. Results have the class that the function returns, or
        ``returns``.

        An ``async def`` function, whose ``ctx`` is an AsyncContext, processes many rows concurrently: see
        WaitingOptions.
        """
        with located("map") as site:
            return Mapped(called_per_row(self._output, "map", function, returns, site, waiting))

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
        """Calls a function that returns any number of rows for each row, as an iterator or a list. ``returns`` is the
        class of one result. For ``async def`` functions and generators see ``map``."""
        with located("flat_map") as site:
            return Mapped(called_per_row(self._output, "flat_map", function, returns, site, waiting))

    @overload
    def map_batches(
        self, function: Callable[..., ArrowFrame], returns: type[S], *, rows: int | None = None, wait: Duration = "20ms"
    ) -> Stream[S]: ...
    @overload
    def map_batches(
        self,
        function: Callable[..., ArrowFrame],
        returns: pa.Schema,
        *,
        rows: int | None = None,
        wait: Duration = "20ms",
    ) -> Stream[Any]: ...
    def map_batches(
        self, function: Callable[..., ArrowFrame], returns: Shape, *, rows: int | None = None, wait: Duration = "20ms"
    ) -> Stream[Any]:
        """Calls a function of record batches, or of the tabular type that its parameter is annotated with:
        pyarrow.Table, pandas.DataFrame or polars.DataFrame. It may return any of these, or another frame with Arrow's
        C stream interface. The result must not depend on how rows are cut into batches.

        With ``rows`` the function gets so many rows at once, as a model does that scores a batch, and fewer if they
        have waited for ``wait``, or are the last. The cuts are logged, so the result may depend on them.
        """
        with located("map_batches") as site:
            return Stream(called_per_batch(self._output, function, returns, rows, wait, site))

    def explode(self, column: str, *, keep_empty: bool = False) -> Stream[Any]:
        """A row for each element of the lists in a column: it has the element there, and the values of the row in all
        other columns. A row whose list is empty or null is left out; with ``keep_empty`` it remains, with null."""
        with located("explode") as site:
            return Stream(exploded(self._output, column, keep_empty, site))

    def sample(self, fraction: float, *columns: str, seed: int = 0) -> Stream[R]:
        """A random part of the rows: about ``fraction`` (0 to 1) of them, chosen by a hash of these columns, by default
        of all, and of ``seed``. Rows that are equal there are all in the sample or all left out, so
        ``sample(0.01, "user")`` has all rows of one user in 100. The same rows of another run, or of another stream
        with the same columns, are chosen alike."""
        with located("sample") as site:
            return Stream(sample_of(self._output, fraction, columns, seed, site))

    def limit(self, n: int) -> Stream[R]:
        """The first ``n`` rows that arrive, of all tasks together. A replay, and a run that resumes, go on counting."""
        with located("limit") as site:
            return Stream(limited(self._output, n, site))

    def sort(self, *, late: Late = "drop") -> Stream[R]:
        """All rows in the order of event time, in one task; see ``KeyedStream.sort``."""
        with located("sort") as site:
            return Stream(sorted_by_time(self._output, (), late, site))

    def key_by(self, *columns: str | Expr, **named: object) -> KeyedStream[R]:
        """Partitions rows by key: columns, named expressions, ``name=expression``. A computed key becomes a column."""
        with located("key_by") as site:
            made = projected(columns, named, self.schema)
            if not made:
                raise GraphError("it needs at least one column")
            computed = [(name, node) for name, node in made if node != node_with(name)]
            return KeyedStream(self._output.extended(computed, site), tuple(name for name, _ in made))

    def distinct(self, *columns: str, ttl: Duration | None = None) -> Stream[R]:
        """Removes duplicates: of the rows that are equal in these columns (by default in all), only the first passes.

        First means first in order of arrival; recovery after a failure repeats that order. With ``ttl`` a row passes
        again if it is that much later in event time than the last one that passed. Without ``ttl`` every key is kept
        forever.
        """
        with located("distinct") as site:
            return Stream(without_duplicates(self._output, columns, ttl, site))

    def to_table(self, *keys: str, deleted: Expr | None = None) -> Table[Any]:
        """A table of rows that are changes: a row replaces the one before of the same ``keys``, in order of arrival, or
        deletes it. All rows of a key have to come from one partition of the source.

        ``deleted``: whether a row deletes, such as ``col("op") == "d"``; only its keys count then. By default the
        column ``_change`` says so, where it is ``delete``. It is not part of the table; without that column no row
        deletes.

        The state holds all rows of the table, so that what is made of it knows which values no longer count.
        """
        with located("to_table") as site:
            refuse_changes(self._output, instead="it is a table already")
            return Table(table_of_changes(self._output, keys, deleted, site))

    def with_event_time(self, column: str, *, delay: Duration = "0s", idle: Duration | None = None) -> Stream[R]:
        """Takes event time from a column, which may be a computed one, such as a result of ``strptime``.

        ``delay``: how far a row may be behind an earlier one of its partition of the source; ``idle``: a partition that
        delivers nothing for that long does not hold the watermark back. Watermarks are generated per partition, as with
        ``job.source(event_time=...)``; this event time replaces the one declared there. Write it before the verbs that
        bring rows together: ``key_by``, windows and joins.
        """
        with located("with_event_time") as site:
            return Stream(with_assigned_time(self._output, column, delay, idle, site))

    def broadcast(self) -> BroadcastStream[R]:
        """Every task of the process function that is connected with it gets all rows, in the same order:
        ``rows.key_by(...).connect(rules.broadcast()).process(P)``. They go through one task."""
        with located("broadcast") as site:
            return BroadcastStream(broadcast(self._output, site))

    def rebalance(self) -> Stream[R]:
        """Distributes rows round-robin over all tasks of the next operator."""
        with located("rebalance") as site:
            return Stream(self._output.same_rows("rebalance", Spread(), site))

    @overload
    def union(self, *others: Stream[R]) -> Stream[R]: ...
    @overload
    def union(self, *others: Stream[Any], by_name: bool) -> Stream[Any]: ...
    def union(self, *others: Stream[Any], by_name: bool = False) -> Stream[Any]:
        """Merges the rows of several streams with the same columns. With ``by_name`` their columns may be in another
        order, and one may lack columns of another: these are null in its rows."""
        with located("union") as site:
            for other in others:
                self._check_partner(other)
            return Stream(united([self._output, *(other._output for other in others)], by_name, site))

    def iterate(self, step: Callable[[Stream[R]], tuple[Stream[R], T]]) -> T:
        """A loop. ``step`` takes a stream: the rows of this stream and those that the step sends back. It returns two
        things: a stream with the same columns, whose rows enter the loop again, and the output of the loop.

        The loop ends when all streams that enter it have ended and no rows are left in it. In a loop, and after it,
        there is no event time. ``seeds.iterate(lambda rows: (rows.filter(...).map(...), rows.filter(...)))``
        """
        with located("iterate") as site:
            head = loop_head(self._output, site)
            given = step(Stream(head))
            if not isinstance(given, tuple) or len(given) != 2 or not isinstance(given[0], Stream):
                raise GraphError(
                    f"the step returned {given!r}: it must return the stream that goes back and the output of the loop"
                )
            back, out = given
            self._check_partner(back)
            closed_loop(head, back._output)
            return out

    @overload
    def join(self, other: Stream[Any], on: Keys, within: Within, into: type[S], *, how: How = "inner") -> Stream[S]: ...
    @overload
    def join(
        self, other: Stream[Any], on: Keys, within: Within, into: pa.Schema | None = None, *, how: How = "inner"
    ) -> Stream[Any]: ...
    @overload
    def join(
        self, other: Table[Any], on: Keys, *, into: type[S], how: How = "inner", load_first: bool = False
    ) -> Stream[S]: ...
    @overload
    def join(
        self,
        other: Table[Any],
        on: Keys,
        *,
        into: pa.Schema | None = None,
        how: How = "inner",
        load_first: bool = False,
    ) -> Stream[Any]: ...
    def join(
        self,
        other: Stream[Any] | Table[Any],
        on: Keys,
        within: Within | None = None,
        into: Shape | None = None,
        *,
        how: How = "inner",
        load_first: bool = False,
    ) -> Stream[Any]:
        """Joins rows with equal keys. ``within`` says which pairs match: rows in the same window or session, rows
        within a distance in event time (``between``), right rows during the lifetime of the left row (``until``), the
        right row that is valid at the time of the left row (``as_of``), or all rows (``forever``).

        ``on``: one name for both sides, a pair of names (left, right), or a list of these. ``into``: the class of the
        pairs. Its fields are filled by name from either side and, with a window, from ``window_start`` and
        ``window_end``. Without ``into`` pairs have all columns of both sides.

        ``how``: the result also has the left, right or all (full) rows without a match, with null in the columns of the
        other side; or only the left rows with a match (semi), once each, or without one (anti). A row without a match
        is emitted when the watermark says that none can come.

        With a ``Table``, and no ``within``, each row is joined at once with the rows that the table has then; ``how``
        is inner, left, semi or anti. A replay finds the same rows. With ``load_first`` the rows that come first wait
        until each source of the table has ended or, for the ``idle`` time that it has, been silent.
        """
        with located("join") as site:
            if isinstance(other, Table):
                if within is not None:
                    raise GraphError(
                        f"within={within!r}: a row is joined with the rows that the table has when it comes, leave it "
                        "out; for the version at the event time of the row, join the stream that the table is made "
                        "of, within=as_of()"
                    )
                return Stream(joined_with_table(self._output, other._rows, on, into, how, load_first, site))
            if load_first:
                raise GraphError("load_first=True: only a table is loaded, such as stream.key_by(...).top(1, by=...)")
            self._check_partner(other)
            return Stream(joined(self._output, other._output, on, within, into, how, site))

    @overload
    def enrich(self, side: SourceDefinition, on: Keys, into: type[S], *, how: How = "inner") -> Stream[S]: ...
    @overload
    def enrich(
        self, side: SourceDefinition, on: Keys, into: pa.Schema | None = None, *, how: How = "inner"
    ) -> Stream[Any]: ...
    def enrich(self, side: SourceDefinition, on: Keys, into: Shape | None = None, *, how: How = "inner") -> Stream[Any]:
        """Joins each row with the rows of a bounded side input that have equal keys. Rows without a match are dropped;
        with ``how="left"`` they are in the result, with null in the columns of the side input, and with ``"semi"`` or
        ``"anti"`` the result has only the rows with or without a match.

        Every task reads all of ``side``, a source that ends, before its first row, and keeps it in memory. The side
        input must not change while the job runs. ``on`` and ``into`` as for ``join``, with the side input on the right.
        """
        with located("enrich") as site:
            if not isinstance(side, SourceDefinition) or len(side.schemas) != 1:
                raise GraphError(f"{side!r} is not a source of one stream, such as FileSource('rates.csv', Rate)")
            check_names(side.schemas[0].names, "the side input")
            return Stream(enriched(self._output, side, on, into, how, site))

    @overload
    def lookup(
        self,
        function: Callable[..., Awaitable[Any]],
        on: str | list[str],
        into: type[S],
        *,
        cache: Duration,
        how: How = "inner",
        returns: Shape | None = None,
        **options: Unpack[AskingOptions],
    ) -> Mapped[S]: ...
    @overload
    def lookup(
        self,
        function: Callable[..., Awaitable[Any]],
        on: str | list[str],
        into: pa.Schema | None = None,
        *,
        cache: Duration,
        how: How = "inner",
        returns: Shape | None = None,
        **options: Unpack[AskingOptions],
    ) -> Mapped[Any]: ...
    def lookup(
        self,
        function: Callable[..., Awaitable[Any]],
        on: str | list[str],
        into: Shape | None = None,
        *,
        cache: Duration,
        how: How = "inner",
        returns: Shape | None = None,
        **options: Any,
    ) -> Mapped[Any]:
        """Enriches each row by an ``async def`` function of the columns ``on``, such as
        ``async def quote(symbol: str, ctx: AsyncContext) -> Quote | None``. Its answer is one row, or None: then the
        row is dropped or, with ``how="left"``, in the result with null in the columns of the answer. With ``"semi"`` or
        ``"anti"`` the result has only the rows with or without an answer.

        ``cache``: a duration for which an answer holds, None included. Rows with equal keys go to the same task, so
        that each key is asked for once in that time. Null is never asked for, and has no answer. Answers are logged: a
        replay asks for none. ``into`` as for ``join``, with the answer on the right; ``returns``: the shape of the
        answer, if the function is not annotated with it. For options see AskingOptions, for failures ``catch``.
        """
        with located("lookup") as site:
            return Mapped(with_answers(self._output, function, on, into, cache, how, returns, options, site))

    @overload
    def window(self, window: Counted) -> CountedStream[R]: ...
    @overload
    def window(self, window: Window, *, lateness: Duration = "0s") -> WindowedStream[R]: ...
    @overload
    def window(
        self, window: Window | AssignedBy | Forever, *, lateness: Duration = "0s", emit: Emit
    ) -> EmittingStream[R]: ...
    @overload
    def window(self, window: AssignedBy) -> AssignedStream[R]: ...
    def window(self, window: Any, *, lateness: Duration = "0s", emit: Any = None) -> Any:
        """Windows over all rows, in one task. For windows per key call ``key_by`` first."""
        with located("window"):
            return KeyedStream(self._output, ()).window(window, lateness=lateness, emit=emit)

    def over(self, last: Last) -> OverStream:
        """Aggregates of the last rows of each row, of all keys, in one task; see ``KeyedStream.over``."""
        with located("over"):
            return KeyedStream(self._output, ()).over(last)

    @overload
    def aggregate(self, into: type[S], /, **aggregates: Any) -> Table[S]: ...
    @overload
    def aggregate(self, into: pa.Schema | None = None, /, **aggregates: Any) -> Table[Any]: ...
    def aggregate(self, into: Shape | None = None, /, **aggregates: Any) -> Table[Any]:
        """Aggregates all rows into one updating result."""
        with located("aggregate"):
            return KeyedStream(self._output, ()).aggregate(into, **aggregates)

    @overload
    def top(self, n: int, by: SortOrders, into: type[S], rank: str = RANK) -> Table[S]: ...
    @overload
    def top(self, n: int, by: SortOrders, into: pa.Schema | None = None, rank: str = RANK) -> Table[Any]: ...
    def top(self, n: int, by: SortOrders, into: Shape | None = None, rank: str = RANK) -> Table[Any]:
        """The current first ``n`` of all rows, in one task; see ``KeyedStream.top``."""
        with located("top"):
            return KeyedStream(self._output, ()).top(n, by, into, rank)

    def sink(self, definition: SinkDefinition) -> Written:
        """Writes the stream to a sink, which ends it."""
        with located("sink") as site:
            if not isinstance(definition, SinkDefinition):
                raise GraphError(f"{definition!r} is not a sink")
            definition.create(self.schema)
            draft, stem = self._output.draft, stem_of("sink", definition)
            node = draft.add("sink", WriteSink(definition), (self._output.port,), (), site, (self.record,), stem=stem)
            return Written(draft, node.id)

    def _check_partner(self, other: Stream[Any]) -> None:
        if not isinstance(other, Stream):
            raise GraphError(f"{other!r} is not a stream")
        if other._output.draft is not self._output.draft:
            raise GraphError(
                f"the other stream belongs to job {other._output.draft.job!r}, this one to {self._output.draft.job!r}; "
                "streams of two jobs meet only through a connector"
            )


class Mapped(Stream[R]):
    """The results of a function of rows."""

    def catch(self) -> tuple[Stream[R], Stream[DeadLetter]]:
        """Returns the results, and the rows on which the function fails as a second stream. These rows are counted and
        no longer stop the job."""
        with located("catch"):
            work = self._output.node.work
            if not isinstance(work, CallPerRow | LookUpRows):
                raise GraphError(f"{self._output.node.verb} has nothing to catch")
            rows = self._output.changed(work=replace(work, catch=True))
            return Stream(rows), Stream(rows.sibling(1))


class Written:
    """A stream that ends in a sink."""

    def __init__(self, draft: Draft, node: int) -> None:
        self._draft = draft
        self._node = node

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._draft.nodes[self._node].name!r}>"

    def named(self, name: str) -> Written:
        """Sets the sink's stable name."""
        with located("named"):
            self._draft.name(self._node, name)
        return self

    def parallelism(self, tasks: int) -> Written:
        """Writes in this many tasks, regardless of the job's setting."""
        with located("parallelism"):
            self._draft.set_parallelism(self._node, tasks)
        return self

    def resources(self, *, cpus: float = 0, memory: str | None = None, gpus: float = 0) -> Written:
        """Reserves processors, memory and GPUs for this sink in each of its tasks. See ``Stream.resources``."""
        with located("resources"):
            self._draft.set_resources(self._node, resources_of(cpus, memory, gpus))
        return self


class KeyedStream(Helpful, Generic[R]):
    """A stream partitioned by key: rows with equal keys go to the same task. Without keys all rows go to one task."""

    def __init__(self, rows: OutputPort, keys: tuple[str, ...]) -> None:
        self._rows = rows
        self._keys = keys

    def __repr__(self) -> str:
        return shown(self, self._rows.schema, keys=self._keys)

    def with_event_time(self, column: str, *, delay: Duration = "0s", idle: Duration | None = None) -> NoReturn:
        """Raises GraphError: the rows of a key come from many partitions, so event time cannot be assigned here."""
        with located("with_event_time"):
            raise GraphError(f"the stream is keyed: write .with_event_time({column!r}) before key_by")

    @overload
    def window(self, window: Counted) -> CountedStream[R]: ...
    @overload
    def window(self, window: Window, *, lateness: Duration = "0s") -> WindowedStream[R]: ...
    @overload
    def window(
        self, window: Window | AssignedBy | Forever, *, lateness: Duration = "0s", emit: Emit
    ) -> EmittingStream[R]: ...
    @overload
    def window(self, window: AssignedBy) -> AssignedStream[R]: ...
    def window(self, window: Any, *, lateness: Duration = "0s", emit: Any = None) -> Any:
        """Windows per key. A row is late (see ``with_late``) once the watermark is ``lateness`` past its window; rows
        of count windows are never late.

        ``emit``: the results are a Table, whose rows change when rows come: ``on_change()``, ``every("10s")``, or
        ``at_close()``. With ``forever()`` as the window all rows of a key count. Windows of your own: ``assign(f)``."""
        with located("window") as site:
            refuse_changes(self._rows, instead="write the window before what makes the table")
            lateness_us, rows = micros(lateness), self._rows
            if isinstance(window, AssignedBy):
                if emit is None and lateness_us:
                    raise GraphError("with assign(...) late rows within a lateness change a table: give emit=, too")
                rows, window = assigned(rows, window, site), Assigned()
                if emit is None:
                    return AssignedStream(rows, self._keys)
            if emit is not None:
                if lateness_us < 0:
                    raise GraphError(f"lateness is {lateness!r}: it must be at least 0")
                return EmittingStream(rows, self._keys, emitting(window, emit, lateness_us))
            if isinstance(window, Forever):
                raise GraphError(
                    'forever() never closes: say when results come, with emit=on_change() or emit=every("10s")'
                )
            if isinstance(window, Counted):
                if lateness_us:
                    raise GraphError(f"lateness is {lateness!r}: rows of count windows are never late, leave it out")
                return CountedStream(self._rows, self._keys, window)
            if not isinstance(window, Window):
                raise GraphError(
                    f"{window!r} is not a window: use tumbling(...), hopping(...), cumulative(...), session(...) or "
                    "counted(...)"
                )
            if lateness_us < 0 or (lateness_us and window.processing_time):
                raise GraphError(f"lateness is {lateness!r}: it must be at least 0, and 0 in processing time")
            return WindowedStream(self._rows, self._keys, window, lateness_us)

    def over(self, last: Last) -> OverStream:
        """Aggregates of the last rows of each row, such as of the last hour of its key:
        ``.over(last("1h")).aggregate(spent=col("amount").sum())``. SQL's ``OVER``."""
        with located("over"):
            refuse_changes(self._rows, instead="write it before what makes the table")
            return OverStream(self._rows, self._keys, checked_last(last))

    @overload
    def aggregate(self, into: type[S], /, **aggregates: Any) -> Table[S]: ...
    @overload
    def aggregate(self, into: pa.Schema | None = None, /, **aggregates: Any) -> Table[Any]: ...
    def aggregate(self, into: Shape | None = None, /, **aggregates: Any) -> Table[Any]:
        """An updating result per key: a Table. Its rows have the keys and the named aggregates, or are of a class whose
        fields these fill by name."""
        with located("aggregate") as site:
            refuse_changes(self._rows, instead="write .key_by(...).aggregate(...) on the table")
            found = aggregation(self._rows.schema, self._keys, {}, into, aggregates)
            return Table(updating_rows(aggregated(self._rows, self._keys, found, site), self._keys, False))

    @overload
    def top(self, n: int, by: SortOrders, into: type[S], rank: str = RANK) -> Table[S]: ...
    @overload
    def top(self, n: int, by: SortOrders, into: pa.Schema | None = None, rank: str = RANK) -> Table[Any]: ...
    def top(self, n: int, by: SortOrders, into: Shape | None = None, rank: str = RANK) -> Table[Any]:
        """The current first ``n`` rows of each key, with their place (1, 2, ...) in the column ``rank``:
        ``top(10, by=col("price").desc())``.

        Of rows that are equal in this order the first to arrive comes first, so list every column that matters:
        ``by=[col("price").desc(), "at"]``. With n = 1 the result is, for example, the highest bid or the last row of a
        key; then there is no ``rank`` unless ``into`` has it.
        """
        with located("top") as site:
            refuse_changes(self._rows, instead="write .key_by(...).top(...) on the table")
            schema = ranked(self._rows.schema, {}, n, into, rank)
            found = first_rows(self._rows, self._keys, n, by, into, rank, site, schema)
            return Table(updating_rows(found, (*self._keys, rank) if n > 1 else self._keys, False))

    def sort(self, *, late: Late = "drop") -> Stream[R]:
        """The rows of each key in the order of event time, at equal times in that of arrival. Each row waits until the
        watermark says that no earlier one will come. ``late``: a row that comes after that is counted as ``late_rows``
        and dropped or, with "pass", goes on at once, out of order."""
        with located("sort") as site:
            return Stream(sorted_by_time(self._rows, self._keys, late, site))

    def process(self, process: type[Process[Any, S]] | Process[Any, S], *, in_order: bool = False) -> Processed[S]:
        """Runs a process function per key. Give its class or, if it has arguments, an object. The class declares its
        state and timers. ``in_order`` delivers rows and timers in event-time order."""
        with located("process") as site:
            return Processed(processed(process, (self._keyed,), in_order, site))

    @overload
    def reduce(
        self, function: Callable[[S, S], S], /, *, ttl: Duration | None = None, in_order: bool = False
    ) -> Processed[S]: ...
    @overload
    def reduce(self, into: type[S], /, **aggregates: AggregateExpr) -> Stream[S]: ...
    @overload
    def reduce(self, into: pa.Schema | None = None, /, **aggregates: AggregateExpr) -> Stream[Any]: ...
    def reduce(self, given: Any = None, /, **more: Any) -> Stream[Any]:
        """A result for each row, of the rows of its key so far. By aggregates: the row itself with these in further
        columns, or in place of its own, ``reduce(total=col("amount").sum())``; or a class whose fields they and the
        columns of the row fill by name.

        By a function: ``function(result, row)`` gets the key's last result and a row, and returns the result that goes
        out for this row. The first row of a key is its own result. Results and rows have one class; for another one
        see ``fold``. ``ttl``: a key begins again that much event time after its last row. ``in_order``: in the order
        of event time. A parameter ``ctx`` receives the Context.
        """
        with located("reduce") as site:
            if callable(given) and not isinstance(given, type):
                return Processed(reduced(self._keyed, given, site, FoldOptions.of(more)))
            refuse_changes(self._rows, instead="write .key_by(...).aggregate(...) on the table")
            return Stream(reduced_by_aggregates(self._rows, self._keys, given, more, site))

    def fold(
        self, initial: S, function: Callable[..., S], *, ttl: Duration | None = None, in_order: bool = False
    ) -> Processed[S]:
        """Folds the rows of each key: ``function(result, row)`` gets the key's last result, at first ``initial``, and a
        row, and returns the result that goes out for this row, a record of the class of ``initial``. For the options
        see ``reduce``."""
        with located("fold") as site:
            return Processed(folded(self._keyed, initial, function, site, FoldOptions(ttl, in_order)))

    def connect(self, other: KeyedStream[T] | BroadcastStream[T]) -> ConnectedStreams[R, T]:
        """Connects two keyed streams for a process function of both: rows with equal keys go to the same task. Or this
        stream with a broadcast one, of which every task gets all rows."""
        with located("connect"):
            return ConnectedStreams(self._keyed, connected(self._keyed, getattr(other, "_keyed", other)))

    @property
    def _keyed(self) -> KeyedRowsOf:
        return KeyedRowsOf(self._rows, self._keys)


class ConnectedStreams(Generic[R, T]):
    """Two keyed streams as the inputs of one process function."""

    def __init__(self, left: KeyedRowsOf, right: KeyedRowsOf) -> None:
        self._both = (left, right)

    def process(
        self,
        process: type[CoProcess[Any, Any, S]]
        | CoProcess[Any, Any, S]
        | type[BroadcastProcess[Any, Any, S]]
        | BroadcastProcess[Any, Any, S],
        *,
        in_order: bool = False,
    ) -> Processed[S]:
        """Runs a process function of two inputs per key. ``on_left`` takes the rows of the first stream, ``on_right``
        those of the other; both share state and timers. Without ``in_order`` rows are delivered in order of arrival.
        With it they are delivered in event-time order, at equal times those of the first stream first.

        With a broadcast stream: a BroadcastProcess, whose ``on_row`` takes the rows of the first stream, by key.
        ``on_broadcast`` takes the others, in each task, in order of arrival only."""
        with located("process") as site:
            return Processed(processed(process, self._both, in_order, site))


class BroadcastStream(Generic[R]):
    """A stream of which every task of a process function gets all rows: the other side of ``KeyedStream.connect``."""

    def __init__(self, rows: KeyedRowsOf) -> None:
        self._keyed = rows

    def named(self, name: str) -> Self:
        """Sets the stable name of the operator through which the rows go."""
        with located("named"):
            self._keyed.rows.draft.name(self._keyed.rows.port.node, name)
        return self


class WindowedStream(Helpful, Generic[R]):
    """A stream cut into windows."""

    def __init__(self, rows: OutputPort, keys: tuple[str, ...], window: Window, lateness_us: int) -> None:
        self._rows = rows
        self._keys = keys
        self._window = window
        self._lateness_us = lateness_us

    @overload
    def aggregate(self, into: type[S], /, **aggregates: Any) -> Windowed[S]: ...
    @overload
    def aggregate(self, into: pa.Schema | None = None, /, **aggregates: Any) -> Windowed[Any]: ...
    def aggregate(self, into: Shape | None = None, /, **aggregates: Any) -> Windowed[Any]:
        """One row per key and window: the keys, ``window_start``, ``window_end`` and the named aggregates, or a class
        whose fields these fill by name."""
        with located("aggregate") as site:
            found = aggregation(self._rows.schema, self._keys, window_bounds(self._rows, into), into, aggregates)
            output = aggregated_in_windows(self._rows, self._keys, self._window, self._lateness_us, found, site)
            return Windowed(output, self._rows)

    @overload
    def top(self, n: int, by: SortOrders, into: type[S], rank: str = RANK) -> Stream[S]: ...
    @overload
    def top(self, n: int, by: SortOrders, into: pa.Schema | None = None, rank: str = RANK) -> Stream[Any]: ...
    def top(self, n: int, by: SortOrders, into: Shape | None = None, rank: str = RANK) -> Stream[Any]:
        """The first ``n`` rows of each key in each window, emitted when the window closes, with ``window_start``,
        ``window_end`` and their place in the column ``rank``; see ``KeyedStream.top``. For tumbling and hopping windows
        in event time."""
        with located("top") as site:
            if not isinstance(self._window, Tumbling | Hopping) or self._window.processing_time or self._lateness_us:
                raise GraphError("it takes tumbling or hopping windows in event time, and no lateness")
            found = first_of_windows(self._rows, self._keys, self._window, n, by, into, rank, site)
            return Stream(found)

    @overload
    def map_groups(self, function: Callable[..., ArrowFrame], returns: type[S]) -> Stream[S]: ...
    @overload
    def map_groups(self, function: Callable[..., ArrowFrame], returns: pa.Schema) -> Stream[Any]: ...
    def map_groups(self, function: Callable[..., ArrowFrame], returns: Shape) -> Stream[Any]:
        """Calls a function with all rows of each key and window, when the window closes: as a ``pyarrow.RecordBatch``,
        or the frame that its parameter is annotated with. It returns a frame of any number of rows.

        Rows are in the order of event time, then of arrival, and have the columns ``window_start`` and ``window_end``,
        too. The state holds all rows of open windows; those of hopping and cumulative windows once for each window."""
        with located("map_groups") as site:
            window = whole_windows(self._window, self._lateness_us)
            return Stream(mapped_windows(self._rows, self._keys, window, function, returns, site))


class AssignedStream(Helpful, Generic[R]):
    """A stream with windows of the user's own."""

    def __init__(self, rows: OutputPort, keys: tuple[str, ...]) -> None:
        self._rows = rows
        self._keys = keys

    @overload
    def aggregate(self, into: type[S], /, **aggregates: Any) -> Stream[S]: ...
    @overload
    def aggregate(self, into: pa.Schema | None = None, /, **aggregates: Any) -> Stream[Any]: ...
    def aggregate(self, into: Shape | None = None, /, **aggregates: Any) -> Stream[Any]:
        """One row per key and window, when it closes, as ``WindowedStream.aggregate``."""
        with located("aggregate") as site:
            found = aggregation(self._rows.schema, self._keys, window_bounds(self._rows, into), into, aggregates)
            return Stream(aggregated_in_assigned_windows(self._rows, self._keys, found, site))

    @overload
    def map_groups(self, function: Callable[..., ArrowFrame], returns: type[S]) -> Stream[S]: ...
    @overload
    def map_groups(self, function: Callable[..., ArrowFrame], returns: pa.Schema) -> Stream[Any]: ...
    def map_groups(self, function: Callable[..., ArrowFrame], returns: Shape) -> Stream[Any]:
        """A function of whole windows; see ``WindowedStream.map_groups``."""
        with located("map_groups") as site:
            return Stream(mapped_windows(self._rows, self._keys, Assigned(), function, returns, site))


class EmittingStream(Helpful, Generic[R]):
    """A stream cut into windows, whose results are a table."""

    def __init__(self, rows: OutputPort, keys: tuple[str, ...], windows: EmittingWindows) -> None:
        self._rows = rows
        self._keys = keys
        self._windows = windows

    @overload
    def aggregate(self, into: type[S], /, **aggregates: Any) -> Table[S]: ...
    @overload
    def aggregate(self, into: pa.Schema | None = None, /, **aggregates: Any) -> Table[Any]: ...
    def aggregate(self, into: Shape | None = None, /, **aggregates: Any) -> Table[Any]:
        """A Table with a row per key and window: the keys, ``window_start``, ``window_end`` and the named aggregates,
        or a class whose fields these fill by name. Its rows are identified by the keys and the bounds; those of
        ``forever()`` have no bounds. A session that grows is another row, and the former one is deleted. Final rows,
        ``.at_end()``, come when nothing can change them any more."""
        with located("aggregate") as site:
            bounds = window_bounds(self._rows, into) if self._windows.window else {}
            found = aggregation(self._rows.schema, self._keys, bounds, into, aggregates)
            output, keys = aggregated_in_emitting_windows(self._rows, self._keys, self._windows, found, site)
            return Table(updating_rows(output, keys, self._windows.shrinks))


class OverStream(Helpful):
    """A stream of which each row has its last rows."""

    def __init__(self, rows: OutputPort, keys: tuple[str, ...], last: Last) -> None:
        self._rows = rows
        self._keys = keys
        self._last = last

    @overload
    def aggregate(self, into: type[S], /, **aggregates: Any) -> Stream[S]: ...
    @overload
    def aggregate(self, into: pa.Schema | None = None, /, **aggregates: Any) -> Stream[Any]: ...
    def aggregate(self, into: Shape | None = None, /, **aggregates: Any) -> Stream[Any]:
        """Every row, with its columns and the named aggregates of its last rows, or a class whose fields these fill by
        name.

        Rows come out in the order of event time, when the watermark has passed them, so that disorder does not change
        results. They keep their event time: further verbs, another ``over`` included, may use it. Late rows are
        dropped and counted. ``first``, ``last`` and ``collect`` are in the order of event time, then of arrival."""
        with located("aggregate") as site:
            return Stream(aggregated_over(self._rows, self._keys, self._last, into, aggregates, site))


class CountedStream(Helpful, Generic[R]):
    """A stream cut into count windows."""

    def __init__(self, rows: OutputPort, keys: tuple[str, ...], window: Counted) -> None:
        self._rows = rows
        self._keys = keys
        self._window = window

    @overload
    def aggregate(self, into: type[S], /, **aggregates: Any) -> Stream[S]: ...
    @overload
    def aggregate(self, into: pa.Schema | None = None, /, **aggregates: Any) -> Stream[Any]: ...
    def aggregate(self, into: Shape | None = None, /, **aggregates: Any) -> Stream[Any]:
        """One row per key and window: the keys and the named aggregates, or a class whose fields these fill by name.
        The rows have no event time."""
        with located("aggregate") as site:
            found = aggregation(self._rows.schema, self._keys, {}, into, aggregates)
            return Stream(aggregated_in_count_windows(self._rows, self._keys, self._window, found, site))

    @overload
    def top(self, n: int, by: SortOrders, into: type[S], rank: str = RANK) -> Stream[S]: ...
    @overload
    def top(self, n: int, by: SortOrders, into: pa.Schema | None = None, rank: str = RANK) -> Stream[Any]: ...
    def top(self, n: int, by: SortOrders, into: Shape | None = None, rank: str = RANK) -> Stream[Any]:
        """The first ``n`` rows of each key in each window, emitted with the window's last row, with their place in the
        column ``rank``; see ``KeyedStream.top``. The rows have no event time."""
        with located("top") as site:
            return Stream(first_of_windows(self._rows, self._keys, self._window, n, by, into, rank, site))


class Windowed(Stream[R]):
    """Results of windows. ``rows``: the input of the windows."""

    def __init__(self, output: OutputPort, rows: OutputPort) -> None:
        super().__init__(output)
        self._rows = rows

    def with_late(self) -> tuple[Stream[R], Stream[Any]]:
        """Returns the results, and the late rows, unchanged, as a second stream. Late rows are always counted."""
        with located("with_late") as site:
            work = self._output.node.work
            if not isinstance(work, AggregateWindows) or work.window.processing_time:
                raise GraphError("in processing time no row is late")
            results = self._output.changed(work=replace(work, late=True))
            return Stream(results), Stream(results.sibling(1).only(self._rows, site))


class Processed(Stream[R]):
    """The results of a process function."""

    def catch(self) -> tuple[Processed[R], Stream[DeadLetter]]:
        """Returns the results, and the rows and timers on which the process fails as a second stream. These are counted
        and no longer stop the job. A failed call leaves no trace in the state and timers of its key, nor in the
        results."""
        with located("catch"):
            work = self._output.node.work
            assert isinstance(work, RunProcess)
            rows = self._output.changed(work=replace(work, catch=True))
            return Processed(rows), Stream(rows.sibling(len(work.outputs)))

    @overload
    def split(self, first: type[A], second: type[B], /) -> tuple[Stream[A], Stream[B]]: ...
    @overload
    def split(self, first: type[A], second: type[B], third: type[C], /) -> tuple[Stream[A], Stream[B], Stream[C]]: ...
    def split(self, *kinds: type[Any]) -> tuple[Stream[Any], ...]:
        """Returns one stream for each class of row, in the order given."""
        with located("split"):
            work = self._output.node.work
            assert isinstance(work, RunProcess)
            if set(kinds) != set(work.outputs) or len(kinds) != len(work.outputs):
                asked, given = (listed(kind.__name__ for kind in found) for found in (kinds, work.outputs))
                raise GraphError(f"{work.name} yields {given}, split asks for {asked}")
            return tuple(Stream(self._output.sibling(work.outputs.index(kind))) for kind in kinds)

    def __iter__(self) -> Iterator[Any]:
        raise GraphError("to take the results apart write .split(A, B)")


class Table(Helpful, Generic[R]):
    """An updating result: a later row replaces an earlier one with the same ``keys``. It becomes a stream by
    ``changes`` or ``at_end``, goes to a sink that takes updates, or is the input of another table."""

    def __init__(self, rows: UpdatingRows) -> None:
        self._rows = rows

    def __repr__(self) -> str:
        return shown(self, self.schema, self._rows.name, self.keys)

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that identify a row."""
        return self._rows.keys

    @property
    def schema(self) -> pa.Schema:
        """The columns of its rows."""
        return self._rows.schema

    def named(self, name: str) -> Self:
        """Sets the operator's stable name."""
        with located("named"):
            self._rows.set_name(name)
        return self

    def parallelism(self, tasks: int) -> Self:
        """Runs the operator in this many tasks, regardless of the job's setting."""
        with located("parallelism"):
            self._rows.set_parallelism(tasks)
        return self

    def ttl(self, duration: Duration) -> Self:
        """Deletes rows in event time, which without a ttl are kept for ever: ``.aggregate(n=count()).ttl("1h")``.

        A row of an aggregate leaves when its key has had no row for so long, and a row of a top-n when it is so old;
        one that has dropped out before does not come back. Time passes with the watermark, and for a key with its own
        rows, too.
        """
        with located("ttl") as site:
            self._rows.set_ttl(time_to_live(duration), site)
        return self

    def filter(self, condition: Expr) -> Table[R]:
        """The rows for which an expression is true; null is not true. A row that changes may leave the table, or enter
        it."""
        with located("filter") as site:
            return Table(self._rows.filtered(condition_of(condition, self.schema), site))

    @overload
    def select(self, into: type[S], /, **columns: object) -> Table[S]: ...
    @overload
    def select(self, /, *columns: str | Expr, **named: object) -> Table[Any]: ...
    def select(self, /, *columns: Any, **named: object) -> Table[Any]:
        """Only these columns, as ``Stream.select``. The keys have to be among them, and may have other names."""
        with located("select") as site:
            made, record = selected(columns, named, self.schema)
            return Table(self._rows.projected("select", made, site, record))

    def with_columns(self, /, *columns: Expr, **named: object) -> Table[Any]:
        """Adds columns, or replaces those of the same name; not a key."""
        with located("with_columns") as site:
            return Table(
                self._rows.projected(
                    "with_columns", replaced(self.schema, projected(columns, named, self.schema)), site
                )
            )

    @overload
    def join(self, other: Table[Any], on: Keys, into: type[S], *, how: How = "inner") -> Table[S]: ...
    @overload
    def join(self, other: Table[Any], on: Keys, into: Shape | None = None, *, how: How = "inner") -> Table[Any]: ...
    def join(self, other: Table[Any], on: Keys, into: Shape | None = None, *, how: How = "inner") -> Table[Any]:
        """Joins the current rows of two tables on equal keys. When a row of either changes, its results are replaced.

        ``on``, ``into`` and ``how`` as for ``Stream.join``. With ``how`` left, right or full the result has the rows
        without a match, for as long as they have none. The rows of the result are identified by the keys of both tables
        and the joined columns, without those that follow from the others.
        """
        with located("join") as site:
            if not isinstance(other, Table):
                raise GraphError(f"{type(other).__name__}: a table is joined with a table")
            if other._rows.output.draft is not self._rows.output.draft:
                raise GraphError("the tables belong to different jobs")
            return Table(joined_tables(self._rows, other._rows, on, into, how, site))

    def resources(self, *, cpus: float = 0, memory: str | None = None, gpus: float = 0) -> Self:
        """Reserves processors, memory and GPUs for this operator in each of its tasks. See ``Stream.resources``."""
        with located("resources"):
            self._rows.set_resources(resources_of(cpus, memory, gpus))
        return self

    @overload
    def changes(self) -> Stream[R]: ...
    @overload
    def changes(self, kind: str) -> Stream[Any]: ...
    def changes(self, kind: str | None = None) -> Stream[Any]:
        """The changelog: a row for each change, which replaces the earlier row with the same keys.

        ``kind``: a further column with the kind of change: ``insert`` for a row of new keys, ``update`` for one that
        replaces another, ``delete`` for one that is removed, with its last values. Applying these rows in order
        rebuilds the table. A table that can lose rows needs ``kind``, such as a top-n whose rows may move from group to
        group.
        """
        with located("changes") as site:
            if kind is None and self._rows.shrinks:
                raise GraphError(
                    "rows of this table may be deleted, which a stream of replacing rows cannot express; name a column "
                    "for the kind of change: .changes(kind='change')"
                )
            if kind is not None and kind in self.schema.names:
                raise GraphError(f"there is a column {kind!r} already: give kind= another name")
            check_names([] if kind is None else [kind], "the result")
            return Stream(self._rows.changes(kind, site))

    def at_end(self) -> Stream[R]:
        """The final results, emitted when all input has ended."""
        with located("at_end"):
            return Stream(self._rows.at_end())

    def sink(self, definition: SinkDefinition) -> Written:
        """Writes the results, and each change of them, to a sink that takes updates."""
        with located("sink") as site:
            if not getattr(definition, "upserts", False):
                raise GraphError(
                    f"{type(definition).__name__} only appends, and the rows of a table change; say which rows you "
                    "want: .changes() or .at_end()"
                )
            if self._rows.shrinks and not getattr(definition, "deletes", False):
                raise GraphError(
                    f"rows of this table may be deleted, and {type(definition).__name__} only replaces rows; write the "
                    "changes with their kind: .changes(kind='change')"
                )
            if CHANGE_COLUMN in self.schema.names:
                raise GraphError(
                    f"column {CHANGE_COLUMN!r}: a sink that takes updates gets the kind of a change under this name; "
                    "give the column another name"
                )
            changes = self._rows.changes(CHANGE_COLUMN if self._rows.shrinks else None, site)
            return Stream(changes).sink(definition)

    def key_by(self, *columns: str | Expr, **named: object) -> KeyedTable[R]:
        """Groups the rows of the table, to aggregate or rank them: by columns, named expressions, or
        ``name=expression``. When a row changes, the results are updated: its old values no longer count, and a row
        whose group changes leaves the old group."""
        with located("key_by") as site:
            if not columns and not named:
                raise GraphError("it needs at least one column")
            if unknown := [name for name in columns if isinstance(name, str) and name not in self.schema.names]:
                raise GraphError(f"no column {unknown[0]!r} in this table; there are {listed(self.schema.names)}")
            made = projected(columns, named, self.schema)
            rows = self._rows
            if any(node != node_with(name) for name, node in made):
                rows = rows.projected("with_columns", replaced(self.schema, made), site)
            return KeyedTable(Table(rows), tuple(name for name, _ in made))

    @overload
    def aggregate(self, into: type[S], /, **aggregates: Any) -> Table[S]: ...
    @overload
    def aggregate(self, into: pa.Schema | None = None, /, **aggregates: Any) -> Table[Any]: ...
    def aggregate(self, into: Shape | None = None, /, **aggregates: Any) -> Table[Any]:
        """Aggregates all rows of the table into one updating result."""
        with located("aggregate"):
            return KeyedTable(self, ()).aggregate(into, **aggregates)

    @overload
    def top(self, n: int, by: SortOrders, into: type[S], rank: str = RANK) -> Table[S]: ...
    @overload
    def top(self, n: int, by: SortOrders, into: pa.Schema | None = None, rank: str = RANK) -> Table[Any]: ...
    def top(self, n: int, by: SortOrders, into: Shape | None = None, rank: str = RANK) -> Table[Any]:
        """The current first ``n`` of all rows of the table, in one task; see ``KeyedTable.top``."""
        with located("top"):
            return KeyedTable(self, ()).top(n, by, into, rank)


class KeyedTable(Generic[R]):
    """A table grouped by some of its columns."""

    def __init__(self, table: Table[R], keys: tuple[str, ...]) -> None:
        self._table = table
        self._keys = keys

    @overload
    def aggregate(self, into: type[S], /, **aggregates: Any) -> Table[S]: ...
    @overload
    def aggregate(self, into: pa.Schema | None = None, /, **aggregates: Any) -> Table[Any]: ...
    def aggregate(self, into: Shape | None = None, /, **aggregates: Any) -> Table[Any]:
        """An updating result per key over the current rows; none for a key without rows.

        Counts, sums and means keep one row per key. ``min``, ``max`` and ``count_distinct`` also keep the values of
        each key; variances, sketches and folds of your own its rows: they are computed again from these whenever one of
        them changes.
        """
        with located("aggregate") as site:
            for name, found in aggregates.items():
                if isinstance(found, AggregateExpr) and found.function in ORDERED:
                    raise GraphError(
                        f"{name}={found}: rows of a table change, and have no order of arrival; rank them by a column, "
                        "with .top(n, by=...)"
                    )
            rows = self._table._rows
            found = aggregation(rows.schema, self._keys, {}, into, aggregates)
            recomputed = any(aggregate.recomputed for aggregate in found.aggregates)
            table_keys = rows.identified() if recomputed else ()
            output = aggregated(rows.deltas(), self._keys, found, site, True, table_keys)
            return Table(updating_rows(output, self._keys, self._shrinks))

    @overload
    def top(self, n: int, by: SortOrders, into: type[S], rank: str = RANK) -> Table[S]: ...
    @overload
    def top(self, n: int, by: SortOrders, into: pa.Schema | None = None, rank: str = RANK) -> Table[Any]: ...
    def top(self, n: int, by: SortOrders, into: Shape | None = None, rank: str = RANK) -> Table[Any]:
        """The first ``n`` rows of each key among the current rows of the table, with their place (1, 2, ...) in the
        column ``rank``. The three highest running totals per category:
        ``totals.key_by("category").top(3, by=col("total").desc())``.

        A row that changes leaves its old place, and the rows behind it move up. Of rows that are equal in this order
        the one with the lesser keys of the table comes first. For ``n`` = 1 and ``into`` see ``KeyedStream.top``.
        """
        with located("top") as site:
            table = self._table
            identity = table._rows.identified()
            schema = ranked(table.schema, {}, n, into, rank)
            sort_order(table.schema, by)
            deltas = table._rows.deltas(self._keys)
            found = first_rows(deltas, self._keys, n, by, into, rank, site, schema, identity)
            return Table(updating_rows(found, (*self._keys, rank) if n > 1 else self._keys, self._shrinks))

    @property
    def _shrinks(self) -> bool:
        """Whether the table can lose rows."""
        return self._table._rows.shrinks or not set(self._keys) <= set(self._table.keys)
