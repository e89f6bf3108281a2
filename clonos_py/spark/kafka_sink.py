"""A Spark data source that is only written to: partition p of what ``kafka_partitions`` is given goes into partition p
of a topic, its one column, text, as the values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from confluent_kafka import Producer
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from clonos_py.spark.kafka import ANSWER_S

_TRANSACTION_MS = 900_000
"""What brokers allow if not told otherwise."""


class KafkaPartitions(DataSource):
    """Options are ``servers`` and ``topic``."""

    @classmethod
    def name(cls) -> str:
        return "kafka_partitions"

    def writer(self, schema: StructType, overwrite: bool) -> KafkaPartitionsWriter:
        return KafkaPartitionsWriter(self.options)


class KafkaPartitionsWriter(DataSourceArrowWriter):
    """Each task writes in one transaction: what it wrote before Spark repeated it is never committed."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._servers, self._topic = options["servers"], options["topic"]

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:  # type: ignore[override]
        context = TaskContext.get()
        assert context is not None
        partition = context.partitionId()
        producer = Producer(
            {
                "bootstrap.servers": self._servers,
                "transactional.id": f"{self._topic}.{partition}",
                "transaction.timeout.ms": _TRANSACTION_MS,
                "compression.type": "zstd",
                "log_level": 0,
            }
        )
        producer.init_transactions(ANSWER_S)
        producer.begin_transaction()
        for batch in iterator:
            values: list[Any] = batch.column(0).to_pylist()
            for value in values:
                _produce(producer, self._topic, value.encode(), partition)
        producer.commit_transaction()
        return WriterCommitMessage()


def _produce(producer: Any, topic: str, value: bytes, partition: int) -> None:
    """Waits while the client has as much as it may keep."""
    while True:
        try:
            producer.produce(topic, value=value, partition=partition)
            return
        except BufferError:
            producer.poll(1)
