"""The rows of a Delta table: of one version, and of those that follow."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from typing_extensions import TypeVar

from clonos_py.connectors.extras import need
from clonos_py.connectors.local_paths import LocalPath, path_or_objects
from clonos_py.connectors.table_versions import VersionedSource, VersionedTable
from clonos_py.model.errors import GraphError
from clonos_py.model.record import ArrowSchema, Record

R = TypeVar("R", bound=Record, default=Any)


class DeltaSource(VersionedSource[R]):
    """Reads the Delta table ``table``, a path or a URI such as ``s3://bucket/path``. It needs the extra ``delta``.

    ``schema`` is the class of the rows or their columns. Other columns of the table are not read; columns that older
    files lack are null, if they may be. ``version`` is a number or a time; without it the newest one when the job is
    submitted is read.

    With ``follow`` the source never ends: it reads ``version``, then the rows that later versions add, which it looks
    for every second. ``existing=False`` leaves the rows of ``version`` itself out. Versions that put files together
    add no rows. One that deletes or changes rows ends the job, unless ``changes`` names a column for the kind of each
    change: insert, delete, update_preimage or update_postimage, as in the change data feed. A table without this feed
    has each changed row as a delete and an insert, and so have rows that were only copied with them.

    The files are dealt out to so many ``partitions``, and at most so many tasks read. If the job uses event time, set
    ``job.source(..., idle="5s")`` for a table that is followed. Files have to stay until a checkpoint covers their
    rows: ``vacuum`` with a retention that is longer than the job may lag behind.
    """

    look_every_us = 1_000_000

    def __init__(
        self,
        table: LocalPath,
        schema: type[R] | ArrowSchema,
        *,
        version: int | datetime | None = None,
        follow: bool = False,
        existing: bool = True,
        changes: str | None = None,
        partitions: int = 8,
    ) -> None:
        need("DeltaSource", "deltalake", "delta")
        self._table = path_or_objects("DeltaSource", table)
        self._changes = changes
        super().__init__(schema, version, follow, existing, partitions)
        if not follow and changes is not None:
            raise GraphError("DeltaSource: changes= is for a table that is followed: set follow=True")
        if changes is not None and changes not in self.schemas[0].names:
            raise GraphError(f"DeltaSource: changes={changes!r} is no column of the rows: declare it as text")

    def _open(self) -> VersionedTable:
        from clonos_py.connectors.delta.versions import DeltaVersions

        return DeltaVersions(self._table, self._changes)
