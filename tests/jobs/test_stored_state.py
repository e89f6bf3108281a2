"""What checkpoints hold, read without the job and compared with plain Python: all kinds of operators, several tasks,
other parallelism, state saved in parts, jobs that failed, damage."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from clonos_py import (
    Context,
    CoProcess,
    Instant,
    Job,
    Process,
    Record,
    UserAggregate,
    aggregate_by,
    as_of,
    at,
    col,
    count,
    counted,
    cumulative,
    event_timer,
    forever,
    hopping,
    list_state,
    map_state,
    on_change,
    processing_timer,
    read_state,
    session,
    state,
    tumbling,
)
from clonos_py.checkpoint.storage import CheckpointStore
from clonos_py.cli.main import invoke
from clonos_py.connectors import BlackholeSink, FileSource
from clonos_py.model.errors import CheckpointError, SettingError, UserCodeError
from clonos_py.observe.events import Event, Progress
from clonos_py.runtime.launch import run_job
from clonos_py.runtime.stop_switch import StopSwitch
from clonos_py.settings.resolution import resolve
from clonos_py.stored_state.reading import ReplacedCheckpointError, StoredState

SECOND = at("1s")
KEYS = 5
DELAY = 30
"""Seconds by which a row may be behind an earlier one."""


class Given(Record):
    id: int
    key: str
    value: int
    at: Instant


def given(count: int) -> list[Given]:
    """A row each second, with a pause of 30 s after the 40th."""
    seconds = (100 + number + (30 if number >= 40 else 0) for number in range(count))
    return [Given(n, f"k{n % KEYS}", n * 7 % 23 - 5, second * SECOND) for n, second in enumerate(seconds)]


ROWS = given(60)
REACHED = ROWS[-2].at - DELAY * SECOND
"""The watermark when all rows are in: the partition of the last but one row is behind the other."""


class Name(Record):
    key: str
    name: str


class Part(Record):
    number: int
    text: str | None = None


class Out(Record):
    id: int


class Cells(Process[Given, Out]):
    total: int = state(0)
    amount: Decimal = state(Decimal(0))
    seen: list[int] = list_state()
    parts: dict[str, Part] = map_state()
    last: Part | None = state(None)
    pair: tuple[int, str] = state((0, ""))
    anything: object = state(None)
    never: float = state(0.0)
    until = event_timer()
    soon = processing_timer()

    def on_row(self, row: Given, ctx: Context) -> None:
        self.total += row.value
        self.amount += Decimal("0.50")
        self.seen.append(row.id)
        self.parts[f"{row.id % 3}"] = Part(row.id)
        self.last = Part(row.id, "last")
        self.pair = (row.id, row.key)
        self.anything = {"ids": [row.id]}
        self.until.set(row.at + 1_000 * SECOND)

    @until.fires
    def forget(self, ctx: Context) -> None:
        self.last = None

    @soon.fires
    def never_set(self, ctx: Context) -> None: ...


class Both(CoProcess[Given, Given, Out]):
    left: int = state(0)
    right: int = state(0)

    def on_left(self, row: Given, ctx: Context) -> None:
        self.left += 1

    def on_right(self, row: Given, ctx: Context) -> None:
        self.right += row.value


def longest() -> UserAggregate:
    """Counts in an accumulator of its own."""

    def result(counted: dict[str, int]) -> int:
        return counted["n"]

    def add(counted: dict[str, int], value: int) -> dict[str, int]:
        return {"n": counted["n"] + 1}

    def merge(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
        return {"n": one["n"] + other["n"]}

    return UserAggregate(lambda: {"n": 0}, add, merge, result)


def aggregates() -> dict[str, Any]:
    return {
        "n": count(), "total": col("value").sum(), "mean": col("value").mean(), "kinds": col("value").count_distinct(),
        "first": col("id").first(), "ids": col("id").collect(), "least": col("value").min(),
        "half": col("value").approx_quantile(0.5), "few": col("id").collect(limit=2),
        "about": col("value").approx_count_distinct(),
    }  # fmt: skip


def aggregated(rows: Sequence[Given]) -> tuple[Any, ...]:
    values = [row.value for row in rows]
    mean = sum(values) / len(values)
    ids = tuple(row.id for row in rows)
    half = sorted(values)[(len(values) - 1) // 2]
    return len(rows), sum(values), mean, len(set(values)), rows[0].id, ids, min(values), half, ids[:2], len(set(values))


def by_key(rows: Iterable[Given]) -> dict[str, list[Given]]:
    found: dict[str, list[Given]] = {}
    for row in rows:
        found.setdefault(row.key, []).append(row)
    return found


def moment(instant: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=instant)


def of_windows(size: int, slide: int, lateness: int = 0) -> Counter[Any]:
    found: dict[tuple[str, int], list[Given]] = {}
    for row in ROWS:
        start = row.at // (slide * SECOND) * slide * SECOND
        while start > row.at - size * SECOND:
            found.setdefault((row.key, start), []).append(row)
            start -= slide * SECOND
    return Counter(
        (key, moment(start), moment(start + size * SECOND), *aggregated(rows))
        for (key, start), rows in found.items()
        if start + (size + lateness) * SECOND > REACHED
    )


def of_growing_windows(size: int, step: int) -> Counter[Any]:
    found: dict[tuple[str, int, int], list[Given]] = {}
    for row in ROWS:
        start = row.at // (size * SECOND) * size * SECOND
        for end in range(start + step * SECOND, start + (size + step) * SECOND, step * SECOND):
            if row.at < end and end > REACHED:
                found.setdefault((row.key, start, end), []).append(row)
    return Counter((key, moment(start), moment(end), *aggregated(rows)) for (key, start, end), rows in found.items())


def of_sessions(gap: int) -> Counter[Any]:
    """The pause ends the first sessions of all keys, which are emitted."""
    late = by_key(row for row in ROWS if row.id >= 40)
    return Counter(
        (key, moment(rows[0].at), moment(rows[-1].at + gap * SECOND), *aggregated(rows)) for key, rows in late.items()
    )


def of_counts(size: int, every: int) -> Counter[Any]:
    return Counter(
        (key, len(rows[start : start + size]), *aggregated(rows[start : start + size]))
        for key, rows in by_key(ROWS).items()
        for start in range(0, len(rows), every)
        if start + size > len(rows)
    )


def whole(rows: Iterable[Given], *names: str) -> Counter[Any]:
    return Counter(tuple(getattr(row, name) for name in names) for row in rows)


ALL = ("id", "key", "value", "at")
BEST = [row for rows in by_key(ROWS).values() for row in sorted(rows, key=lambda row: (-row.value, row.id))[:2]]


def best_of_windows(size: int, slide: int) -> Counter[Any]:
    found: dict[tuple[str, int], Given] = {}
    for row in ROWS:
        for start in range(row.at // (slide * SECOND) * slide, row.at // SECOND - size, -slide):
            held = found.setdefault((row.key, start), row)
            if row.value > held.value:
                found[row.key, start] = row
    ends = {(key, start): (start + size) * SECOND for key, start in found}
    return Counter(
        (row.id, moment(of[1] * SECOND), moment(ends[of])) for of, row in found.items() if ends[of] > REACHED
    )


def of_cells() -> Counter[Any]:
    return Counter(
        (
            key, sum(row.value for row in rows), Decimal("0.50") * len(rows), tuple(row.id for row in rows),
            tuple(sorted((f"{row.id % 3}", (row.id, None)) for row in rows[-3:])),
            (rows[-1].id, "last"), (rows[-1].id, key), f'{{"ids":[{rows[-1].id}]}}', None,
            moment(rows[-1].at + 1_000 * SECOND), None,
        )
        for key, rows in by_key(ROWS).items()
    )  # fmt: skip


class Looked(NamedTuple):
    """What is read of an operator: a table, its columns if not all, and what must be in it."""

    operator: str
    expected: Counter[Any]
    table: str = "state"
    columns: tuple[str, ...] | None = None


LOOKED = [
    Looked("tumbling", of_windows(20, 20)),
    Looked("hopping", of_windows(20, 10)),
    Looked("cumulative", of_growing_windows(20, 5)),
    Looked("changing", of_windows(20, 10)),
    Looked("lenient", of_windows(20, 10, lateness=15)),
    Looked("sessions", of_sessions(7)),
    Looked("counts", of_counts(9, 3)),
    Looked("first-of-counts", whole((r for rows in by_key(ROWS).values() for r in rows[10:]), *ALL), columns=ALL),
    Looked("sums", Counter((key, *aggregated(rows)) for key, rows in by_key(ROWS).items())),
    Looked(
        "sums", Counter({(row.key, row.value, ("kinds",)) for row in ROWS}), "distinct_int64"
    ),
    Looked("folds", Counter((key, (f'{{"n":{len(rows)}}}',)) for key, rows in by_key(ROWS).items())),
    Looked("best", whole(BEST, *ALL), columns=ALL),
    Looked("best-of-windows", best_of_windows(20, 10), columns=("id", "window_start", "window_end")),
    Looked("distinct", Counter({(row.value,) for row in ROWS})),
    Looked("pairs", whole(ROWS, "id", "key"), "left", ("id", "key")),
    Looked("pairs", whole(ROWS, "id", "key"), "right", ("id", "other")),
    Looked("as-of", whole((row for row in ROWS if row.at >= REACHED), "id"), "left", ("id",)),
    Looked("as-of", whole(ROWS, "id", "key"), "right", ("id", "other")),
    Looked(
        "together",
        Counter((row.id, moment(row.at // (20 * SECOND) * 20 * SECOND)) for row in ROWS if row.id >= 40),
        "left",
        ("id", "window_start"),
    ),
    Looked("cells", of_cells()),
    Looked(
        "both", Counter((key, len(rows), sum(row.value for row in rows)) for key, rows in by_key(ROWS).items())
    ),
    Looked("in-order", whole((row for row in ROWS if row.at >= REACHED), *ALL), "waiting", ALL),
    Looked("totals-of-totals", Counter([(KEYS, sum(row.value for row in ROWS))])),
]  # fmt: skip


def build(folder: Path) -> Job:
    job = Job("looked_into", runtime="local", checkpoint_interval="50ms", checkpoints=str(folder / "checkpoints"))
    source = FileSource(folder / "in", Given, format="jsonl", follow=True)
    rows = job.source(source, event_time="at", out_of_order=f"{DELAY}s").named("in")
    keyed = rows.key_by("key")
    others = rows.select(id=col("id"), other=col("key"), when=col("at")).with_event_time("when", delay=f"{DELAY}s")

    def written(stream: Any, name: str) -> None:
        stream.named(name).sink(BlackholeSink()).named(f"{name}-out")

    written(keyed.window(tumbling("20s")).aggregate(**aggregates()), "tumbling")
    written(keyed.window(hopping("20s", "10s")).aggregate(**aggregates()), "hopping")
    written(keyed.window(cumulative("20s", "5s")).aggregate(**aggregates()), "cumulative")
    changing = keyed.window(hopping("20s", "10s"), emit=on_change()).aggregate(**aggregates()).named("changing")
    changing.changes().sink(BlackholeSink()).named("changing-out")
    written(keyed.window(hopping("20s", "10s"), lateness="15s").aggregate(**aggregates()), "lenient")
    written(keyed.window(session("7s")).aggregate(**aggregates()), "sessions")
    written(keyed.window(counted(9, every=3)).aggregate(**aggregates()), "counts")
    written(keyed.window(counted(5)).top(2, by=col("value").desc()), "first-of-counts")
    keyed.aggregate(**aggregates()).named("sums").at_end().sink(BlackholeSink()).named("sums-out")
    keyed.aggregate(n=aggregate_by(longest(), "value", returns=int)).named("folds").at_end().sink(
        BlackholeSink()
    ).named("folds-out")
    keyed.top(2, by=col("value").desc()).named("best").at_end().sink(BlackholeSink()).named("best-out")
    written(keyed.window(hopping("20s", "10s")).top(1, by=col("value").desc()), "best-of-windows")
    written(rows.distinct("value"), "distinct")
    written(rows.join(others, on="id", within=forever()), "pairs")
    written(rows.join(others, on="id", within=as_of()), "as-of")
    written(rows.join(others, on="id", within=tumbling("20s")), "together")
    written(keyed.process(Cells), "cells")
    written(keyed.connect(rows.key_by("key")).process(Both), "both")
    written(keyed.process(Cells, in_order=True), "in-order")
    written(rows.enrich(FileSource(folder / "names.jsonl", Name), on="key"), "enriched")
    totals = keyed.aggregate(sum=col("value").sum()).named("totals")
    totals.aggregate(n=count(), all=col("sum").sum()).named("totals-of-totals").at_end().sink(BlackholeSink()).named(
        "totals-out"
    )
    return job


def write(folder: Path, rows: Sequence[Given]) -> None:
    """Each key is in one file, so that its rows arrive in order."""
    (folder / "in").mkdir(exist_ok=True)
    for file in range(2):
        lines = (json.dumps({name: getattr(row, name) for name in ALL}) for row in rows if row.id % KEYS % 2 == file)
        (folder / "in" / f"{file}.jsonl").write_text("".join(f"{line}\n" for line in lines))


def run(job: Job, rows: int, **settings: Any) -> None:
    """Runs a job until its source has read so many rows, and stops it: the last checkpoint covers all of them."""
    stop = StopSwitch()

    def listener(at_us: int, event: Event) -> None:
        if isinstance(event, Progress) and any(v.vertex == "in" and v.rows_in >= rows for v in event.vertices):
            stop.request()

    assert run_job(job, resolve(job.settings, command_line=settings), listener, stop).stopped


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a job that was stopped when all rows were in."""
    folder = tmp_path_factory.mktemp("stopped")
    write(folder, ROWS)
    (folder / "names.jsonl").write_text('{"key": "k1", "name": "one"}\n')
    run(build(folder), len(ROWS), parallelism="2")
    return folder


