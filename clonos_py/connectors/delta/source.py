"""The rows of a Delta table: of one version, and of those that follow."""

from __future__ import annotations

from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from typing_extensions import TypeVar

from clonos_py.connectors.extras import need
from clonos_py.connectors.local_paths import LocalPath, path_or_objects
from clonos_py.connectors.table_versions import TableReader, VersionPlace
from clonos_py.model.connectors import SourceDefinition
from clonos_py.model.errors import GraphError
from clonos_py.model.operators import Source
from clonos_py.model.record import ArrowSchema, Record, schema_of

if TYPE_CHECKING:
    from clonos_py.connectors.delta.versions import DeltaVersions

R = TypeVar("R", bound=Record, default=Any)

_LOOK_EVERY_US = 1_000_000


class TableVersion(msgspec.Struct, frozen=True):
    """Where a new run begins, as ``VersionPlace.position``, and the last version that it reads."""

    begin: int
    until: int | None


class DeltaSource(SourceDefinition[R]):
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
        self._version, self._follow, self._existing, self._changes = version, follow, existing, changes
        self._partitions = partitions
        self.schemas = (schema_of(schema),)
        self.records = (schema if isinstance(schema, type) else None,)
        if partitions < 1:
            raise GraphError(f"DeltaSource: partitions={partitions}: it must be at least 1")
        if not follow and (not existing or changes is not None):
            raise GraphError("DeltaSource: existing= and changes= are for a table that is followed: set follow=True")
        if changes is not None and changes not in self.schemas[0].names:
            raise GraphError(f"DeltaSource: changes={changes!r} is no column of the rows: declare it as text")

    def resolve(self) -> None:
        """Fixes the version. Raises SourceError if there is no such table or version."""
        _ = self._range

    def __getstate__(self) -> dict[str, Any]:
        """Fixes the version before the job is submitted, so that all processes read the same one."""
        _ = self._range
        return self.__dict__

    @cached_property
    def _range(self) -> TableVersion:
        version = self._open().resolved(self._version)
        begin = VersionPlace(version, False, 0) if self._existing else VersionPlace(version + 1, True, 0)
        return TableVersion(begin.position, None if self._follow else version)

    def _open(self) -> DeltaVersions:
        from clonos_py.connectors.delta.versions import DeltaVersions

        return DeltaVersions(self._table, self._changes)

    def create(self, columns: tuple[tuple[str, ...] | None, ...], read_rows: int | None = None) -> Source:
        (requested,) = columns
        whole = self.schemas[0]
        schema = whole if requested is None else pa.schema([whole.field(name) for name in requested])
        begin, until = self._range.begin, self._range.until
        return TableReader(self._open, schema, begin, until, self._partitions, _LOOK_EVERY_US, read_rows)
