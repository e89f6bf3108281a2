"""How much state there is: by operator, task and key group, and the keys that have most of it.

What an operator or a task has in storage comes from the manifest alone: rows that were replaced or deleted since they
were written count until the operator compacts its chunks. So these columns are ``stored_rows`` and ``stored_bytes``.
``live_rows`` and ``live_bytes`` are counted in the state itself, which is read: only live rows, with the bytes that
they take in memory. Sizes of keys are of live rows, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from clonos_py.columns.row_sizes import row_sizes
from clonos_py.columns.views import Ints, fixed
from clonos_py.model.hidden import is_hidden
from clonos_py.model.snapshots import Manifest, OperatorHandle
from clonos_py.model.state import GROUP_COLUMN
from clonos_py.stored_state.cells import decoded_keys
from clonos_py.stored_state.contents import CELLS_TABLE, OperatorContents, StoredTable

_STORED = [pa.field("stored_rows", pa.int64()), pa.field("stored_bytes", pa.int64())]
_LIVE = [pa.field("live_rows", pa.int64()), pa.field("live_bytes", pa.int64())]
_OF_KEYS = [pa.field("rows", pa.int64()), pa.field("bytes", pa.int64())]


def stored_sizes(manifest: Manifest, by_task: bool = False) -> pa.Table:
    """``operator``, ``kind``, ``tasks`` (or ``task``), ``stored_rows``, ``stored_bytes``: of each operator with
    state."""
    found: dict[tuple[str, str], list[OperatorHandle]] = {}
    for handle in manifest.tasks:
        for name, operator in handle.operators.items():
            found.setdefault((name, str(handle.task) if by_task else ""), []).append(operator)
    rows: list[dict[str, Any]] = []
    for (name, task), handles in found.items():
        chunks = [chunk for handle in handles for table in handle.tables.values() for chunk in table]
        rows.append(
            {
                "operator": name,
                "kind": manifest.kinds.get(name, ""),
                **({"task": task} if by_task else {"tasks": len(handles)}),
                "stored_rows": sum(chunk.rows for chunk in chunks),
                "stored_bytes": sum(chunk.size_bytes for chunk in {chunk.location: chunk for chunk in chunks}.values()),
            }
        )
    of: pa.Field[Any] = pa.field("task", pa.string()) if by_task else pa.field("tasks", pa.int64())
    fields: list[pa.Field[Any]] = [pa.field("operator", pa.string()), pa.field("kind", pa.string()), of, *_STORED]
    return pa.Table.from_pylist(rows, schema=pa.schema(fields))


def with_live_sizes(stored: pa.Table, operators: Iterable[OperatorContents]) -> pa.Table:
    """``stored_sizes`` with ``live_rows`` and ``live_bytes`` of the same operators or tasks."""
    by_task, found = "task" in stored.column_names, Counter[tuple[str, str, str]]()
    for contents in operators:
        for part in contents.tables():
            task = str(part.task) if by_task else ""
            found[contents.name, task, "live_rows"] += part.rows.num_rows
            found[contents.name, task, "live_bytes"] += int(row_sizes(part.rows).sum())
    keys = [(row["operator"], row.get("task", "")) for row in stored.to_pylist()]
    for field in _LIVE:
        stored = stored.append_column(field, pa.array([found[*key, field.name] for key in keys], field.type))
    return stored


def key_group_sizes(operators: Iterable[OperatorContents]) -> pa.Table:
    """``operator``, ``task``, ``key_group``, ``live_rows``, ``live_bytes``: of each key group with live rows."""
    rows: list[dict[str, Any]] = []
    for contents in operators:
        for task, groups, sizes in _grouped(contents):
            counts, totals = np.bincount(groups), np.bincount(groups, sizes)
            rows.extend(
                {"operator": contents.name, "task": task, "key_group": group}
                | {"live_rows": int(counts[group]), "live_bytes": int(totals[group])}
                for group in np.flatnonzero(counts).tolist()
            )
    names = [pa.field("operator", pa.string()), pa.field("task", pa.string())]
    fields: list[pa.Field[Any]] = [*names, pa.field("key_group", pa.int32()), *_LIVE]
    return pa.Table.from_pylist(rows, schema=pa.schema(fields))


def _grouped(contents: OperatorContents) -> Iterator[tuple[str, Ints, Ints]]:
    """By task: the key group and the size of each of its live rows."""
    by_task: dict[str, list[tuple[Ints, Ints]]] = {}
    for stored in contents.tables():
        if GROUP_COLUMN in stored.rows.schema.names:
            groups = fixed(stored.rows.column(GROUP_COLUMN)).astype(np.int64)
            by_task.setdefault(str(stored.task), []).append((groups, row_sizes(stored.rows)))
    for task, parts in by_task.items():
        groups, sizes = (np.concatenate(found) for found in zip(*parts, strict=True))
        yield task, groups, sizes


def key_sizes(contents: OperatorContents) -> pa.Table:
    """The key columns, ``rows`` and ``bytes``: of each key with live rows, in memory, heaviest first. Keys of both
    sides of a join that have the same values are one key, under the names of the left side."""
    import polars as pl

    frames: list[pl.DataFrame] = []
    for stored in contents.tables():
        keys = [name for name in contents.keys(stored.name) if not is_hidden(name)]
        if keys:
            of = _keys(contents, stored, keys) | {"rows": pa.array(np.ones(stored.rows.num_rows, np.int64))}
            table = pa.table({**of, "bytes": pa.array(row_sizes(stored.rows))})
            frame: Any = pl.from_arrow(table)
            names = frames[0].columns[:-2] if frames and len(frames[0].columns) == len(frame.columns) else keys
            frames.append(frame.rename(dict(zip(keys, names, strict=False))))
    if not frames:
        return pa.schema(_OF_KEYS).empty_table()
    whole = pl.concat(frames, how="diagonal_relaxed")
    by = [name for name in whole.columns if name not in ("rows", "bytes")]
    sums = whole.group_by(by, maintain_order=True).agg(pl.col("rows").sum(), pl.col("bytes").sum())
    return sums.sort("bytes", "rows", descending=True, maintain_order=True).to_arrow()


def _keys(contents: OperatorContents, stored: StoredTable, keys: Iterable[str]) -> dict[str, Any]:
    if stored.name == CELLS_TABLE:
        return decoded_keys(contents, stored.rows.column("key"))
    return {name: stored.rows.column(name) for name in keys}
