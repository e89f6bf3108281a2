"""Fills topics for measurements, and counts the committed rows of a topic."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from clonos_py import Record
from clonos_py.connectors.kafka.client import Fields, Message, Place, TopicPartition
from clonos_py.connectors.kafka.clients import ClusterAddress
from clonos_py.connectors.kafka.formats import format_of

PARTITIONS = 2
MESSAGE_BYTES = 100
ARROW_ROWS = 1_000
"""Rows of a message that is an Arrow batch."""
_BATCH = 10_000
_QUIET_S = 3.0


class Row(Record):
    id: int
    created: int
    """Microseconds since the epoch."""
    text: str


def create_topics(bootstrap: str, *topics: str, settings: Mapping[str, str] = {}) -> None:
    """Creates topics with ``PARTITIONS`` partitions each."""
    admin = ClusterAddress(bootstrap).connect().admin()
    for topic in topics:
        admin.create(topic, PARTITIONS, settings)
    admin.close()


def json_rows(start: int, stop: int) -> list[bytes]:
    """Rows with ids [start, stop) as JSON messages of ``MESSAGE_BYTES`` bytes each, created now."""
    now_us = time.time_ns() // 1_000
    rows = [b'{"id": %d, "created": %d, "text": "%%s"}' % (number, now_us) for number in range(start, stop)]
    return [row % (b"x" * (MESSAGE_BYTES - len(row) + 2)) for row in rows]


def fill(bootstrap: str, topic: str, rows: int, arrow: bool) -> None:
    """Writes ``rows`` rows to a topic. ``arrow``: as Arrow batches of many rows, else one JSON message per row."""
    writer = ClusterAddress(bootstrap).connect().writer()
    for number, values in enumerate(_values(rows, arrow)):
        writer.write([Message(topic, value, partition=(number + n) % PARTITIONS) for n, value in enumerate(values)])
    writer.flush()
    writer.close()


def _values(rows: int, arrow: bool) -> Iterator[list[bytes]]:
    arrow_format = format_of("arrow", Row.schema())
    for start in range(0, rows, _BATCH):
        stop = min(start + _BATCH, rows)
        if not arrow:
            yield json_rows(start, stop)
            continue
        batches: list[bytes] = []
        for first in range(start, stop, ARROW_ROWS):
            ids = np.arange(first, min(first + ARROW_ROWS, stop))
            columns = {"id": ids, "created": np.zeros_like(ids), "text": ["x" * 60] * len(ids)}
            batches += arrow_format.encode(pa.record_batch(columns, schema=Row.schema()))
        yield batches


@dataclass
class CommittedRows:
    """The number of rows of a topic, and the seconds between the first and the last message."""

    rows: int
    seconds: float


def count_committed(bootstrap: str, topic: str, arrow: bool) -> CommittedRows:
    """Counts all committed rows of a topic. ``arrow``: messages are Arrow batches."""
    client = ClusterAddress(bootstrap).connect()
    admin, reader = client.admin(), client.reader(Fields(timestamps=True))
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    ends = admin.offsets(partitions, Place.LATEST)
    admin.close()
    reader.assign(dict.fromkeys(partitions, 0))
    count, first, last, quiet_since = 0, 2**63, 0, time.monotonic()
    while any(reader.position(partition) < ends[partition] for partition in partitions):
        for messages in reader.fetch(0.2):
            count += sum(map(_rows_in, messages.values)) if arrow else len(messages.offsets)
            first, last = min(first, *messages.timestamps_ms[:1]), max(last, *messages.timestamps_ms[-1:])
            quiet_since = time.monotonic()
        if time.monotonic() - quiet_since > _QUIET_S:
            break
    reader.close()
    return CommittedRows(count, (last - first) / 1_000)


def _rows_in(value: bytes | None) -> int:
    with pa.ipc.open_stream(value or b"") as stream:
        return stream.read_all().num_rows
