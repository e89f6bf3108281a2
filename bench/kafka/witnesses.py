"""The two-witness job from topic to topic."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from clonos_py import Job
from clonos_py.bench.kafka.traffic import JobOverTopics, Library, traffic
from clonos_py.bench.witnesses import KEYS, PARTITIONS, Number, disagreement, witnesses_between
from clonos_py.connectors import KafkaSink, KafkaSource
from clonos_py.connectors.kafka.client import Message

Replay = Literal["read", "logged"]


def job(bootstrap: str, server: str, library: Library, total: int | None, replay: Replay = "read") -> Job:
    """The job with one causal and one transactional sink. ``total``: how many numbers it reads; None: it never ends.
    ``replay``: see ``KafkaSource``."""
    stop = None if total is None else {("numbers", n): total // PARTITIONS for n in range(PARTITIONS)}
    source = KafkaSource(
        "numbers", Number, bootstrap=bootstrap, client=library, stop=stop, discover="1s", replay=replay
    )
    left = KafkaSink("left", bootstrap=bootstrap, client=library)
    right = KafkaSink("right", bootstrap=bootstrap, client=library, key="key", delivery="transactional")
    return witnesses_between(source, left, right, server)


@contextmanager
def kafka_witnesses(
    folder: Path,
    server: str,
    total: int,
    rate: float,
    library: Library,
    nodes: int = 1,
    grown_to: int | None = None,
    replay: Replay = "read",
) -> Iterator[JobOverTopics]:
    """Runs a cluster, a producer and watchers for the job within the block. ``rate``: numbers per second of each
    partition. ``grown_to``: the number of partitions for the second half of the numbers; the job never ends then."""

    def partition(n: int) -> int:
        return n % (grown_to if grown_to and n >= total // 2 else PARTITIONS)

    numbers = [
        Message("numbers", b'{"id": %d, "key": %d}' % (n, n % KEYS), partition=partition(n)) for n in range(total)
    ]
    grow = {"numbers": grown_to} if grown_to else {}
    with traffic(folder, nodes, ["numbers"], ["left", "right"], numbers, rate * PARTITIONS, grow) as over:

        def wrong() -> str | None:
            left, right = over.rows()
            return disagreement(left, right, total)

        def complete() -> bool:
            return all(len(rows) >= total for rows in over.seen)

        made = job(over.brokers.bootstrap, server, library, None if grown_to else total, replay)
        yield JobOverTopics(made, over.brokers, over.begin, wrong, complete)
