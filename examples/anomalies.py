"""Marks values of a metric that are more than two standard deviations away from the mean of the ten before.

    clonos run examples/anomalies.py --runtime local --out anomalies

Each value gets mean and deviation of the last ten, itself among them. It is compared with those of the value before.
"""

from __future__ import annotations

from pathlib import Path

from clonos_py import Instant, Job, Record, col, last
from clonos_py.connectors import FileSink, FileSource

METRICS = str(Path(__file__).parent / "data" / "metrics.jsonl")


class Metric(Record):
    metric: str
    value: float
    at: Instant


def job(metrics: str = METRICS, out: str = "anomalies") -> Job:
    job = Job("anomalies")
    read = job.source(FileSource(metrics, Metric), event_time="at").named("metrics")
    tens = read.key_by("metric").over(last(rows=10)).aggregate(mean=col("value").mean(), std=col("value").std(ddof=0))
    pairs = tens.named("tens").key_by("metric").over(last(rows=2))
    known = pairs.aggregate(mean_before=col("mean").first(), std_before=col("std").first()).named("known")
    far = (col("value") - col("mean_before")).abs() > 2 * col("std_before")
    judged = known.with_columns(anomalous=far & (col("std_before") > 0))
    judged.select("metric", "value", "mean", "std", "anomalous").sink(FileSink(out)).named("judged")
    return job
