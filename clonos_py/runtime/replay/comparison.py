"""Compares a snapshot that a replay takes with the one that was stored (F2).

Compared are sequence numbers, watermarks, timers, counters and checksums (``TaskProgress``), and the state of each
operator, by the checksums of its chunks, so that nothing is read. Not compared is what differs between two runs of the
same events: the time that is left until a timer fires, what a source keeps besides its positions, state that is saved
in parts, and all that belongs to sinks, which a replay does not have. The rows that sinks are given are compared by
their checksums, which are part of the progress.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from clonos_py.checkpoint.chunks import Scratch
from clonos_py.checkpoint.store import SnapshotStore
from clonos_py.columns.compact import compact
from clonos_py.model.plan import PhysicalPlan, Vertex
from clonos_py.model.snapshots import OperatorHandle, StoredChunk, TaskHandle, TaskSnapshot
from clonos_py.model.state import Chunk, OperatorState
from clonos_py.process.contract import TaskProgress
from clonos_py.process.progress import progress_of

_NOT_COMPARED = frozenset({"timers_left_us", "published", "taken", "rebuild_taken", "rebuild"})


def compared(
    plan: PhysicalPlan, snapshot: TaskSnapshot, progress: TaskProgress, stored: TaskHandle, store: SnapshotStore
) -> list[str]:
    """What differs; empty if nothing does. Chunks that are equal get the location of the stored ones."""
    vertex = plan.by_name[snapshot.task.vertex]
    differences = _progress_differences(vertex, progress, progress_of(stored))
    in_parts = plan.saved_in_parts(vertex)
    passed_over = {operator.name for n, operator in enumerate(vertex.operators) if operator.sink or n == in_parts}
    for name in sorted((snapshot.operators.keys() | stored.operators.keys()) - passed_over):
        state, handle = snapshot.operators.get(name), stored.operators.get(name)
        source = vertex.source is not None and vertex.source.name == name
        if state is None or handle is None or not _is_equal(state, handle, source, store):
            differences.append(f"state of {name}")
    return differences


def _progress_differences(vertex: Vertex, replayed: TaskProgress, stored: TaskProgress) -> list[str]:
    sinks = tuple(f"{operator.name}." for operator in vertex.operators if operator.sink)
    one, other = _plain(replayed, sinks), _plain(stored, sinks)
    return [name for name in one if one[name] != other[name]]


def _plain(progress: TaskProgress, sinks: tuple[str, ...]) -> dict[str, Any]:
    fields = {n: value for n, value in msgspec.to_builtins(progress).items() if n not in _NOT_COMPARED}
    fields["counts"] = {n: count for n, count in progress.counts.items() if not n.startswith(sinks or ("\0",))}
    return fields


def _is_equal(state: OperatorState, handle: OperatorHandle, source: bool, store: SnapshotStore) -> bool:
    values = msgspec.msgpack.decode(msgspec.msgpack.encode(dict(state.values)))
    stored = msgspec.msgpack.decode(handle.values)
    if source:
        values.pop("source", None)
        stored.pop("source", None)
    if values != stored and msgspec.msgpack.encode(values) != msgspec.msgpack.encode(stored):  # NaN is not equal
        return False
    names = {*state.tables, *handle.tables}
    return all(_is_table_equal(state.tables.get(name, ()), handle.tables.get(name, ()), store) for name in names)


def _is_table_equal(chunks: Sequence[Chunk], stored: Sequence[StoredChunk], store: SnapshotStore) -> bool:
    if len(chunks) != len(stored):
        return False
    for chunk, other in zip(chunks, stored, strict=True):
        if chunk.location == other.location:
            continue
        if chunk.rows.num_rows != other.rows or not _has_content(chunk, other, store):
            return False
        chunk.location = other.location
    return True


def _has_content(chunk: Chunk, stored: StoredChunk, store: SnapshotStore) -> bool:
    """A store that works in memory has no checksums, and keeps the rows."""
    if not stored.checksum:
        return store.read_chunks([stored])[stored.location].rows.equals(chunk.rows)
    scratch = Scratch()
    _, _, checksum = scratch.add(compact(chunk.rows))
    return checksum == stored.checksum
