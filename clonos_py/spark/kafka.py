"""Writes Nexmark events to Kafka: a topic of each kind with a partition for each of the source's, rows as JSON."""

from __future__ import annotations

import re
from dataclasses import dataclass

from clonos_py.bench.nexmark.generator import KINDS
from clonos_py.bench.nexmark.source import NexmarkSource
from clonos_py.model.errors import SettingError, SparkError
from clonos_py.spark.session import named_errors, session, shown

SCHEME = "kafka://"
_TARGET = re.compile(rf"{SCHEME}(?P<servers>[^/,\s]+:\d+(?:,[^/,\s]+:\d+)*)/(?P<prefix>[A-Za-z0-9._-]{{1,200}})")
ANSWER_S = 10


@dataclass(frozen=True)
class KafkaTopics:
    """Where events go: ``PREFIX.person``, ``PREFIX.auction`` and ``PREFIX.bid`` of a cluster."""

    servers: str
    prefix: str

    @classmethod
    def parse(cls, out: str) -> KafkaTopics:
        """``kafka://HOST:PORT[,HOST:PORT...]/PREFIX``. Raises SettingError."""
        found = _TARGET.fullmatch(out)
        if found is None:
            raise SettingError(f"{out} names no topics: write kafka://HOST:PORT/PREFIX, several brokers with commas")
        return cls(**found.groupdict())

    def __str__(self) -> str:
        return f"{SCHEME}{self.servers}/{self.prefix}"

    def topic(self, kind: str) -> str:
        """Of one kind of event."""
        return f"{self.prefix}.{kind}"


def generate_into(topics: KafkaTopics, source: NexmarkSource, master: str | None = None) -> None:
    """Partition p of every topic gets partition p of the source, its rows in the order of the stream, in one
    transaction: a task that Spark repeats writes nothing twice for those who read what is committed. Raises SparkError
    where a topic is there already or the cluster does not answer."""
    create(topics, source.layout.partitions)
    with session("nexmark generate", master) as spark:
        from pyspark.sql import functions as F

        from clonos_py.spark.kafka_sink import KafkaPartitions
        from clonos_py.spark.sources import events_of

        spark.dataSource.register(KafkaPartitions)

        for kind in KINDS:
            with shown(spark, f"{kind} events"), named_errors(f"events cannot be written to {topics}"):
                rows = events_of(spark, source, kind).select(F.to_json(F.struct("*")))
                options = {"servers": topics.servers, "topic": topics.topic(kind)}
                rows.write.format(KafkaPartitions.name()).options(**options).mode("append").save()


def create(topics: KafkaTopics, partitions: int) -> None:
    """Makes the topics, with as many replicas as the cluster has by default."""
    try:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic
    except ImportError as error:
        raise SparkError("this needs a client of Kafka: pip install 'clonos-py[kafka]'") from error
    client = AdminClient({"bootstrap.servers": topics.servers, "log_level": 0})
    wanted = [NewTopic(topics.topic(kind), num_partitions=partitions) for kind in KINDS]
    try:
        for made in client.create_topics(wanted, request_timeout=ANSWER_S).values():
            made.result()
    except KafkaException as error:
        raise SparkError(f"{topics}: the topics cannot be made: {error.args[0].str()}") from error
