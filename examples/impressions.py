"""Joins what was shown with what was clicked within five seconds, with all that lacks the other: a full outer join.

clonos run examples/impressions.py --runtime local --out impressions
"""

from __future__ import annotations

from pathlib import Path

from clonos_py import Instant, Job, Record, between
from clonos_py.connectors import FileSink, FileSource

DATA = Path(__file__).parent / "data"


class Shown(Record):
    ad: str
    shown: Instant


class Clicked(Record):
    ad: str
    clicked: Instant


class Impression(Record):
    ad: str
    shown: Instant | None
    clicked: Instant | None


def job(shown: str = f"{DATA}/shown.jsonl", clicked: str = f"{DATA}/clicked.jsonl", out: str = "impressions") -> Job:
    job = Job("impressions")
    ads = job.source(FileSource(shown, Shown), event_time="shown", out_of_order="2s").named("shown")
    clicks = job.source(FileSource(clicked, Clicked), event_time="clicked", out_of_order="2s").named("clicked")
    both = ads.join(clicks, on="ad", within=between("-5s", "5s"), how="full", into=Impression).named("both")
    both.sink(FileSink(out)).named("impressions")
    return job
