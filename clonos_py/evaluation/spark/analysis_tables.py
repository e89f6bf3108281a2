"""Spark queries over a trace: each function reduces a table of the trace to a small table by time.

Times are microseconds since deployment, negative before it. A *step* is an interval of ``step_us`` microseconds; its
number times its length is its start. Counters are totals that are reported from time to time. The growth of a total is
spread evenly over the time between two reports, and divided among steps in proportion to the time that they cover. A
total that has decreased was reset to 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from clonos_py.observe.trace import TABLES

PERCENTS = (50.0, 95.0, 99.0, 99.9)
_FIRST_US = 250_000
"""A process is assumed to have started counting this long before its first report."""
_SQL_TYPES = {
    pa.int64(): "bigint", pa.int32(): "int", pa.string(): "string", pa.bool_(): "boolean", pa.float64(): "double"
}  # fmt: skip
_STEPS = {
    "detected_us": "Detected",
    "activated_us": "StandbyActivated",
    "replayed_us": "Replayed",
    "effect_us": "FirstNewEffect",
}


def load(spark: SparkSession, trace: Path) -> dict[str, DataFrame]:
    """The tables of the trace by name; a table is empty if no part was written."""
    events = _table(spark, trace, "events")
    deployed = events.where("what = 'Deployed'").agg(f.min("at_us")).first()
    deployed_us = (deployed[0] if deployed else None) or 0
    return {
        name: _table(spark, trace, name).withColumn("at_us", f.col("at_us") - deployed_us).coalesce(1).cache()
        for name in TABLES
    }


def _table(spark: SparkSession, trace: Path, name: str) -> DataFrame:
    schema = ", ".join(f"`{field.name}` {_SQL_TYPES[field.type]}" for field in TABLES[name])
    return spark.read.schema(schema).parquet(str(trace / name))


def percentiles(markers: DataFrame, scopes: Mapping[str, Column]) -> DataFrame:
    """By ``scope`` and its ``number``: markers, ``max`` and the ``PERCENTS`` as ``p50``, ..., in microseconds.

    A scope's column is the number of the row's group in that scope; null if it has none. All scopes are computed in one
    pass."""
    belongs = [f.struct(f.lit(name).alias("scope"), group.alias("number")) for name, group in scopes.items()]
    each = markers.select(f.explode(f.array(*belongs)).alias("in"), "latency_us", "times").where(
        "in.number IS NOT NULL"
    )
    counted = each.groupBy("in.scope", "in.number", "latency_us").agg(f.sum("times").alias("times"))
    group = Window.partitionBy("scope", "number")
    ranked = counted.withColumns(
        {"seen": f.sum("times").over(group.orderBy("latency_us")), "all": f.sum("times").over(group)}
    )
    found = [
        f.min(f.when(f.col("seen") >= f.col("all") * percent / 100, f.col("latency_us"))).alias(f"p{percent:g}")
        for percent in PERCENTS
    ]
    totals = (f.max("latency_us").alias("max"), f.sum("times").alias("markers"))
    return ranked.groupBy("scope", "number").agg(*found, *totals).orderBy("scope", "number")


def step_of(step_us: int) -> Column:
    """The number of the step that contains a row's ``at_us``."""
    return f.floor(f.col("at_us") / step_us).cast("bigint")


def growth(readings: DataFrame, totals: Sequence[str], step_us: int) -> DataFrame:
    """By ``step`` and ``vertex``: the growth of each total, over all processes."""
    order = Window.partitionBy("process").orderBy("at_us")
    since = f.coalesce(f.lag("at_us").over(order), f.col("at_us") - _FIRST_US)
    grown = {name: _grown(name, f.lag(name).over(order)) for name in totals}
    spans = readings.select("vertex", "at_us", since.alias("since_us"), *(c.alias(n) for n, c in grown.items()))
    first, last = f.floor(f.col("since_us") / step_us), f.floor((f.col("at_us") - 1) / step_us)
    steps = spans.where("at_us > since_us").withColumn("step", f.explode(f.sequence(first, last)))
    begin = f.greatest(f.col("since_us"), f.col("step") * step_us)
    end = f.least(f.col("at_us"), (f.col("step") + 1) * step_us)
    share = (end - begin) / (f.col("at_us") - f.col("since_us"))
    return steps.groupBy("step", "vertex").agg(*(f.sum(f.col(name) * share).alias(name) for name in totals))


def _grown(name: str, earlier: Column) -> Column:
    total, before = f.col(name), f.coalesce(earlier, f.lit(0))
    return f.when(total >= before, total - before).otherwise(total)


def levels(readings: DataFrame, step_us: int) -> DataFrame:
    """By ``step`` and ``vertex``: the highest levels of its tasks' queues and memory, summed over tasks, and the
    highest share of reports in which a task was held back."""
    of_process = readings.groupBy(step_of(step_us).alias("step"), "vertex", "process").agg(
        f.max("frames_queued").alias("frames_queued"),
        f.max("in_flight_bytes").alias("in_flight_bytes"),
        f.max("spilled_bytes").alias("spilled_bytes"),
        f.max("log_bytes").alias("log_bytes"),
        f.avg(f.col("held_back").cast("double")).alias("held_back"),
    )
    return of_process.groupBy("step", "vertex").agg(
        f.sum("frames_queued").alias("frames_queued"),
        f.sum("in_flight_bytes").alias("in_flight_bytes"),
        f.sum("spilled_bytes").alias("spilled_bytes"),
        f.sum("log_bytes").alias("log_bytes"),
        f.max("held_back").alias("held_back"),
    )


def failures(events: DataFrame) -> DataFrame:
    """One row per failure: its task, its time and cause, and the times of the steps of its recovery, up to the next
    failure of the same task."""
    failed = f.col("what") == "TaskFailed"
    order = Window.partitionBy("vertex", "index").orderBy("at_us", f.when(failed, 0).otherwise(1))
    story = events.where("vertex IS NOT NULL").withColumn("failure", f.sum(failed.cast("int")).over(order))
    steps = [f.min(f.when(f.col("what") == what, f.col("at_us"))).alias(name) for name, what in _STEPS.items()]
    return (
        story.where("failure > 0")
        .groupBy("vertex", "index", "failure")
        .agg(
            f.min(f.when(failed, f.col("at_us"))).alias("failed_us"),
            f.min(f.when(failed, f.col("detail"))).alias("how"),
            f.max("rows").alias("rows_replayed"),
            *steps,
        )
        .orderBy("failed_us", "vertex", "index")
    )
