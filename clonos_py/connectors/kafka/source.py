"""Kafka topics as sources of jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any, Literal

import pyarrow as pa
from typing_extensions import TypeVar

from clonos_py.connectors.kafka.avro import Avro
from clonos_py.connectors.kafka.client import KafkaFailure, Place
from clonos_py.connectors.kafka.clients import ClusterAddress, KafkaSecurity
from clonos_py.connectors.kafka.columns import KafkaDeadLetter, RowLayout, RowMaker
from clonos_py.connectors.kafka.formats import FormatDefinition
from clonos_py.connectors.kafka.layout import SourceLayout, Where, resolve
from clonos_py.connectors.kafka.protobuf import Protobuf
from clonos_py.connectors.kafka.topic_reader import ReaderTimes, TopicReader
from clonos_py.connectors.malformed import CatchingSource, OnError, OnErrorWord, RequestedColumns
from clonos_py.connectors.names import names_of
from clonos_py.model.errors import GraphError, SourceError
from clonos_py.model.operators import Source
from clonos_py.model.record import ArrowSchema, Record, schema_of
from clonos_py.model.times import Duration, micros

_PLACES = {"earliest": Place.EARLIEST, "latest": Place.LATEST}
TEXT = pa.schema([pa.field("value", pa.string(), nullable=False)])
BYTES = pa.schema([pa.field("value", pa.binary(), nullable=False)])

R = TypeVar("R", bound=Record, default=Any)
Given = str | datetime | Mapping[tuple[str, int], int]


class KafkaSource(CatchingSource[R]):
    """Reads topics of a Kafka cluster; of transactions only committed messages. Its tasks share the partitions. They
    join no consumer group, so that no rebalance takes partitions away.

    ``format`` is json, msgpack, arrow (each message is an Arrow IPC stream), text or bytes (both have the one column
    ``value``), ``Avro(...)`` or ``Protobuf(...)``. ``columns`` names columns with an attribute of the message instead
    of a part of its value, such as ``columns={"at": "timestamp"}``. Attributes are key, timestamp (microseconds),
    topic, partition, offset, headers and tombstone. A message without a value, a tombstone, is skipped and
    counted as ``tombstones_skipped`` unless a column shows it.

    ``start``: "earliest", "latest", "committed" (the offsets of ``group``, or the earliest where it has none), a
    datetime (the first message that is not older), or offsets by (topic, partition), with other partitions at the
    earliest. ``stop``, with the same values except "committed", ends the source there. Without it the source is
    endless, and new partitions are found within ``discover``. Both are resolved when the job is submitted.

    With ``group`` the offsets of every completed checkpoint are committed to the consumer group of that name, for
    monitoring tools and for ``start="committed"``. The group must have no members. Checkpoints do not depend on it.

    After a failure a replacement reads again the messages that its predecessor had read. A compacted topic may no
    longer have them, and is refused unless its ``min.compaction.lag.ms`` is at least an hour. With ``replay="logged"``
    the causal log holds the rows instead, at the cost of copying them to the downstream tasks.

    A task that has read all messages waits ``fetch_wait`` before it reads again: fewer and larger reads cost less, and
    are replayed faster after a failure.

    ``on_error`` decides what happens to a message that does not fit the format and schema. "fail" ends the job. "skip"
    drops the message and counts it as ``rows_skipped``. "dead-letter", or ``catch()``, counts it as ``dead_letters``
    and emits it as a ``KafkaDeadLetter`` in a second stream. With "skip" and "dead-letter" all columns of the schema
    are decoded, even those that the job does not read.

    If the cluster is unreachable for longer than ``away``, the job stops. ``client`` is confluent-kafka or
    kafka-python; by default it is the one that is installed, confluent-kafka first.
    """

    letter = KafkaDeadLetter

    def __init__(
        self,
        topics: str | Sequence[str],
        schema: type[R] | ArrowSchema | None = None,
        *,
        bootstrap: str,
        format: Literal["json", "msgpack", "arrow", "text", "bytes"] | Avro | Protobuf = "json",
        columns: Mapping[str, str] | None = None,
        start: Given = "earliest",
        stop: Given | None = None,
        group: str | None = None,
        replay: Literal["read", "logged"] = "read",
        on_error: OnErrorWord = "fail",
        security: KafkaSecurity | None = None,
        client: Literal["confluent-kafka", "kafka-python"] | None = None,
        fetch_wait: Duration = "20ms",
        discover: Duration = "5s",
        away: Duration = "5m",
    ) -> None:
        self._topics = names_of(topics)
        if not self._topics or len(set(self._topics)) != len(self._topics):
            raise GraphError("KafkaSource: name one topic, or several different ones")
        self._address = ClusterAddress(bootstrap, security or KafkaSecurity(), client)
        self._rows = RowLayout(_schema(format, schema), format, dict(columns or {}))
        if start == "committed" and group is None:
            raise GraphError("KafkaSource: start='committed' needs group=, whose offsets are meant")
        if stop == "committed":
            raise GraphError("KafkaSource: stop='committed' moves with the job: name another place")
        self._start, self._stop = _where(start, group), None if stop is None else _where(stop, None)
        if replay not in ("read", "logged"):
            raise GraphError(f"KafkaSource: unknown replay={replay!r}: give 'read' or 'logged'")
        self._logged = replay == "logged"
        self._group, self.commits = group, group is not None
        self._times = ReaderTimes(micros(fetch_wait), micros(discover) / 1e6, micros(away) / 1e6)
        self.declare(self._rows.schema, schema if isinstance(schema, type) else None, on_error)

    @cached_property
    def layout(self) -> SourceLayout:
        """The partitions to read, resolved once. Raises SourceError."""
        try:
            admin = self._address.connect().admin()
            found = resolve(admin, self._topics, self._start, self._stop, kept=not self._logged)
        except KafkaFailure as failure:
            raise SourceError(f"Kafka at {self._address.bootstrap}: {failure.kind.value}: {failure}") from None
        admin.close()
        return found

    def resolve(self) -> None:
        _ = self.layout

    def reader(self, requested: RequestedColumns, read_rows: int | None) -> Source:
        fails = requested.on_error is OnError.FAIL
        letters = {"offset", *requested.letters.names} if requested.letters is not None else {"offset"}
        maker = RowMaker(self._rows.only(requested.parsed.names), None if fails else sorted(letters))
        place = self._address, self.layout, maker, self._times, self._group
        return TopicReader(*place, read_rows, requested, self._logged)


def _schema(format: str | FormatDefinition, schema: type[Record] | ArrowSchema | None) -> pa.Schema:
    if schema is None:
        if format not in ("text", "bytes"):
            raise GraphError(f"KafkaSource: {format} needs schema=, a Record class or a pyarrow schema")
        return TEXT if format == "text" else BYTES
    return schema_of(schema)


def _where(given: Given, group: str | None) -> Where:
    if isinstance(given, datetime):
        if given.tzinfo is None:
            raise GraphError(f"KafkaSource: {given} has no time zone: give it one, such as timezone.utc")
        return round(given.timestamp() * 1_000)
    if isinstance(given, Mapping):
        return given
    if given == "committed":
        assert group is not None
        return group
    if given not in _PLACES:
        raise GraphError(f"KafkaSource: unknown place {given!r}: give earliest, latest, a datetime or offsets")
    return _PLACES[given]
