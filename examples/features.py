"""Computes features of trips for a model with Polars, by a function of data frames.

Rows come in batches as they arrive, so a feature may depend only on its own row. Values that depend on other rows need
an aggregate, a window or a process.

    clonos run examples/features.py --runtime local --out features
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import polars as pl

from clonos_py import Job, Record
from clonos_py.connectors import FileSink, FileSource

TRIPS = str(Path(__file__).parent / "data" / "trips.csv")


class Trip(Record):
    id: int
    started: datetime
    seconds: int
    km: float


class Features(Trip):
    hour: int
    kmh: float
    log_km: float


def features(trips: pl.DataFrame) -> pl.DataFrame:
    km, started = pl.col("km"), pl.col("started")
    return trips.with_columns(hour=started.dt.hour(), kmh=km * 3_600 / pl.col("seconds"), log_km=km.log1p())


def job(trips: str = TRIPS, out: str = "features") -> Job:
    job = Job("features")
    made = job.source(FileSource(trips, Trip)).named("trips").map_batches(features, returns=Features).named("made")
    made.sink(FileSink(out)).named("features")
    return job
