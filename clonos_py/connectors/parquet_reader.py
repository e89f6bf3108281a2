"""A Parquet file as a partition: positions are row numbers, and a read never crosses a row group."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash

from clonos_py.columns.casting import cast
from clonos_py.columns.compact import compact
from clonos_py.columns.views import concat, plain_type
from clonos_py.connectors.decoding_ahead import DecodedAhead
from clonos_py.connectors.file_content import ContentStream, FileContent, LocalContent
from clonos_py.connectors.input_errors import UNCHANGED, named_errors
from clonos_py.connectors.partitions import PartitionRead
from clonos_py.connectors.written_times import fitted_times
from clonos_py.model.errors import SourceError, one_line

PIECE_ROWS = 65_536
_DECODED_ROWS_MIN = 8_192
_LENGTH_BYTES = 4
_TRAILER_BYTES = 8


class ParquetPartition:
    """Decodes row groups piece by piece, and only the requested columns.

    The checksum of a piece covers the range of rows and the file's footer, which has sizes, offsets and statistics of
    every page. So a replaced file is detected at no cost. Pages have their own checksums if the writer made them.
    """

    def __init__(
        self,
        path: str,
        schema: pa.Schema,
        read_rows: int | None,
        content: FileContent | None = None,
        *,
        lacking_is_null: bool = False,
    ) -> None:
        """``content``: the bytes of the file, if it is not a local one. ``lacking_is_null``: columns that the file
        lacks are null if they may be."""
        self.name = path
        self._content, self._lacking_is_null = content, lacking_is_null
        self._schema = schema
        self._piece_rows = min(PIECE_ROWS, read_rows or PIECE_ROWS)
        self._file: pq.ParquetFile | None = None
        self._footer = 0
        self._group_starts: list[int] = []
        self._batches: DecodedAhead | None = None
        self._batches_at = -1
        self._carry: pa.RecordBatch | None = None
        """Rows that were decoded and not taken."""

    def next(self, start: int, rows_max: int | None) -> PartitionRead | None:
        file = self._opened()
        if start > file.metadata.num_rows:
            raise self._shrunk(start)
        if start == file.metadata.num_rows:
            return None
        group_end = self._group_starts[bisect_right(self._group_starts, start)]
        return self.between(start, min(group_end, start + min(self._piece_rows, rows_max or self._piece_rows)))

    def between(self, start: int, stop: int) -> PartitionRead:
        total = self._opened().metadata.num_rows
        if stop > total:
            raise self._shrunk(stop)
        with named_errors(self.name):
            rows = self._rows(start, stop)
        checksum = self.checksum(start, stop)
        if stop == total:
            self._close()
        return PartitionRead(stop, rows, checksum, stop == total)

    def checksum(self, start: int, stop: int) -> int:
        """The checksum of a read, from the current footer."""
        return xxhash.xxh3_64_intdigest(f"{self.footer} {start} {stop}".encode()) >> 1

    def check_end(self, position: int) -> None:
        """Does nothing: a Parquet file cannot grow."""

    @property
    def stored_bytes(self) -> int:
        return 0 if self._content is None else self._content.stored_bytes

    def grow(self, stored_bytes: int) -> None:
        """Does nothing: a Parquet file cannot grow."""

    def range(self, start: int, stop: int) -> pa.RecordBatch:
        """Rows [start, stop), which may span several row groups."""
        if stop > self.rows:
            raise self._shrunk(stop)
        pieces = []
        with named_errors(self.name):
            while start < stop:
                end = min(self._group_starts[bisect_right(self._group_starts, start)], stop)
                pieces.append(self._rows(start, end))
                start = end
        return concat(pieces)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self._opened().metadata.num_rows

    @property
    def footer(self) -> int:
        """The checksum of the file's footer."""
        self._opened()
        return self._footer

    def _shrunk(self, expected: int) -> SourceError:
        total = self._opened().metadata.num_rows
        return SourceError(f"{self.name} has shrunk to {total} rows, {expected} were expected; {UNCHANGED}")

    def _rows(self, start: int, stop: int) -> pa.RecordBatch:
        if self._batches_at != start:
            self._seek(start, _decoded_rows(stop - start))
        self._batches_at = stop
        return self._conforming(self._take(stop - start), start)

    def _seek(self, start: int, decoded_rows: int) -> None:
        """The next rows taken begin at ``start``."""
        self._stop_decoding()
        group = bisect_right(self._group_starts, start) - 1
        batches = self._decoded(group, decoded_rows)
        self._batches = DecodedAhead(batches, ahead=self._content is None)
        self._carry = None
        self._take(start - self._group_starts[group])

    def _decoded(self, group: int, decoded_rows: int) -> Iterator[pa.RecordBatch]:
        """The rows of this row group and all later ones. No batch crosses a row group."""
        file, schema = self._opened(), self._file_schema()
        for number in range(group, file.metadata.num_row_groups):
            for batch in file.iter_batches(decoded_rows, row_groups=[number], columns=schema.names, use_threads=False):
                yield _plain(batch, schema)

    def _take(self, count: int) -> pa.RecordBatch:
        """The next ``count`` rows. A decoded batch that is taken as a whole is not copied. A part of one is: its rows
        may be kept for longer than the others."""
        assert self._batches is not None
        if not count:
            return pa.RecordBatch.from_pylist([], self._file_schema())
        pieces: list[pa.RecordBatch] = []
        while count:
            batch = next(self._batches) if self._carry is None else self._carry
            pieces.append(batch.slice(0, count))
            self._carry = batch.slice(count) if count < batch.num_rows else None
            count -= pieces[-1].num_rows
        return compact(concat(pieces))

    def _file_schema(self) -> pa.Schema:
        """The requested columns that the file has, as ``_plain`` gives them."""
        found = self._opened().schema_arrow
        fields = [found.field(name) for name in self._schema.names if name in found.names]
        return pa.schema([field.with_type(plain_type(field.type)) for field in fields])

    def _conforming(self, rows: pa.RecordBatch, start: int) -> pa.RecordBatch:
        columns = [
            self._fitted(rows.column(field.name), field)
            if field.name in rows.schema.names
            else pa.nulls(rows.num_rows, field.type)
            for field in self._schema
        ]
        for field, column in zip(self._schema, columns, strict=True):
            if column.null_count and not field.nullable:
                row = start + pc.index(pc.is_null(column), True).as_py()
                raise SourceError(f"{self.name}, row {row}: column {field.name!r} is null, but not declared '| None'")
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _fitted(self, whole: pa.Array[Any], field: pa.Field[Any]) -> pa.Array[Any]:
        try:
            times = fitted_times(whole, field)
            return cast(whole, field.type) if times is None else times
        except pa.ArrowException as error:
            raise SourceError(f"{self.name}: column {field.name!r}: {one_line(error)}") from error
        except ValueError as error:
            raise SourceError(f"{self.name}: {one_line(error)}") from error

    def _opened(self) -> pq.ParquetFile:
        if self._file is None:
            with named_errors(self.name):
                content = self._content or LocalContent(self.name, os.path.getsize(self.name))
                place: Any = self.name if self._content is None else ContentStream(self._content)
                footer = pq.read_metadata(place)
                self._file = pq.ParquetFile(
                    place,
                    metadata=footer,
                    pre_buffer=self._content is not None,  # columns that lie together are one request
                    page_checksum_verification=True,
                    read_dictionary=_repeated(footer),
                    coerce_int96_timestamp_unit="us",  # nanoseconds, the default, wrap outside of 1677 to 2262
                )
                self._footer = _footer_checksum(content)
            self._check_columns(self._file.schema_arrow)
            metadata = self._file.metadata
            sizes = (metadata.row_group(group).num_rows for group in range(metadata.num_row_groups))
            self._group_starts = list(accumulate(sizes, initial=0))
        return self._file

    def _check_columns(self, found: pa.Schema) -> None:
        missing = [
            field.name
            for field in self._schema
            if field.name not in found.names and not (self._lacking_is_null and field.nullable)
        ]
        if missing:
            raise SourceError(f"{self.name} has no column {', '.join(missing)}; it has {', '.join(found.names)}")
        for name in self._schema.names:
            if found.names.count(name) > 1:
                raise SourceError(
                    f"{self.name} has {found.names.count(name)} columns {name!r}, and a row has one value for each "
                    "name: rename them in the file, or leave them out of the schema"
                )

    def _stop_decoding(self) -> None:
        if self._batches is not None:
            self._batches.close()
        self._batches = None

    def _close(self) -> None:
        self._stop_decoding()
        if self._file is not None:
            self._file.close()
        self._file, self._carry, self._batches_at = None, None, -1


