"""The versions of a Delta table: which files each one has, and which it has added.

What a version has added is read from its entry of the log (``_delta_log``), as the protocol of Delta defines it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from clonos_py.connectors.delta.tables import opened, options_of, reason
from clonos_py.connectors.file_content import ContentStream, FileContent
from clonos_py.connectors.files import object_files
from clonos_py.connectors.input_errors import named_errors, said_if_missing
from clonos_py.connectors.table_versions import TableFile
from clonos_py.model.errors import SourceError
from clonos_py.model.object_uris import names_objects

_MAPPING = "delta.columnMapping.mode"


class DeltaVersions:
    """See ``VersionedTable``. ``changes``: the column that gets the kind of each change; None if rows are only
    added."""

    def __init__(self, place: str, changes: str | None) -> None:
        self.place, self._changes = place.rstrip("/"), changes
        self._objects = object_files("DeltaSource", self.place) if names_objects(self.place) else None
        with self._errors():
            table = opened(self.place)
        if table is None:
            raise SourceError(f"{self.place}: there is no Delta table: name the folder that has _delta_log")
        self._table: DeltaTable = table

    def resolved(self, version: int | datetime | None) -> int:
        """The number of a version; of None, of the newest one. Raises SourceError if there is no such version."""
        newest = self._table.version()
        if version is None:
            return newest
        at: int | datetime = version.astimezone(UTC) if isinstance(version, datetime) else version
        if isinstance(at, int) and not 0 <= at <= newest:
            raise SourceError(f"{self.place} has no version {version}: the newest one is {newest}")
        with self._errors():
            table = DeltaTable(self.place, storage_options=options_of(self.place))
            table.load_as_version(at)
        return table.version()

    def newest(self) -> int:
        with self._errors():
            self._table.update_incremental()
        return self._table.version()

    def files(self, version: int) -> Sequence[TableFile]:
        with self._errors(version):
            table = opened(self.place, version)
            assert table is not None
            self._check_features(table.metadata().configuration)
            found = pa.table(table.get_add_actions()).to_pylist()
            with_vectors = "deletionVectors" in (table.protocol().reader_features or [])
            if with_vectors and pa.table(table.deletion_vectors()).num_rows:
                raise self._deleted_in_place()
        found.sort(key=lambda one: (one["modification_time"], one["path"]))
        kind = self._kind("insert")
        return [
            self._file(one["path"], one["size_bytes"], one["num_records"], {**(one.get("partition") or {}), **kind})
            for one in found
        ]

    def added(self, version: int) -> Sequence[TableFile]:
        actions = self._log(version)
        if "metaData" in actions:
            self._check_features(actions["metaData"][0]["configuration"])
        adds = [one for one in actions.get("add", ()) if one.get("dataChange", True)]
        removes = [one for one in actions.get("remove", ()) if one.get("dataChange", True)]
        if any(one.get("deletionVector") for one in (*adds, *removes)):
            raise self._deleted_in_place()
        if self._changes is None:
            if removes:
                raise self._removed(version, actions)
            return [self._logged(one, {}) for one in adds]
        if cdc := actions.get("cdc"):
            return [self._logged(one, {}, stored_kind=True) for one in cdc]
        deleted = [self._logged(one, self._kind("delete")) for one in removes]
        return deleted + [self._logged(one, self._kind("insert")) for one in adds]

    def content(self, file: TableFile) -> FileContent | None:
        if self._objects is None:
            return None
        from clonos_py.connectors.object_files import PARQUET_BLOCK_BYTES, FoundObject

        return self._objects.content(FoundObject(file.path, file.size_bytes, ""), PARQUET_BLOCK_BYTES)

    def _kind(self, kind: str) -> dict[str, str]:
        return {} if self._changes is None else {self._changes: kind}

    def _log(self, version: int) -> dict[str, list[Any]]:
        """The actions of a version, by their kind."""
        path = f"{self.place}/_delta_log/{version:020d}.json"
        gone = (
            f"{self.place}: the log of version {version} is gone: keep it for longer than the job may lag behind "
            "(delta.logRetentionDuration), and start over with --fresh"
        )
        with said_if_missing(gone), named_errors(path):
            entry = self._entry(path)
        actions: dict[str, list[Any]] = {}
        for line in entry.splitlines():
            for kind, action in msgspec.json.decode(line).items():
                actions.setdefault(kind, []).append(action)
        return actions

    def _entry(self, path: str) -> bytes:
        if self._objects is not None:
            return self._objects.read(path)
        with open(path, "rb") as file:
            return file.read()

    def _logged(self, action: Mapping[str, Any], kind: Mapping[str, str], stored_kind: bool = False) -> TableFile:
        stats = msgspec.json.decode(action["stats"]) if action.get("stats") else {}
        values = {**(action.get("partitionValues") or {}), **kind}
        renamed = {self._changes: "_change_type"} if stored_kind and self._changes is not None else {}
        return self._file(action["path"], action.get("size") or 0, stats.get("numRecords"), values, renamed)

    def _file(
        self,
        path: str,
        size_bytes: int,
        rows: int | None,
        values: Mapping[str, Any],
        renamed: Mapping[str, str] | None = None,
    ) -> TableFile:
        whole = unquote(path) if "://" in path or path.startswith("/") else f"{self.place}/{unquote(path)}"
        file = TableFile(whole.removeprefix("file://"), size_bytes, rows or 0, tuple(values.items()))
        if renamed:
            file = file._replace(renamed=tuple(renamed.items()))
        if not size_bytes and self._objects is not None:
            file = file._replace(size_bytes=self._objects.size(whole))
        return file if rows is not None else file._replace(rows=self._counted(file))

    def _counted(self, file: TableFile) -> int:
        """The number of rows, from the file itself."""
        content = self.content(file)
        source: Any = file.path if content is None else ContentStream(content)
        with named_errors(file.path):
            return pq.read_metadata(source).num_rows

    def _check_features(self, configuration: Mapping[str, Any]) -> None:
        if configuration.get(_MAPPING, "none") != "none":
            raise SourceError(
                f"{self.place} maps the names of its columns ({_MAPPING}), and its files are read by name: write it "
                "again without this"
            )

    def _deleted_in_place(self) -> SourceError:
        return SourceError(
            f"{self.place} marks rows as deleted inside of files (deletion vectors), which are not read: write these "
            "files again (REORG TABLE ... APPLY (PURGE)), or turn delta.enableDeletionVectors off"
        )

    def _removed(self, version: int, actions: Mapping[str, Sequence[Any]]) -> SourceError:
        operation = next((one.get("operation") for one in actions.get("commitInfo", ())), None)
        return SourceError(
            f"{self.place}: version {version} has changed or deleted rows{f' ({operation})' if operation else ''}, "
            "which were read before: name a column for the kind of each change (changes=), or start over with --fresh"
        )

    @contextmanager
    def _errors(self, version: int | None = None) -> Iterator[None]:
        """Turns errors of the library into SourceErrors."""
        at = "" if version is None else f", version {version}"
        try:
            yield
        except (DeltaError, OSError) as error:
            raise SourceError(f"{self.place}{at}: cannot be read ({reason(error)})") from error
