"""Which tasks and channels of a changed job correspond to those of the recorded one, by the names of operators (F3)."""

from __future__ import annotations

from clonos_py.model.ids import TaskId
from clonos_py.model.plan import Edge, PhysicalPlan, Vertex

Place = tuple[TaskId, int]
"""A task, and one of its input channels."""


class Correspondence:
    """How two plans correspond."""

    def __init__(self, recorded: PhysicalPlan, changed: PhysicalPlan) -> None:
        self._recorded, self._changed = recorded, changed
        self._leaders = leaders(recorded, changed)
        self._edges = {edge.id: self._recorded_edge(edge) for edge in changed.edges}
        self._inputs = {
            (channel.edge, channel.source, channel.target): (task, number)
            for task, channels in recorded.inputs.items()
            for number, channel in enumerate(channels)
        }

    def leader_of(self, task: TaskId) -> TaskId | None:
        """The recorded task whose events a task of the changed job repeats; None if there is none."""
        vertex = self._leaders.get(task.vertex)
        if vertex is None or task.index >= self._recorded.by_name[vertex].parallelism:
            return None
        return TaskId(vertex, task.index)

    def recorded_input(self, task: TaskId, number: int) -> Place | None:
        """The input channel of the recorded job that an input channel of the changed one corresponds to."""
        channel = self._changed.inputs[task][number]
        edge, sender = self._edges[channel.edge], self._changed.sender(channel)
        if edge is None or self.leader_of(task) is None or self.leader_of(sender) is None:
            return None
        return self._inputs.get((edge.id, channel.source, channel.target))

    def _recorded_edge(self, edge: Edge) -> Edge | None:
        """The edge of the recorded job between the same operators, else one between the same tasks."""
        source, target = self._leaders.get(edge.source), self._leaders.get(edge.target)
        between = [e for e in self._recorded.edges if (e.source, e.target) == (source, target)]
        ends = _ends(self._changed, edge)
        same = [e for e in between if _ends(self._recorded, e) == ends]
        entered = [e for e in between if _ends(self._recorded, e)[2:] == ends[2:]]
        return next(iter([*same, *entered, *between]), None)


def recorded_vertex(plan: PhysicalPlan, operator: str) -> Vertex | None:
    """The vertex with an operator of this name."""
    return next((vertex for vertex in plan.vertices if any(o.name == operator for o in vertex.operators)), None)


def leaders(recorded: PhysicalPlan, changed: PhysicalPlan) -> dict[str, str]:
    """By vertex of the changed job: the vertex of the recorded job whose events it repeats: that with its source, else
    with the first of its operators that is in the recorded job. Vertices without one are left out."""
    sources = {vertex.source.name: vertex.name for vertex in recorded.vertices if vertex.source is not None}
    operators = {o.name: vertex.name for vertex in recorded.vertices for o in vertex.operators}
    found = {}
    for vertex in changed.vertices:
        if vertex.source is not None:
            leader = sources.get(vertex.source.name)
        else:
            leader = next((operators[o.name] for o in vertex.operators if o.name in operators), None)
        if leader is not None:
            found[vertex.name] = leader
    return found


def _ends(plan: PhysicalPlan, edge: Edge) -> tuple[str, int, str, int]:
    """The operators that an edge connects: name and port, name and side."""
    source, target = plan.by_name[edge.source], plan.by_name[edge.target]
    if edge.producer >= 0:
        producer = source.operators[edge.producer].name
    else:
        producer = source.source.name if source.source is not None else ""
    return producer, edge.port, target.operators[edge.consumer].name, edge.side
