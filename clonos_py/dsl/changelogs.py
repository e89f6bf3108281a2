"""Changelog streams, in which a later row replaces an earlier one. Some verbs refuse them: they would count both
rows."""

from __future__ import annotations

from clonos_py.dsl.outputs import OutputPort
from clonos_py.model.errors import GraphError
from clonos_py.plan.logical import (
    AggregateTable,
    AggregateWindowTable,
    AssignEventTimes,
    CallPerBatch,
    CallPerRow,
    EnrichRows,
    FilterRows,
    LoopHead,
    Node,
    ProjectColumns,
    ShowChanges,
    Spread,
    TopTable,
    Unite,
)

_ROW_BY_ROW = (
    AssignEventTimes | FilterRows | ProjectColumns | CallPerRow | CallPerBatch | EnrichRows | Unite | Spread | LoopHead
)
"""Operators whose output is a changelog if their input is one."""


def refuse_changes(*streams: OutputPort, instead: str) -> None:
    """Raises GraphError for a changelog stream without a column for the kind of change. ``instead``: what to write on
    the table itself."""
    for stream in streams:
        if (table := _table_behind(stream)) is not None:
            raise GraphError(
                f"these rows are changes of the table at {table.where} ({table.verb}): a row and the one that replaces "
                f"it would both count; {instead}, use its final rows, .at_end(), or take each change as an event of "
                "its own, .changes(kind='change')"
            )


def _table_behind(stream: OutputPort) -> Node | None:
    """The table whose changes the stream carries; None if it carries none."""
    waiting, seen = [stream.port], set[int]()
    while waiting:
        port = waiting.pop()
        if port.node in seen:
            continue
        seen.add(port.node)
        node = stream.draft.nodes[port.node]
        if isinstance(node.work, AggregateTable | AggregateWindowTable | TopTable):
            if node.work.mode == "changes" and node.work.kind is None:
                return node
        elif isinstance(node.work, ShowChanges):
            if node.work.kind is None:
                return node
        elif isinstance(node.work, _ROW_BY_ROW) and port.port == 0:
            waiting.extend(node.read)
    return None
