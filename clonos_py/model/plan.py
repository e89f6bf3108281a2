"""The physical plan: vertices (chains of operators), the edges between them, and how rows are partitioned.

A vertex runs as ``parallelism`` tasks. Its operators are in topological order and connected to each other directly;
only edges connect tasks. Factories are picklable (cloudpickle) and open no connections before ``open``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import Any

import pyarrow as pa

from clonos_py.model.ids import ChannelId, LogId, TaskId
from clonos_py.model.operators import EventTime, Operator, Source
from clonos_py.model.protocols import FootprintPolicy, ProtocolProperties
from clonos_py.model.record_limits import NO_RECORD, RecordLimit
from clonos_py.model.resources import NO_RESOURCES, Resources
from clonos_py.model.state_definitions import StateDefinition


class Partitioning(Enum):
    """Which downstream instance gets a row."""

    FORWARD = "forward"
    """The instance with the same index (equal parallelism)."""
    HASH = "hash"
    """The owner of the key group of the key columns' stable hash."""
    REBALANCE = "rebalance"
    """Each instance in turn gets a whole batch."""
    BROADCAST = "broadcast"
    """Every instance gets every row."""


@dataclass(frozen=True)
class SourcePlan:
    """The source at the head of a vertex. ``schemas[port]``: its rows, after projection.

    ``merge_rows``: reads of several partitions are taken together up to this many rows. ``adaptive``: its rows reach a
    Python function, so reads are as large as the function can process soon. ``commits``: see ``SourceDefinition``."""

    name: str
    factory: Callable[[], Source]
    schemas: tuple[pa.Schema, ...]
    event_time: EventTime
    merge_rows: int = 0
    adaptive: bool = False
    commits: bool = False
    marked: frozenset[int] = frozenset()
    """The ports whose rows get a further column: the watermark that each row finds in its partition."""


@dataclass(frozen=True)
class OperatorPlan:
    """One operator of a vertex. ``schemas[port]``: the rows that it emits; a sink has none. ``counts_as``: the operator
    under whose name it counts and fails, if that is another one."""

    name: str
    verb: str
    factory: Callable[[], Operator]
    schemas: tuple[pa.Schema, ...]
    stateful: bool = False
    sink: bool = False
    causal: bool = False
    """Whether it is a sink whose output holds determinants (D16)."""
    where: str = ""
    """The file and line in which the user wrote it."""
    tables: Mapping[str, pa.Schema] = field(default_factory=dict)
    """The columns of the tables of its snapshots."""
    definition: StateDefinition | None = None
    """What its state means; None if it keeps none that depends on the job."""
    counts_as: str = ""
    partwise: bool = False
    """Whether it can save its state in parts (CEC)."""
    lasting: bool = False
    """Whether nothing but the number of keys bounds its state."""


@dataclass(frozen=True)
class Wire:
    """Inside a vertex: rows of ``port`` of operator ``producer`` (-1: the source) go to ``side`` of ``consumer``."""

    producer: int
    port: int
    consumer: int
    side: int


@dataclass(frozen=True)
class Edge:
    """Between vertices: rows of ``port`` of ``producer`` (-1: the source) in vertex ``source`` go to ``side`` of
    ``consumer`` in vertex ``target``."""

    id: int
    source: str
    producer: int
    port: int
    target: str
    consumer: int
    side: int
    partitioning: Partitioning
    keys: tuple[str, ...]
    schema: pa.Schema
    frame_rows: int = 65_536
    """A frame has at most this many rows (D2)."""
    merge_rows: int = 0
    """Waiting frames may be taken together as one batch of at most this many rows; 0: each is taken by itself."""
    adaptive: bool = False
    """Its rows reach a Python function: frames are as large as it can process soon, up to ``frame_rows``."""
    feedback: bool = False
    """Whether it leads back to the head of a loop (E11)."""
    untimed: bool = False
    """Whether its rows are used as they come: its watermark and its idleness do not count for the task."""


@dataclass(frozen=True)
class Vertex:
    """A chain of operators that runs in one task, named after its state, source, sink or first operator (P3)."""

    name: str
    parallelism: int
    source: SourcePlan | None
    operators: tuple[OperatorPlan, ...]
    wires: tuple[Wire, ...]
    standbys: int = 1
    regenerates: bool = False
    """Whether frames can be made again from the log: a replayable source, and deterministic operators without state or
    side effects."""
    sampled: bool = False
    """Whether the vertex consists of filters and projections only. For these, reading all output once more would be
    expensive, so a rebuilt frame is compared by its size and an eighth of its pages. Frames of other vertices are
    compared in full."""
    resources: Resources = NO_RESOURCES
    """What one of its tasks needs: the sum over its operators."""

    @property
    def members(self) -> list[str]:
        """The names of its source and operators."""
        return [*([self.source.name] if self.source else []), *(operator.name for operator in self.operators)]

    @property
    def commits(self) -> bool:
        """Whether a sink or the source acts when a checkpoint is complete."""
        return any(operator.sink for operator in self.operators) or (self.source is not None and self.source.commits)

    @property
    def causal_sinks(self) -> tuple[str, ...]:
        """The sinks whose output holds determinants; the position of a sink is the number of its output."""
        return tuple(operator.name for operator in self.operators if operator.causal)


