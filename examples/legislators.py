"""Ranks the five states with the most legislators for the administration, with the number of those against it.

clonos run examples/legislators.py --runtime local --out legislators
"""

from __future__ import annotations

from pathlib import Path

from clonos_py import Job, Record, col, count
from clonos_py.connectors import FileSink, FileSource

LEGISLATORS = str(Path(__file__).parent / "data" / "legislators.csv")


class Legislator(Record):
    state: str
    party: str


def job(legislators: str = LEGISLATORS, out: str = "legislators") -> Job:
    job = Job("legislators")
    states = job.source(FileSource(legislators, Legislator)).named("legislators").key_by("state")
    counted = states.aggregate(
        anti=count().where(col("party") == "Anti-Administration"),
        pro=count().where(col("party") == "Pro-Administration"),
    )
    counted.named("states").top(5, by=col("pro").desc()).named("first").at_end().sink(FileSink(out)).named("out")
    return job
