"""Joins the grades and salaries of people that come within the same two seconds.

clonos run examples/salaries.py --runtime local --out salaries
"""

from __future__ import annotations

from pathlib import Path

from clonos_py import Instant, Job, Record, tumbling
from clonos_py.connectors import FileSink, FileSource

DATA = Path(__file__).parent / "data"


class Grade(Record):
    name: str
    grade: int
    at: Instant


class Salary(Record):
    name: str
    salary: int
    at: Instant


class Person(Record):
    name: str
    grade: int
    salary: int


def job(grades: str = f"{DATA}/grades.jsonl", salaries: str = f"{DATA}/salaries.jsonl", out: str = "salaries") -> Job:
    job = Job("salaries")
    graded = job.source(FileSource(grades, Grade), event_time="at").named("grades")
    paid = job.source(FileSource(salaries, Salary), event_time="at").named("salaries")
    graded.join(paid, on="name", within=tumbling("2s"), into=Person).named("people").sink(FileSink(out)).named("out")
    return job
