"""Times in files and messages: text and numbers are read as times and times are written as these, and malformed ones
are named."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clonos_py import Epoch, Instant, Iso8601, Job, Record, count, tumbling
from clonos_py.connectors import FileSink, FileSource, MemorySource, read_results
from clonos_py.connectors.json_values import JsonValues
from clonos_py.connectors.kafka.columns import RowLayout
from clonos_py.connectors.kafka.formats import Malformed, format_of
from clonos_py.connectors.kafka.outgoing import MessageLayout, MessageMaker
from clonos_py.connectors.row_files import json_lines
from clonos_py.model.errors import SourceError
from clonos_py.model.operators import End, Read
from clonos_py.model.record_codec import decode, encode

NOON = datetime(2026, 1, 31, 12, 0, 0, 250_000, tzinfo=UTC)


class Flight(Record):
    at: datetime
    s: Annotated[datetime, Epoch("s")]
    ms: Annotated[datetime, Epoch("ms")]
    us: Annotated[datetime, Epoch("us")]
    ns: Annotated[datetime, Epoch("ns")]
    text: Annotated[datetime, Iso8601()]
    day: date
    took: timedelta
    until: datetime | None = None
    landed: Annotated[datetime, Epoch("s")] | None = None


class Sighting(Record):
    id: int
    seen: list[datetime]


def flight(at: datetime, **more: Any) -> Flight:
    return Flight(at, at, at, at, at, at, at.date(), at - NOON, **more)


FLIGHTS = [
    flight(NOON),
    flight(datetime(1969, 7, 20, 20, 17, 40, tzinfo=UTC), until=NOON),
    flight(NOON + timedelta(microseconds=1), landed=NOON.replace(microsecond=0)),
]
WRITTEN = encode(FLIGHTS, Flight.schema())


def rows_read(definition: FileSource[Any]) -> list[Any]:
    source = definition.create((None,))
    source.open(0, 1)
    source.seek({})
    found: list[Any] = []
    while not isinstance(read := source.poll(0), End):
        assert isinstance(read, Read)
        assert read.rows[0] is not None
        found += [row for rows in decode(read.rows[0], definition.records[0] or Record) for row in rows]
    return found


@pytest.mark.parametrize("file_format", ["jsonl", "csv", "parquet"])
@pytest.mark.parametrize("delivery", ["transactional", "causal"])
def test_a_source_reads_what_a_sink_of_the_same_class_writes(
    tmp_path: Path, file_format: str, delivery: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if (file_format, delivery) == ("parquet", "causal"):
        return  # a Parquet file does not grow
    monkeypatch.chdir(tmp_path)
    job = Job("flights")
    job.source(MemorySource(FLIGHTS)).sink(FileSink(str(tmp_path / "out"), file_format, delivery=delivery))
    job.run(runtime="local", parallelism=1)
    assert rows_read(FileSource(str(tmp_path / "out" / f"*.{file_format}"), Flight)) == FLIGHTS


def test_json_has_times_as_text_and_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    job = Job("flights")
    job.source(MemorySource([flight(NOON, landed=NOON)])).sink(FileSink(str(tmp_path / "out")))
    job.run(runtime="local", parallelism=1)
    assert read_results(str(tmp_path / "out")) == [
        {
            "at": "2026-01-31T12:00:00.250000Z", "s": 1769860800.25, "ms": 1769860800250, "us": 1769860800250000,
            "ns": 1769860800250000000, "text": "2026-01-31T12:00:00.250000Z", "day": "2026-01-31", "took": "PT0S",
            "until": None, "landed": 1769860800.25,
        }
    ]  # fmt: skip


def test_times_in_lists_survive_json() -> None:
    rows = encode([Sighting(1, [NOON]), Sighting(2, [])], Sighting.schema())
    assert JsonValues(Sighting.schema()).parse(bytes(json_lines(rows)).splitlines()).equals(rows)


JSON = '{{"at": {at}, "ms": {ms}, "day": {day}, "took": {took}}}\n'
CSV = "{at},{ms},{day},{took}\n"
GOOD = {"at": '"2026-01-31T12:00:00Z"', "ms": "1769860800000", "day": '"2026-01-31"', "took": '"PT1S"'}


class Timed(Record):
    at: datetime
    ms: Annotated[datetime, Epoch("ms")]
    day: date
    took: timedelta


MALFORMED = [
    ("at", '"2026-02-30T12:00:00Z"', "field 'at' is '2026-02-30T12:00:00Z', no ISO 8601 time"),
    ("at", '"31/01/2026"', r"use col\(...\).strptime"),
    ("ms", '"soon"', "field 'ms' is 'soon', no time in ms since 1970"),
    ("ms", "99999999999999999999", "field 'ms' is '?9.*, no time in ms since 1970"),
    ("day", '"2026-01-32"', "field 'day' is '2026-01-32', no ISO 8601 date"),
    ("took", '"a while"', "field 'took' is 'a while', no ISO 8601 duration"),
]


@pytest.mark.parametrize(("column", "value", "message"), MALFORMED)
@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_a_malformed_time_is_named_with_file_and_line(
    tmp_path: Path, suffix: str, column: str, value: str, message: str
) -> None:
    line, header = (JSON, "") if suffix == "jsonl" else (CSV, "at,ms,day,took\n")
    path = tmp_path / f"times.{suffix}"
    path.write_text(header + line.format(**GOOD) * 5 + line.format(**{**GOOD, column: value}) + line.format(**GOOD))
    number = 6 if suffix == "jsonl" else 7
    with pytest.raises(SourceError, match=rf"{suffix}, line {number} \(byte \d+\): malformed record: .*{message}"):
        rows_read(FileSource(str(path), Timed))


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [("at", "1769860800", "for numbers declare Annotated"), ("ms", "true", "field 'ms' is true")],
)
def test_a_json_number_is_no_iso_8601(tmp_path: Path, column: str, value: str, message: str) -> None:
    path = tmp_path / "times.jsonl"
    path.write_text(JSON.format(**{**GOOD, column: value}))
    with pytest.raises(SourceError, match=f"line 1 .*field '{column}' is .*{message}|line 1 .*{message}"):
        rows_read(FileSource(str(path), Timed))


COUNTS = pytest.mark.parametrize("count", [3, 1_002])
"""Values of a thousand messages and more are converted together."""


@COUNTS
def test_json_messages_contain_times(count: int) -> None:
    rows = encode(FLIGHTS * (count // 3), Flight.schema())
    chosen = format_of("json", rows.schema)
    assert chosen.decode(chosen.encode(rows)).rows.equals(rows)


@COUNTS
@pytest.mark.parametrize(("column", "value", "message"), MALFORMED)
def test_a_malformed_time_in_a_message_is_named(count: int, column: str, value: str, message: str) -> None:
    good, bad = JSON.format(**GOOD).encode(), JSON.format(**{**GOOD, column: value}).encode()
    with pytest.raises(Malformed, match=message) as caught:
        format_of("json", Timed.schema()).decode([good] * (count - 1) + [bad, good])
    assert caught.value.message == count - 1


@pytest.mark.parametrize("name", ["msgpack", "arrow"])
def test_messages_of_other_formats_contain_times(name: str) -> None:
    chosen = format_of(name, WRITTEN.schema)
    assert chosen.decode(chosen.encode(WRITTEN)).rows.equals(WRITTEN)


def test_the_time_of_a_message_may_come_from_a_datetime() -> None:
    schema = pa.schema([Flight.schema().field("at"), pa.field("n", pa.int64())])
    layout = RowLayout(schema, "json", {"at": "timestamp"})
    assert layout.values.names == ["n"]
    rows = pa.record_batch({"at": pa.array([NOON, NOON], schema.field("at").type), "id": [1, 2]})
    messages = MessageMaker(MessageLayout("flights", "json", ("id",), "at"), rows.schema).messages(rows)
    assert [message.timestamp_ms for message in messages] == [1_769_860_800_250] * 2
    assert messages[0].value == b'{"at":"2026-01-31T12:00:00.250000Z","id":1}'


class At(Record):
    at: datetime


class Number(Record):
    at: Annotated[datetime, Epoch("ms")]


class Old(Record):
    at: Instant


def parquet(tmp_path: Path, column: Any) -> str:
    path = tmp_path / "times.parquet"
    pq.write_table(pa.table({"at": column}), path)
    return str(path)


MOMENTS = pa.array([NOON, NOON - timedelta(days=1)], pa.timestamp("us", "UTC"))


@pytest.mark.parametrize(
    "column",
    [
        MOMENTS.cast(pa.timestamp("ms", "UTC")),
        MOMENTS.cast(pa.timestamp("us")),
        MOMENTS.cast(pa.timestamp("ns", "Europe/Berlin")),
        pa.array(["2026-01-31T12:00:00.25Z", "2026-01-30T13:00:00.25+01:00"]),
        pa.array(["2026-01-31T12:00:00.25Z", "2026-01-30T13:00:00.25+01:00"]).dictionary_encode(),
    ],
)
def test_timestamps_of_any_unit_and_text_in_parquet_are_datetimes(tmp_path: Path, column: Any) -> None:
    path = parquet(tmp_path, column)
    assert rows_read(FileSource(path, At)) == [At(NOON), At(NOON - timedelta(days=1))]


def test_integers_in_parquet_are_datetimes_of_the_declared_unit(tmp_path: Path) -> None:
    path = parquet(tmp_path, pa.array([1_769_860_800_250]))
    assert rows_read(FileSource(path, Number)) == [Number(NOON)]
    with pytest.raises(SourceError, match=r"times.parquet: field 'at' is int64, .* Annotated\[datetime, Epoch"):
        rows_read(FileSource(path, At))


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_timestamps_in_parquet_are_instants_in_microseconds(tmp_path: Path, unit: Any) -> None:
    path = parquet(tmp_path, MOMENTS.cast(pa.timestamp(unit)))
    assert rows_read(FileSource(path, Old))[0] == Old(1_769_860_800_250_000)


class Reading(Record):
    at: Instant


@pytest.mark.parametrize("behind", [False, True])
def test_a_run_warns_of_event_times_in_another_unit(
    tmp_path: Path, behind: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "readings.jsonl").write_text('{"at": 1769860800250}\n' * 5)
    job = Job("readings")
    source = FileSource("readings.jsonl", Reading)
    rows = job.source(source).named("in").with_event_time("at") if behind else job.source(source, event_time="at")
    rows.named("readings").window(tumbling("1s")).aggregate(n=count()).sink(FileSink("out"))
    job.run(runtime="local", parallelism=2)
    warnings = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: ")]
    assert warnings == [
        "warning: source 'readings': event time 'at' is 1970-01-21 11:37:40, before 1990: it is probably in "
        "milliseconds; declare at: Annotated[datetime, Epoch('ms')], or bring the column to microseconds UTC"
    ]
