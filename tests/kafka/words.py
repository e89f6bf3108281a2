"""Rows of jobs from topic to topic: words, and how often each has come."""

from __future__ import annotations

from collections.abc import Iterator

from clonos_py import Context, Process, Record, state


class Word(Record):
    word: str
    number: int


class Total(Record):
    word: str
    words: int


class Counted(Process[Word, Total]):
    """Numbers the rows of each word."""

    seen: int = state(0)

    def on_row(self, row: Word, ctx: Context) -> Iterator[Total]:
        self.seen += 1
        yield Total(row.word, self.seen)
