"""A job that had read all of its input is run again, when there is more: it reads that, or says why it does not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from clonos_py.connectors import read_results
from clonos_py.settings.protocols import ALIGNED, INDUCED, UNALIGNED, UNCOORDINATED
from tests.jobs.half_way import RECORDS, SCRIPT
from tests.jobs.in_process import run
from tests.observed import without_warnings

JOB = (
    RECORDS
    + """
class Event(Record):
    id: int
    key: int
    at: Instant

class One(Record):
    id: int

class Sum(Process[Event, Total]):
    total: int = state(0)
    def on_row(self, row: Event, ctx: Context) -> Total:
        self.total += 1
        return Total(row.id, self.total)

class Timed(Process[Event, Total]):
    until = event_timer()
    def on_row(self, row: Event, ctx: Context) -> None:
        self.until.set(row.at)
    @until.fires
    def fire(self, ctx: Context) -> Total:
        return Total(ctx.key, 1)

def event(row: Row) -> Event:
    return Event(row.id, row.key, 1_700_000_000_000_000 + row.id * 1_000_000)

job = Job("more", runtime="local", checkpoints="checkpoints")
rows = job.source(FileSource("in/*.jsonl", Row)).named("rows")
events = rows.map(event).with_event_time("at")
BODY.sink(FileSink("out")).named("out")
"""
)
PAIRS = 'events.join(events.select(id=col("id"), other=col("key"), at=col("at")), on="id", within={}, into=One)'
GOES_ON = {
    "rows": "events",
    "a process": 'events.key_by("key").process(Sum)',
    "distinct": 'events.distinct("id")',
    "changes of a table": 'events.key_by("key").aggregate(n=count()).changes()',
    "changes of a top": 'events.key_by("key").top(9, by="id").changes()',
    "a join": PAIRS.format("forever()"),
}
LIKE_OTHERS = [
    ("a process", UNALIGNED.name),
    ("a process", INDUCED.name),
    ("a join", UNCOORDINATED.name),
    ("a join", INDUCED.name),
]
FINAL = {
    "windows": 'events.key_by("key").window(tumbling("2s")).aggregate(n=count())',
    "sessions": 'events.key_by("key").window(session("2s")).aggregate(n=count())',
    "a top of windows": 'events.key_by("key").window(tumbling("2s")).top(1, by="id")',
    "a table": 'events.key_by("key").aggregate(n=count()).at_end()',
    "a top": 'events.key_by("key").top(1, by="id").at_end()',
    "a join in windows": PAIRS.format('tumbling("2s")'),
    "a join in time": PAIRS.format('between("-2s", "2s")'),
    "timers": 'events.key_by("key").process(Timed)',
    "order": 'events.key_by("key").process(Sum, in_order=True)',
    "distinct for a while": 'events.distinct("id", ttl="1h")',
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()


def day(number: int) -> None:
    rows = [{"id": 10 * number + row, "key": row % 2} for row in range(4)]
    Path(f"in/day{number}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def shown() -> list[str]:
    return sorted(map(str, read_results("out")))


def summary() -> object:
    """What does not depend on the order in which files are read: ids, all totals, and the last count of each key."""
    rows = read_results("out")
    counts = [(row["key"], row["n"]) for row in rows if "n" in row]
    return (
        sorted({row.get("id", 0) for row in rows}),
        sorted(row["total"] for row in rows if "total" in row),
        dict(sorted(counts)),
    )


def runs(body: str, *more: str) -> None:
    Path(SCRIPT).write_text(JOB.replace("BODY", body))
    done = run(Path(SCRIPT).resolve(), *more)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("body", "protocol"),
    [
        *((body, ALIGNED.name) for body in GOES_ON),
        ("a process", UNCOORDINATED.name),
        ("a join", UNALIGNED.name),
        *(pytest.param(*case, marks=pytest.mark.thorough) for case in LIKE_OTHERS),
    ],
)
def test_the_results_are_those_of_one_run_over_all_input(body: str, protocol: str) -> None:
    for number in (1, 2, 3):
        day(number)
        runs(GOES_ON[body], "--protocol", protocol)
        runs(GOES_ON[body], "--protocol", protocol)
    more = summary()
    shutil.rmtree("out")
    runs(GOES_ON[body], "--fresh")
    assert summary() == more


@pytest.mark.parametrize("body", FINAL)
def test_final_results_are_emitted_once_and_more_input_is_refused(body: str) -> None:
    day(1)
    runs(FINAL[body])
    final = shown()
    assert final
    runs(FINAL[body])
    runs(FINAL[body], "--parallelism", "2")
    assert shown() == final
    day(2)
    done = run(Path(SCRIPT).resolve(), "--parallelism", "2")
    assert done.returncode == 1
    (line,) = without_warnings(done.stderr)
    assert "has emitted its final results: an earlier run had read all input, and now there is more" in line
    assert "--fresh" in line
    assert shown() == final


def test_a_parallelism_may_change_with_more_input() -> None:
    for number, parallelism in enumerate(("1", "3", "2")):
        day(number)
        runs(GOES_ON["a process"], "--parallelism", parallelism)
    assert len(shown()) == 12
    assert max(row["total"] for row in read_results("out")) == 6


COUNTS = (
    'events.key_by("key").aggregate(n=count()).named("counts").at_end().sink(FileSink("counts")).named("counts-out")\n'
)


def test_an_operator_that_is_new_or_starts_over_takes_more_input() -> None:
    day(1)
    runs("events")
    for number, dropped in ((2, ()), (3, ("--drop-state", "counts"))):
        day(number)
        runs(COUNTS + "events", *dropped)
        counts = sorted((row["key"], row["n"]) for row in read_results("counts"))
        assert counts == sorted([(0, 2), (1, 2)] * (number - 1))
    day(4)
    done = run(Path(SCRIPT).resolve())
    assert done.returncode == 1
    assert "operator 'counts' has emitted its final results" in done.stderr
