"""Runs a producer and consumers beside a job from topic to topic: input at a fixed rate, watchers of the output."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from clonos_py import Job
from clonos_py.bench.kafka.cluster import BrokerCluster, Listener, cluster
from clonos_py.bench.kafka.topics import PARTITIONS, create_topics
from clonos_py.connectors.kafka.client import Client, Fields, KafkaFailure, Message, TopicPartition
from clonos_py.connectors.kafka.clients import ClusterAddress

Library = Literal["confluent-kafka", "kafka-python"]
LIBRARIES: tuple[Library, ...] = ("confluent-kafka", "kafka-python")
_BATCHES_PER_S = 10
_QUIET_S = 2.0
"""After the end of the job a watcher ends when no row has arrived for this time."""
_READ_S_MAX = 60.0
_POLL_S = 0.05


@contextmanager
def in_background(run: Callable[[threading.Event], None]) -> Iterator[None]:
    """Runs ``run`` in a thread during the block. At the end of the block its event is set, and the block waits for its
    return. An exception in ``run`` interrupts the main thread at once, and is raised at the end of the block."""
    stop = threading.Event()
    problems: list[Exception] = []

    def work() -> None:
        try:
            run(stop)
        except Exception as problem:  # noqa: BLE001 - raised below
            problems.append(problem)
            signal.raise_signal(signal.SIGINT)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        if problems:
            raise problems[0]


@dataclass
class Producer:
    """Writes messages once ``begin`` is set, at a fixed ``rate`` per second. ``grow``: topics and the number of
    partitions to which they are raised before the second half of the messages."""

    bootstrap: str
    messages: Sequence[Message]
    rate: float
    grow: Mapping[str, int] = field(default_factory=dict)
    begin: threading.Event = field(default_factory=threading.Event)

    def run(self, stop: threading.Event) -> None:
        while not self.begin.wait(_POLL_S):
            if stop.is_set():
                return
        client = ClusterAddress(self.bootstrap).connect()
        writer = client.writer()
        size = max(1, int(self.rate / _BATCHES_PER_S))
        half = len(self.messages) // 2
        for start in range(0, len(self.messages), size):
            if stop.is_set():
                break
            if self.grow and start <= half < start + size:
                writer.flush()
                writer.close()
                self._grow(client)
                writer = client.writer()  # the old writer does not see the new partitions
            writer.write(self.messages[start : start + size])
            time.sleep(1 / _BATCHES_PER_S)
        flushed = False
        while not flushed and not stop.is_set():  # brokers may be down
            with suppress(KafkaFailure):
                writer.flush()
                flushed = True
        writer.close()

    def _grow(self, client: Client) -> None:
        """Adds the partitions, and waits until the cluster reports them."""
        admin = client.admin()
        for topic, partitions in self.grow.items():
            admin.add_partitions(topic, partitions)
            while admin.topics([topic])[topic].partitions < partitions:
                time.sleep(_POLL_S)
        admin.close()


@dataclass
class Watcher:
    """Reads the committed rows of a topic as they arrive. It keeps every row, so later retractions show."""

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
class WatchedTopics:
    """A running producer with watchers. ``begin`` starts the producer. ``seen``: the rows of each output topic so far.
    ``rows`` stops producer and watchers after the job, and returns all rows of each topic."""

    brokers: BrokerCluster
    begin: Callable[[], None]
    seen: Sequence[list[dict[str, Any]]]
    rows: Callable[[], Sequence[list[dict[str, Any]]]]


@dataclass
class JobOverTopics:
    """A job from topic to topic. ``begin`` starts the producer; call it when the job is deployed. ``wrong`` waits for
    the watchers and says what is wrong with the results, or None. ``complete``: whether all expected rows were seen."""

    job: Job
    brokers: BrokerCluster
    begin: Callable[[], None]
    wrong: Callable[[], str | None]
    complete: Callable[[], bool]


@contextmanager
def traffic(
    folder: Path,
    nodes: int,
    inputs: Sequence[str],
    outputs: Sequence[str],
    messages: Sequence[Message],
    rate: float,
    grow: Mapping[str, int] | None = None,
) -> Iterator[WatchedTopics]:
    """Runs a separate cluster behind proxies within the block, with a producer of ``messages`` and a watcher of each
    output topic. ``grow``: see ``Producer``."""
    with ExitStack() as outer:
        brokers = outer.enter_context(cluster(folder, nodes, [Listener.PROXIED]))
        create_topics(brokers.bootstrap, *inputs, *outputs)
        watchers = [Watcher(brokers.bootstrap, topic) for topic in outputs]
        running = outer.enter_context(ExitStack())
        producer = Producer(brokers.bootstrap, messages, rate, grow or {})
        for run in (*(watcher.run for watcher in watchers), producer.run):
            running.enter_context(in_background(run))
        seen = [watcher.rows for watcher in watchers]

        def rows() -> Sequence[list[dict[str, Any]]]:
            running.close()
            return seen

        yield WatchedTopics(brokers, producer.begin.set, seen, rows)
