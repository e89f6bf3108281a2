"""Rewrites of the logical graph, each giving a graph with the same results that costs less (D14)."""

from __future__ import annotations

from dataclasses import replace

from clonos_py.model.tables import FirstOf
from clonos_py.plan.colocation import Keys, colocated, needs_no_shuffle
from clonos_py.plan.event_time import assigned_at_sources
from clonos_py.plan.logical import AggregateTable, AggregateWindows, JoinHistory, LogicalGraph, Node, TopTable
from clonos_py.plan.pruning import prune
from clonos_py.plan.pushdown import push_filters


def rewritten(graph: LogicalGraph) -> LogicalGraph:
    """Dead ends left out, event time assigned at the sources, filters moved towards these, partial aggregates before
    shuffles, unwanted pairs not made, columns pruned."""
    assigned = assigned_at_sources(graph.checked().without_dead_ends())
    return prune(_first_only(_combined(push_filters(assigned))))


def _first_only(graph: LogicalGraph) -> LogicalGraph:
    """A join whose pairs only a top-n reads makes no pairs that others of the same batch outdo: rows of joins are wide,
    and most are outdone."""
    readers = graph.consumers()
    joins: dict[int, Node] = {}
    notes = []
    for node in graph.nodes:
        join = graph.by_id[node.inputs[0].node] if isinstance(node.work, TopTable) else None
        if join is not None and isinstance(join.work, JoinHistory) and len(readers[node.inputs[0]]) == 1:
            assert isinstance(node.work, TopTable)
            first = FirstOf(node.work.keys, node.work.n, node.work.order)
            joins[join.id] = replace(join, work=replace(join.work, first=first))
            notes.append(f"{join.name!r} makes only pairs that may be among the first of {node.name!r}")
    return graph.rebuilt({**graph.by_id, **joins}, *notes)


def _combined(graph: LogicalGraph) -> LogicalGraph:
    """Aggregates of a batch are combined before the shuffle where the order of merging cannot matter, unless late rows
    are wanted as they came."""
    known: dict[int, Keys] = {}
    for node in graph.nodes:
        known[node.id] = colocated(node, known)
    combined = {n.id: _early(n) for n in graph.nodes if _mergeable(n) and not needs_no_shuffle(n, known)}
    notes = [f"{node.name!r} is combined per batch before the shuffle" for node in combined.values()]
    return graph.rebuilt({**graph.by_id, **combined}, *notes)


def _mergeable(node: Node) -> bool:
    match node.work:
        case AggregateWindows(late=False, aggregates=aggregates) as work if not work.window.processing_time:
            return all(aggregate.mergeable for aggregate in aggregates)
        case AggregateTable(weighted=True):  # what a batch takes back and gives again must not be told apart on its way
            return True
        case AggregateTable(aggregates=aggregates):
            return all(aggregate.mergeable for aggregate in aggregates)
        case _:
            return False


def _early(node: Node) -> Node:
    assert isinstance(node.work, AggregateWindows | AggregateTable)
    return replace(node, work=replace(node.work, combined=True))
