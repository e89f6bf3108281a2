"""Loops in generated jobs: rows pass a chain of vertices a random number of times, and leave it once (E11).

A loop leads from the last vertex of a chain back to the first. Rows leave the chain only from the last vertex, and may
enter it anywhere. So each row still reaches each sink behind the loop once, over the path that it would take without
the loop, with additional rounds through the chain.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

from clonos_py.model.plan import Partitioning
from clonos_py.runtime.sim.steps import StepKind
from clonos_py.runtime.sim.topology import InputEdge, SimulatedVertex, Topology


def with_loop(random_: random.Random, topology: Topology) -> Topology:
    """The job with one of its possible loops. Each job has inner vertices, and each of them can be a loop by itself."""
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
    """The same vertices without feedback edges and their routing steps."""
    steps = [tuple(step for step in node.steps if step is not StepKind.ROUTE) for node in nodes]
    return tuple(replace(node, feedback=None, steps=own) for node, own in zip(nodes, steps, strict=True))


def _unranked(step: StepKind) -> StepKind:
    """A step without counts by key, which need all rows of a key in one task."""
    return StepKind.COUNT if step is StepKind.RANK else step


def _bodies(topology: Topology) -> Iterator[tuple[int, ...]]:
    """The chains of vertices that can become loops: each vertex but the last feeds only the next one."""
    for number, node in enumerate(topology.nodes):
        body: tuple[int, ...] = (number,) if node.feeds else ()
        while body:
            yield body
            body = _longer(topology, body)


def _longer(topology: Topology, body: tuple[int, ...]) -> tuple[int, ...]:
    last = body[-1]
    fed = [n for n, node in enumerate(topology.nodes) for feed in node.feeds if feed.source == last]
    return (*body, fed[0]) if len(fed) == 1 and not topology.nodes[last].tapped else ()