@dataclass(frozen=True)
class Loop:
    """A cycle of vertices (E11). Rows enter it at its head, and from other vertices at any member; feedback edges lead
    back to the head."""

    head: str
    members: frozenset[str]
    """Every vertex on a path from the head back to it, the head included."""


@dataclass(frozen=True)
class PhysicalPlan:
    """The plan of a job as it will run. Vertices are in topological order, except for feedback edges; the id of an edge
    is its position in ``edges``."""

    job: str
    vertices: tuple[Vertex, ...]
    edges: tuple[Edge, ...]
    key_groups: int = 128
    sharing_depth: int = -1
    """Hops that determinants travel (D6); -1: the depth of the graph."""
    gaps: bool = False
    """At-most-once: nothing is replayed. Only the determinants of source reads are held, to be skipped."""
    protocol: ProtocolProperties = field(kw_only=True)
    """The checkpoint protocol."""
    rollback: bool = False
    """Exactly-once without determinants: when a task fails, tasks whose state does not fit go back with it (E2)."""
    standby_cpus: float = 0.0
    """The share of a task's processors that its standby needs before it is promoted."""
    standby_feed_us: int = 0
    """How often standbys are fed (E17); 0: they have the last completed checkpoint."""
    footprints: FootprintPolicy = field(default_factory=FootprintPolicy)
    record: RecordLimit = NO_RECORD
    """How much is kept of all determinants in checkpoint storage (F1); nothing: they are kept for recovery only."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    written_settings: Mapping[str, str] = field(default_factory=dict)
    """The settings that were given, or follow from these, as a user would write them."""
    notes: tuple[str, ...] = ()
    """Messages to users about the planner's decisions: columns pruned, filters pushed, operators chained."""
    warnings: tuple[str, ...] = ()
    """Messages to users about what is probably a mistake, each with the remedy."""

    def with_operators(self, change: Callable[[OperatorPlan], OperatorPlan]) -> PhysicalPlan:
        """The plan with each operator changed, all else as it is."""
        vertices = (replace(vertex, operators=tuple(map(change, vertex.operators))) for vertex in self.vertices)
        return replace(self, vertices=tuple(vertices))

    def regenerates(self, vertex: Vertex) -> bool:
        """Whether tasks of a vertex restart at a landmark of their log, and make the frames before it again on
        request."""
        return vertex.regenerates and self.sharing_depth != 0 and not self.gaps

    def feeds(self, task: TaskId) -> bool:
        """Whether a task feeds its standbys. A source that restarts at a landmark needs no feed."""
        vertex = self.by_name[task.vertex]
        possible = self.standby_feed_us > 0 and vertex.standbys > 0
        return possible and not self.regenerates(vertex)

    def saved_in_parts(self, vertex: Vertex) -> int | None:
        """The number of the operator of a vertex whose state is saved in parts; None if there is none. It gets all
        input of the vertex directly: only that comes again in a rebuild."""
        entered = {edge.consumer for edge in self.edges if edge.target == vertex.name}
        if not self.protocol.partwise or vertex.source is not None or len(entered) != 1:
            return None
        (number,) = entered
        inside = (
            any(wire.consumer == number for wire in vertex.wires) or self.loop_of(TaskId(vertex.name, 0)) is not None
        )
        return None if inside or not vertex.operators[number].partwise else number

    def demand(self, task: TaskId, standby: bool = False) -> Resources:
        """What a process of a task needs. A standby needs all but the processors: it holds the state, and a process
        gets its GPUs when it starts or never."""
        resources = self.by_name[task.vertex].resources
        return resources.with_cpus_times(self.standby_cpus) if standby else resources

    @property
    def tasks_by_demand(self) -> list[TaskId]:
        """All tasks, those that need most first: the others fit into what these leave."""
        return sorted(self.tasks, key=lambda task: self.demand(task).scarcest_first)

    @property
    def undemanding(self) -> int:
        """How many tasks need no resources."""
        return sum(not self.demand(task) for task in self.tasks)

    @property
    def stores_logs(self) -> bool:
        """Whether a snapshot holds the determinants of upstream tasks on which it depends. Processes that start from
        such a snapshot report them in a recovery round."""
        return not self.protocol.coordinated and not self.rollback

    @cached_property
    def by_name(self) -> dict[str, Vertex]:
        return {vertex.name: vertex for vertex in self.vertices}

    @cached_property
    def tasks(self) -> tuple[TaskId, ...]:
        return tuple(TaskId(v.name, i) for v in self.vertices for i in range(v.parallelism))

    @cached_property
    def logs(self) -> dict[LogId, TaskId]:
        """By log: the task that writes it."""
        return {task.log_id: task for task in self.tasks}

    @cached_property
    def channels(self) -> tuple[ChannelId, ...]:
        """Every channel of every edge; FORWARD connects instances with equal indexes, others all with all."""
        found = []
        for edge in self.edges:
            for source in range(self.by_name[edge.source].parallelism):
                for target in range(self.by_name[edge.target].parallelism):
                    if edge.partitioning is not Partitioning.FORWARD or source == target:
                        found.append(ChannelId(edge.id, source, target))
        return tuple(found)

    def sender(self, channel: ChannelId) -> TaskId:
        return TaskId(self.edges[channel.edge].source, channel.source)

    def receiver(self, channel: ChannelId) -> TaskId:
        return TaskId(self.edges[channel.edge].target, channel.target)

    @cached_property
    def inputs(self) -> dict[TaskId, tuple[ChannelId, ...]]:
        """By task: its input channels; a channel's position is its input index there."""
        return self._by_task(self.receiver)

    @cached_property
    def outputs(self) -> dict[TaskId, tuple[ChannelId, ...]]:
        """By task: its output channels; a channel's position is its output index there."""
        return self._by_task(self.sender)

    def _by_task(self, end: Callable[[ChannelId], TaskId]) -> dict[TaskId, tuple[ChannelId, ...]]:
        """One pass over the channels, since these are as many as pairs of tasks."""
        found: dict[TaskId, list[ChannelId]] = {task: [] for task in self.tasks}
        for channel in self.channels:
            found[end(channel)].append(channel)
        return {task: tuple(channels) for task, channels in found.items()}

    @cached_property
    def hops(self) -> dict[TaskId, dict[TaskId, int]]:
        """By task: every other task downstream of it, with the length of the shortest path."""
        direct: dict[TaskId, set[TaskId]] = {t: {self.receiver(c) for c in self.outputs[t]} for t in self.tasks}
        found: dict[TaskId, dict[TaskId, int]] = {}
        for start in self.tasks:
            reached: dict[TaskId, int] = {}
            front, distance = direct[start], 1
            while front:
                reached.update({t: distance for t in front if t not in reached})
                front = {n for t in front for n in direct[t] if n not in reached}
                distance += 1
            reached.pop(start, None)
            found[start] = reached
        return found

    @cached_property
    def origins(self) -> dict[TaskId, tuple[TaskId, ...]]:
        """By task: itself and every task upstream of it, in the order of ``tasks``."""
        found: dict[TaskId, list[TaskId]] = {task: [] for task in self.tasks}
        for origin in self.tasks:
            for task in (origin, *self.hops[origin]):
                found[task].append(origin)
        return {task: tuple(origins) for task, origins in found.items()}

    @cached_property
    def loops(self) -> tuple[Loop, ...]:
        """The loops of the plan; no two share a member."""
        heads = dict.fromkeys(edge.target for edge in self.edges if edge.feedback)
        return tuple(Loop(head, self._members(head)) for head in heads)

    def loop_of(self, task: TaskId) -> Loop | None:
        """The loop of which a task is a member."""
        return next((loop for loop in self.loops if task.vertex in loop.members), None)

    def _members(self, head: str) -> frozenset[str]:
        """The vertices both downstream and upstream of the head. One pass in topological order finds either set."""
        forward = [edge for edge in self.edges if not edge.feedback]
        order = {vertex.name: place for place, vertex in enumerate(self.vertices)}
        behind, before = {head}, {edge.source for edge in self.edges if edge.feedback and edge.target == head}
        for edge in sorted(forward, key=lambda edge: order[edge.source]):
            behind |= {edge.target} if edge.source in behind else set()
        for edge in sorted(forward, key=lambda edge: -order[edge.target]):
            before |= {edge.source} if edge.target in before else set()
        return frozenset(behind & before)

    @cached_property
    def depth(self) -> int:
        """The longest of the shortest paths between two tasks."""
        return max((d for reached in self.hops.values() for d in reached.values()), default=0)

    @property
    def covered(self) -> int:
        """The sharing depth in hops: how many consecutive failures it covers."""
        return self.depth if self.sharing_depth < 0 else self.sharing_depth

    def shares(self, origin: TaskId, receiver: TaskId) -> bool:
        """Whether the log of ``origin`` is held as far downstream as ``receiver``, counted along the shortest path."""
        hops = self.hops[origin].get(receiver)
        if self.gaps:
            return hops is not None and self.by_name[origin.vertex].source is not None
        return hops is not None and hops <= self.covered

    def logged(self, task: TaskId) -> bool:
        """Whether the log of ``task`` is held anywhere: by a downstream task, or in the task's own causal output."""
        shown = self.sharing_depth != 0 and bool(self.by_name[task.vertex].causal_sinks)
        return shown or any(self.shares(task, receiver) for receiver in self.hops[task])

    @property
    def recorded(self) -> bool:
        """Whether the log of every task is kept in checkpoint storage, also one that ``logged`` denies."""
        return bool(self.record)

    def groups(self, task: TaskId) -> range:
        """The key groups that a task owns: contiguous, and as even as possible between instances."""
        parallelism = self.by_name[task.vertex].parallelism
        low = (task.index * self.key_groups + parallelism - 1) // parallelism
        high = ((task.index + 1) * self.key_groups + parallelism - 1) // parallelism
        return range(low, high)
