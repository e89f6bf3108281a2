"""Shrinks a failing scenario while it still fails: fewer faults, fewer and simpler tasks, fewer rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from clonos_py.model.plan import Partitioning
from clonos_py.runtime.sim.cyclic import without_loops
from clonos_py.runtime.sim.generator import Scenario
from clonos_py.runtime.sim.scenario import ScenarioResult, run_scenario
from clonos_py.runtime.sim.steps import StepKind
from clonos_py.runtime.sim.topology import SimulatedVertex, Topology

RUNS_MAX = 200


def shrink(failed: ScenarioResult, runs_max: int = RUNS_MAX) -> ScenarioResult:
    """The smallest failing run found by a greedy search. A smaller scenario has other timings, so two seeds of it are
    tried."""
    smallest, left, at = failed, runs_max, 0
    last_change = -1
    while left > 0:
        candidates = [c for c in _smaller(smallest.scenario) if c != smallest.scenario]
        if not candidates or at == last_change:
            break
        at %= len(candidates)
        last_change = at if last_change < 0 else last_change % len(candidates)
        candidate = candidates[at]
        for scenario in (candidate, replace(candidate, seed=candidate.seed + 1)):
            left -= 1
            result = run_scenario(scenario)
            if result.problems:
                smallest, last_change = result, -1
                break
        else:
            at = (at + 1) % len(candidates)
    return smallest


def _smaller(scenario: Scenario) -> Iterator[Scenario]:
    faults = scenario.faults
    for number in range(len(faults)):
        yield replace(scenario, faults=faults[:number] + faults[number + 1 :])
    for topology in _smaller_topologies(scenario.topology):
        yield replace(scenario, topology=topology)
    if scenario.conditions.slowness:
        yield replace(scenario, conditions=replace(scenario.conditions, slowness=()))
    if scenario.conditions.standbys_per_process > 1:
        yield replace(scenario, conditions=replace(scenario.conditions, standbys_per_process=1))
    if scenario.conditions.cuts_early:
        yield replace(scenario, conditions=replace(scenario.conditions, cuts_early=False))
    for number, fault in enumerate(faults):
        if fault.after:
            sooner = replace(fault, after=fault.after // 2)
            yield replace(scenario, faults=(*faults[:number], sooner, *faults[number + 1 :]))


def _smaller_topologies(topology: Topology) -> Iterator[Topology]:
    nodes = topology.nodes
    if any(node.parallelism > 1 for node in nodes):
        yield replace(topology, nodes=tuple(replace(node, parallelism=1) for node in nodes))
        yield replace(topology, nodes=tuple(replace(node, parallelism=min(node.parallelism, 2)) for node in nodes))
    if (acyclic := without_loops(nodes)) != nodes:
        yield replace(topology, nodes=acyclic)
    for number in reversed(range(len(nodes))):
        if (without := _without(nodes, number)) is not None:
            yield replace(topology, nodes=without)
    for number, node in enumerate(nodes):
        for simpler in _simpler(node):
            yield replace(topology, nodes=(*nodes[:number], simpler, *nodes[number + 1 :]))


def _without(nodes: tuple[SimulatedVertex, ...], gone: int) -> tuple[SimulatedVertex, ...] | None:
    """The graph without a node: its first input feeds the nodes that it fed. None if that leaves no valid job."""
    node = nodes[gone]
    if node.feedback is not None or StepKind.ROUTE in node.steps:
        return None
    feeds_others = any(feed.source == gone for other in nodes for feed in other.feeds)
    if feeds_others and not node.feeds:
        return None
    left = []
    for number, other in enumerate(nodes):
        if number != gone:
            sources = [node.feeds[0].source if f.source == gone else f.source for f in other.feeds]
            if len(set(sources)) < len(sources):
                return None
            feeds = [
                replace(
                    feed, source=source - (source > gone), partitioning=_still(feed.partitioning, source, feed.source)
                )
                for feed, source in zip(other.feeds, sources, strict=True)
            ]
            back = other.feedback and replace(
                other.feedback, source=other.feedback.source - (other.feedback.source > gone)
            )
            left.append(replace(other, feeds=tuple(feeds), feedback=back))
    fed = {feed.source for other in left for feed in other.feeds}
    lone_source = any(not other.feeds and number not in fed for number, other in enumerate(left))
    return None if lone_source or len(left) < 2 else tuple(left)


def _still(partitioning: Partitioning, source: int, before: int) -> Partitioning:
    """The partitioning of an edge whose sender may have changed: FORWARD needs equal parallelism."""
    changed = source != before and partitioning is Partitioning.FORWARD
    return Partitioning.REBALANCE if changed else partitioning


def _simpler(node: SimulatedVertex) -> Iterator[SimulatedVertex]:
    if node.volume is not None and node.volume.rows > 2:
        yield replace(node, volume=replace(node.volume, rows=node.volume.rows // 2))
    if node.volume is not None and node.volume.burst > 1:
        yield replace(node, volume=replace(node.volume, burst=1))
    if len(node.steps) > 1 and StepKind.ROUTE not in node.steps:
        yield replace(node, steps=node.steps[:1])
    if node.causal:
        yield replace(node, causal=False)
    if node.tapped:
        yield replace(node, tapped=False)
    if node.standbys > 1:
        yield replace(node, standbys=1)
    if any(feed.merge_rows for feed in node.feeds):
        yield replace(node, feeds=tuple(replace(feed, merge_rows=0) for feed in node.feeds))