@pytest.fixture(scope="module")
def found(stopped: Path) -> StoredState:
    return read_state(stopped / "checkpoints")


def values(table: pa.Table, columns: Sequence[str] | None) -> Counter[Any]:
    chosen = table if columns is None else table.select(list(columns))
    return Counter(tuple(map(plain, row.values())) for row in chosen.to_pylist())


def plain(value: Any) -> Any:
    """A value that can be counted. Lists and structs are tuples; a map, which has an order, is sorted."""
    if isinstance(value, Mapping):
        return tuple(map(plain, value.values()))
    if isinstance(value, list):
        is_map = value and all(isinstance(entry, tuple) for entry in value)
        return tuple(sorted(map(plain, value)) if is_map else map(plain, value))
    return tuple(map(plain, value)) if isinstance(value, tuple) else value


@pytest.mark.parametrize("looked", LOOKED, ids=lambda looked: f"{looked.operator}, {looked.table}")
def test_state_is_what_plain_python_computes(found: StoredState, looked: Looked) -> None:
    table = found.table(looked.operator, looked.table)
    assert values(table, looked.columns) == looked.expected
    assert not any(name.startswith("~") for name in table.column_names)


def test_key_groups_of_all_tasks_make_up_the_live_rows(found: StoredState) -> None:
    by_group = found.sizes("key_group").to_pylist()
    sums = [row for row in by_group if row["operator"] == "sums"]
    live = sum(found.table("sums", table).num_rows for table in ("state", "distinct_int64"))
    assert sum(row["live_rows"] for row in sums) == live
    assert {row["task"] for row in sums} == {"sums[0]", "sums[1]"}
    shown = found.table("sums", key_group=True)
    assert {(row["key_group"],) for row in sums} == set(values(shown, ["key_group"]))