def _decoded_rows(asked: int) -> int:
    """How many rows to decode at a time. Most ranges are as long as the first of their row group; decoding exactly so
    many avoids putting pieces together, which copies them."""
    return min(max(asked, _DECODED_ROWS_MIN), PIECE_ROWS)


def _plain(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows without dictionaries, which ``schema`` does not have."""
    columns = [
        column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _repeated(footer: pq.FileMetaData) -> list[str]:
    """Text columns that are stored as a dictionary. Decoding their indices and looking up the texts takes half the
    time. A column with fewer than four bytes per row must hold indices, as a plain text has four bytes for its length
    alone."""
    if not footer.num_row_groups:
        return []
    group = footer.row_group(0)
    chunks = [group.column(number) for number in range(group.num_columns)]
    return [
        chunk.path_in_schema
        for chunk in chunks
        if chunk.physical_type == "BYTE_ARRAY"
        and chunk.has_dictionary_page
        and chunk.total_uncompressed_size < _LENGTH_BYTES * chunk.num_values
    ]


def _footer_checksum(content: FileContent) -> int:
    end = content.stored_bytes - _TRAILER_BYTES
    footer_bytes = int.from_bytes(content.read(end, _LENGTH_BYTES), "little")
    return xxhash.xxh3_64_intdigest(content.read(end - footer_bytes, footer_bytes))
