"""Exactly-once files in folders named by column values: ``dt=2026-01-31/hm=09%3A30/OPERATOR-INDEX-CHECKPOINT``.

The files leave out the columns that name the folders, as Hive, Spark and Arrow expect. Rows since the last barrier are
one staged folder, with a file for each combination of values. All of them become visible with their checkpoint. There
may be any number of combinations: only the files written last keep a descriptor.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa

from clonos_py.columns.grouping import group
from clonos_py.columns.partition import split
from clonos_py.connectors.file_content import Compression
from clonos_py.connectors.file_writer import STAGED, FileWriter, is_component
from clonos_py.connectors.row_files import RowFile, named_errors
from clonos_py.connectors.staging import StagedFile, StagedPiece
from clonos_py.model.durable_folders import flush_folder
from clonos_py.model.errors import GraphError, SinkError, shown

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""The folder name for null."""
_OPEN_FILES_MAX = 32
"""The most files of a task with a descriptor of the operating system, which allows few per process."""
_NAME_BYTES_MAX = 255
"""The longest name that file systems allow."""


class PartitionedFileWriter(FileWriter):
    """The sink of one task."""

    def __init__(
        self,
        folder: str,
        file_format: str,
        schema: pa.Schema,
        by: Sequence[str],
        compression: Compression | None = None,
    ) -> None:
        super().__init__(folder, file_format, kept_columns(schema, by), compression)
        self._by = tuple(by)
        self._files: dict[str, RowFile] = {}
        self._with_descriptor: dict[str, None] = {}
        """The places of the files written last, in order."""

    def _write(self, rows: pa.RecordBatch) -> None:
        if not self._files:
            self._check_first()
            self._staged = self._new_staged_name()
        for place, values, part in parts_by(rows, self._by):
            if place not in self._files:
                self._check_lengths(place.split("/"), values)
            self._file_at(place).write(part)
            self._park_others(place)

    def _check_lengths(self, folders: Sequence[str], values: Sequence[str | None]) -> None:
        for column, name, value in zip(self._by, folders, values, strict=True):
            if len(name) > _NAME_BYTES_MAX:
                raise SinkError(
                    f"operator {self.ctx.operator!r}: partition_by: {shown(value)[:40]}... of column {column!r} needs "
                    f"a folder name of {len(name)} bytes, file systems allow {_NAME_BYTES_MAX}: shorten it before the "
                    f"sink, such as .with_columns({column}=col({column!r}).slice(0, 80)), or filter such rows out"
                )

    def _park_others(self, place: str) -> None:
        """Takes the descriptor from the file that was not written for the longest time, if there are too many."""
        self._with_descriptor.pop(place, None)
        self._with_descriptor[place] = None
        if len(self._with_descriptor) > _OPEN_FILES_MAX:
            oldest = next(iter(self._with_descriptor))
            del self._with_descriptor[oldest]
            self._files[oldest].park()

    def _file_at(self, place: str) -> RowFile:
        if place not in self._files:
            folder = os.path.join(self._staged_path(self._staged), place)
            with named_errors(folder):
                os.makedirs(folder)
            self._files[place] = RowFile(
                os.path.join(folder, self._name), self._format, self._schema, self._compression
            )
        return self._files[place]

    @property
    def _name(self) -> str:
        return f"rows.{self._suffix}"

    def _close_staged(self) -> str | None:
        if not self._files:
            return None
        closed = []
        for place, file in self._files.items():
            closed.append(StagedFile(place, *file.finish()))
            with named_errors(self._folder):
                for folder in _upwards(place):
                    flush_folder(os.path.join(self._staged_path(self._staged), folder))
        with named_errors(self._folder):
            flush_folder(os.path.join(self._folder, STAGED))
        self._closed, self._files, self._with_descriptor = tuple(closed), {}, {}
        return self._staged

    def _is_place(self, place: str) -> bool:
        return is_place_of(place, self._by)

    def _show_all(self, piece: StagedPiece) -> None:
        for file in piece.files:
            folder = os.path.join(self._folder, file.place)
            with named_errors(folder):
                os.makedirs(folder, exist_ok=True)
            staged, final = f"{piece.staged}/{file.place}/{self._name}", f"{file.place}/{piece.final}"
            self._show(piece, staged, final, file)
            with named_errors(folder):
                for above in _upwards(file.place):
                    flush_folder(os.path.join(self._folder, above))
        self._remove_tree(piece.staged)

    def _visible(self) -> Iterator[str]:
        with named_errors(self._folder):
            yield from files_below(self._folder)

    def _discard_open(self) -> None:
        for file in self._files.values():
            file.discard()
        if self._files:
            self._remove_tree(self._staged)
        self._files, self._with_descriptor = {}, {}

    def _discard_before(self, checkpoint: int) -> None:
        with named_errors(self._folder):
            for name in sorted(os.listdir(os.path.join(self._folder, STAGED))):
                if self._is_left_over(name, checkpoint):
                    self._remove_tree(name)

    def _remove_tree(self, staged: str) -> None:
        with named_errors(self._folder):
            shutil.rmtree(self._staged_path(staged), ignore_errors=True)


