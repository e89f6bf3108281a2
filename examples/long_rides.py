"""Alerts to taxi rides of more than two hours while they go on. Of a ride the beginning or the end may be missing.

clonos run examples/long_rides.py --runtime local --out long-rides
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from clonos_py import Context, Instant, Job, Process, Record, event_timer, micros, state
from clonos_py.connectors import FileSink, FileSource

RIDES = str(Path(__file__).parent / "data" / "rides.jsonl")


class Ride(Record):
    ride: int
    begins: bool
    began: Instant
    at: Instant


class LongRide(Record):
    ride: int


class LongRides(Process[Ride, LongRide]):
    alerted: bool = state(False, ttl="1d")
    overdue = event_timer()

    def __init__(self, limit: str) -> None:
        self.limit = micros(limit)

    def on_row(self, ride: Ride, ctx: Context) -> Iterator[LongRide]:
        if ride.begins:
            self.overdue.set(ride.began + self.limit + 1)
            return
        if self.overdue.at is None and not self.alerted and ride.at - ride.began > self.limit:
            yield LongRide(ride.ride)
        self.overdue.clear()
        self.alerted = False

    @overdue.fires
    def alert(self, ctx: Context) -> LongRide:
        self.alerted = True
        return LongRide(ctx.key)


def job(rides: str = RIDES, out: str = "long-rides") -> Job:
    job = Job("long-rides")
    read = job.source(FileSource(rides, Ride), event_time="at", out_of_order="1m").named("rides")
    read.key_by("ride").process(LongRides("2h"), in_order=True).named("long").sink(FileSink(out)).named("alerts")
    return job
