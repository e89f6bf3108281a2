"""Streams whose rows are changes of a table, where a later row replaces an earlier one: what must not count them as
rows."""

from __future__ import annotations

from clonos_py.dsl.outputs import OutputPort
from clonos_py.model.errors import GraphError
from clonos_py.plan.logical import (
    AggregateTable,
    AssignEventTimes,
    CallPerBatch,
    CallPerRow,
    EnrichRows,
    FilterRows,
    LoopHead,
    Node,
    ProjectColumns,
    Spread,
    TopTable,
    Unite,
)

_ROW_BY_ROW = (
    AssignEventTimes | FilterRows | ProjectColumns | CallPerRow | CallPerBatch | EnrichRows | Unite | Spread | LoopHead
)
"""Work whose rows are of the kind that its input's are."""


def refuse_changes(*streams: OutputPort, instead: str) -> None:
    """Raises GraphError for a stream of changes that do not say of which kind they are. ``instead``: what to write on
    the table itself."""
    for stream in streams:
        if (table := _table_behind(stream)) is not None:
            raise GraphError(
                f"these rows are changes of the table at {table.where} ({table.verb}): a row and the one that replaces "
                f"it would both count; {instead}, use its final rows, .at_end(), or take each change as an event of "
                "its own, .changes(kind='change')"
            )


def _table_behind(stream: OutputPort) -> Node | None:
    """The table whose changes a stream has."""
    waiting, seen = [stream.port], set[int]()
    while waiting:
        port = waiting.pop()
        if port.node in seen:
            continue
        seen.add(port.node)
        node = stream.draft.nodes[port.node]
        if isinstance(node.work, AggregateTable | TopTable):
            if node.work.mode == "changes" and node.work.kind is None:
                return node
        elif isinstance(node.work, _ROW_BY_ROW) and port.port == 0:
            waiting.extend(node.read)
    return None
