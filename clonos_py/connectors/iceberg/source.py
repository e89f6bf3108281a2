"""The rows of an Iceberg table: of one snapshot, and of those that follow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from typing_extensions import TypeVar

from clonos_py.connectors.extras import need
from clonos_py.connectors.secrets import Secret
from clonos_py.connectors.table_versions import VersionedSource, VersionedTable
from clonos_py.model.record import ArrowSchema, Record

R = TypeVar("R", bound=Record, default=Any)


class IcebergSource(VersionedSource[R]):
    """Reads the Iceberg table ``table``, such as "sales.orders", of ``catalog``; see ``IcebergSink`` for
    ``properties``. It needs the extra ``iceberg``.

    ``schema`` is the class of the rows or their columns. Other columns of the table are not read; columns that older
    files lack are null, if they may be. ``snapshot`` is the id of a snapshot of the main branch; without it the current
    one when the job is submitted is read.

    With ``follow`` the source never ends: it reads this snapshot, then the rows that later ones append, which it looks
    for every five seconds. ``existing=False`` leaves the rows of the first snapshot out. Snapshots that put files
    together add no rows. One that deletes or overwrites rows ends the job.

    The files are dealt out to so many ``partitions``, and at most so many tasks read. If the job uses event time, set
    ``job.source(..., idle="5s")`` for a table that is followed. Snapshots must not expire before a checkpoint covers
    their rows.
    """

    look_every_us = 5_000_000

    def __init__(
        self,
        table: str,
        schema: type[R] | ArrowSchema,
        catalog: str = "default",
        *,
        properties: Mapping[str, str | Secret] | None = None,
        snapshot: int | None = None,
        follow: bool = False,
        existing: bool = True,
        partitions: int = 8,
    ) -> None:
        need("IcebergSource", "pyiceberg", "iceberg")
        self._named = table, catalog, dict(properties or {})
        super().__init__(schema, snapshot, follow, existing, partitions)

    def _open(self) -> VersionedTable:
        from clonos_py.connectors.iceberg.catalogs import TableIdentifier
        from clonos_py.connectors.iceberg.versions import IcebergVersions

        table, catalog, properties = self._named
        return IcebergVersions(TableIdentifier(catalog, properties, table))
