"""Query 8 of Nexmark from topic to topic: windows and a join of two topics, in event time."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal, cast

from clonos_py import Job, Record, Stream
from clonos_py.bench.kafka.topics import PARTITIONS
from clonos_py.bench.kafka.traffic import JobOverTopics, Library, traffic
from clonos_py.bench.oracle import expected
from clonos_py.connectors import KafkaSink, KafkaSource
from clonos_py.connectors.kafka.client import Message
from clonos_py.connectors.kafka.outgoing import MessageLayout, MessageMaker
from clonos_py.evaluation.nexmark.events import Auction, Person
from clonos_py.evaluation.nexmark.new_users import difference
from clonos_py.evaluation.nexmark.queries.q8 import q8
from clonos_py.evaluation.nexmark.source import EVENT_TIME, NexmarkSource
from clonos_py.evaluation.nexmark.streams import Streams

JournaledDelivery = Literal["causal", "transactional"]
DELIVERIES: tuple[JournaledDelivery, ...] = ("causal", "transactional")
_KINDS: tuple[tuple[str, type[Record]], ...] = (("person", Person), ("auction", Auction))
_EVENT_RATE = 150
_OUT_OF_ORDER = "2s"
"""How far a message may be out of order within its partition. Both topics are written in the same order of time."""


def messages(source: NexmarkSource) -> list[Message]:
    """The messages of both topics, in the order of event time."""
    by_kind = []
    for number, (topic, record) in enumerate(_KINDS):
        maker, made = MessageMaker(MessageLayout(topic, "json"), record.schema()), []
        for events in source.generator.events(0, source.events):
            rows = events[number].select(record.schema().names)
            times = rows.column(EVENT_TIME).to_pylist()
            made += list(zip(times, maker.messages(rows), strict=True))
        made.sort(key=itemgetter(0))
        spread = [(at, message._replace(partition=n % PARTITIONS)) for n, (at, message) in enumerate(made)]
        by_kind.append(spread)
    return [message for _, message in heapq.merge(*by_kind, key=itemgetter(0))]


def job(bootstrap: str, library: Library, delivery: JournaledDelivery, written: list[Message]) -> Job:
    made = Job("kafka-new-users")

    def stream(topic: str, record: type[Record]) -> Stream[Any]:
        stop = {(topic, n): sum(m.topic == topic and m.partition == n for m in written) for n in range(PARTITIONS)}
        source = KafkaSource(topic, record, bootstrap=bootstrap, client=library, stop=stop)
        return made.source(source, event_time=EVENT_TIME, out_of_order=_OUT_OF_ORDER).named(topic)

    person, auction = (stream(topic, record) for topic, record in _KINDS)
    found = q8(Streams(person, auction, cast("Any", None)))
    found.sink(KafkaSink("new", bootstrap=bootstrap, client=library, key="id", delivery=delivery)).named("new")
    return made


@contextmanager
def new_users(
    folder: Path,
    seconds: float,
    rate: float,
    library: Library,
    delivery: JournaledDelivery,
    nodes: int = 1,
) -> Iterator[JobOverTopics]:
    """Runs a cluster, a producer and watchers for the job within the block. ``rate``: messages per second."""
    events = int(seconds * rate * 50 / 4)  # of 50 events one is a person and three are auctions
    source = NexmarkSource(events=events, event_rate=_EVENT_RATE)
    written = messages(source)
    with traffic(folder, nodes, [topic for topic, _ in _KINDS], ["new"], written, rate) as over:

        def wrong() -> str | None:
            (rows,) = over.rows()
            return difference(expected("q8", source), [(r["id"], r["name"], r["window_start"]) for r in rows])

        def complete() -> bool:
            return len(over.seen[0]) >= len(set(expected("q8", source)))

        made = job(over.brokers.bootstrap, library, delivery, written)
        yield JobOverTopics(made, over.brokers, over.begin, wrong, complete)
