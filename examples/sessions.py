"""Counts the pages of each visit to a site: a session ends when its user has been away for five minutes.

Phones without a connection send their pages late. Pages that arrive after their session was counted form a separate
stream.

    clonos run examples/sessions.py --runtime local --out sessions
"""

from __future__ import annotations

from pathlib import Path

from clonos_py import Instant, Job, Record, count, session
from clonos_py.connectors import FileSink, FileSource

PAGES = str(Path(__file__).parent / "data" / "pages.jsonl")


class Page(Record):
    id: int
    user: str
    at: Instant


def job(pages: str = PAGES, out: str = "sessions") -> Job:
    job = Job("sessions")
    seen = job.source(FileSource(pages, Page), event_time="at", out_of_order="1m").named("pages")
    sessions, late = seen.key_by("user").window(session("5m")).aggregate(pages=count()).named("sessions").with_late()
    sessions.sink(FileSink(out)).named("counted")
    late.sink(FileSink(f"{out}-late")).named("late")
    return job
