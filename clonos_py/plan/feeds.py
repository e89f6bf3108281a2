"""The producers of an input, without the unions and rebalances in between, and how their rows are sent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from clonos_py.plan.logical import LogicalGraph, Port, Spread, Unite


@dataclass(frozen=True)
class RequiredColumns:
    """The columns that a port of an operator or source must deliver; if ``exact``, no others. ``spread``: a rebalance
    lies in between."""

    port: Port
    columns: tuple[str, ...]
    spread: bool = False
    exact: bool = False


def feeds(graph: LogicalGraph, port: Port, columns: tuple[str, ...]) -> Iterator[RequiredColumns]:
    """All producers of an input. Branches of a union must have the same columns, so all of them are exact."""
    node = graph.by_id[port.node]
    match node.work:
        case Unite():
            for side, branch in enumerate(node.inputs):
                for feed in feeds(graph, branch, node.reads[side]):
                    yield replace(feed, columns=columns, exact=True)
        case Spread():
            for feed in feeds(graph, node.inputs[0], node.reads[0]):
                yield replace(feed, columns=columns, exact=True, spread=True)
        case _:
            yield RequiredColumns(port, columns)
