"""Loops of whole jobs: every row goes round as often as it should under any failures, and the job ends by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from clonos_py import Job, Record, Stream, col, count, forever
from clonos_py.connectors import FileSink, MemorySink, MemorySource, read_results
from clonos_py.runtime.launch import run_job
from clonos_py.settings.protocols import ALIGNED, PROTOCOL_NAMES
from clonos_py.settings.resolution import resolve
from clonos_py.testing import run


class Countdown(Record):
    id: int
    left: int


class Hop(Record):
    start: int
    to: int


class Walk(Record):
    at: int
    steps: int


class Load(Record):
    id: int
    left: int
    payload: str


Counting = Stream[Countdown]


def countdown(**settings: Any) -> Job:
    """A row goes round until its count is 0."""

    def step(rows: Counting) -> tuple[Counting, Counting]:
        less = rows.rebalance().select(Countdown, left=col("left") - 1)
        return less.filter(col("left") > 0), less.filter(col("left") <= 0)

    job = Job("countdown", **settings)
    rows = job.source(MemorySource([], schema=Countdown)).named("numbers")
    rows.iterate(step).sink(MemorySink("done"))
    return job


def walks() -> Job:
    """From its place, a walk continues over every hop that starts there; one that has taken three steps ends."""

    def step(rows: Stream[Walk]) -> tuple[Stream[Walk], Stream[Walk]]:
        further = rows.join(hops, on=("at", "start"), within=forever()).select(
            Walk, at=col("to"), steps=col("steps") + 1
        )
        return further.filter(col("steps") < 3), further

    job = Job("walks")
    hops = job.source(MemorySource([], schema=Hop)).named("hops")
    starts = job.source(MemorySource([], schema=Walk)).named("starts")
    starts.iterate(step).sink(MemorySink("walks"))
    return job


SEEDS = 2
NUMBERS = [Countdown(n, n % 7 + 1) for n in range(28)]
DONE = [Countdown(n, 0) for n in range(28)]


@pytest.mark.parametrize(
    ("protocol", "parallelism"),
    [pytest.param(ALIGNED.name, 1, marks=pytest.mark.thorough), *((protocol, 2) for protocol in PROTOCOL_NAMES)],
)
def test_every_row_leaves_the_loop_once(protocol: str, parallelism: int) -> None:
    job = countdown(protocol=protocol)
    out = run(job, {"numbers": NUMBERS}, kills=2, seeds=SEEDS, parallelism=parallelism)
    assert sorted(out["done"], key=lambda row: row.id) == DONE


def test_rollback_recovery_sends_a_loop_back_as_a_whole() -> None:
    job = countdown(guarantee="exactly-once", sharing_depth=0)
    out = run(job, {"numbers": NUMBERS}, kills=2, seeds=SEEDS, parallelism=2)
    assert sorted(out["done"], key=lambda row: row.id) == DONE


def test_at_least_once_every_row_leaves_the_loop() -> None:
    out = run(countdown(sharing_depth=0), {"numbers": NUMBERS}, parallelism=2)
    assert sorted(out["done"], key=lambda row: row.id) == DONE


@pytest.mark.parametrize("parallelism", [pytest.param(1, marks=pytest.mark.thorough), 2])
def test_rows_in_a_loop_are_joined_with_others(parallelism: int) -> None:
    """Ten hops from each of three places: 10 + 100 + 1,000 walks of each start."""
    hops = [Hop(start, n % 3) for start in range(3) for n in range(10)]
    out = run(walks(), {"hops": [hops], "starts": [Walk(0, 0)]}, kills=1, seeds=SEEDS, parallelism=parallelism)
    assert [sum(walk.steps == n for walk in out["walks"]) for n in (1, 2, 3)] == [10, 100, 1_000]


@pytest.mark.parametrize(
    ("protocol", "parallelism"), [pytest.param("aligned", 1, marks=pytest.mark.thorough), ("uncoordinated", 2)]
)
def test_ten_times_more_feedback_than_input_fits_into_64_mib(protocol: str, parallelism: int, tmp_path: Path) -> None:
    """Each row leads to ten of 1,000 bytes and more, 120 MB in all, while the source still reads."""

    def step(rows: Stream[Load]) -> tuple[Stream[Load], Stream[Load]]:
        more = rows.rebalance().map_batches(tenfold, returns=Load)
        return more.filter(col("left") > 0), more.filter(col("left") <= 0)

    job = Job("loads")
    rows = job.source(MemorySource([Load(n, 2, "x" * 1_000) for n in range(12_000)], schema=Load))
    totals = rows.iterate(step).key_by("left").aggregate(rows=count(), ids=col("id").sum()).at_end()
    totals.sink(FileSink(str(tmp_path / "totals"), "jsonl"))
    given = {
        "runtime": "local", "protocol": protocol, "parallelism": parallelism, "in_flight_budget": "64MiB",
        "spill": "spill-threshold", "spill_threshold": "32MiB", "checkpoints": str(tmp_path / "checkpoints"),
    }  # fmt: skip
    run_job(job, resolve(command_line=given))
    (total,) = read_results(str(tmp_path / "totals"))
    assert total == {"left": 0, "rows": 120_000, "ids": 719_940_000}


def tenfold(loads: pa.RecordBatch) -> pa.RecordBatch:
    """Rows that have just entered ten times, all others once; each has one round less to go."""
    left = loads.column("left").to_numpy()
    taken = loads.take(np.repeat(np.arange(len(left)), np.where(left == 2, 10, 1)))
    less = pc.subtract(taken.column("left"), 1)
    return pa.RecordBatch.from_arrays([taken.column("id"), less, taken.column("payload")], schema=loads.schema)


def test_an_empty_loop_ends() -> None:
    assert run(countdown(), {"numbers": []})["done"] == []


def test_consecutive_loops_end_one_after_the_other() -> None:
    def step(rows: Counting) -> tuple[Counting, Counting]:
        less = rows.select(Countdown, left=col("left") - 1)
        return less.filter(col("left") > 0), less.filter(col("left") <= 0)

    job = Job("two")
    rows = job.source(MemorySource([], schema=Countdown)).named("numbers")
    again = rows.iterate(step).select(Countdown, left=col("id") % 5 + 1)
    again.iterate(step).sink(MemorySink("done"))
    out = run(job, {"numbers": NUMBERS}, kills=2, seeds=SEEDS, parallelism=2)
    assert sorted(out["done"], key=lambda row: row.id) == DONE
