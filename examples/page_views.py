"""Counts the page views of each region over seven days, once a day.

The region of a user is that which is known when the page is viewed; users move. The first views wait until the users
are loaded.

    clonos run examples/page_views.py --runtime local --out views
"""

from __future__ import annotations

from pathlib import Path

from clonos_py import Instant, Job, Record, coalesce, col, count, hopping
from clonos_py.connectors import FileSink, FileSource

DATA = Path(__file__).parent / "data"


class View(Record):
    user: str
    page: str
    at: Instant


class User(Record):
    user: str
    region: str


class RegionViews(Record):
    window_start: Instant
    region: str
    views: int


def job(views: str = f"{DATA}/views.jsonl", users: str = f"{DATA}/users.jsonl", out: str = "views") -> Job:
    job = Job("page-views")
    known = job.source(FileSource(users, User)).named("users").to_table("user").named("known")
    viewed = job.source(FileSource(views, View), event_time="at").named("views")
    placed = viewed.join(known, on="user", how="left", load_first=True).named("placed")
    weeks = placed.key_by(region=coalesce(col("region"), "unknown")).window(hopping("7d", "1d"))
    weeks.aggregate(RegionViews, views=count()).named("weeks").sink(FileSink(out)).named("out")
    return job
