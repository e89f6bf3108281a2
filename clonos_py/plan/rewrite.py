"""Rewrites of the logical graph. Each returns a cheaper graph with the same results (D14)."""

from __future__ import annotations

from dataclasses import replace

from clonos_py.model.joins import JoinType
from clonos_py.model.tables import FirstOf
from clonos_py.plan.colocation import Keys, colocated, needs_no_shuffle
from clonos_py.plan.event_time import assigned_at_sources
from clonos_py.plan.lateness import marked
from clonos_py.plan.logical import AggregateTable, AggregateWindows, JoinHistory, LogicalGraph, Node, TopTable
from clonos_py.plan.pruning import prune
from clonos_py.plan.pushdown import push_filters


def rewritten(graph: LogicalGraph) -> LogicalGraph:
    """The graph after all rewrites: removes dead ends, assigns event time at the sources, pushes filters towards them,
    adds partial aggregates before shuffles, limits joins to the pairs needed, prunes columns, adds that of
    watermarks."""
    assigned = assigned_at_sources(graph.checked().without_dead_ends())
    return marked(prune(_first_only(_combined(push_filters(assigned)))))


def _first_only(graph: LogicalGraph) -> LogicalGraph:
    """If only a top-n reads a join, the join makes only pairs that can be among the first n of their batch. Rows of
    joins are wide, and most are not among them."""
    readers = graph.consumers()
    joins: dict[int, Node] = {}
    notes = []
    for node in graph.nodes:
        join = graph.by_id[node.inputs[0].node] if isinstance(node.work, TopTable) else None
        if join is None or not isinstance(join.work, JoinHistory) or join.work.how is not JoinType.INNER:
            continue
        if len(readers[node.inputs[0]]) == 1:
            assert isinstance(node.work, TopTable)
            first = FirstOf(node.work.keys, node.work.n, node.work.order)
            joins[join.id] = replace(join, work=replace(join.work, first=first))
            notes.append(f"{join.name!r} makes only pairs that may be among the first of {node.name!r}")
    return graph.rebuilt({**graph.by_id, **joins}, *notes)


def _combined(graph: LogicalGraph) -> LogicalGraph:
    """Combines rows of a batch before the shuffle if the merging order cannot matter and late rows are not output."""
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
        case AggregateTable(weighted=True, aggregates=aggregates):
            # a retraction and its replacement in one batch stay together
            return all(aggregate.retractable for aggregate in aggregates)
        case AggregateTable(aggregates=aggregates):
            return all(aggregate.mergeable for aggregate in aggregates)
        case _:
            return False


def _early(node: Node) -> Node:
    assert isinstance(node.work, AggregateWindows | AggregateTable)
    return replace(node, work=replace(node.work, combined=True))
