"""Predicate pushdown: moves filters before shuffles, joins and windows, so that unwanted rows are not sent.

A filter moves below its input if no other operator reads that input and the result is the same. It moves through
rebalance and union, and through projections of the columns that it reads. It moves below keyed aggregates if it reads
only keys, and to one side of a join if all its columns come from there. A condition that may raise for some rows is not
moved below a join or an aggregate, where it would get rows that it does not get otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from clonos_py.expressions.tree import Column, KernelCall
from clonos_py.expressions.tree import ExpressionNode as Expression
from clonos_py.plan.logical import (
    AggregateCounted,
    AggregateOver,
    AggregateTable,
    AggregateWindows,
    FilterRows,
    JoinDeltas,
    JoinHistory,
    JoinTable,
    JoinVersions,
    JoinWindows,
    LogicalGraph,
    LookUpRows,
    Node,
    Port,
    ProjectColumns,
    Spread,
    Unite,
)


def push_filters(graph: LogicalGraph) -> LogicalGraph:
    """Moves every filter as far as possible."""
    moved: list[str] = []
    while True:
        for node in graph.nodes:
            target = _target(graph, node)
            nodes = None if target is None else _moved(graph, node, target)
            if target is not None and nodes is not None:
                moved.append(f"filter {_base(node.name)!r} moved before {target.name!r}")
                graph = graph.rebuilt(nodes)
                break
        else:
            return graph.rebuilt(graph.by_id, *dict.fromkeys(moved))


def _target(graph: LogicalGraph, node: Node) -> Node | None:
    """The node that a filter reads, if the filter is its only reader and reads its main port. A filter with a
    parallelism or resources of its own is not moved."""
    placed = node.parallelism is not None or bool(node.resources)
    if not isinstance(node.work, FilterRows) or node.inputs[0].port or placed:
        return None
    producer = graph.by_id[node.inputs[0].node]
    readers = [reader for port, found in graph.consumers().items() if port.node == producer.id for reader in found]
    return producer if len(readers) == 1 else None


def _moved(graph: LogicalGraph, node: Node, target: Node) -> dict[int, Node] | None:
    """The nodes with the filter below its target; None if it cannot move there."""
    assert isinstance(node.work, FilterRows)
    predicate = node.work.predicate
    match target.work:
        case Spread() | Unite():
            sides = dict.fromkeys(range(len(target.inputs)), predicate)
            return _inserted(graph, node, target, sides, None)
        case ProjectColumns(columns=columns):
            made = dict(columns)
            if all(isinstance(made[name], Column) for name in predicate.inputs()):
                return _inserted(graph, node, target, {0: predicate.substitute(made)}, None)
        case (
            AggregateWindows(keys=keys, late=False)
            | AggregateCounted(keys=keys)
            | AggregateOver(keys=keys)
            | AggregateTable(keys=keys)
        ) if keys:
            return _split(graph, node, target, {key: (0, key) for key in keys})
        case JoinWindows() | JoinHistory() | JoinDeltas() as work:
            # where rows without a match are in the result, a filter on the other side would make more of them
            sources = {name: (side, column) for name, side, column in work.columns if not work.how.nullable[side]}
            return _split(graph, node, target, sources)
        # a filter on the left side would make more right rows without a match
        case JoinVersions(how=how) if how.nullable[0]:
            return None
        # a filter on the right side would change which version is the newest, and answers are not there before
        case JoinVersions(columns=columns) | JoinTable(columns=columns) | LookUpRows(columns=columns):
            return _split(graph, node, target, {name: (side, column) for name, side, column in columns if not side})
    return None


def _split(
    graph: LogicalGraph, node: Node, target: Node, sources: Mapping[str, tuple[int, str]]
) -> dict[int, Node] | None:
    """Moves those parts of a conjunction that read columns of a single side."""
    assert isinstance(node.work, FilterRows)
    sides: dict[int, Expression] = {}
    left: list[Expression] = []
    schema = graph.schema(node.inputs[0])
    for part in _conjuncts(node.work.predicate):
        origins = [sources.get(name) for name in sorted(part.inputs())]
        if not origins or len({o and o[0] for o in origins}) != 1 or None in origins or part.bind(schema).fallible:
            left.append(part)
            continue
        names: dict[str, Expression] = {name: Column(sources[name][1]) for name in part.inputs()}
        side = sources[min(part.inputs())][0]
        moved = part.substitute(names)
        sides[side] = KernelCall("&", (sides[side], moved)) if side in sides else moved
    return _inserted(graph, node, target, sides, _conjunction(left)) if sides else None


def _inserted(
    graph: LogicalGraph, node: Node, target: Node, sides: Mapping[int, Expression], left: Expression | None
) -> dict[int, Node]:
    """Inserts filters before these inputs of the target. The filter itself keeps what is ``left``, or is removed."""
    nodes = dict(graph.by_id)
    inputs, filtered = list(target.inputs), list(target.filtered)
    for side, predicate in sides.items():
        origin = target.inputs[side]
        upstream = nodes[origin.node]
        fresh = max(nodes) + 1
        nodes[fresh] = replace(
            node,
            id=fresh,
            name=_free(_base(node.name), nodes.values()) if left or len(sides) > 1 else node.name,
            work=FilterRows(predicate),
            inputs=(origin,),
            schemas=(upstream.schemas[origin.port],),
            records=(upstream.records[origin.port],),
            times=(upstream.times[origin.port],),
        )
        inputs[side] = Port(fresh)
        filtered += [f"{part}{' on the right' if side else ''}" for part in _conjuncts(predicate)]
    nodes[target.id] = replace(target, inputs=tuple(inputs), filtered=tuple(filtered))
    if left is not None:
        nodes[node.id] = replace(node, work=FilterRows(left))
        return nodes
    del nodes[node.id]
    return _redirected(nodes, Port(node.id), Port(target.id))


def _redirected(nodes: Mapping[int, Node], old: Port, new: Port) -> dict[int, Node]:
    return {key: node.redirected(old, new) for key, node in nodes.items()}


def _base(name: str) -> str:
    """The user's name of a filter that has been split before."""
    return re.sub(r"\.\d+$", "", name)


def _free(stem: str, nodes: Iterable[Node]) -> str:
    taken = {node.name for node in nodes}
    return next(name for n in range(1, len(taken) + 2) if (name := f"{stem}.{n}") not in taken)


def _conjuncts(predicate: Expression) -> list[Expression]:
    if isinstance(predicate, KernelCall) and predicate.kernel == "&":
        return [part for argument in predicate.arguments for part in _conjuncts(argument)]
    return [predicate]


def _conjunction(parts: list[Expression]) -> Expression | None:
    result: Expression | None = None
    for part in parts:
        result = part if result is None else KernelCall("&", (result, part))
    return result
