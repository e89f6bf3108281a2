"""A Spark data source that is only written to: partition p of what ``kafka_partitions`` is given goes into partition p
of a topic, its one column, text, as the values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaException, Producer
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from clonos_py.model.errors import SparkError
from clonos_py.spark.kafka_topics import ANSWER_S

_TRANSACTION_MS = 900_000
"""What brokers allow if not told otherwise."""
_AWAY_S = 60
"""A broker that is away for longer is given up."""


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
                "message.timeout.ms": _AWAY_S * 1_000,
                "compression.type": "zstd",
                "log_level": 0,
            }
        )
        try:
            producer.init_transactions(ANSWER_S)
            producer.begin_transaction()
            for batch in iterator:
                values: list[Any] = batch.column(0).to_pylist()
                for value in values:
                    _produce(producer, self._topic, value.encode(), partition)
            producer.commit_transaction(_AWAY_S)
        except KafkaException as error:
            raise SparkError(f"{self._servers} takes no more: {error.args[0].str()}") from error
        return WriterCommitMessage()


def _produce(producer: Any, topic: str, value: bytes, partition: int) -> None:
    """Waits while the client has as much as it may keep."""
    while True:
        try:
            producer.produce(topic, value=value, partition=partition)
            return
        except BufferError:
            producer.poll(1)
