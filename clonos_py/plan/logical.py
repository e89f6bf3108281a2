"""The logical graph: the job as nodes, before it is divided into tasks.

A node is one verb of the job. Its inputs are ports of other nodes, one per side (a union has many). ``checked`` makes
sure that there is no cycle. A loop is no cycle here, since its head only names the node that feeds back to it
(``Node.tail``). Keys belong to the work that needs them; a keyed stream is not a node. Nodes are immutable; rewrites
make new graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import pyarrow as pa

from clonos_py.columns.frames import TabularKind
from clonos_py.expressions.tree import ExpressionNode as Expression
from clonos_py.model.aggregates import Aggregate
from clonos_py.model.calls import LookUpOptions, Waiting
from clonos_py.model.connectors import SinkDefinition, SourceDefinition
from clonos_py.model.errors import GraphError
from clonos_py.model.joins import Bounds, JoinColumns, JoinType
from clonos_py.model.operators import EventTime
from clonos_py.model.processes import ProcessInput
from clonos_py.model.record import Record
from clonos_py.model.resources import NO_RESOURCES, Resources
from clonos_py.model.tables import DELTA_WEIGHT, FirstOf, SortKey, TableMode
from clonos_py.model.windows import Bounded, Counted, Emit, Hopping, Last, Session, Tumbling, Window


class Port(NamedTuple):
    """An output of a node."""

    node: int
    port: int = 0


@dataclass(frozen=True)
class ReadSource:
    """``columns[port]``: the columns to read of each port, None for all."""

    definition: SourceDefinition
    event_time: EventTime
    columns: tuple[tuple[str, ...] | None, ...]


@dataclass(frozen=True)
class WriteSink:
    definition: SinkDefinition


@dataclass(frozen=True)
class AssignEventTimes:
    """From here on, rows carry the event time in a column. Only operators that run in the source's tasks may lie
    between it and the source. ``idle_us``: a partition that is silent for this time does not hold the watermark
    back."""

    column: str
    out_of_order_us: int = 0
    idle_us: int | None = None


@dataclass(frozen=True)
class FilterRows:
    predicate: Expression


@dataclass(frozen=True)
class ProjectColumns:
    """``columns``: output name and expression."""

    columns: tuple[tuple[str, Expression], ...]


@dataclass(frozen=True)
class ExplodeRows:
    """A row for each element of the lists in a column. ``keep_empty``: one with null for none."""

    column: str
    keep_empty: bool = False


@dataclass(frozen=True)
class CallPerRow:
    """A Python function of one row. ``row_type``: the class that it gets, and so its projection; None: all columns."""

    kind: Literal["map", "flat_map", "filter"]
    function: Callable[..., Any]
    row_type: type[Record] | None
    wants_ctx: bool
    catch: bool = False
    waiting: Waiting | None = None
    """Set for an asynchronous function."""

    @property
    def waits(self) -> bool:
        """Whether it may wait for external services."""
        return self.wants_ctx or self.waiting is not None


@dataclass(frozen=True)
class CallPerBatch:
    """A Python function of batches, which it gets as ``kind`` of frame. ``gathered``: how many rows it gets at once,
    and for how many microseconds fewer rows may wait for others; None: it gets batches as they come."""

    function: Callable[..., Any]
    wants_ctx: bool
    kind: TabularKind = TabularKind.BATCH
    gathered: tuple[int, int] | None = None


@dataclass(frozen=True)
class CallPerWindow:
    """A Python function of all rows of a key and window, which it gets with the columns ``given`` as ``kind`` of
    frame."""

    keys: tuple[str, ...]
    window: Bounded | Session
    function: Callable[..., Any]
    given: pa.Schema
    time_column: str
    wants_ctx: bool
    kind: TabularKind = TabularKind.BATCH


@dataclass(frozen=True)
class Unite:
    """All rows of all inputs."""


@dataclass(frozen=True)
class Spread:
    """Sends rows in turn to all instances of the next operator."""


@dataclass(frozen=True)
class GatherRows:
    """All rows in one task, before they are broadcast to all tasks of the next operator."""


@dataclass(frozen=True)
class LoopHead:
    """The start of a loop (E11): takes the rows of its input, and those of ``tail``, which feeds back to it. None: the
    loop is still being written. The tail is not an input, so the graph has no cycle."""

    tail: Port | None = None


@dataclass(frozen=True)
class AggregateWindows:
    """Port 0: one row per key and window. Port 1: late rows, if ``late``. ``combined``: input of partial results."""

    keys: tuple[str, ...]
    window: Window
    aggregates: tuple[Aggregate, ...]
    time_column: str | None
    lateness_us: int = 0
    late: bool = False
    combined: bool = False


@dataclass(frozen=True)
class AggregateTable:
    """An updating result per key. ``weighted``: of the rows of another table; ``table_keys``: the columns that identify
    these, if it has to know. ``combined``: the input is partial results.

    ``retract_when_changed``: the columns that decide the place of a row in the table that reads these deltas; a change
    of another column need not retract the earlier row. None: every change retracts it. ``kind``: the column for the
    kind of a change."""

    keys: tuple[str, ...]
    aggregates: tuple[Aggregate, ...]
    mode: TableMode
    weighted: bool = False
    combined: bool = False
    retract_when_changed: tuple[str, ...] | None = None
    kind: str | None = None
    table_keys: tuple[str, ...] = ()
    ttl_us: int | None = None
    """How long a key stays in the table without another row. One of the aggregates is then ``NEWEST``."""


@dataclass(frozen=True)
class AggregateWindowTable:
    """An updating result per key and window, or per key if ``window`` is None. ``emit``: when changes are emitted.
    ``retract_when_changed`` and ``kind`` as for ``AggregateTable``."""

    keys: tuple[str, ...]
    window: Bounded | Session | None
    aggregates: tuple[Aggregate, ...]
    time_column: str | None
    lateness_us: int
    emit: Emit
    mode: TableMode = "changes"
    retract_when_changed: tuple[str, ...] | None = None
    kind: str | None = None


@dataclass(frozen=True)
class TopTable:
    """The current first ``n`` rows per key. ``rank``: the column for a row's place. ``table_keys``: the columns that
    identify a row of the table whose deltas it reads; None if it reads rows that do not change. Without an ``order``
    these are the keys: the only row of each is the last one.
    ``retract_when_changed`` and ``kind`` as for an aggregate. ``ttl_us``: how long a row stays in the table after its
    ``time_column``."""

    keys: tuple[str, ...]
    n: int
    order: tuple[SortKey, ...]
    mode: TableMode
    rank: str | None = None
    table_keys: tuple[str, ...] | None = None
    retract_when_changed: tuple[str, ...] | None = None
    kind: str | None = None
    ttl_us: int | None = None
    time_column: str | None = None


@dataclass(frozen=True)
class TopWindows:
    """The first ``n`` rows per key and window, in event time."""

    keys: tuple[str, ...]
    window: Tumbling | Hopping
    n: int
    order: tuple[SortKey, ...]
    time_column: str
    rank: str | None = None


@dataclass(frozen=True)
class AggregateCounted:
    """One row per key and count window."""

    keys: tuple[str, ...]
    window: Counted
    aggregates: tuple[Aggregate, ...]


@dataclass(frozen=True)
class AggregateOver:
    """Each row, with the aggregates of the last rows of its key."""

    keys: tuple[str, ...]
    last: Last
    aggregates: tuple[Aggregate, ...]
    time_column: str

    @property
    def made(self) -> tuple[str, ...]:
        """The columns of the output that are not those of the row."""
        return tuple(aggregate.name for aggregate in self.aggregates)


@dataclass(frozen=True)
class TopCounted:
    """The first ``n`` rows per key and count window."""

    keys: tuple[str, ...]
    window: Counted
    n: int
    order: tuple[SortKey, ...]
    rank: str | None = None


@dataclass(frozen=True)
class LimitRows:
    """The first ``n`` rows."""

    n: int


@dataclass(frozen=True)
class SortRows:
    """Rows in the order of event time; by key, or all in one task. ``pass_late``: late rows go on at once."""

    keys: tuple[str, ...]
    time_column: str
    pass_late: bool = False


@dataclass(frozen=True)
class ReduceRows:
    """Each row with the aggregates of the rows of its key so far, in columns that are added or replaced."""

    keys: tuple[str, ...]
    aggregates: tuple[Aggregate, ...]


@dataclass(frozen=True)
class DistinctRows:
    """Rows whose keys did not occur before, or not in the last ``ttl_us`` of event time."""

    keys: tuple[str, ...]
    ttl_us: int | None = None
    time_column: str | None = None


@dataclass(frozen=True)
class JoinWindows:
    """``columns``: output name, side, input name. The bounds of the window may be further fields of the output. For
    sessions the keys of both sides have equal types."""

    left_keys: tuple[str, ...]
    right_keys: tuple[str, ...]
    window: Tumbling | Hopping | Session
    left_time: str | None
    right_time: str | None
    columns: JoinColumns
    how: JoinType = JoinType.INNER


@dataclass(frozen=True)
class JoinHistory:
    """``bounds``: by how much the right row may be later than the left row; None for any distance."""

    left_keys: tuple[str, ...]
    right_keys: tuple[str, ...]
    left_time: str | None
    right_time: str | None
    columns: JoinColumns
    bounds: Bounds | None = None
    how: JoinType = JoinType.INNER
    first: FirstOf | None = None
    """Set if the reader of the pairs needs only the first ones of each key."""


@dataclass(frozen=True)
class JoinVersions:
    """``oldest_us``: by how much the right row may be older than the left row at most."""

    left_keys: tuple[str, ...]
    right_keys: tuple[str, ...]
    left_time: str
    right_time: str
    columns: JoinColumns
    oldest_us: int | None = None
    how: JoinType = JoinType.INNER


@dataclass(frozen=True)
class JoinDeltas:
    """A join of deltas. ``sides``: by side, the columns that identify a row. ``weight``: their column for the weight.
    ``mode``: as of a table."""

    left_keys: tuple[str, ...]
    right_keys: tuple[str, ...]
    sides: tuple[tuple[str, ...], tuple[str, ...]]
    columns: JoinColumns
    how: JoinType = JoinType.INNER
    mode: TableMode = "deltas"
    weight: str = DELTA_WEIGHT


@dataclass(frozen=True)
class JoinTable:
    """A join of the rows of a stream with the rows that a table has when they come. The right input has the deltas that
    ``MergeDeltas`` makes. ``side``: the columns that identify a row of the table."""

    left_keys: tuple[str, ...]
    right_keys: tuple[str, ...]
    side: tuple[str, ...]
    columns: JoinColumns
    how: JoinType = JoinType.INNER
    load_first: bool = False


@dataclass(frozen=True)
class ShowChanges:
    """Makes changes from the deltas of a table whose rows are identified by ``keys``. ``kind``: the column for the kind
    of a change; None: each row replaces the one before."""

    keys: tuple[str, ...]
    kind: str | None = None


@dataclass(frozen=True)
class MergeDeltas:
    """Leaves out the deltas of a table, whose rows are identified by ``keys``, that delete a row which another one
    replaces; not if one of ``moves`` changes."""

    keys: tuple[str, ...]
    moves: tuple[str, ...]


@dataclass(frozen=True)
class EnrichRows:
    """A join with a bounded side input. ``columns``: output name, side (1 for the side input), input name."""

    definition: SourceDefinition
    keys: tuple[str, ...]
    side_keys: tuple[str, ...]
    columns: JoinColumns
    how: JoinType = JoinType.INNER


@dataclass(frozen=True)
class LookUpRows:
    """A join with the answers of an asynchronous function of the keys. ``answers``: its columns. ``columns``: output
    name, side (1 for the answer), name there. Port 1: dead letters, if ``catch``."""

    keys: tuple[str, ...]
    function: Callable[..., Any]
    wants_ctx: bool
    answers: pa.Schema
    columns: JoinColumns
    options: LookUpOptions
    how: JoinType = JoinType.INNER
    catch: bool = False


@dataclass(frozen=True)
class RunProcess:
    """One port for each of ``outputs``, and one after them for dead letters, if ``catch``. ``process``: a class, or an
    object of one. ``inputs``: one or two."""

    process: Any
    inputs: tuple[ProcessInput, ...]
    outputs: tuple[type[Record], ...]
    in_order: bool
    catch: bool = False

    @property
    def name(self) -> str:
        """The name of the class."""
        return str(self.declared.__name__)

    @property
    def declared(self) -> Any:
        """The class, which declares state and timers."""
        return self.process if isinstance(self.process, type) else type(self.process)


Work = (
    ReadSource | WriteSink | AssignEventTimes | FilterRows | ProjectColumns | ExplodeRows | EnrichRows
    | CallPerRow | CallPerBatch | CallPerWindow | Unite | Spread | GatherRows | LoopHead
    | AggregateWindows | AggregateCounted | AggregateOver | AggregateTable | AggregateWindowTable | TopTable
    | TopWindows | TopCounted | LimitRows | SortRows | ReduceRows | DistinctRows | JoinWindows | JoinHistory
    | JoinVersions | JoinTable | JoinDeltas | ShowChanges | MergeDeltas | LookUpRows | RunProcess
)  # fmt: skip
JOINING = JoinWindows | JoinHistory | JoinVersions | JoinTable
AGGREGATING = AggregateWindows | AggregateCounted | AggregateOver | AggregateTable | AggregateWindowTable
GROUPING = AGGREGATING | TopTable | TopWindows | TopCounted | CallPerWindow
"""Work that emits frames independently of how its input was cut."""
STATEFUL = GROUPING | LimitRows | SortRows | ReduceRows | DistinctRows | JOINING | JoinDeltas | LookUpRows | RunProcess
"""Work that keeps state. Sources and sinks keep state, too, but are named after what they connect to."""


@dataclass(frozen=True)
class EventTimeColumn:
    """The column that carries a stream's event time. The rows of a window that ends at ``window_end`` belong to the
    last microsecond before it, so their ``offset_us`` is -1."""

    name: str
    offset_us: int = 0


@dataclass(frozen=True)
class Node:
    """One verb. ``name``: its stable name; empty until names are resolved, then by default made from ``stem``.
    ``where``: the line that wrote it. ``schemas``, ``records``, ``times``: by output port. ``reads``: by side, the
    columns that it needs; set by the planner. ``parallelism``: the number of tasks that it asks for; None: any.
    ``resources``: what each of its tasks needs for it.
    ``filtered``: conditions of filters behind it that the planner moved before it."""

    id: int
    verb: str
    work: Work
    inputs: tuple[Port, ...]
    schemas: tuple[pa.Schema, ...]
    where: str = ""
    name: str = ""
    records: tuple[type[Record] | None, ...] = ()
    times: tuple[EventTimeColumn | None, ...] = ()
    stem: str = ""
    reads: tuple[tuple[str, ...], ...] = ()
    parallelism: int | None = None
    resources: Resources = NO_RESOURCES
    filtered: tuple[str, ...] = ()

    def exchange(self, side: int) -> tuple[str, ...] | None:
        """The columns by which rows of a side must be brought together; () for all on one instance, None for none."""
        match self.work:
            case LimitRows():
                return ()
            case SortRows() | ReduceRows() | DistinctRows() | LookUpRows():
                return self.work.keys
            case _ if isinstance(self.work, GROUPING):
                return self.work.keys
            case RunProcess():
                return self.work.inputs[side].keys
            case _ if isinstance(self.work, JOINING | JoinDeltas):
                return self.work.right_keys if side else self.work.left_keys
            case _:
                return None

    def broadcasts(self, side: int) -> bool:
        """Whether each of its tasks gets all rows of a side."""
        return isinstance(self.work, RunProcess) and self.work.inputs[side].broadcast

    @property
    def stateful(self) -> bool:
        return isinstance(self.work, STATEFUL)

    def untimed(self, side: int) -> bool:
        """Whether rows of a side are used as they come, whatever their time: that side holds no watermark back."""
        return isinstance(self.work, JoinTable) and side == 1

    @property
    def tail(self) -> Port | None:
        """The stream that feeds back to the head of a loop."""
        return self.work.tail if isinstance(self.work, LoopHead) else None

    @property
    def read(self) -> tuple[Port, ...]:
        """All ports that it reads: its inputs and, for the head of a loop, the tail."""
        return self.inputs if self.tail is None else (*self.inputs, self.tail)

    def redirected(self, old: Port, new: Port) -> Node:
        """The node with ``new`` in the place of ``old`` among the ports that it reads."""
        work = replace(self.work, tail=new) if isinstance(self.work, LoopHead) and self.work.tail == old else self.work
        return replace(self, work=work, inputs=tuple(new if port == old else port for port in self.inputs))


@dataclass(frozen=True)
class LogicalGraph:
    """The nodes of a job in topological order, with names resolved. ``notes``: messages to users about the rewrites."""

    job: str
    nodes: tuple[Node, ...]
    notes: tuple[str, ...] = ()
    by_id: Mapping[int, Node] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_id", {node.id: node for node in self.nodes})

    def consumers(self) -> dict[Port, list[tuple[Node, int]]]:
        """By port: its readers with their side; the head of a loop reads the tail, on the side after its inputs."""
        found: dict[Port, list[tuple[Node, int]]] = {
            Port(n.id, p): [] for n in self.nodes for p in range(len(n.schemas))
        }
        for node in self.nodes:
            for side, port in enumerate(node.read):
                found[port].append((node, side))
        return found

    def schema(self, port: Port) -> pa.Schema:
        return self.by_id[port.node].schemas[port.port]

    def rebuilt(self, nodes: Mapping[int, Node], *notes: str) -> LogicalGraph:
        """The graph of other nodes, sorted into topological order."""
        return LogicalGraph(self.job, tuple(topological(nodes)), (*self.notes, *notes))

    def checked(self) -> LogicalGraph:
        """The graph itself if it is valid. Raises GraphError naming the node at fault."""
        list(topological(self.by_id))
        for port, readers in self.consumers().items():
            node = self.by_id[port.node]
            if isinstance(node.work, RunProcess) and 1 < len(node.work.outputs) > port.port and not readers:
                lost, every = node.work.outputs[port.port].__name__, ", ".join(o.__name__ for o in node.work.outputs)
                raise GraphError(
                    f"{node.where}: {node.name}: its {lost} rows have no consumer; take all by .split({every})"
                )
        if not any(isinstance(node.work, WriteSink) for node in self.nodes):
            raise GraphError(f"job {self.job!r} has no sink: it would have no output; end a stream with .sink(...)")
        return self

    def without_dead_ends(self) -> LogicalGraph:
        """The graph without nodes that do not lead to a sink."""
        alive = leading_to([node.id for node in self.nodes if isinstance(node.work, WriteSink)], self.by_id)
        dead = [node.name for node in self.nodes if node.id not in alive]
        notes = [f"left out, as no sink is behind it: {', '.join(dead)}"] if dead else []
        return self.rebuilt({node.id: node for node in self.nodes if node.id in alive}, *notes)


def leading_to(ends: Iterable[int], nodes: Mapping[int, Node]) -> set[int]:
    """The ids of ``ends`` and of all nodes upstream of them."""
    found: set[int] = set()
    left = list(ends)
    while left:
        number = left.pop()
        if number not in found:
            found.add(number)
            left += [port.node for port in nodes[number].read]
    return found


def topological(nodes: Mapping[int, Node]) -> Iterator[Node]:
    """The nodes, each after its inputs, otherwise in the order of their ids. Raises GraphError that shows a cycle."""
    done: set[int] = set()

    def visit(node: Node, path: tuple[int, ...]) -> Iterator[Node]:
        if node.id in path:
            names = " -> ".join(nodes[n].name for n in (*path[path.index(node.id) :], node.id))
            raise GraphError(f"{node.where}: cycle: {names}; a stream cannot be its own input")
        if node.id in done:
            return
        for port in node.inputs:
            if port.node not in nodes:
                raise GraphError(f"{node.where}: {node.name} reads a stream that is not in this job")
            yield from visit(nodes[port.node], (*path, node.id))
        done.add(node.id)
        yield node

    for key in sorted(nodes):
        yield from visit(nodes[key], ())


def renamed(node: Node, name: str) -> Node:
    return replace(node, name=name)
