"""Exactly-once rows in an Iceberg table.

The rows between two checkpoints are kept in the checkpoint (``row_committer``), and become one snapshot of the table
for each task. The same commit sets a property of the table to the checkpoint of the owner of the rows, so a commit that
is repeated finds that it was done, also after the snapshot has expired. It counts only if no other snapshot came
between the look at that property and the commit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import xxhash

from clonos_py.connectors.extras import need
from clonos_py.connectors.names import names_of
from clonos_py.connectors.overtaken_commits import commit_again
from clonos_py.connectors.row_committer import CommitId, RowCommitter, TransactionalSink
from clonos_py.connectors.secrets import Secret
from clonos_py.model.errors import GraphError, SinkError
from clonos_py.model.operators import Sink

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from clonos_py.connectors.iceberg.catalogs import TableIdentifier

_RETRIES = "commit.retry.num-retries"


class IcebergSink(TransactionalSink):
    """Appends rows to the Iceberg table ``table``, such as "sales.orders", exactly once. It needs the extra
    ``iceberg``.

    ``catalog`` is the name of a catalog and ``properties`` are its properties, beside those that the environment
    (``PYICEBERG_CATALOG__...``) and ``.pyiceberg.yaml`` have; give secrets as ``Secret(env=...)``.

    A table that does not exist is created with the columns of the rows, partitioned by the values of ``partition_by``.
    An existing one is written as its partition spec and sort order say. Each task commits one snapshot for each
    checkpoint in which it has rows; its summary has the checkpoint (``clonos.checkpoint``) and the task
    (``clonos.owner``). What is between two checkpoints has to fit into memory.

    Raises GraphError for unknown columns and types that Iceberg does not have; SinkError if the table does not fit.
    """

    def __init__(
        self,
        table: str,
        catalog: str = "default",
        *,
        properties: Mapping[str, str | Secret] | None = None,
        partition_by: str | Sequence[str] = (),
    ) -> None:
        need("IcebergSink", "pyiceberg", "iceberg")
        self._named = table, catalog, dict(properties or {})
        self._partition_by = names_of(partition_by)
        self.place = f"table {table} of catalog {catalog}"

    def create(self, schema: pa.Schema) -> Sink:
        if unknown := [name for name in self._partition_by if name not in schema.names]:
            raise GraphError(
                f"IcebergSink: partition_by: no column {unknown[0]!r}; there are {', '.join(schema.names)}"
            )
        for field in schema:
            if pa.types.is_duration(field.type) or pa.types.is_unsigned_integer(field.type):
                raise GraphError(
                    f"IcebergSink: column {field.name!r} is {field.type}, which Iceberg does not have: cast it"
                )
        return super().create(schema)

    def open(self, schema: pa.Schema) -> RowCommitter:
        from clonos_py.connectors.iceberg.catalogs import TableIdentifier

        table, catalog, properties = self._named
        return _IcebergCommitter(TableIdentifier(catalog, properties, table), schema, self._partition_by)


class _IcebergCommitter(RowCommitter):
    def __init__(self, name: TableIdentifier, schema: pa.Schema, partition_by: Sequence[str]) -> None:
        self._name, self._schema, self._partition_by = name, schema, partition_by

    def commit(self, commit: CommitId, rows: pa.Table) -> None:
        from clonos_py.connectors.iceberg.catalogs import AGAIN, library_errors, reason

        def tried() -> None:
            with library_errors(SinkError, f"{self._name}: cannot be written"):
                self._commit(self._opened(), commit, rows)

        remedy = "write fewer snapshots, with a longer checkpoint_interval or fewer tasks"
        commit_again(tried, AGAIN, str(self._name), reason, remedy)

    def _commit(self, table: Table, commit: CommitId, rows: pa.Table) -> None:
        done = _property(commit.owner)
        if int(table.properties.get(done, -1)) >= commit.checkpoint:
            return
        # The library would commit again upon a newer snapshot, which may have these rows. So it must not.
        table.metadata.properties[_RETRIES] = "0"
        named = {"clonos.owner": commit.owner, "clonos.checkpoint": str(commit.checkpoint)}
        with table.transaction() as transaction:
            transaction.set_properties({done: str(commit.checkpoint)})
            transaction.append(rows, snapshot_properties=named)

    def _opened(self) -> Table:
        """The newest state of the table, which is created if there is none."""
        table = self._name.load()
        return self._created() if table is None else table

    def _created(self) -> Table:
        catalog, name = self._name.load_catalog(), self._name.name
        catalog.create_namespace_if_not_exists(name.rpartition(".")[0])
        if not self._partition_by:
            return catalog.create_table_if_not_exists(name, self._schema)
        with catalog.create_table_transaction(name, self._schema) as creation, creation.update_spec() as spec:
            for column in self._partition_by:
                spec.add_identity(column)
        return catalog.load_table(name)


def _property(owner: str) -> str:
    """The property of the table that has the last checkpoint of an owner. Not all catalogs keep long names."""
    return f"clonos.committed.{xxhash.xxh3_64_hexdigest(owner.encode())}"
