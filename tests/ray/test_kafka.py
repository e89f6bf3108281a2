"""Jobs from topic to topic on real actors, tasks and the broker killed: each row is seen once by consumers of what is
committed."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import pytest

from clonos_py import Job
from clonos_py.connectors import KafkaSink, KafkaSource
from clonos_py.connectors.kafka.clients import ClusterAddress
from clonos_py.connectors.kafka.port import Fields, KafkaFailure, Message, TopicPartition
from clonos_py.model.coordinator_events import RolledBack
from clonos_py.observe.events import Event, TaskFailed
from clonos_py.runtime.launch import run_job
from clonos_py.runtime.ray.cluster import Cluster
from clonos_py.settings.resolution import resolve
from tests.kafka.cluster import Node
from tests.kafka.cluster import cluster as kafka
from tests.kafka.words import Counted, Word

pytestmark = pytest.mark.ray

WORDS, ROWS, RATE = 20, 16_000, 1_000
PATIENCE_S = 60.0
KILLS = ("source-kafka[0]@1s", "counted[0]@2s", "source-kafka[1]@4s", "counted[1]@5s", "counted[0]@6s")


def job(bootstrap: str, client: Literal["confluent-kafka", "kafka-python"]) -> Job:
    made = Job("kafka-on-ray")
    stop = {("in", partition): ROWS // 2 for partition in range(2)}
    words = made.source(KafkaSource("in", Word, bootstrap=bootstrap, client=client, stop=stop))
    counted = words.key_by("word").process(Counted).named("counted")
    counted.sink(KafkaSink("out", bootstrap=bootstrap, client=client, key="word")).named("written")
    return made


@contextmanager
def going_on(run: Callable[[threading.Event], None]) -> Iterator[None]:
    """While the block runs, and until it stops by itself after that."""
    stop = threading.Event()
    thread = threading.Thread(target=run, args=(stop,))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def produce(bootstrap: str) -> Callable[[threading.Event], None]:
    """Words at a pace, to both partitions in turn."""

    def run(stop: threading.Event) -> None:
        writer = ClusterAddress(bootstrap).connect().writer()
        for start in range(0, ROWS, RATE // 10):
            rows = [b'{"word": "w%d", "number": %d}' % (n // 2 % WORDS, n) for n in range(start, start + RATE // 10)]
            writer.write([Message("in", row, partition=n % 2) for n, row in enumerate(rows)])
            time.sleep(0.1)
        flushed = False
        while not flushed:  # the broker may be away
            with suppress(KafkaFailure):
                writer.flush()
                flushed = True
        writer.close()

    return run


class Watcher:
    """Reads what is committed as it comes."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self.seen: Counter[tuple[str, int]] = Counter()

    def run(self, stop: threading.Event) -> None:
        reader = ClusterAddress(self._bootstrap).connect().reader(Fields())
        reader.assign({TopicPartition("out", number): 0 for number in range(2)})
        quiet_since = time.monotonic()
        while not stop.is_set() or time.monotonic() - quiet_since < 2:
            for messages in reader.fetch(0.2):
                quiet_since = time.monotonic()
                self.seen.update((row["word"], row["words"]) for row in map(json.loads, filter(None, messages.values)))
        reader.close()


def carried_out(bootstrap: str, client: Any, folder: Path, *kills: str) -> list[Event]:
    """The job, with someone who writes and someone who reads; each row must have been seen once."""
    admin = ClusterAddress(bootstrap).connect().admin()
    for topic in ("in", "out"):
        admin.create(topic, 2, {})
    admin.close()
    events: list[Event] = []
    settings = resolve({"parallelism": 2, "checkpoint_interval": "1s", "checkpoints": str(folder), "kills": kills})
    watcher = Watcher(bootstrap)
    with going_on(watcher.run), going_on(produce(bootstrap)):
        run_job(job(bootstrap, client), settings, lambda at_us, event: events.append(event))
    wanted = {(f"w{word}", nth) for word in range(WORDS) for nth in range(1, ROWS // WORDS + 1)}
    assert watcher.seen.keys() == wanted
    assert set(watcher.seen.values()) == {1}
    return events


@pytest.mark.parametrize("client", ["confluent-kafka", "kafka-python"])
def test_each_row_is_seen_once_though_every_task_is_killed(client: str, cluster: Cluster, tmp_path: Path) -> None:
    with kafka(tmp_path / "kafka") as brokers:
        events = carried_out(brokers.bootstrap, client, tmp_path / "checkpoints", *KILLS)
    assert len([event for event in events if isinstance(event, TaskFailed)]) == len(KILLS)
    assert not [event for event in events if isinstance(event, RolledBack)]


@pytest.mark.parametrize("client", ["confluent-kafka", "kafka-python"])
def test_each_row_is_seen_once_though_the_only_broker_is_killed(client: str, cluster: Cluster, tmp_path: Path) -> None:
    with kafka(tmp_path / "kafka") as brokers:
        (node,) = brokers.nodes
        with going_on(lambda stop: killed_once(node)):
            events = carried_out(brokers.bootstrap, client, tmp_path / "checkpoints")
    assert not [event for event in events if isinstance(event, TaskFailed)], "the broker was waited for"


def killed_once(node: Node) -> None:
    time.sleep(9)
    node.kill()
    time.sleep(5)
    node.start()
    node.wait()
