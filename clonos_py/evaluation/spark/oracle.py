"""The expected answers of the Nexmark queries, computed by Spark: one SQL file per query in the folder ``nexmark/``.

Columns are those of the official sink tables, in order. The answer of an updating query is its final state.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from clonos_py.evaluation.nexmark.description import read_description
from clonos_py.evaluation.nexmark.generator import KINDS
from clonos_py.evaluation.nexmark.source import NexmarkSource
from clonos_py.model.errors import SettingError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUERIES = tuple(f"q{number}" for number in range(23))

_SIDE_INPUT = "SELECT id AS key, cast(id AS string) AS value FROM range(10000)"


def answer(spark: SparkSession, query: str) -> DataFrame:
    """The rows of a query over the views person, auction and bid. Raises SettingError for an unknown query."""
    return spark.sql(sql(query))


def sql(query: str) -> str:
    """The SQL text of a query."""
    if query not in QUERIES:
        raise SettingError(f"there is no Nexmark query {query!r}: choose one of {', '.join(QUERIES)}")
    return files("clonos_py.evaluation.spark").joinpath(f"nexmark/{query}.sql").read_text(encoding="utf-8")


def view_files(spark: SparkSession, folder: Path) -> None:
    """Creates views of the events in files. Raises SourceError if there are none."""
    read_description(folder)
    for kind in KINDS:
        spark.read.parquet(str(folder / kind)).createOrReplaceTempView(kind)
    _view_side_input(spark)


def view_generated(spark: SparkSession, source: NexmarkSource) -> None:
    """Creates views of the events of a source, which are generated when they are read."""
    from clonos_py.evaluation.spark.sources import events_of  # needs pyspark

    for kind in KINDS:
        events_of(spark, source, kind).createOrReplaceTempView(kind)
    _view_side_input(spark)


def _view_side_input(spark: SparkSession) -> None:
    """Creates the view of query 13's side input: the numbers below 10,000, with their digits as text."""
    spark.sql(_SIDE_INPUT).createOrReplaceTempView("side_input")
