"""Gives the highest temperature of each five seconds in which it was above 20 degrees.

A reading that comes up to a day late still counts: then the result of its window is given again, if it has changed.

    clonos run examples/temperature.py --runtime local --out hot
"""

from __future__ import annotations

from pathlib import Path

from clonos_py import Instant, Job, Record, col, tumbling
from clonos_py.connectors import FileSink, FileSource

READINGS = str(Path(__file__).parent / "data" / "temperatures.jsonl")


class Reading(Record):
    celsius: int
    at: Instant


class Hot(Record):
    window_end: Instant
    celsius: int


def job(readings: str = READINGS, out: str = "hot") -> Job:
    job = Job("temperature")
    read = job.source(FileSource(readings, Reading), event_time="at").named("readings")
    highest = read.window(tumbling("5s"), lateness="1d").aggregate(Hot, celsius=col("celsius").max()).named("highest")
    highest.filter(col("celsius") > 20).sink(FileSink(out)).named("hot")
    return job
