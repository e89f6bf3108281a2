"""Lets each event pass once, although its sender repeats events that were not acknowledged in time.

Ids are kept for an hour only, so state does not grow with the stream.

    clonos run examples/deduplication.py --runtime local --out distinct
"""

from __future__ import annotations

from pathlib import Path

from clonos_py import Instant, Job, Record
from clonos_py.connectors import FileSink, FileSource

EVENTS = str(Path(__file__).parent / "data" / "repeated.jsonl")


class Event(Record):
    id: str
    attempt: int
    at: Instant


def job(events: str = EVENTS, out: str = "distinct") -> Job:
    job = Job("deduplication")
    sent = job.source(FileSource(events, Event), event_time="at", out_of_order="5m").named("events")
    sent.distinct("id", ttl="1h").named("first").sink(FileSink(out)).named("distinct")
    return job
