"""Writes Nexmark events to Kafka as JSON: a topic per kind, with one partition for each partition of the source."""

from __future__ import annotations

from clonos_py.evaluation.nexmark.generator import KINDS
from clonos_py.evaluation.nexmark.source import NexmarkSource
from clonos_py.evaluation.spark.kafka_topics import KafkaTopics, create
from clonos_py.evaluation.spark.session import named_errors, session, shown


def generate_into(topics: KafkaTopics, source: NexmarkSource, master: str | None = None) -> None:
    """Writes partition p of the source to partition p of every topic, in stream order and in one transaction. So if
    Spark repeats a task, consumers with ``read_committed`` see no duplicates. Raises SparkError if a topic exists
    already, or the cluster does not answer."""
    create(topics, source.layout.partitions)
    with session("nexmark generate", master) as spark:
        from pyspark.sql import functions as F

        from clonos_py.evaluation.spark.kafka_sink import KafkaPartitions
        from clonos_py.evaluation.spark.sources import events_of

        spark.dataSource.register(KafkaPartitions)

        for kind in KINDS:
            with shown(spark, f"{kind} events"), named_errors(f"events cannot be written to {topics}"):
                rows = events_of(spark, source, kind).select(F.to_json(F.struct("*")))
                options = {"servers": topics.servers, "topic": topics.topic(kind)}
                rows.write.format(KafkaPartitions.name()).options(**options).mode("append").save()
