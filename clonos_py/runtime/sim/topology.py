"""Generated jobs as plain values: vertices, their steps and edges, and the physical plan made of them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import pyarrow as pa

from clonos_py.model.ids import TaskId
from clonos_py.model.operators import EventTime
from clonos_py.model.plan import Edge, OperatorPlan, Partitioning, PhysicalPlan, SourcePlan, Vertex, Wire
from clonos_py.model.protocols import FootprintPolicy, ProtocolProperties
from clonos_py.model.record_limits import NO_RECORD, RecordLimit
from clonos_py.runtime.sim.histories import (
    HISTORY_ROWS,
    CausalHistorySink,
    HistoryLedger,
    HistorySink,
    Numbering,
    Path,
)
from clonos_py.runtime.sim.origin import RowOrigin, Volume
from clonos_py.runtime.sim.steps import KEEPING, LOOKING_UP, RANKING, STEPS, StepKind
from clonos_py.runtime.sim.table_steps import TABLE_SIDE
from clonos_py.settings.protocols import DEFAULT_PROTOCOL

_TASKS_MAX = 4
"""The most tasks of a vertex after a change of parallelism."""
BACK = 1
"""The port of the step that sends rows back."""
STEPS_MAX = 4
"""The most steps of a vertex. An operator's letter is computed from its vertex and its place in it."""


@dataclass(frozen=True)
class InputEdge:
    """An input of a vertex. ``source``: the number of the vertex that it comes from."""

    source: int
    partitioning: Partitioning
    frame_rows: int
    merge_rows: int


@dataclass(frozen=True)
class SimulatedVertex:
    """One vertex. Without feeds it is a source. If it feeds no other vertex, it has a sink."""

    parallelism: int
    feeds: tuple[InputEdge, ...] = ()
    steps: tuple[StepKind, ...] = ()
    volume: Volume | None = None
    tapped: bool = False
    """Whether it has a sink even if it feeds other vertices."""
    standbys: int = 1
    causal: bool = False
    """Whether its sink is causal: its rows are visible at once."""
    feedback: InputEdge | None = None
    """The feedback edge of a loop's head, from the vertex whose last step sends rows back."""

    @property
    def inputs(self) -> tuple[InputEdge, ...]:
        """Its feeds and its feedback edge."""
        return self.feeds if self.feedback is None else (*self.feeds, self.feedback)


