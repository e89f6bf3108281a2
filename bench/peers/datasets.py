"""Writes the files that all engines read: generated events as Parquet, a folder for each kind, a file for each task.

Every file spans the whole time of the stream in event-time order, and holds every n-th stripe of it. So event time
advances evenly in an engine whose tasks read one file of each kind. Times are timestamps of microseconds, so that no
engine has to convert them.

A query that reads people and auctions only would end before the warm-up is over. For such queries there is a longer
stream whose bids are not written.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from clonos_py.evaluation.nexmark.description import read_description, write_description
from clonos_py.evaluation.nexmark.generator import KINDS, SCHEMAS
from clonos_py.evaluation.nexmark.source import NexmarkSource
from clonos_py.model.errors import SourceError
from clonos_py.model.operators import Read

CYCLE_ROWS = {"person": 1, "auction": 3, "bid": 46}
"""How many of every 50 events are of each kind."""
SIDE_INPUT_ROWS = 10_000
_TIMES = ("date_time", "expires")
_GROUP_ROWS = 500_000
_PART = 1 << 24
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def file_schema(schema: pa.Schema) -> pa.Schema:
    """The schema with times as timestamps of microseconds."""
    return pa.schema([f.with_type(pa.timestamp("us")) if f.name in _TIMES else f for f in schema])


@dataclass(frozen=True)
class Dataset:
    """A folder with the events of a generator, of the kinds in ``kinds``."""

    folder: Path
    source: NexmarkSource
    kinds: tuple[str, ...] = KINDS

    @property
    def side_input(self) -> Path:
        return self.folder / "side_input.csv"

    def events_of(self, rows: dict[str, int]) -> int:
        """The number of events of all kinds in the part of the stream that contains so many rows of these kinds."""
        return sum(rows.values()) * sum(CYCLE_ROWS.values()) // sum(CYCLE_ROWS[kind] for kind in rows)

    def write(self, on_progress: Callable[[str], None]) -> None:
        """Writes the files unless they exist: all, or none. After each stripe calls ``on_progress`` with the number of
        events so far. Raises SourceError."""
        if self._is_there():
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        try:
            with _named_errors(self.folder):
                self._write_files(on_progress)
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise

    def _write_files(self, on_progress: Callable[[str], None]) -> None:
        for kind in KINDS:
            (self.folder / kind).mkdir(parents=True)
        self.side_input.write_text("".join(f"{key},{key}\n" for key in range(SIDE_INPUT_ROWS)))
        written = 0
        for partition in range(self.source.partitions):
            written = self._write_partition(partition, written, on_progress)
        write_description(self.folder, self.source)

    def read(self) -> int:
        """Reads all files, so that the page cache of the system holds them if they fit. Then no engine depends on what
        ran before it. Returns the number of bytes."""
        size = 0
        for path in sorted(self.folder.rglob("*.parquet")):
            with path.open("rb", buffering=0) as file:
                while part := len(file.read(_PART)):
                    size += part
        return size

    def _is_there(self) -> bool:
        try:
            return read_description(self.folder) == self.source
        except SourceError:
            return False

    def _write_partition(self, partition: int, written: int, on_progress: Callable[[str], None]) -> int:
        columns = tuple(None if kind in self.kinds else () for kind in KINDS)
        reader = self.source.create(columns)
        reader.open(partition, self.source.partitions)
        with ExitStack() as stack:
            files = {kind: stack.enter_context(self._file(kind, partition)) for kind in self.kinds}
            while isinstance(read := reader.poll(0), Read):
                for kind, rows in zip(KINDS, read.rows, strict=True):
                    if kind in files and rows is not None:
                        files[kind].add(rows)
                written += read.events or 0
                on_progress(f"{self.folder}: {written:,} events")
        return written

    def _file(self, kind: str, partition: int) -> _GroupedFile:
        schema = file_schema(SCHEMAS[KINDS.index(kind)])
        return _GroupedFile(self.folder / kind / f"part-{partition:05}-0.parquet", schema)


@contextmanager
def _named_errors(path: Path) -> Iterator[None]:
    """Turns errors of the operating system into SourceErrors with path and remedy."""
    try:
        yield
    except OSError as error:
        what = "the disk is full: free space" if error.errno in _FULL else f"it cannot be written ({error}): mend that"
        raise SourceError(f"{path}: {what}, or name a folder elsewhere with --work") from error


class _GroupedFile:
    """A Parquet file whose row groups have at least 500,000 rows each, except the last, for batches of any size."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._path, self._schema = path, schema
        self._writer = pq.ParquetWriter(path, schema, compression="snappy")
        self._pending: list[pa.RecordBatch] = []

    def __enter__(self) -> _GroupedFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._flush()
        with _named_errors(self._path):
            self._writer.close()

    def add(self, rows: pa.RecordBatch) -> None:
        self._pending.append(rows)
        if sum(batch.num_rows for batch in self._pending) >= _GROUP_ROWS:
            self._flush()

    def _flush(self) -> None:
        if self._pending:
            with _named_errors(self._path):
                self._writer.write_table(pa.Table.from_batches(self._pending).cast(self._schema))
            self._pending = []
