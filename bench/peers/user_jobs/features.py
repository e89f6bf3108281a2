"""Makes features of trips for a model, by Polars."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path

import bytewax.operators as op  # pyright: ignore[reportMissingImports]
import polars as pl
from bytewax.connectors.files import CSVSource, FileSink  # pyright: ignore[reportMissingImports]
from bytewax.dataflow import Dataflow  # pyright: ignore[reportMissingImports]
from msgspec import Struct, convert, json
from msgspec.structs import asdict

TRIPS = str(Path(__file__).parents[3] / "examples" / "data" / "trips.csv")


class Trip(Struct):
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


def lines(batch: tuple[str, list[Trip]]) -> Iterable[tuple[str, str]]:
    rows = features(pl.DataFrame([asdict(trip) for trip in batch[1]])).to_dicts()
    return [("", json.encode(convert(row, Features)).decode()) for row in rows]


def flow(trips: str = TRIPS, out: str = "features.jsonl") -> Dataflow:
    flow = Dataflow("features")
    read = op.input("trips", flow, CSVSource(Path(trips)))
    made = op.map("parsed", read, lambda row: ("", convert(row, Trip, strict=False)))
    batches = op.collect("batches", made, timedelta(seconds=1), 1_000)
    op.output("features", op.flat_map("lines", batches, lines), FileSink(Path(out)))
    return flow
