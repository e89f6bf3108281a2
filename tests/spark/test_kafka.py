"""Events in Kafka, as ``clonos nexmark generate`` leaves them there."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from clonos_py.bench.kafka.cluster import BrokerNode, cluster
from clonos_py.cli.main import invoke
from clonos_py.evaluation.nexmark.generator import KINDS
from clonos_py.evaluation.nexmark.source import NexmarkSource
from clonos_py.evaluation.spark.sources import NexmarkReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS, SEED, PARTITIONS = 500, 5, 2


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with cluster(tmp_path_factory.mktemp("kafka")) as found:
        yield found.bootstrap


def generate(out: str, events: int = EVENTS) -> int:
    given = ["--events", str(events), "--seed", str(SEED), "--partitions", str(PARTITIONS)]
    return invoke(["nexmark", "generate", *given, "--out", out])


def committed(servers: str, topic: str, partition: int, rows: int) -> list[Any]:
    """The values of so many messages, from the first on; more are an error."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "test", "isolation.level": "read_committed"})
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        found = consumer.consume(rows, 20)
        more = consumer.consume(1, 0.5)
    finally:
        consumer.close()
    assert [message.error() for message in [*found, *more]] == [None] * rows
    return [json.loads(value) for message in found if (value := message.value()) is not None]


@pytest.mark.thorough
def test_each_partition_of_a_topic_has_the_events_of_a_partition_of_the_source(
    spark: SparkSession, servers: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert generate(f"kafka://{servers}/nexmark") == 0
    assert capsys.readouterr().out == f"kafka://{servers}/nexmark: 10 people, 30 auctions, 460 bids\n"
    source = NexmarkSource(EVENTS, seed=SEED, partitions=PARTITIONS)
    for number, kind in enumerate(KINDS):
        reader = NexmarkReader(source, number)
        for partition in reader.partitions():
            wanted = [row for batch in reader.read(partition) for row in batch.to_pylist()]
            assert committed(servers, f"nexmark.{kind}", partition.value, len(wanted)) == wanted
    assert generate(f"kafka://{servers}/nexmark") == 1
    assert "nexmark.person' already exists" in capsys.readouterr().err


def test_a_broker_that_does_not_answer_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert generate("kafka://127.0.0.1:1/nexmark") == 1
    printed = capsys.readouterr().err
    assert printed.startswith("error: kafka://127.0.0.1:1/nexmark: the topics cannot be created: ")
    assert printed.count("\n") == 1


@pytest.mark.thorough
def test_a_broker_that_dies_while_events_are_written_is_named(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with cluster(tmp_path) as found:
        (dying,) = found.nodes
        killer = threading.Thread(target=kill_when_written, args=(dying, "nexmark.auction"))
        killer.start()
        out = f"kafka://{dying.address}/nexmark"
        assert generate(out, 10_000_000) == 1
        killer.join()
    printed = capsys.readouterr().err
    assert printed.startswith(f"error: events cannot be written to {out}: ")
    assert f"{dying.address} does not accept more messages: " in printed
    assert printed.count("\n") == 1


def kill_when_written(dying: BrokerNode, topic: str) -> None:
    """Kills the broker as soon as the topic has a message, even an uncommitted one."""
    consumer = Consumer({"bootstrap.servers": dying.address, "group.id": "watch"})
    deadline = time.monotonic() + 60
    try:
        while time.monotonic() < deadline:
            with contextlib.suppress(KafkaException):
                if consumer.get_watermark_offsets(TopicPartition(topic, 0), 1)[1] > 0:
                    break
            time.sleep(0.05)
    finally:
        consumer.close()
    dying.kill()