def test_sizes_by_task_make_up_those_by_operator(found: StoredState) -> None:
    operators, tasks = found.sizes(live=True).to_pylist(), found.sizes("task", live=True).to_pylist()
    sizes = ("stored_rows", "stored_bytes", "live_rows", "live_bytes")
    for of in operators:
        parts = [row for row in tasks if row["operator"] == of["operator"]]
        assert len(parts) == of["tasks"]
        assert {size: of[size] for size in sizes} == {size: sum(part[size] for part in parts) for size in sizes}
        assert of["stored_bytes"] > 0


def test_live_rows_are_those_of_the_tables(found: StoredState) -> None:
    for row in found.sizes(live=True).to_pylist():
        if row["operator"] in ("sums", "pairs", "cells"):
            assert row["live_rows"] == sum(table.num_rows for table in found.tables(row["operator"]).values())


def test_the_heaviest_keys_have_most_rows(found: StoredState) -> None:
    rows = Counter(row.key for row in ROWS if row.id >= 40)
    by_rows = found.heaviest("in-order", 3, "rows")
    waiting = {row["key"]: row["rows"] for row in by_rows.to_pylist()}
    assert set(waiting.values()) == {rows["k0"] + 1}  # the rows that wait, and the key's own state
    assert by_rows.num_rows == 3
    by_bytes = found.heaviest("pairs", 100).to_pylist()
    assert [row["rows"] for row in by_bytes] == [2] * len(ROWS)
    assert [row["bytes"] for row in by_bytes] == sorted((row["bytes"] for row in by_bytes), reverse=True)


