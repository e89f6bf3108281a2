"""Writes Nexmark events to Kafka: a topic of each kind with a partition for each of the source's, rows as JSON."""

from __future__ import annotations

from clonos_py.nexmark.generator import KINDS
from clonos_py.nexmark.source import NexmarkSource
from clonos_py.spark.kafka_topics import KafkaTopics, create
from clonos_py.spark.session import named_errors, session, shown


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
