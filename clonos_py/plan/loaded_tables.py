"""Notes of joins that wait until their table is loaded, behind sources that have no idle time.

Such a source has to end, and whether it does is known only when it is read."""

from __future__ import annotations

from collections.abc import Iterator

from clonos_py.plan.logical import AssignEventTimes, JoinTable, LogicalGraph, Port, ReadSource


def loaded_tables(graph: LogicalGraph) -> Iterator[str]:
    """One line for each of these joins."""
    for node in graph.nodes:
        if isinstance(node.work, JoinTable) and node.work.load_first:
            names = [graph.by_id[source].name for source in sorted(_without_idle(graph, node.inputs[1]))]
            if names:
                ended = f"{', '.join(names)} {'has' if len(names) == 1 else 'have'} ended"
                yield f"{node.name} holds rows back until {ended}: a source that does not end needs an idle='5s'"


def _without_idle(graph: LogicalGraph, port: Port) -> frozenset[int]:
    """The sources of a stream that are never idle."""
    node = graph.by_id[port.node]
    match node.work:
        case ReadSource(event_time=time):
            return frozenset([node.id] if time.idle_us is None else [])
        case AssignEventTimes(idle_us=int()):
            return frozenset()
    return frozenset[int]().union(*(_without_idle(graph, before) for before in node.inputs))