def test_sql_answers_over_the_tables_of_an_operator(found: StoredState) -> None:
    query = "select left.id, other from left join right on left.id = right.id where left.value = 5 order by left.id"
    assert found.sql("pairs", query).to_pylist() == [{"id": row.id, "other": row.key} for row in ROWS if row.value == 5]
    (entry,) = found.sql("cells", "select parts from state where key = 'k1' limit 1").to_pylist()
    assert {part["key"] for part in entry["parts"]} == {"0", "1", "2"}  # Polars has no maps


def test_python_gets_arrow_tables(stopped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(stopped)
    found = read_state("checkpoints")
    sums = found.table("sums")
    large = sums.filter(pc.field("total") > 60).to_pandas()
    heaviest = found.heaviest("sums", 3)
    joined = found.sql("pairs", "select count(*) as n from left join right on left.id = right.id")
    totals = {key: sum(row.value for row in rows) for key, rows in by_key(ROWS).items()}
    assert dict(zip(large["key"], large["total"], strict=True)) == {k: n for k, n in totals.items() if n > 60}
    assert heaviest.column_names == ["key", "rows", "bytes"]
    assert joined.to_pylist() == [{"n": len(ROWS)}]


def small(folder: Path, **settings: Any) -> Job:
    """A job with two operators that hold some state of every row."""
    job = Job("small", runtime="local", checkpoint_interval="20ms", checkpoints=str(folder / "checkpoints"), **settings)
    source = FileSource(folder / "in", Given, format="jsonl", follow=True)
    keyed = job.source(source, event_time="at", out_of_order=f"{DELAY}s").named("in").key_by("key")
    summed = keyed.window(session("7s")).aggregate(total=col("value").sum(), ids=col("id").collect())
    summed.named("sessions").sink(BlackholeSink()).named("out")
    totals = keyed.aggregate(n=count(), total=col("value").sum()).named("sums").at_end()
    totals.sink(BlackholeSink()).named("sums-out")
    return job


def save(place: Path, name: str, **changed: Any) -> None:
    """Keeps the newest checkpoint of the small job as a savepoint, with some fields of its manifest changed."""
    store = CheckpointStore(str(place), "small")
    newest = store.latest()
    assert newest is not None
    store.write_savepoint(name, msgspec.structs.replace(newest, **changed))


def totals_of(rows: Iterable[Given]) -> Counter[Any]:
    return Counter((key, len(found), sum(row.value for row in found)) for key, found in by_key(rows).items())


def test_another_parallelism_shows_the_same_state(tmp_path: Path) -> None:
    """What the first run has stored is split among three tasks, whose rows of before are in old chunks."""
    place = tmp_path / "checkpoints"
    write(tmp_path, ROWS)
    run(small(tmp_path), len(ROWS), parallelism="2")
    before = read_state(place)
    save(place, "two tasks")
    more = given(100)
    write(tmp_path, more)
    run(small(tmp_path), len(more) - len(ROWS), parallelism="3")
    after = read_state(place)
    assert values(after.table("sums"), None) == totals_of(more)
    assert {row["task"] for row in after.sizes("task").to_pylist() if row["operator"] == "sums"} == {
        f"sums[{index}]" for index in range(3)
    }
    (sums,) = (row for row in after.sizes(live=True).to_pylist() if row["operator"] == "sums")
    assert sums["stored_rows"] > sums["live_rows"] == KEYS
    saved = read_state(place, checkpoint="two tasks")
    assert values(saved.table("sums"), None) == values(before.table("sums"), None) == totals_of(ROWS)
    changes = saved.changes(after, "sums")["state"].to_pylist()
    assert Counter(row.pop("change") for row in changes) == {"before": KEYS, "after": KEYS}
    assert Counter(tuple(row.values()) for row in changes[::2]) == totals_of(ROWS)


def test_state_in_parts_shows_each_key_as_it_was_saved(tmp_path: Path) -> None:
    write(tmp_path, ROWS)
    settings = {"check_period": "1ms", "check_time": "1ms", "extent_max": "4"}
    run(small(tmp_path), len(ROWS), protocol="continuous", parallelism="2", **settings)
    found = read_state(tmp_path / "checkpoints")
    assert found.is_in_parts("sums")
    rows = by_key(ROWS)
    sums = found.table("sums").to_pylist()
    assert sorted(row["key"] for row in sums) == sorted(rows)
    for row in sums:
        assert row["total"] == sum(one.value for one in rows[row["key"]][: row["n"]])
    for row in found.table("sessions").to_pylist():
        ids = [one.id for one in rows[row["key"]] if row["window_start"] <= moment(one.at) < row["window_end"]]
        assert row["ids"] == ids[: len(row["ids"])]


def test_a_job_that_failed_shows_its_last_checkpoint(tmp_path: Path) -> None:
    """The checkpoint is from some time before: each key has a number of its first rows."""
    write(tmp_path, ROWS)
    run(small(tmp_path), len(ROWS))
    more = given(100)
    write(tmp_path, more)

    def failing(row: Given) -> Given:
        if row.id == 99:
            raise ValueError("of the last row")
        return row

    job = Job("small", runtime="local", checkpoint_interval="20ms", checkpoints=str(tmp_path / "checkpoints"))
    source = FileSource(tmp_path / "in", Given, format="jsonl", follow=True)
    rows = job.source(source, event_time="at", out_of_order=f"{DELAY}s").named("in").map(failing)
    totals = rows.key_by("key").aggregate(n=count(), total=col("value").sum()).named("sums").at_end()
    totals.sink(BlackholeSink()).named("sums-out")
    with pytest.raises(UserCodeError, match="of the last row"):
        run_job(job, resolve(job.settings, command_line={"drop_state": ("sessions",)}))
    every = by_key(more)
    for row in read_state(tmp_path / "checkpoints").table("sums").to_pylist():
        first = every[row["key"]][: row["n"]]
        assert row["n"] >= len(by_key(ROWS)[row["key"]])
        assert row["total"] == sum(one.value for one in first)


def test_a_running_job_shows_its_newest_checkpoint(tmp_path: Path) -> None:
    write(tmp_path, ROWS)
    job, stop = small(tmp_path), StopSwitch()
    seen: list[pa.Table] = []

    def listener(at_us: int, event: Event) -> None:
        if CheckpointStore(str(tmp_path / "checkpoints"), "small").latest() is not None and not seen:
            seen.append(read_state(tmp_path / "checkpoints").table("sums"))
        if seen:
            stop.request()

    assert run_job(job, resolve(job.settings, command_line={}), listener, stop).stopped
    for row in seen[0].to_pylist():
        assert row["total"] == sum(one.value for one in by_key(ROWS)[row["key"]][: row["n"]])


def test_the_command_reads_a_newer_checkpoint_when_one_is_deleted_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, ROWS)
    run(small(tmp_path), len(ROWS))
    stale = read_state(tmp_path / "checkpoints")
    more = given(100)
    write(tmp_path, more)
    run(small(tmp_path), len(more) - len(ROWS))
    with pytest.raises(
        ReplacedCheckpointError, match=r"was deleted while it was read, since \d+ is complete: read again"
    ):
        stale.table("sums")
    states = iter([stale, read_state(tmp_path / "checkpoints")])
    monkeypatch.setattr("clonos_py.cli.state.read_state", lambda *given: next(states))
    assert shown(tmp_path, "show", "sums", "--json") == 0
    rows = json.loads(capsys.readouterr().out)["state"]["values"]
    assert Counter((row["key"], row["n"], row["total"]) for row in rows) == totals_of(more)


