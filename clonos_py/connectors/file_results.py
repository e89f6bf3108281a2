"""Reads back what file sinks have written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pyarrow as pa

from clonos_py.connectors.file_content import compression_of
from clonos_py.connectors.files import object_files
from clonos_py.connectors.line_formats import csv_rows
from clonos_py.connectors.local_paths import LocalPath, path_or_objects
from clonos_py.connectors.names import by_number
from clonos_py.connectors.partitioned_files import files_below, values_in
from clonos_py.model.errors import SinkError, one_line
from clonos_py.model.object_uris import names_objects


def read_results(folder: LocalPath) -> list[dict[str, Any]]:
    """All visible rows in a folder of file sinks, ordered by file name, with numbers in names compared by value. So the
    rows of a task are in the order in which it wrote them. Values from CSV are text. The values in folder names
    (``partition_by``) become the last columns.

    Raises GraphError for what is no path, SinkError if there is no such folder or a file cannot be read."""
    folder = path_or_objects("read_results", folder)
    if names_objects(folder):
        with _read_errors(folder):
            contents = list(object_files("read_results", folder).contents())
        return [row | values_in(path, folder) for path, content in contents for row in _rows_of(path, content)]
    if not os.path.isdir(folder):
        found = "is no folder" if os.path.exists(folder) else "does not exist"
        raise SinkError(f"{folder} {found}: give the folder that a file sink has written to")
    with _read_errors(folder):
        paths = sorted(files_below(folder), key=by_number)
    return [row | values_in(path, folder) for path in paths for row in _rows_of(path)]


def _rows_of(path: str, content: bytes | None = None) -> list[dict[str, Any]]:
    """The rows of a file, which is read unless its content is given. Raises SinkError if no file sink has written it,
    or it is damaged."""
    with _read_errors(path):
        plain = path if compression_of(path) is None else os.path.splitext(path)[0]
        match os.path.splitext(plain)[1]:
            case ".jsonl":
                return [msgspec.json.decode(line) for line in _lines(path, content).split(b"\n")[:-1]]
            case ".csv":
                return csv_rows(_lines(path, content), path)
            case ".parquet":
                import pyarrow.parquet as pq

                source: Any = path if content is None else pa.BufferReader(content)
                return pq.read_table(source, use_threads=False).to_pylist()
            case _:
                raise SinkError(f"{path} is not the output folder of a file sink: give the folder it writes to")


def _lines(path: str, content: bytes | None) -> bytes:
    """The decompressed content of a file."""
    if content is None:
        with open(path, "rb") as file:
            content = file.read()
    compression = compression_of(path)
    if compression is None:
        return content
    return bytes(pa.CompressedInputStream(pa.BufferReader(content), compression).read())


@contextmanager
def _read_errors(path: str) -> Iterator[None]:
    """Turns errors of reading into SinkErrors. A SourceError names the file and the remedy itself."""
    try:
        yield
    except OSError as error:
        raise SinkError(f"{path}: cannot be read ({error.strerror or error}): allow it, or copy the folder") from error
    except (pa.ArrowException, msgspec.DecodeError) as error:
        reason = one_line(error).removeprefix(f"{path}: ")
        raise SinkError(
            f"{path} is damaged or not of a file sink ({reason}): restore it from a copy, or move it away"
        ) from error
