"""A job with each kind of state, whose checkpoint is kept in the repository. It gives all its results at its end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from clonos_py import Context, Job, Process, Record, Stream, col, count, session, state, tumbling
from clonos_py.bench.witnesses import KEYS, Number, PacedNumbers
from clonos_py.connectors import FileSink

TOTAL, RATE = 2_000, 400


class Totals(Record):
    key: int
    rows: int
    sum: int


class Best(Record):
    id: int
    key: int
    rank_number: int


class Pair(Record):
    id: int
    key: int
    other: int


class Rank(Process[Number, Number]):
    """Numbers the rows of a key."""

    seen: int = state(0)

    def on_row(self, row: Number, ctx: Context) -> Iterator[Number]:
        self.seen += 1
        yield Number(id=self.seen, key=row.key)


def job(folder: str, unpaced: str) -> Job:
    job = Job("kept")
    numbers = job.source(PacedNumbers(TOTAL, RATE, unpaced), event_time="id").named("numbers").parallelism(2)
    others = job.source(PacedNumbers(TOTAL, RATE, unpaced), event_time="id").named("others").parallelism(2)
    by_key = numbers.key_by("key")
    totals = {"rows": count(), "sum": col("id").sum()}
    results: dict[str, Stream[Any]] = {
        "totals": by_key.aggregate(Totals, **totals).named("totals").at_end(),
        "windows": by_key.window(tumbling("1h")).aggregate(Totals, **totals).named("windows"),
        "sessions": by_key.window(session("1h")).aggregate(Totals, **totals).named("sessions"),
        "best": by_key.top(2, by=col("id").desc(), into=Best).named("best").at_end(),
        "ranks": by_key.process(Rank).named("ranks").key_by("key").aggregate(Totals, **totals).named("sums").at_end(),
        "pairs": numbers.join(
            others.select(id=col("id"), other=col("key")), on="id", within=tumbling("1h"), into=Pair
        ).named("pairs"),
    }
    for name, found in results.items():
        found.sink(FileSink(f"{folder}/{name}", format="jsonl")).named(f"to-{name}")
    return job


def expected() -> dict[str, Sequence[tuple[int, ...]]]:
    """By sink: the results of the whole job, sorted."""
    keys = {key: range(key, TOTAL, KEYS) for key in range(KEYS)}
    sums = sorted((key, len(ids), sum(ids)) for key, ids in keys.items())
    return {
        "totals": sums,
        "windows": sums,
        "sessions": sums,
        "best": sorted((ids[-rank], key, rank) for key, ids in keys.items() for rank in (1, 2)),
        "ranks": sorted((key, len(ids), len(ids) * (len(ids) + 1) // 2) for key, ids in keys.items()),
        "pairs": [(id_, id_ % KEYS, id_ % KEYS) for id_ in range(TOTAL)],
    }