def check_partitions(owner: str, by: Sequence[str], schema: pa.Schema) -> None:
    """Raises GraphError for columns that cannot name folders, and if no column is left for the files."""
    for name in by:
        if schema.get_field_index(name) < 0:
            raise GraphError(f"{owner}: partition_by: no column {name!r}; there are {', '.join(schema.names)}")
        if not pa.types.is_string(schema.field(name).type):
            kind = schema.field(name).type
            raise GraphError(
                f"{owner}: partition_by: column {name!r} is {kind}; make it text: cast(str), strftime(...)"
            )
    if set(by) >= set(schema.names):
        raise GraphError(f"{owner}: partition_by names every column: nothing is left to write")


def files_below(folder: str) -> Iterator[str]:
    """The visible files of a folder and of the folders named NAME=VALUE in it, ordered by name. Raises OSError."""
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if os.path.isdir(path) and "=" in name:
            yield from files_below(path)
        elif os.path.isfile(path):
            yield path


def values_in(path: str, folder: str) -> dict[str, str | None]:
    """The column values in the folder names between ``folder`` and the file."""
    places = os.path.relpath(os.path.dirname(path), folder).split(os.sep)
    pairs = [place.split("=", 1) for place in places if "=" in place]
    return {unquote(name): None if value == NO_VALUE else unquote(value) for name, value in pairs}


def kept_columns(schema: pa.Schema, by: Sequence[str]) -> pa.Schema:
    """The columns that are written into the files."""
    kept: list[Any] = [field for field in schema if field.name not in by]
    return pa.schema(kept)


def is_place_of(place: str, by: Sequence[str]) -> bool:
    """Whether a relative path can be the folders that these columns name."""
    parts = place.split("/") if place else []
    return len(parts) == len(by) and all("=" in part and is_component(part) for part in parts)


def parts_by(rows: pa.RecordBatch, by: Sequence[str]) -> Iterator[tuple[str, list[str | None], pa.RecordBatch]]:
    """The rows of each combination of values of the columns ``by``, without these, with the folders that the values
    name, and the values."""
    kept = [name for name in rows.schema.names if name not in by]
    groups = group([rows.column(name) for name in by], rows.num_rows)
    for part in split(rows, groups.ids.astype(np.int32), groups.size):
        if part is not None:
            values: list[str | None] = [part.column(name)[0].as_py() for name in by]
            folders = [f"{quote(name)}={_spelled(value)}" for name, value in zip(by, values, strict=True)]
            yield "/".join(folders), values, part.select(kept)


def _spelled(value: str | None) -> str:
    """The value in the name of a folder. The text that stands for null is escaped."""
    if value is None:
        return NO_VALUE
    return value.replace("_", "%5F", 1) if value == NO_VALUE else quote(value, safe=" ")


def _upwards(place: str) -> Iterator[str]:
    """A relative folder and all folders above it, up to the root, which is empty."""
    while place:
        yield place
        place = os.path.dirname(place)
    yield ""
