"""Moves the assignment of event time before unions and rebalances, into the tasks of the sources."""

from __future__ import annotations

from dataclasses import replace

from clonos_py.plan.chaining import DraftVertex
from clonos_py.plan.logical import AssignEventTimes, LogicalGraph, Node, Port, Spread, Unite


def assigned_at_sources(graph: LogicalGraph) -> LogicalGraph:
    """Moves every assignment before unions and rebalances: each of their inputs gets its own. Readers of the assignment
    then read a union or rebalance of these."""
    while True:
        for node in graph.nodes:
            if isinstance(node.work, AssignEventTimes):
                before = graph.by_id[node.inputs[0].node]
                if isinstance(before.work, Unite | Spread):
                    graph = graph.rebuilt(_moved(graph, node, before))
                    break
        else:
            return graph


def _moved(graph: LogicalGraph, node: Node, before: Node) -> dict[int, Node]:
    nodes = dict(graph.by_id)
    first = max(nodes) + 1
    several = len(before.inputs) > 1
    for side, port in enumerate(before.inputs):
        upstream = nodes[port.node]
        nodes[first + side] = replace(
            node,
            id=first + side,
            name=f"{node.name}.{side + 1}" if several else node.name,
            inputs=(port,),
            records=(upstream.records[port.port],),
        )
    inputs = tuple(Port(first + side) for side in range(len(before.inputs)))
    name = f"{node.name}.{before.verb}"
    nodes[node.id] = replace(before, id=node.id, name=name, inputs=inputs, times=node.times)
    return nodes


def idle_us(chain: DraftVertex, own_us: int | None) -> int | None:
    """The time after which an idle partition of a chain's source holds no watermark back: the least that is set."""
    works = [origin.work for origin in chain.origins if origin is not None]
    asked = [work.idle_us for work in works if isinstance(work, AssignEventTimes)]
    return min((us for us in (own_us, *asked) if us is not None), default=None)
