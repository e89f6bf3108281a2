"""Operator chaining: an operator that needs no shuffle runs in the task of its producers (D14).

An operator joins the vertex of its producers under these conditions. All producers are in one vertex. Its rows need no
shuffle by key, or are co-located already (``colocation``), and no rebalance lies in between. It does not ask for
another parallelism.

There are three exceptions. The head of a loop begins a vertex: its feedback comes from another task, or from its own
over a channel. A function with ``ctx`` does not join a vertex whose windows feed it: a closing window emits any number
of rows at once, and waiting for a server for each of them would block the whole task (D2). A sink whose rows are
visible at once and replaced by key does not join a vertex that decides these rows, by state or by requests to services.
The log of that vertex has to be in another process than its state, so that the rows are the same when they are computed
again (D16).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from clonos_py.columns.row_watermarks import WATERMARK_COLUMN, has_watermarks
from clonos_py.model.connectors import Delivery
from clonos_py.model.errors import GraphError
from clonos_py.model.plan import Edge, OperatorPlan, Partitioning, Wire
from clonos_py.plan.colocation import Keys, colocated, needs_no_shuffle
from clonos_py.plan.factories import combining, narrowing, operator_plan
from clonos_py.plan.feeds import RequiredColumns, feeds
from clonos_py.plan.lateness import dropping_late
from clonos_py.plan.logical import (
    GROUPING,
    AggregateTable,
    AggregateWindows,
    AssignEventTimes,
    CallPerBatch,
    CallPerRow,
    LogicalGraph,
    LoopHead,
    Node,
    Port,
    ReadSource,
    Spread,
    Unite,
    WriteSink,
    leading_to,
)

SOURCE = -1


@dataclass
class DraftVertex:
    """A vertex under construction. ``origins[i]``: the node whose work operator i does; None if it was inserted."""

    number: int
    parallelism: int
    source: Node | None = None
    operators: list[OperatorPlan] = field(default_factory=list)
    origins: list[Node | None] = field(default_factory=list)
    inputs: list[tuple[pa.Schema, ...]] = field(default_factory=list)
    """By operator: the columns of the rows of each side, before a step of the planner combines them."""
    wires: list[Wire] = field(default_factory=list)

    def append(self, operator: OperatorPlan, origin: Node | None, inputs: Sequence[pa.Schema] = ()) -> int:
        self.operators.append(operator)
        self.origins.append(origin)
        self.inputs.append(tuple(inputs))
        return len(self.operators) - 1

    def schema(self, producer: int, port: int) -> pa.Schema:
        if producer == SOURCE:
            assert self.source is not None
            return self.source.schemas[port]
        return self.operators[producer].schemas[port]

    def behind_windows(self, producer: int) -> bool:
        """Whether the rows of a producer come from windows or tables in this vertex."""
        return any(node is not None and isinstance(node.work, GROUPING) for node in self._leading_to(producer))

    def decides(self, producer: int) -> bool:
        """Whether the rows of a producer depend on more than the rows that this vertex receives: on their order, on how
        they are batched, or on answers to ``ctx``."""
        return any(
            node is None
            or node.stateful
            or isinstance(node.work, CallPerBatch)
            or (isinstance(node.work, CallPerRow) and node.work.waits)
            for node in self._leading_to(producer)
        )

    def _leading_to(self, producer: int) -> Iterator[Node | None]:
        """The origins of a producer and of all operators of this vertex upstream of it."""
        if producer != SOURCE:
            yield self.origins[producer]
            for wire in self.wires:
                if wire.consumer == producer:
                    yield from self._leading_to(wire.producer)


@dataclass(frozen=True)
class Link:
    """An edge under construction, between chains."""

    source: DraftVertex
    producer: int
    port: int
    target: DraftVertex
    consumer: int
    side: int
    partitioning: Partitioning
    keys: tuple[str, ...]
    schema: pa.Schema
    feedback: bool = False
    untimed: bool = False


@dataclass(frozen=True)
class _Place:
    chain: DraftVertex
    operator: int


class DraftVertices:
    """All chains of a graph and the links between them."""

    def __init__(self, graph: LogicalGraph, parallelism: int, chaining: bool = True) -> None:
        """Without ``chaining`` each node begins a vertex, except those that assign event time and those between them
        and their source. Operators that the planner inserts before an edge, to combine rows or drop columns, still stay
        with their producer, since they reduce what is sent."""
        self._graph, self._parallelism, self._chaining = graph, parallelism, chaining
        timed = [node.id for node in graph.nodes if isinstance(node.work, AssignEventTimes)]
        self._at_sources = leading_to(timed, graph.by_id)
        self._places: dict[int, _Place] = {}
        self._colocated: dict[int, Keys] = {}
        self.chains: list[DraftVertex] = []
        self.links: list[Link] = []
        for node in graph.nodes:
            self._colocated[node.id] = colocated(node, self._colocated)
            if isinstance(node.work, ReadSource):
                self._places[node.id] = _Place(self._begin(node.parallelism or parallelism, node), SOURCE)
            elif not isinstance(node.work, Unite | Spread):
                self._place(node)
        for node in graph.nodes:
            if node.tail is not None:
                self._feed_back(node, node.tail)

    def _begin(self, parallelism: int, source: Node | None = None) -> DraftVertex:
        self.chains.append(DraftVertex(len(self.chains), parallelism, source))
        return self.chains[-1]

    def _place(self, node: Node) -> None:
        sides = [list(feeds(self._graph, port, node.reads[side])) for side, port in enumerate(node.inputs)]
        chain = self._shared_chain(node, sides)
        chained = chain is not None
        if isinstance(node.work, AssignEventTimes) and (chain is None or chain.source is None):
            raise GraphError(
                f"{node.where}: {node.name} runs in other tasks than its source, as it or an operator before it has "
                "another parallelism: write with_event_time before that"
            )
        if chain is None:
            chain = self._begin(self._parallelism_of(node, sides))
        ready = [
            [(feed, *self._prepared(node, side, feed, chained)) for feed in found] for side, found in enumerate(sides)
        ]
        first, producer, port = ready[0][0]
        rows = self._places[first.port.node].chain.schema(producer, port)
        inputs = [self._uncombined(node, side, *found[0]) for side, found in enumerate(ready)]
        consumer = chain.append(operator_plan(node, rows), node, inputs)
        self._places[node.id] = _Place(chain, consumer)
        for side, found in enumerate(ready):
            for feed, producer, port in found:
                if chained:
                    chain.wires.append(Wire(producer, port, consumer, side))
                else:
                    self._link(node, feed, producer, port, consumer, side)

    def _uncombined(self, node: Node, side: int, feed: RequiredColumns, producer: int, port: int) -> pa.Schema:
        """The columns of the rows of a side."""
        if isinstance(node.work, AggregateWindows | AggregateTable) and node.work.combined:
            return self._graph.schema(node.inputs[side])
        return self._places[feed.port.node].chain.schema(producer, port)

    def _feed_back(self, head: Node, tail: Port) -> None:
        """Adds the edges that feed back to the head of a loop."""
        for feed in feeds(self._graph, tail, tuple(head.schemas[0].names)):
            producer, port = self._prepared(head, len(head.inputs), replace(feed, exact=True), chained=False)
            self._link(head, feed, producer, port, self._places[head.id].operator, len(head.inputs), feedback=True)

    def _shared_chain(self, node: Node, sides: list[list[RequiredColumns]]) -> DraftVertex | None:
        """The vertex that the operator can join, which holds all its producers; None if there is none."""
        if isinstance(node.work, LoopHead) or not (self._chaining or node.id in self._at_sources):
            return None
        every = [feed for found in sides for feed in found]
        places = [self._places[feed.port.node] for feed in every]
        chain = places[0].chain
        gathers = any(node.exchange(side) is not None for side in range(len(sides)))
        if (gathers and not needs_no_shuffle(node, self._colocated)) or any(feed.spread for feed in every):
            return None
        if any(place.chain is not chain for place in places) or node.parallelism not in (None, chain.parallelism):
            return None
        if _writes_at_once(node) and any(chain.decides(place.operator) for place in places):
            return None
        waits = isinstance(node.work, CallPerRow) and node.work.waits
        return None if waits and any(chain.behind_windows(place.operator) for place in places) else chain

    def _parallelism_of(self, node: Node, sides: list[list[RequiredColumns]]) -> int:
        """The parallelism that the node asks for. If it asks for none: one if all rows must meet; that of the producers
        if no shuffle or rebalance is needed; else that of the job."""
        if node.parallelism is not None:
            return node.parallelism
        if node.exchange(0) == ():
            return 1
        if node.exchange(0) is not None or any(feed.spread for found in sides for feed in found):
            return self._parallelism
        return max(self._places[feed.port.node].chain.parallelism for found in sides for feed in found)

    def _prepared(self, node: Node, side: int, feed: RequiredColumns, chained: bool) -> tuple[int, int]:
        """The producer and port that deliver exactly what is sent to the operator. If needed, operators that drop late
        rows, combine rows or drop columns are inserted behind the feed's own producer."""
        place = self._places[feed.port.node]
        chain, at = place.chain, (place.operator, feed.port.port)
        dropping = dropping_late(self._step_name(f"{node.name}.late"), chain.schema(*at), node, side)
        at = self._inserted(chain, at, dropping)
        rows = chain.schema(*at)
        step = None if chained else combining(self._step_name(f"{node.name}.combine"), rows, node, feed.columns)
        unwanted = has_watermarks(rows) and WATERMARK_COLUMN not in feed.columns
        if step is None and tuple(rows.names) != feed.columns and (feed.exact or unwanted or not chained):
            step = narrowing(self._step_name(f"{node.name}.columns"), rows, feed.columns)
        return self._inserted(chain, at, step)

    def _inserted(self, chain: DraftVertex, at: tuple[int, int], step: OperatorPlan | None) -> tuple[int, int]:
        """The producer and port of ``step``, appended behind another producer and port; these if there is no step."""
        if step is None:
            return at
        operator = chain.append(step, None)
        chain.wires.append(Wire(*at, operator, 0))
        return operator, 0

    def _step_name(self, name: str) -> str:
        taken = {operator.name for chain in self.chains for operator in chain.operators}
        return next(free for n in range(1, len(taken) + 2) if (free := name if n == 1 else f"{name}-{n}") not in taken)

    def _link(
        self,
        node: Node,
        feed: RequiredColumns,
        producer: int,
        port: int,
        consumer: int,
        side: int,
        feedback: bool = False,
    ) -> None:
        source, target = self._places[feed.port.node].chain, self._places[node.id].chain
        keys = None if feedback else node.exchange(side)
        if node.broadcasts(side) and not feedback:
            partitioning = Partitioning.BROADCAST
        elif keys:
            partitioning = Partitioning.HASH
        elif feed.spread or source.parallelism != target.parallelism:
            partitioning = Partitioning.REBALANCE
        else:
            partitioning = Partitioning.FORWARD
        rows = partitioning, keys or (), source.schema(producer, port)
        self.links.append(Link(source, producer, port, target, consumer, side, *rows, feedback, node.untimed(side)))


def _writes_at_once(node: Node) -> bool:
    return isinstance(node.work, WriteSink) and node.work.definition.delivery is Delivery.IDEMPOTENT


def vertex_name(chain: DraftVertex) -> str:
    """The name of a vertex: that of its first stateful operator, else of its source, sink or first operator (P3)."""
    stateful = [operator.name for operator in chain.operators if operator.stateful]
    sinks = [operator.name for operator in chain.operators if operator.sink]
    source = [chain.source.name] if chain.source is not None else []
    return [*stateful, *source, *sinks, chain.operators[0].name if chain.operators else ""][0]


def edge(link: Link, number: int, names: dict[int, str], frame_rows: int, merge_rows: int, adaptive: bool) -> Edge:
    """The finished edge, once vertices have names."""
    source, target = names[link.source.number], names[link.target.number]
    return Edge(
        number, source, link.producer, link.port, target, link.consumer, link.side, link.partitioning, link.keys,
        link.schema, frame_rows, merge_rows, adaptive, link.feedback, link.untimed,
    )  # fmt: skip
