"""Gives the top speed of each car in the last ten seconds, whenever it has driven another 50 meters.

clonos run examples/top_speed.py --runtime local --out top-speeds
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from clonos_py import Context, Instant, Job, Process, Record, col, last, state
from clonos_py.connectors import FileSink, FileSource

CARS = str(Path(__file__).parent / "data" / "cars.jsonl")


class Car(Record):
    car: int
    speed: int
    meters: float
    at: Instant


class TopSpeed(Car):
    top: int


class Every(Process[TopSpeed, TopSpeed]):
    reported: float | None = state(None)

    def __init__(self, meters: float) -> None:
        self.meters = meters

    def on_row(self, row: TopSpeed, ctx: Context) -> Iterator[TopSpeed]:
        if self.reported is None:
            self.reported = row.meters
        elif row.meters - self.reported > self.meters:
            self.reported = row.meters
            yield row


def job(cars: str = CARS, out: str = "top-speeds") -> Job:
    job = Job("top-speed")
    driven = job.source(FileSource(cars, Car), event_time="at", out_of_order="1s").named("cars")
    fastest = driven.key_by("car").over(last("10s")).aggregate(TopSpeed, top=col("speed").max()).named("fastest")
    reported = fastest.key_by("car").process(Every(meters=50), in_order=True).named("reported")
    reported.sink(FileSink(out)).named("top-speeds")
    return job
