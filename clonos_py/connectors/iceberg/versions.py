"""The snapshots of the main branch of an Iceberg table: which files each one has, and which it has added.

A version is the sequence number of a snapshot, which grows with each commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntryStatus
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot

from clonos_py.connectors.file_content import FileContent
from clonos_py.connectors.iceberg.catalogs import TableIdentifier, library_errors
from clonos_py.connectors.table_versions import TableFile
from clonos_py.model.errors import SourceError

_LOCAL = "file://"


class IcebergVersions:
    """See ``VersionedTable``."""

    def __init__(self, name: TableIdentifier) -> None:
        self.place = str(name)
        with library_errors(SourceError, f"{self.place}: cannot be read"):
            table = name.load()
        if table is None:
            raise SourceError(f"{self.place}: the catalog has no such table: create it, or name another one")
        if table.format_version < 2:
            raise SourceError(f"{self.place} has format version 1, without sequence numbers: upgrade it to version 2")
        self._table: Table = table

    def resolved(self, version: int | None) -> int:
        """The version of the snapshot with this id; of None, of the current one, and 0 if the table has none. Raises
        SourceError."""
        versions = self._versions()
        if version is None:
            return max(versions, default=0)
        found = [number for number, one in versions.items() if one.snapshot_id == version]
        if not found:
            raise SourceError(f"{self.place} has no snapshot {version} in its main branch: it may have expired")
        return found[0]

    def newest(self) -> int:
        with library_errors(SourceError, f"{self.place}: cannot be read"):
            self._table.refresh()
        return max(self._versions(), default=0)

    def files(self, version: int) -> Sequence[TableFile]:
        if not version:
            return []
        snapshot = self._snapshot(version)
        if snapshot is None:
            raise self._expired(version)
        with library_errors(SourceError, f"{self.place}: cannot be read"):
            tasks = list(self._table.scan(snapshot_id=snapshot.snapshot_id).plan_files())
        if any(task.delete_files for task in tasks):
            raise self._deleted_apart()
        return sorted(_file(task.file) for task in tasks)

    def added(self, version: int) -> Sequence[TableFile]:
        snapshot = self._snapshot(version)
        if snapshot is None:
            if version < min(self._versions()):
                raise self._expired(version)
            return []  # it is of another branch, or was rolled back
        operation = None if snapshot.summary is None else snapshot.summary.operation
        if operation is Operation.REPLACE:
            return []
        if operation is not Operation.APPEND:
            raise SourceError(
                f"{self.place}: snapshot {snapshot.snapshot_id} has deleted or overwritten rows, which were read "
                "before: read tables to which rows are only appended, or start over with --fresh"
            )
        with library_errors(SourceError, f"{self.place}: cannot be read"):
            return sorted(self._appended(snapshot))

    def content(self, file: TableFile) -> FileContent | None:
        if not file.path.partition("://")[1]:
            return None
        return _OpenedContent(self._table, file)

    def _appended(self, snapshot: Snapshot) -> list[TableFile]:
        return [
            _file(entry.data_file)
            for manifest in snapshot.manifests(self._table.io)
            if manifest.added_snapshot_id == snapshot.snapshot_id and manifest.content is ManifestContent.DATA
            for entry in manifest.fetch_manifest_entry(self._table.io)
            if entry.status is ManifestEntryStatus.ADDED and entry.snapshot_id == snapshot.snapshot_id
        ]

    def _versions(self) -> dict[int, Snapshot]:
        """The snapshots of the main branch that have not expired, by sequence number."""
        found: dict[int, Snapshot] = {}
        at = self._table.current_snapshot()
        while at is not None:
            found[at.sequence_number or 0] = at
            at = None if at.parent_snapshot_id is None else self._table.snapshot_by_id(at.parent_snapshot_id)
        return found

    def _snapshot(self, version: int) -> Snapshot | None:
        versions = self._versions()
        if version > max(versions, default=0):
            self.newest()
            versions = self._versions()
        return versions.get(version)

    def _expired(self, version: int) -> SourceError:
        return SourceError(
            f"{self.place}: the snapshot with sequence number {version} has expired: keep snapshots for longer than "
            "the job may lag behind (history.expire.max-snapshot-age-ms), and start over with --fresh"
        )

    def _deleted_apart(self) -> SourceError:
        return SourceError(
            f"{self.place} has rows that are deleted by delete files, which are not read: write these files again, "
            "such as with rewrite_data_files"
        )


class _OpenedContent:
    """The bytes of a file, read with the credentials of the catalog. See ``FileContent``."""

    def __init__(self, table: Table, file: TableFile) -> None:
        self.name, self.stored_bytes = file.path, file.size_bytes
        self._table, self._file = table, file
        self._stream: Any = None

    def read(self, start: int, size_bytes: int) -> bytes:
        with library_errors(SourceError, f"{self.name}: cannot be read"):
            if self._stream is None:
                self._stream = self._table.io.new_input(self.name).open()
            self._stream.seek(start)
            return bytes(self._stream.read(min(size_bytes, self.stored_bytes - start)))

    def end_before(self, position: int) -> int | None:
        return self.stored_bytes if self.stored_bytes <= position else None

    def grow(self, stored_bytes: int) -> None:
        """Files of tables do not grow."""

    def another(self) -> _OpenedContent:
        return _OpenedContent(self._table, self._file)


def _file(found: DataFile) -> TableFile:
    return TableFile(found.file_path.removeprefix(_LOCAL), found.file_size_in_bytes, found.record_count)