def test_a_checkpoint_without_the_names_of_keys_is_refused(tmp_path: Path) -> None:
    """Partial results would be merged across keys."""
    place = tmp_path / "checkpoints"
    write(tmp_path, ROWS)
    run(small(tmp_path), len(ROWS))
    newest = CheckpointStore(str(place), "small").latest()
    assert newest is not None
    older = {name: msgspec.structs.replace(of, keys={}) for name, of in newest.definitions.items()}
    save(place, "older", definitions=older)
    with pytest.raises(CheckpointError, match=r"does not record which columns of 'sums' are keys: .*resume"):
        read_state(place, checkpoint="older").table("sums")


@pytest.fixture
def damaged(stopped: Path, tmp_path: Path) -> Path:
    """A copy of the checkpoints in which one byte of every chunk file is another one."""
    place = tmp_path / "checkpoints"
    shutil.copytree(stopped / "checkpoints", place)
    for path in place.rglob("*"):
        if path.is_file() and "state" in path.parts:
            content = bytearray(path.read_bytes())
            content[len(content) // 2] ^= 1
            path.write_bytes(content)
    return place


def test_a_damaged_chunk_is_named(damaged: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = read_state(damaged)
    assert state.sizes().num_rows  # from the manifest alone
    with pytest.raises(CheckpointError, match="corrupt"):
        state.sizes("key_group")  # reads all operators
    codes = {invoke(["state", "show", name, "--checkpoints", str(damaged)]) for name in state.operators}
    assert 1 in codes
    assert "corrupt" in capsys.readouterr().err


MISTAKES: list[tuple[list[str], int, str]] = [
    (["ls", "--at", "999"], 1, r"no checkpoint 999 \(any more\): it has \d+"),
    (["ls", "--job", "other"], 1, r"other has no checkpoints: .* has the jobs 'looked_into'"),
    (["ls", "--by", "rows"], 2, "'rows' is not one of"),
    (["show", "sum"], 1, r"no operator 'sum' \(did you mean 'sums'\?\); with state: tumbling, "),
    (["show", "in"], 1, "'in' is a source: its state is positions"),
    (["show", "enriched"], 1, "'enriched' keeps no rows; operators that do: tumbling, "),
    (["show", "tumbling-out"], 1, "'tumbling-out' keeps no rows; operators that do: tumbling, "),
    (["show", "sums", "--table", "left"], 1, "'sums' has no table 'left': it has 'state', 'distinct_int64'"),
    (["show", "distinct", "--key", "x"], 1, "'x' is no value of the key 'value', which is int64"),
    (["show", "totals-of-totals", "--key", "x"], 1, "--key x: the keys are none"),
    (["show", "sums", "--sql", "select nothing from state"], 1, r"--sql: .*nothing.*; the tables are state\(key, n, "),
    (["show", "sums", "--sql", "select * from sums"], 1, r"--sql: .*sums.*; the tables are state"),
    (["show", "sums", "--key", "k1", "--heaviest", "3"], 2, "give one of --key, --sql and --heaviest"),
    (["show", "sums", "--out", "sums.txt"], 2, "must end with .parquet, .csv or .jsonl"),
    (["show", "sums", "--out", "sums.csv"], 1, "--out takes one table: choose one of state, distinct_int64"),
    (["diff", "1", "999"], 1, "has no checkpoint"),
]


@pytest.mark.parametrize(("words", "code", "message"), MISTAKES, ids=lambda given: str(given)[:40])
def test_mistakes_are_one_line(
    stopped: Path, words: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["state", *words, "--checkpoints", str(stopped / "checkpoints")]) == code
    said = capsys.readouterr()
    assert said.err.count("\n") == 1
    assert not said.out
    assert re.search(message, said.err), said.err


def shown(folder: Path, *words: str) -> int:
    return invoke(["state", *words, "--checkpoints", str(folder / "checkpoints")])


def test_the_command_prints_the_first_rows_and_how_many_there_are(
    stopped: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shown(stopped, "show", "sums", "--rows", "2") == 0
    first, second = capsys.readouterr().out.split("\n\n")
    assert re.match(r"'sums' at checkpoint \d+, state: 2 of 5 rows\nkey +n +total ", first)
    assert len(first.splitlines()) == 4
    assert "distinct_int64: 2 of " in second
    assert shown(stopped, "show", "cells", "--key", "k1", "--table", "state") == 0
    assert "k1" in capsys.readouterr().out
    assert shown(stopped, "ls", "--by", "key-group") == 0
    assert "sums[1]" in capsys.readouterr().out


def test_programs_get_json_and_files_with_all_rows(
    stopped: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shown(stopped, "show", "tumbling", "--json", "--rows", "1") == 0
    answer = json.loads(capsys.readouterr().out)["state"]
    assert (answer["rows"], len(answer["values"])) == (of_windows(20, 20).total(), 1)
    assert answer["values"][0]["window_end"] == "1970-01-01T00:03:00Z"
    for suffix in ("parquet", "jsonl", "csv"):
        assert shown(stopped, "show", "tumbling", "--rows", "1", "--out", str(tmp_path / f"all.{suffix}")) == 0
    assert values(pq.read_table(tmp_path / "all.parquet"), None) == of_windows(20, 20)
    lines = [json.loads(line) for line in (tmp_path / "all.jsonl").read_text().splitlines()]
    assert Counter(line["total"] for line in lines) == Counter(row[4] for row in of_windows(20, 20).elements())
    assert len((tmp_path / "all.csv").read_text().splitlines()) == of_windows(20, 20).total() + 1


def test_a_name_of_an_operator_is_checked_in_python_too(found: StoredState) -> None:
    with pytest.raises(SettingError, match="did you mean 'sums'"):
        found.table("sum")
    with pytest.raises(SettingError, match="give 'bytes' or 'rows'"):
        found.heaviest("sums", by="keys")
