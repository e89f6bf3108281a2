"""A source of three ports that replays events from files, with the same reads as the generator, optionally paced.

A folder has a subfolder of Parquet files for each kind, and ``nexmark.json``. File n of a kind is partition n of the
layout. Its rows are in stream order, so the number of events before an offset gives the row in each file. Only the
required files and columns are read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import xxhash

from clonos_py.connectors.parquet_reader import ParquetPartition
from clonos_py.evaluation.nexmark.description import read_description
from clonos_py.evaluation.nexmark.generator import KINDS, SCHEMAS
from clonos_py.evaluation.nexmark.layout import Layout
from clonos_py.evaluation.nexmark.source import RECORDS, Columns, NexmarkSource
from clonos_py.evaluation.nexmark.stripe_reader import Stripe, StripeReader
from clonos_py.model.connectors import MultiSourceDefinition
from clonos_py.model.errors import SourceError
from clonos_py.model.record import Record

_PART = re.compile(r"part-(\d+)-.*\.parquet")


@dataclass(frozen=True)
class RecordedEvents(MultiSourceDefinition):
    """The events that ``clonos nexmark generate`` wrote into ``folder``, in the order of the generator.

    ``rate``: events per second of processing time, None for as fast as possible. The files must not change until the
    job has ended. Raises SourceError if there are no events.
    """

    folder: str
    rate: float | None = None
    name: str = field(default="nexmark", init=False)
    schemas: tuple[pa.Schema, ...] = field(default=SCHEMAS, init=False)
    records: tuple[type[Record] | None, ...] = field(default=RECORDS, init=False)

    @cached_property
    def origin(self) -> NexmarkSource:
        """The generator source of the same events."""
        return replace(read_description(Path(self.folder)), rate=self.rate)

    @cached_property
    def files(self) -> tuple[Mapping[int, str], ...]:
        """By kind and partition. A partition without events of a kind may have no file."""
        return tuple(_parts(Path(self.folder) / kind) for kind in KINDS)

    def __getstate__(self) -> dict[str, Any]:
        """Loads the description and lists the files before pickling, so that all processes of the job use the same."""
        _ = self.origin, self.files
        return self.__dict__

    @property
    def out_of_order(self) -> timedelta:
        return self.origin.out_of_order

    def create(self, columns: Columns, read_rows: int | None = None) -> StripeReader:
        layout = self.origin.layout
        return StripeReader(EventFiles(self.files, layout, columns), layout, self.origin.pace, read_rows)


def _parts(folder: Path) -> dict[int, str]:
    try:
        matches = [(match, path) for path in folder.iterdir() if (match := _PART.fullmatch(path.name))]
    except OSError as error:
        raise SourceError(f"{folder}: the events of this kind are missing ({error})") from error
    return {int(match[1]): str(path) for match, path in matches}


class EventFiles:
    """Reads the rows of each kind in a stripe."""

    def __init__(self, files: tuple[Mapping[int, str], ...], layout: Layout, columns: Columns) -> None:
        self._files = files
        self._layout = layout
        self._columns = columns
        self._open: dict[tuple[int, int], ParquetPartition] = {}

    def open(self, partitions: int) -> None:
        """Does nothing: files are opened when they are read."""

    def seek(self) -> None:
        """Does nothing: files allow random access."""

    def read(self, partition: int, start: int, stop: int) -> Stripe:
        before, after = self._layout.counts(partition, start), self._layout.counts(partition, stop)
        rows: list[pa.RecordBatch | None] = []
        footers = []
        for kind, (first, last) in enumerate(zip(before, after, strict=True)):
            if first == last or self._columns[kind] == ():
                rows.append(None)
                continue
            file = self._file(kind, partition)
            rows.append(file.range(first, last))
            footers.append(file.footer)
        return Stripe(tuple(rows), xxhash.xxh3_64_intdigest(f"{footers} {start} {stop}".encode()) >> 1)

    def _file(self, kind: int, partition: int) -> ParquetPartition:
        if (kind, partition) not in self._open:
            path = self._files[kind].get(partition)
            if path is None:
                raise SourceError(
                    f"partition {partition} of the events' {KINDS[kind]} rows has no file: write them again"
                )
            columns, schema = self._columns[kind], SCHEMAS[kind]
            taken = schema if columns is None else pa.schema([schema.field(name) for name in columns])
            file = ParquetPartition(path, taken, self._layout.stripe_events)
            expected = self._layout.counts(partition, self._layout.size(partition))[kind]
            if file.rows != expected:
                raise SourceError(f"{path} has {file.rows} rows, {expected} were written: write the events again")
            self._open[kind, partition] = file
        return self._open[kind, partition]
