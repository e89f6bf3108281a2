"""Topics of Kafka as a source, as written in a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any, Literal

import pyarrow as pa
from typing_extensions import TypeVar

from clonos_py.connectors.kafka.avro import Avro
from clonos_py.connectors.kafka.clients import ClusterAddress, KafkaSecurity
from clonos_py.connectors.kafka.columns import KafkaDeadLetter, RowLayout, RowMaker
from clonos_py.connectors.kafka.formats import FormatDefinition
from clonos_py.connectors.kafka.layout import SourceLayout, Where, resolve
from clonos_py.connectors.kafka.port import KafkaFailure, Place
from clonos_py.connectors.kafka.protobuf import Protobuf
from clonos_py.connectors.kafka.topic_reader import ReaderTimes, TopicReader
from clonos_py.model.connectors import MultiSourceDefinition, SourceDefinition
from clonos_py.model.errors import GraphError, SourceError
from clonos_py.model.operators import Source
from clonos_py.model.record import Record
from clonos_py.model.times import micros

_PLACES = {"earliest": Place.EARLIEST, "latest": Place.LATEST}
TEXT = pa.schema([pa.field("value", pa.string(), nullable=False)])
BYTES = pa.schema([pa.field("value", pa.binary(), nullable=False)])

R = TypeVar("R", bound=Record, default=Any)
Given = str | datetime | Mapping[tuple[str, int], int]


class KafkaSource(SourceDefinition[R]):
    """Reads topics of a Kafka cluster, of transactions only what is committed. Its tasks share the partitions; no
    consumer group is joined, so that no rebalance takes them away.

    ``format`` is json, msgpack, arrow (each message a stream of Arrow IPC), text or bytes (both have the one column
    ``value``), ``Avro(...)`` or ``Protobuf(...)``. ``columns`` names columns that have something else of a message
    than its value: ``columns={"at": "timestamp"}``; there are key, timestamp (microseconds), topic, partition, offset,
    headers and tombstone. A message without value, a tombstone, is no row unless a column tells it.

    ``start``: "earliest", "latest", "committed" (the offsets of ``group``; where it has none, the earliest), a
    datetime (the first message that is not older), or offsets by (topic, partition), the others at the earliest. With
    ``stop``, one of the same but "committed", the source ends there; without it it is endless, and partitions that are
    added are found within ``discover``. Both are resolved when the job is submitted.

    With ``group`` the offsets of every completed checkpoint are committed to a consumer group of that name, for tools
    that watch it and for ``start="committed"``. It must have no members. Checkpoints do not depend on it.

    After a failure a replacement reads again what its predecessor had read. A topic that is compacted may not have it
    any more, and is refused unless its ``min.compaction.lag.ms`` leaves an hour. With ``replay="logged"`` the causal
    log keeps the rows instead, at the price of copying them to the tasks behind.

    A task that has read all messages waits ``fetch_wait`` for more before it reads again: fewer and larger reads cost
    less, and are replayed sooner after a failure.

    A cluster that does not answer is waited for; after ``away`` the job stops. ``client`` is confluent-kafka or
    kafka-python: without it whichever is installed, confluent-kafka first.
    """

    def __init__(
        self,
        topics: str | Sequence[str],
        schema: type[R] | pa.Schema | None = None,
        *,
        bootstrap: str,
        format: Literal["json", "msgpack", "arrow", "text", "bytes"] | Avro | Protobuf = "json",
        columns: Mapping[str, str] | None = None,
        start: Given = "earliest",
        stop: Given | None = None,
        group: str | None = None,
        replay: Literal["read", "logged"] = "read",
        security: KafkaSecurity | None = None,
        client: Literal["confluent-kafka", "kafka-python"] | None = None,
        fetch_wait: str | int = "20ms",
        discover: str | int = "5s",
        away: str | int = "5m",
    ) -> None:
        self._topics = (topics,) if isinstance(topics, str) else tuple(topics)
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
        self.schemas = (self._rows.schema,)
        self.records = (schema if isinstance(schema, type) else None,)

    @cached_property
    def layout(self) -> SourceLayout:
        """What there is to read, found once. Raises SourceError."""
        try:
            admin = self._address.connect().admin()
            found = resolve(admin, self._topics, self._start, self._stop, kept=not self._logged)
        except KafkaFailure as failure:
            raise SourceError(f"Kafka at {self._address.bootstrap}: {failure.kind.value}: {failure}") from None
        admin.close()
        return found

    def resolve(self) -> None:
        _ = self.layout

    def create(self, columns: tuple[tuple[str, ...] | None, ...], read_rows: int | None = None) -> Source:
        (names,) = columns
        return self.reader(names, None, read_rows)

    def reader(self, names: tuple[str, ...] | None, letters: Sequence[str] | None, read_rows: int | None) -> Source:
        """``names``: of the columns of rows, None for all; ``letters``: see ``RowMaker``."""
        rows = self._rows if names is None else self._rows.only(names)
        maker = RowMaker(rows, letters)
        return TopicReader(self._address, self.layout, maker, self._times, self._group, read_rows, self._logged)

    def catch(self) -> CaughtKafkaSource:
        """The same with a second stream, of ``KafkaDeadLetter``: messages that cannot be read. Without it such a
        message ends the job."""
        return CaughtKafkaSource(self)


class CaughtKafkaSource(MultiSourceDefinition):
    """See ``KafkaSource.catch``."""

    def __init__(self, source: KafkaSource[Any]) -> None:
        self._source = source
        self.schemas = (*source.schemas, KafkaDeadLetter.schema())
        self.records = (*source.records, KafkaDeadLetter)
        self.commits = source.commits

    def resolve(self) -> None:
        self._source.resolve()

    def create(self, columns: tuple[tuple[str, ...] | None, ...], read_rows: int | None = None) -> Source:
        names, letters = columns
        return self._source.reader(names, KafkaDeadLetter.schema().names if letters is None else letters, read_rows)


def _schema(format: str | FormatDefinition, schema: type[Record] | pa.Schema | None) -> pa.Schema:
    if schema is None:
        if format not in ("text", "bytes"):
            raise GraphError(f"KafkaSource: {format} needs schema=, a Record class or a pyarrow schema")
        return TEXT if format == "text" else BYTES
    return schema if isinstance(schema, pa.Schema) else schema.schema()


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