@dataclass(frozen=True)
class Topology:
    """A generated job: nodes in topological order. Every inner node has at least one step, so that paths differ."""

    nodes: tuple[SimulatedVertex, ...]
    sharing_depth: int = -1
    rollback: bool = False
    """Exactly-once without logging: after a failure all tasks roll back."""
    regenerates: bool = False
    """Whether sources without steps restart at a landmark of their log, and regenerate frames before it."""
    landmark_interval_us: int = 50_000
    time_granularity_us: int = 0
    adaptive: bool = False
    """Whether the size of frames and reads adapts to the cost of rows."""
    ahead_us: int | None = None
    """How far the watermark of a source may be ahead of the slowest one; None: any distance."""
    protocol: ProtocolProperties = DEFAULT_PROTOCOL
    standby_feed_us: int = 0
    """How far standbys may be behind; 0: they are not fed."""
    footprints: FootprintPolicy = field(default_factory=FootprintPolicy)
    record: RecordLimit = NO_RECORD
    """How much is kept of determinants (F1); nothing: they are for recovery only."""

    @cached_property
    def fed(self) -> frozenset[int]:
        """The nodes that feed other nodes."""
        return frozenset(feed.source for node in self.nodes for feed in node.feeds)

    def has_sink(self, number: int) -> bool:
        return self.nodes[number].tapped or number not in self.fed

    def name(self, number: int) -> str:
        kind = "step" if self.nodes[number].feeds else "source"
        return f"{kind}{number}" if number in self.fed else f"sink{number}"

    @property
    def rows_of(self) -> dict[int, int]:
        """The number of rows of each source."""
        return {n: node.volume.rows for n, node in enumerate(self.nodes) if node.volume is not None}

    def letters(self, number: int) -> range:
        return range(number * STEPS_MAX, number * STEPS_MAX + len(self.nodes[number].steps))

    @property
    def numbered(self) -> dict[int, Numbering]:
        """The operators that count, by letter."""
        counting = (StepKind.COUNT, *RANKING)
        return {
            letter: Numbering(kind is not StepKind.COUNT, kind is StepKind.PARTS)
            for n, node in enumerate(self.nodes)
            for letter, kind in zip(self.letters(n), node.steps, strict=True)
            if kind in counting
        }

    @cached_property
    def rounds(self) -> dict[int, bytes]:
        """By the letter of the step that sends rows back: the letters of a whole round, with that one last."""
        found = {}
        for head, node in enumerate(self.nodes):
            if node.feedback is not None:
                body, number = [node.feedback.source], node.feedback.source
                while number != head:
                    number = next(n for n in range(number) if n in self._between(head, number))
                    body.insert(0, number)
                letters = bytes(letter for n in body for letter in self.letters(n))
                found[letters[-1]] = letters
        return found

    def _between(self, head: int, number: int) -> set[int]:
        """The nodes that feed ``number`` and are ``head`` or reachable from it."""
        return {f.source for f in self.nodes[number].feeds if f.source == head or self._between(head, f.source)}

    @cached_property
    def paths(self) -> dict[str, set[Path]]:
        """By sink: the paths of rows that make no rounds through loops."""
        leading: list[list[Path]] = []
        for number, node in enumerate(self.nodes):
            own = bytes(self.letters(number))
            before = [path for feed in node.feeds for path in leading[feed.source]] or [(number, b"")]
            leading.append([(source, letters + own) for source, letters in before])
        return {self.name(n): set(leading[n]) for n in range(len(self.nodes)) if self.has_sink(n)}

    def plan(self, ledger: HistoryLedger) -> PhysicalPlan:
        vertices = tuple(self._vertex(number, ledger) for number in range(len(self.nodes)))
        settings = {
            "time_granularity_us": self.time_granularity_us,
            "landmark_interval_us": self.landmark_interval_us,
        }
        edges = tuple(self._edges())
        return PhysicalPlan(
            "sim",
            vertices,
            edges,
            16,
            self.sharing_depth,
            protocol=self.protocol,
            rollback=self.rollback,
            standby_feed_us=self.standby_feed_us,
            footprints=self.footprints,
            record=self.record,
            settings=settings,
        )

    def _vertex(self, number: int, ledger: HistoryLedger) -> Vertex:
        node, name = self.nodes[number], self.name(number)
        source = None
        if node.volume is not None:
            times = EventTime(("id",), out_of_order_us=0, idle_us=node.volume.idle_us, ahead_us=self.ahead_us)
            merge_rows = node.volume.rows if node.volume.burst > 1 else 0
            source = SourcePlan(
                name, partial(RowOrigin, number, node.volume, ledger), (HISTORY_ROWS,), times, merge_rows, self.adaptive
            )
        operators = [
            OperatorPlan(
                f"{name}-{kind.value}-{letter}",
                kind.value,
                partial(STEPS[kind], letter),
                _ports(kind),
                partwise=kind is StepKind.PARTS,
            )
            for letter, kind in zip(self.letters(number), node.steps, strict=True)
        ]
        if self.has_sink(number):
            sink = partial(CausalHistorySink if node.causal else HistorySink, name, ledger)
            operators.append(OperatorPlan(f"{name}-out", "sink", sink, (), sink=True, causal=node.causal))
        first = -1 if source is not None else 0
        wires = tuple(Wire(i, 0, i + 1, 0) for i in range(first, len(operators) - 1))
        regenerates = self.regenerates and source is not None and not operators and not self.protocol.stores_frames
        return Vertex(name, node.parallelism, source, tuple(operators), wires, node.standbys, regenerates)

    def _edges(self) -> Iterator[Edge]:
        inputs = [(n, side, feed) for n, node in enumerate(self.nodes) for side, feed in enumerate(node.inputs)]
        for count, (number, side, feed) in enumerate(inputs):
            node = self.nodes[number]
            feedback, untimed = feed is node.feedback, side == TABLE_SIDE and node.steps[0] in LOOKING_UP
            yield Edge(
                count, self.name(feed.source), len(self.nodes[feed.source].steps) - 1, BACK if feedback else 0,
                self.name(number), 0, side, feed.partitioning, ("key",), HISTORY_ROWS, feed.frame_rows, feed.merge_rows,
                self.adaptive, feedback, untimed,
            )  # fmt: skip

    @property
    def partitions(self) -> dict[TaskId, list[tuple[int, int]]]:
        """By source task: the partitions that it reads and that have rows, as (source number, partition number)."""
        return {
            TaskId(self.name(number), index): [
                (number, partition) for partition in range(index, min(volume.partitions, volume.rows), node.parallelism)
            ]
            for number, node in enumerate(self.nodes)
            if (volume := node.volume) is not None
            for index in range(node.parallelism)
        }

    @property
    def last_ids(self) -> dict[tuple[int, int], int]:
        """By source and partition: the id of the last row."""
        return {
            (number, partition): ids[-1]
            for number, node in enumerate(self.nodes)
            if (volume := node.volume) is not None
            for partition in range(volume.partitions)
            if (ids := volume.ids(number, partition))
        }

    @property
    def tasks(self) -> int:
        return sum(node.parallelism for node in self.nodes)

    @property
    def can_rescale(self) -> bool:
        """Whether a run can go on from its last checkpoint at another parallelism, and the checks can follow it: no
        frames are in flight at that checkpoint, and nothing lies in outputs or in a record that only the same tasks
        continue."""
        coordinated = self.protocol.coordinated and not self.protocol.stores_frames
        if any(_moves_rows_of_keys(node.steps) for node in self.nodes):
            return False
        same_tasks = self.record != NO_RECORD or any(node.causal or node.feedback is not None for node in self.nodes)
        return coordinated and not same_tasks

    def rescaled(self, random_: random.Random) -> Topology:
        """The same job with other numbers of tasks. Those that a FORWARD edge connects stay equal."""
        group = list(range(len(self.nodes)))
        for number, node in enumerate(self.nodes):
            for feed in node.feeds:
                if feed.partitioning is Partitioning.FORWARD:
                    joined = {group[number], group[feed.source]}
                    group = [min(joined) if found in joined else found for found in group]
        tasks = {found: random_.randint(1, _TASKS_MAX) for found in sorted(set(group))}
        nodes = (replace(node, parallelism=tasks[group[number]]) for number, node in enumerate(self.nodes))
        return replace(self, nodes=tuple(nodes))

    def lines(self) -> list[str]:
        """A readable description: one line per vertex."""
        return [self._line(number) for number in range(len(self.nodes))]

    def _line(self, number: int) -> str:
        node = self.nodes[number]
        feeds = ", ".join(f"{self.name(f.source)} ({f.partitioning.value})" for f in node.feeds)
        feeds += f", back from {self.name(node.feedback.source)}" if node.feedback else ""
        feeds += f" ({node.feedback.partitioning.value})" if node.feedback else ""
        what = [f"{node.volume.rows} rows"] if node.volume is not None else [f"from {feeds}"]
        what += [kind.value for kind in node.steps] + (
            [("causal " if node.causal else "") + "sink"] if self.has_sink(number) else []
        )
        return f"{self.name(number)} x {node.parallelism}: {', '.join(what)}"


def _moves_rows_of_keys(steps: Sequence[StepKind]) -> bool:
    """Whether a step with state by key follows one whose rows may change their instance with the parallelism. The
    planner shuffles rows between the two."""
    keeping = [place for place, kind in enumerate(steps) if kind in KEEPING]
    by_key = (*RANKING, StepKind.OVER, StepKind.TTL, StepKind.GROUPS, StepKind.SHOWN)
    return bool(keeping) and any(kind in by_key for kind in steps[keeping[0] :])


def _ports(kind: StepKind) -> tuple[pa.Schema, ...]:
    return (HISTORY_ROWS, HISTORY_ROWS) if kind is StepKind.ROUTE else (HISTORY_ROWS,)
