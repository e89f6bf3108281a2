"""Counts the words of text files and writes one line per word.

clonos run examples/word_count.py --runtime local --out /tmp/words
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from clonos_py import Job, Record, count
from clonos_py.connectors import FileSink, FileSource

TEXTS = str(Path(__file__).parent / "data" / "*.txt")


class Line(Record):
    line: str


class Word(Record):
    word: str


class WordCount(Record):
    word: str
    times: int


def words(text: Line) -> Iterator[Word]:
    for word in re.findall(r"[a-z]+", text.line.lower()):
        yield Word(word)


def job(texts: str = TEXTS, out: str = "words") -> Job:
    job = Job("word-count")
    lines = job.source(FileSource(texts)).named("texts")
    counts = lines.flat_map(words).key_by("word").aggregate(WordCount, times=count())
    counts.at_end().sink(FileSink(out, format="csv")).named("counts")
    return job
