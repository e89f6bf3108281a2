"""The write-only Spark data source ``kafka_partitions``. It writes partition p of a data frame to partition p of a
topic, with its single text column as values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from clonos_py.connectors.kafka.client import KafkaFailure, Message
from clonos_py.connectors.kafka.clients import ClusterAddress
from clonos_py.model.errors import SparkError

_TRANSACTION_S = 900.0
"""The default maximum of brokers."""


class KafkaPartitions(DataSource):
    """The data source. Its options are ``servers`` and ``topic``."""

    @classmethod
    def name(cls) -> str:
        return "kafka_partitions"

    def writer(self, schema: StructType, overwrite: bool) -> KafkaPartitionsWriter:
        return KafkaPartitionsWriter(self.options)


class KafkaPartitionsWriter(DataSourceArrowWriter):
    """Each task writes in one transaction. If Spark repeats a task, the writes of the failed try are never
    committed."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._servers, self._topic = options["servers"], options["topic"]

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:  # type: ignore[override]
        context = TaskContext.get()
        assert context is not None
        partition = context.partitionId()
        client = ClusterAddress(self._servers).connect()
        try:
            writer = client.transactional_writer(f"{self._topic}.{partition}", _TRANSACTION_S)
            writer.acquire()
            writer.begin()
            for batch in iterator:
                values: list[Any] = batch.column(0).to_pylist()
                writer.write([Message(self._topic, value.encode(), partition=partition) for value in values])
            writer.commit()
        except KafkaFailure as failure:
            raise SparkError(f"{self._servers} does not accept more messages: {failure}") from failure
        writer.close()
        return WriterCommitMessage()
