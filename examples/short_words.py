"""Counts the words of each five seconds. Words of more than five letters are not counted: they are a stream beside it.

clonos run examples/short_words.py --runtime local --out short-words
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from clonos_py import Instant, Job, Record, col, count, tumbling
from clonos_py.connectors import FileSink, FileSource

LINES = str(Path(__file__).parent / "data" / "lines.jsonl")


class Line(Record):
    text: str
    at: Instant


class Word(Record):
    word: str
    at: Instant


def words(line: Line) -> Iterator[Word]:
    for word in re.findall(r"\w+", line.text.lower()):
        yield Word(word, line.at)


def job(lines: str = LINES, out: str = "short-words") -> Job:
    job = Job("short-words")
    read = job.source(FileSource(lines, Line), event_time="at").named("lines")
    found, long = read.flat_map(words).named("words"), col("word").length() > 5
    counts = found.filter(~long).key_by("word").window(tumbling("5s")).aggregate(times=count()).named("counts")
    counts.sink(FileSink(out)).named("counted")
    found.filter(long).select("word").sink(FileSink(f"{out}-rejected")).named("rejected")
    return job
