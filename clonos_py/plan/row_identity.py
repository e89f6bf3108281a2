"""The columns by which a job identifies the rows that the changes of a source are about: the keys of its tables and
sinks. A source that sends only some columns of a deleted row has to send these."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from clonos_py.model.tables import CHANGE_COLUMN, WEIGHT_COLUMN
from clonos_py.plan.logical import (
    AssignEventTimes,
    EnrichRows,
    ExplodeRows,
    FilterRows,
    GatherRows,
    LogicalGraph,
    LookUpRows,
    Port,
    ProjectColumns,
    ReadSource,
    Spread,
    TopTable,
    Unite,
    WriteSink,
)

_SAME_COLUMNS = AssignEventTimes | ExplodeRows | FilterRows | GatherRows | Spread | Unite


def row_identities(graph: LogicalGraph) -> dict[int, frozenset[str]]:
    """By source, the node's number: the columns. Empty for a source whose rows are no changes, or become neither a
    table nor rows of a sink with a key."""
    found: dict[int, set[str]] = {node.id: set() for node in graph.nodes if isinstance(node.work, ReadSource)}
    for port, keys, kind in _replacing(graph):
        changes = {source for source, column in _origins(graph, port, kind) if column == CHANGE_COLUMN}
        for key in keys:
            for source, column in _origins(graph, port, key):
                if source in changes:
                    found[source].add(column)
    return {source: frozenset(columns) for source, columns in found.items()}


def _replacing(graph: LogicalGraph) -> Iterator[tuple[Port, Collection[str], str]]:
    """The inputs whose rows replace or delete those of the same key: the keys, and the column that says which."""
    for node in graph.nodes:
        for port in node.inputs:
            names = graph.schema(port).names
            match node.work:
                case TopTable(keys=keys) if WEIGHT_COLUMN in names:
                    yield port, keys, WEIGHT_COLUMN
                case WriteSink(definition=definition) if CHANGE_COLUMN in names:
                    yield port, definition.identifies, CHANGE_COLUMN


def _origins(graph: LogicalGraph, port: Port, column: str) -> Iterator[tuple[int, str]]:
    """The columns of sources, by node and name, from which a column is computed row by row."""
    node = graph.by_id[port.node]
    if column not in graph.schema(port).names:
        return
    match node.work:
        case ReadSource():
            yield node.id, column
        case ProjectColumns(columns=columns):
            for name in dict(columns)[column].inputs():
                yield from _origins(graph, node.inputs[0], name)
        case EnrichRows(columns=joined) | LookUpRows(columns=joined):
            for name, side, of_side in joined:
                if (name, side) == (column, 0):
                    yield from _origins(graph, node.inputs[0], of_side)
        case _ if isinstance(node.work, _SAME_COLUMNS):
            for before in node.inputs:
                yield from _origins(graph, before, column)
