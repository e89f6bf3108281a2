"""Exactly-once rows in a Delta table.

The rows between two checkpoints are kept in the checkpoint (``row_committer``), and become one version of the table for
each task. The version names the owner of the rows and the checkpoint (a ``txn`` action), so a commit that is repeated
finds that it was done; of two processes that commit the same rows, the table accepts one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from clonos_py.connectors.extras import need
from clonos_py.connectors.last_changes import last_of_keys
from clonos_py.connectors.local_paths import LocalPath, path_or_objects
from clonos_py.connectors.names import names_of
from clonos_py.connectors.overtaken_commits import commit_again
from clonos_py.connectors.row_committer import CommitId, RowCommitter, TransactionalSink
from clonos_py.model.errors import GraphError, SinkError
from clonos_py.model.operators import Sink
from clonos_py.model.tables import CHANGE_COLUMN, DELETE, UPDATE, without
from clonos_py.model.times import Duration, micros

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable

_CHANGES = "_clonos_change"
_log = logging.getLogger(__name__)


class DeltaSink(TransactionalSink):
    """Writes rows into the Delta table ``table``, a path or a URI such as ``s3://bucket/path``, exactly once. It needs
    the extra ``delta``.

    A table that does not exist is created with the columns of the rows, partitioned by ``partition_by``. Rows are
    appended. With a ``key`` the sink keeps a table of the job instead: of the rows of a key the last one stays, and
    what leaves the table of the job is deleted; rows of other keys stay. Each task commits one version for each
    checkpoint in which it has rows. What is between two checkpoints has to fit into memory.

    ``compact``, such as "1h", is how often small files are put together, by a thread of the first task beside its
    commits. The files before stay until the table is vacuumed.

    Raises GraphError for unknown columns, and for types that Delta does not have; SinkError if the table has no such
    columns, or other types.
    """

    def __init__(
        self,
        table: LocalPath,
        *,
        key: str | Sequence[str] = (),
        partition_by: str | Sequence[str] = (),
        compact: Duration | None = None,
    ) -> None:
        need("DeltaSink", "deltalake", "delta")
        self._table = path_or_objects("DeltaSink", table)
        self._key = names_of(key)
        self._partition_by = names_of(partition_by)
        self._compact_s = None if compact is None else micros(compact) / 1e6
        self.upserts = self.deletes = bool(self._key)
        self.identifies = tuple(self._key)
        self.place = f"table {self._table}"

    def create(self, schema: pa.Schema) -> Sink:
        from deltalake import Schema

        from clonos_py.connectors.delta.tables import reason

        shown = without(schema, CHANGE_COLUMN)
        for option, names in (("key", self._key), ("partition_by", self._partition_by)):
            if unknown := [name for name in names if name not in shown.names]:
                raise GraphError(f"DeltaSink: {option}: no column {unknown[0]!r}; there are {', '.join(shown.names)}")
        for field in shown:
            try:
                Schema.from_arrow(pa.schema([field]))
            except Exception as error:
                raise GraphError(f"DeltaSink: column {field.name!r} is {field.type}: {reason(error)}") from error
        return super().create(schema)

    def open(self, schema: pa.Schema) -> RowCommitter:
        return _DeltaCommitter(self._table, schema, self._key, self._partition_by, self._compact_s)


class _DeltaCommitter(RowCommitter):
    def __init__(
        self, place: str, schema: pa.Schema, key: Sequence[str], partition_by: Sequence[str], compact_s: float | None
    ) -> None:
        self._place, self._key, self._partition_by = place, tuple(key), list(partition_by)
        self._schema = without(schema, CHANGE_COLUMN)
        self._compaction = None if compact_s is None else _Compaction(place, compact_s)

    def commit(self, commit: CommitId, rows: pa.Table) -> None:
        from deltalake.exceptions import CommitFailedError, DeltaError

        from clonos_py.connectors.delta.tables import reason

        try:
            commit_again(
                lambda: self._commit(self._opened(), commit, rows),
                CommitFailedError,
                self._place,
                reason,
                "write fewer versions, with a longer checkpoint_interval, or let fewer writers change the same rows",
            )
        except (DeltaError, OSError, pa.ArrowException) as error:
            raise SinkError(f"{self._place}: cannot be written ({reason(error)})") from error
        if self._compaction is not None and commit.owner.endswith("/0"):
            self._compaction.begin_if_due()

    def close(self) -> None:
        if self._compaction is not None:
            self._compaction.join()

    def _commit(self, table: DeltaTable, commit: CommitId, rows: pa.Table) -> None:
        from deltalake import CommitProperties, Transaction, write_deltalake

        done = table.transaction_version(commit.owner)
        if done is not None and done >= commit.checkpoint:
            return
        self._check(table)
        properties = CommitProperties(app_transactions=[Transaction(commit.owner, commit.checkpoint)])
        if self._key:
            self._merge(table, rows, properties)
        else:
            fills: Literal["merge"] | None = "merge" if len(table.schema().fields) > len(rows.schema) else None
            write_deltalake(table, rows, mode="append", schema_mode=fills, commit_properties=properties)

    def _merge(self, table: DeltaTable, rows: pa.Table, properties: CommitProperties) -> None:
        """Of each key the last row counts. Keys are compared so that null is a value."""
        same = " AND ".join(f'target."{name}" IS NOT DISTINCT FROM source."{name}"' for name in self._key)
        deleted = f"source.{_CHANGES} = '{DELETE}'"
        values = {f'"{name}"': f'source."{name}"' for name in self._schema.names}
        changes = _with_kinds(last_of_keys(rows, self._key))
        (
            table.merge(changes, same, source_alias="source", target_alias="target", commit_properties=properties)
            .when_matched_delete(deleted)
            .when_matched_update(values)
            .when_not_matched_insert(values, f"source.{_CHANGES} != '{DELETE}'")
            .execute()
        )

    def _opened(self) -> DeltaTable:
        """The newest version of the table, which is created if there is none."""
        from deltalake import DeltaTable

        from clonos_py.connectors.delta.tables import opened, options_of

        table = opened(self._place)
        if table is not None:
            return table
        options = options_of(self._place)
        return DeltaTable.create(
            self._place, self._schema, mode="ignore", partition_by=self._partition_by, storage_options=options
        )

    def _check(self, table: DeltaTable) -> None:
        """Raises SinkError if the table cannot hold the rows."""
        from deltalake import Schema

        expected = {field.name: field.type for field in Schema.from_arrow(self._schema).fields}
        found = {field.name: field.type for field in table.schema().fields}
        for name, kind in expected.items():
            if name not in found:
                raise SinkError(
                    f"{self._place} has no column {name!r}; it has {', '.join(found)}: add it to the table, or leave "
                    "it out before the sink"
                )
            if found[name] != kind:
                raise SinkError(
                    f"{self._place}: column {name!r} is {found[name]} in the table and {kind} in the job: cast it "
                    "before the sink, or change the table"
                )
        partitioned = table.metadata().partition_columns
        if self._partition_by and partitioned != self._partition_by:
            raise SinkError(
                f"{self._place} is partitioned by {', '.join(partitioned) or 'nothing'}: omit partition_by, or name "
                "these columns"
            )


class _Compaction:
    """Puts small files together, now and then, in a thread."""

    def __init__(self, place: str, every_s: float) -> None:
        self._place, self._every_s = place, every_s
        self._due_s = time.monotonic() + every_s
        self._thread: threading.Thread | None = None

    def begin_if_due(self) -> None:
        if time.monotonic() >= self._due_s and (self._thread is None or not self._thread.is_alive()):
            self._due_s = time.monotonic() + self._every_s
            self._thread = threading.Thread(target=self._compact, name="delta-compaction", daemon=True)
            self._thread.start()

    def join(self) -> None:
        if self._thread is not None:
            self._thread.join()

    def _compact(self) -> None:
        from deltalake.exceptions import DeltaError

        from clonos_py.connectors.delta.tables import opened, reason

        try:
            table = opened(self._place)
            if table is not None:
                table.optimize.compact()
        except (DeltaError, OSError) as error:
            _log.warning("%s: not compacted this time (%s)", self._place, reason(error))


def _with_kinds(rows: pa.Table) -> pa.Table:
    """The rows with the kind of their change in a column that tables do not have. Rows of a table that loses none come
    without it."""
    if CHANGE_COLUMN in rows.schema.names:
        return rows.rename_columns([_CHANGES if name == CHANGE_COLUMN else name for name in rows.schema.names])
    return rows.append_column(_CHANGES, pa.repeat(UPDATE, rows.num_rows))
