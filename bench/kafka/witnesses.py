"""The two witnesses from topic to topic, with a producer at a pace and a consumer that watches throughout."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from clonos_py import Job
from clonos_py.bench.kafka.brokers import Brokers
from clonos_py.bench.kafka.cluster import cluster
from clonos_py.bench.kafka.topics import create_topics
from clonos_py.bench.witnesses import KEYS, PARTITIONS, Number, disagreement, witnesses_between
from clonos_py.connectors import KafkaSink, KafkaSource
from clonos_py.connectors.kafka.clients import ClusterAddress
from clonos_py.connectors.kafka.port import Fields, KafkaFailure, Message, TopicPartition

Library = Literal["confluent-kafka", "kafka-python"]
LIBRARIES: tuple[Library, ...] = ("confluent-kafka", "kafka-python")
TOPICS = ("numbers", "left", "right")
_BATCHES_PER_S = 10
_QUIET_S = 2.0
"""After so long without a row nothing more is expected."""
_READ_S_MAX = 60.0


def job(bootstrap: str, server: str, library: Library, total: int) -> Job:
    """One sink is causal, the other transactional."""
    half = total // PARTITIONS
    source = KafkaSource(
        "numbers",
        Number,
        bootstrap=bootstrap,
        client=library,
        stop={("numbers", partition): half for partition in range(PARTITIONS)},
    )
    left = KafkaSink("left", bootstrap=bootstrap, client=library)
    right = KafkaSink("right", bootstrap=bootstrap, client=library, key="key", delivery="transactional")
    return witnesses_between(source, left, right, server)


@contextmanager
def going_on(run: Callable[[threading.Event], None]) -> Iterator[None]:
    """``run`` is at work while the block is, and until it ends by itself after the block has set its event."""
    stop = threading.Event()
    thread = threading.Thread(target=run, args=(stop,))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@dataclass
class Producer:
    """Writes numbers at a pace, to all partitions in turn; ``rate`` is of one partition."""

    bootstrap: str
    total: int
    rate: float

    def run(self, stop: threading.Event) -> None:
        writer = ClusterAddress(self.bootstrap).connect().writer()
        batch = max(1, int(self.rate * PARTITIONS / _BATCHES_PER_S))
        for start in range(0, self.total, batch):
            if stop.is_set():
                break
            numbers = range(start, min(start + batch, self.total))
            writer.write([
                Message("numbers", b'{"id": %d, "key": %d}' % (n, n % KEYS), partition=n % PARTITIONS)
                for n in numbers
            ])  # fmt: skip
            time.sleep(1 / _BATCHES_PER_S)
        flushed = False
        while not flushed and not stop.is_set():  # brokers may be away
            with suppress(KafkaFailure):
                writer.flush()
                flushed = True
        writer.close()


@dataclass
class Watcher:
    """Reads what is committed in a topic, as it comes. What it has seen cannot be taken back."""

    bootstrap: str
    topic: str
    rows: list[dict[str, Any]] = field(default_factory=list)

    def run(self, stop: threading.Event) -> None:
        places = {TopicPartition(self.topic, number): 0 for number in range(PARTITIONS)}
        reader = None
        deadline = quiet_since = time.monotonic()
        while not stop.is_set() or time.monotonic() < min(quiet_since + _QUIET_S, deadline):
            if not stop.is_set():
                deadline = time.monotonic() + _READ_S_MAX
            try:
                if reader is None:
                    reader = ClusterAddress(self.bootstrap).connect().reader(Fields())
                    reader.assign(places)
                for messages in reader.fetch(0.2):
                    quiet_since = time.monotonic()
                    places[messages.partition] = messages.offsets[-1] + 1
                    self.rows += map(json.loads, filter(None, messages.values))
            except KafkaFailure:
                quiet_since = time.monotonic()
                if reader is not None:
                    reader.close()
                reader = None
        if reader is not None:
            reader.close()


@dataclass
class KafkaWitnesses:
    """The job over a cluster of its own, numbers that come at a pace, and watchers of both outputs."""

    job: Job
    brokers: Brokers
    wrong: Callable[[], str | None]


@contextmanager
def kafka_witnesses(
    folder: Path, server: str, total: int, rate: float, library: Library, nodes: int, random_: random.Random
) -> Iterator[KafkaWitnesses]:
    """``wrong``, to be called after the job, waits for the watchers."""
    with ExitStack() as outer:
        made = outer.enter_context(cluster(folder, nodes, with_proxies=True))
        create_topics(made.bootstrap, *TOPICS)
        left, right = (Watcher(made.bootstrap, topic) for topic in ("left", "right"))
        running = outer.enter_context(ExitStack())
        for run in (left.run, right.run, Producer(made.bootstrap, total, rate).run):
            running.enter_context(going_on(run))

        def wrong() -> str | None:
            running.close()
            return disagreement(left.rows, right.rows, total)

        yield KafkaWitnesses(job(made.bootstrap, server, library, total), Brokers(made, random_), wrong)
