"""Loops in generated jobs: rows go round some vertices as often as dice say, and leave them once (E11).

A loop leads from the last vertex of a chain back to its first, and out of it from the last one only; rows may enter it
anywhere. So each row still reaches each sink behind it once, over the path that it would have taken without the loop,
and what it has been through meanwhile is that chain again and again.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

from clonos_py.model.plan import Partitioning
from clonos_py.runtime.sim.steps import StepKind
from clonos_py.runtime.sim.topology import InputEdge, SimulatedVertex, Topology


def with_loop(random_: random.Random, topology: Topology) -> Topology:
    """The job with one of its possible loops. Inner vertices are always there, and each can be one by itself."""
    body = random_.choice(list(_bodies(topology)))
    head, tail = body[0], body[-1]
    nodes = list(topology.nodes)
    choices = [Partitioning.HASH, Partitioning.REBALANCE]
    if nodes[head].parallelism == nodes[tail].parallelism:
        choices.append(Partitioning.FORWARD)
    frame_rows = random_.choice([1, 2, 4])
    back = InputEdge(tail, random_.choice(choices), frame_rows, random_.choice([0, frame_rows, 4 * frame_rows]))
    nodes[head] = replace(nodes[head], feedback=back)
    nodes[tail] = replace(nodes[tail], steps=(*nodes[tail].steps, StepKind.ROUTE))
    if back.partitioning is not Partitioning.HASH:
        nodes[head] = replace(nodes[head], steps=tuple(_unranked(step) for step in nodes[head].steps))
    return replace(topology, nodes=tuple(nodes))


def without_loops(nodes: Sequence[SimulatedVertex]) -> tuple[SimulatedVertex, ...]:
    """The same vertices without what makes loops of them."""
    steps = [tuple(step for step in node.steps if step is not StepKind.ROUTE) for node in nodes]
    return tuple(replace(node, feedback=None, steps=own) for node, own in zip(nodes, steps, strict=True))


def _unranked(step: StepKind) -> StepKind:
    """Who counts by key needs all rows of a key."""
    return StepKind.COUNT if step is StepKind.RANK else step


def _bodies(topology: Topology) -> Iterator[tuple[int, ...]]:
    """The chains of vertices that rows may go round: all but the last feed nothing but the next."""
    for number, node in enumerate(topology.nodes):
        body: tuple[int, ...] = (number,) if node.feeds else ()
        while body:
            yield body
            body = _longer(topology, body)


def _longer(topology: Topology, body: tuple[int, ...]) -> tuple[int, ...]:
    last = body[-1]
    fed = [n for n, node in enumerate(topology.nodes) for feed in node.feeds if feed.source == last]
    return (*body, fed[0]) if len(fed) == 1 and not topology.nodes[last].tapped else ()
