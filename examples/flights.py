"""Counts the flights that land in each quarter of an hour. The airport writes times as text, such as 31/01/2026 09:30.

clonos run examples/flights.py --runtime local --out /tmp/landings
"""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated

from clonos_py import Epoch, Job, Record, col, count, tumbling
from clonos_py.connectors import FileSink, FileSource

FLIGHTS = str(Path(__file__).parent / "data" / "flights.csv")


class Flight(Record):
    number: str
    scheduled: datetime
    reported: Annotated[datetime, Epoch("ms")]
    landed: str


class Landings(Record):
    window_start: datetime
    flights: int
    longest_delay: timedelta


def job(flights: str = FLIGHTS, out: str = "landings") -> Job:
    job = Job("flights")
    landed = (
        job.source(FileSource(flights, Flight))
        .named("flights")
        .with_columns(at=col("landed").strptime("%d/%m/%Y %H:%M"))
        .with_event_time("at", delay="5m")
        .with_columns(delay=col("at") - col("scheduled"))
    )
    quarters = landed.window(tumbling("15m")).aggregate(Landings, flights=count(), longest_delay=col("delay").max())
    quarters.sink(FileSink(out)).named("landings")
    return job
