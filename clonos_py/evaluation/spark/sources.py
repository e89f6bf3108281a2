"""Spark data sources that use the engine's own generators: ``nexmark`` and ``synthetic``.

    register(spark)
    spark.read.format("nexmark").options(events=1_000_000, kind="bid").load()

Options are those of the generator; numbers may be text. Rows are Arrow batches, without Python code per row.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from clonos_py.evaluation.nexmark.description import described, source_of
from clonos_py.evaluation.nexmark.generator import KINDS, SCHEMAS, Generator
from clonos_py.evaluation.nexmark.source import NexmarkSource
from clonos_py.evaluation.spark.synthetic import WORKLOADS, Synthetic, synthetic_of
from clonos_py.model.errors import SettingError

_BATCH_ROWS = 50_000


def register(spark: SparkSession) -> None:
    """Registers the data sources in a session."""
    spark.dataSource.register(NexmarkDataSource)
    spark.dataSource.register(SyntheticDataSource)


class NexmarkDataSource(DataSource):
    """The data source of one kind of event: ``kind`` is person, auction or bid. Other options are those of
    ``description``."""

    @classmethod
    def name(cls) -> str:
        return "nexmark"

    def schema(self) -> StructType:
        return from_arrow_schema(SCHEMAS[self._kind()])

    def reader(self, schema: StructType) -> NexmarkReader:
        options = {name: value for name, value in self.options.items() if name != "kind"}
        return NexmarkReader(source_of(options), self._kind())

    def _kind(self) -> int:
        kind = self.options.get("kind")
        if kind not in KINDS:
            raise SettingError(f"kind is {kind!r}: choose one of {', '.join(KINDS)}")
        return KINDS.index(kind)


class NexmarkReader(DataSourceReader):
    """Reads one kind of event. Each Spark partition is a partition of the layout, as the engine's source has it."""

    def __init__(self, source: NexmarkSource, kind: int) -> None:
        self._source = source
        self._kind = kind

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(self._source.layout.partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        generator = self._source.generator
        for block, start, stop in self._source.layout.stripes(partition.value):
            yield generator.part_of(self._kind, _rows(generator, self._kind, block), start, stop)


class SyntheticDataSource(DataSource):
    """The data source of a synthetic workload, chosen by ``workload``; see ``clonos_py.evaluation.spark.synthetic``."""

    @classmethod
    def name(cls) -> str:
        return "synthetic"

    def schema(self) -> StructType:
        return from_arrow_schema(WORKLOADS[self._synthetic().workload].schema)

    def reader(self, schema: StructType) -> SyntheticReader:
        return SyntheticReader(self._synthetic())

    def _synthetic(self) -> Synthetic:
        options: Mapping[str, str] = self.options
        return synthetic_of(options)


class SyntheticReader(DataSourceReader):
    """Reads a synthetic workload. Each partition is a range of rows."""

    def __init__(self, synthetic: Synthetic) -> None:
        self._synthetic = synthetic

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(self._synthetic.partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        rows, of = self._synthetic.rows, self._synthetic.partitions
        start, stop = rows * partition.value // of, rows * (partition.value + 1) // of
        for first in range(start, stop, _BATCH_ROWS):
            yield self._synthetic.batch(first, min(first + _BATCH_ROWS, stop))


def events_of(spark: SparkSession, source: NexmarkSource, kind: str) -> DataFrame:
    """All events of one kind of a source, with the same partitions."""
    spark.dataSource.register(NexmarkDataSource)
    options = {name: str(value) for name, value in described(source).items() if value is not None}
    return spark.read.format(NexmarkDataSource.name()).options(**options, kind=kind).load()


@functools.lru_cache(maxsize=2)
def _rows(generator: Generator, kind: int, block: int) -> pa.RecordBatch:
    """The rows of a block, cached since stripes of small streams share blocks."""
    return generator.block_of(kind, block)
