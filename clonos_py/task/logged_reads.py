"""Reads of a source that cannot be reread exactly: the log holds their rows, too (D4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from clonos_py.causal.determinants import SourceRead
from clonos_py.model.operators import Read


def content_of(read: Read) -> Any:
    """The part of a read that is logged besides its offsets, as plain data."""
    rows = [None if rows is None else rows.serialize().to_pybytes() for rows in read.rows]
    return [read.event_count, read.last, rows, dict(read.counts), read.note]


def read_of(logged: SourceRead, content: Any, schemas: Sequence[pa.Schema]) -> Read:
    """Rebuilds a read from its logged offsets and content; ``schemas`` are those of its ports."""
    events, last, ports, counts, note = content
    rows = tuple(
        None if rows is None else pa.ipc.read_record_batch(pa.py_buffer(rows), schema)
        for rows, schema in zip(ports, schemas, strict=True)
    )
    place = logged.partition, logged.start, logged.stop
    return Read(*place, rows, logged.checksum, events, last, counts=counts, note=note)
