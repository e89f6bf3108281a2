"""Malformed records of files are left out or caught: the same ones however the file is read, and none of the others."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clonos_py import Job, Record, count
from clonos_py.connectors import FileDeadLetter, FileSource, MemorySink, WebhookSource, line_reader
from clonos_py.connectors.line_formats import CsvLines, JsonLines
from clonos_py.model.connectors import SourceDefinition
from clonos_py.model.errors import GraphError, SourceError
from clonos_py.model.operators import Discovered, End, Read, Source, Wait
from clonos_py.plan.physical import plan
from clonos_py.runtime.sim.run import simulate_plan


class Item(Record):
    id: int
    name: str | None = None


BAD_JSON = [
    "no json",
    '{"id": "x"}',
    '{"id":',
    "1}",
    "{}",
    "[1]",
    "5",
    "null",
    " null",
    '{"id": 1} x',
    '{"name": {"id": 1}}',
]
BAD_CSV = ["x,y", "1", "1,2,3", ',"name"', '2,"not closed', '"3,4']
BAD = {"jsonl": BAD_JSON, "csv": BAD_CSV}


def good(format: str, number: int) -> str:
    return f'{{"id": {number}, "name": "n{number}"}}' if format == "jsonl" else f"{number},n{number}"


def content(format: str, lines: list[str]) -> str:
    header = ["id,name"] if format == "csv" else []
    return "\n".join([*header, *lines, ""])


def opened(definition: SourceDefinition, names: tuple[str, ...] | None = None, read_rows: int | None = None) -> Source:
    source = definition.create((names, None)[: len(definition.schemas)], read_rows)
    source.open(0, 1)
    source.seek({})
    return source


def everything(source: Source) -> list[Read]:
    reads = []
    while not isinstance(read := source.poll(0), End):
        assert isinstance(read, Read)
        reads.append(read)
    return reads


def rows(reads: list[Read], port: int = 0) -> list[dict[str, Any]]:
    return [row for read in reads if (batch := read.rows[port]) is not None for row in batch.to_pylist()]


def counted(reads: list[Read]) -> dict[str, int]:
    names = {name for read in reads for name in read.counts}
    return {name: sum(read.counts.get(name, 0) for read in reads) for name in names}


@pytest.mark.parametrize("format", ["jsonl", "csv"])
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(data=st.data())
def test_exactly_the_malformed_lines_are_caught_in_blocks_of_any_size(
    format: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    drawn = data.draw(st.lists(st.one_of(st.integers(0, 99), st.sampled_from(BAD[format])), max_size=40))
    lines = [good(format, line) if isinstance(line, int) else line for line in drawn]
    path = tmp_path_factory.mktemp("in") / f"lines.{format}"
    path.write_text(content(format, lines))
    source = FileSource(str(path), Item).catch()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_reader, "BLOCK_BYTES", data.draw(st.sampled_from([16, 64, 1 << 20])))
        reads = everything(opened(source, read_rows=data.draw(st.sampled_from([None, 1, 3]))))
        again = opened(source)
        assert [again.reread(read.partition, read.start, read.stop) for read in reads] == reads
    assert [row["id"] for row in rows(reads)] == [line for line in drawn if isinstance(line, int)]
    bad = [(number, line) for number, line in enumerate(drawn, 1 + (format == "csv")) if isinstance(line, str)]
    letters = [FileDeadLetter(**row) for row in rows(reads, 1)]
    assert [(letter.line, letter.value.decode()) for letter in letters] == bad
    for letter in letters:
        assert path.read_bytes()[letter.offset :].startswith(letter.value)
        assert letter.path == str(path)
        assert letter.reason
    assert counted(reads) == ({"dead_letters": len(bad)} if bad else {})


def test_a_superfluous_quote_damages_only_its_own_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records of several lines are still records."""
    lines = [
        '1,"two\nlines"',
        '2,"open',
        "3,c",
        '4,"two\nlines"',
        '5,"quoted ""word"""',
        '6,"open',
        "7,g",
        '8,"x" y"',
        "9,",
    ]
    path = tmp_path / "in.csv"
    path.write_text(content("csv", lines))
    monkeypatch.setattr(line_reader, "BLOCK_BYTES", 24)
    reads = everything(opened(FileSource(str(path), Item).catch()))
    assert [row["id"] for row in rows(reads)] == [1, 3, 4, 5, 7, 8, 9]
    assert [(row["line"], row["value"]) for row in rows(reads, 1)] == [(4, b'2,"open'), (9, b'6,"open')]


@pytest.mark.parametrize("line", ['{},monitor 5" wide\n', '{},"open\n', 'x{},"two\nlines"\n'])
def test_records_with_quotes_are_parsed_a_few_times_only(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are not parsed once for each broken record before them."""
    lengths: list[int] = []
    parse, parse_isolated = CsvLines.parse, CsvLines.parse_isolated

    def counting(self: CsvLines, content: bytes) -> pa.RecordBatch:
        lengths.append(len(content))
        return parse(self, content)

    def counting_alone(self: CsvLines, record: bytes) -> pa.RecordBatch:
        lengths.append(len(record))
        return parse_isolated(self, record)

    monkeypatch.setattr(CsvLines, "parse", counting)
    monkeypatch.setattr(CsvLines, "parse_isolated", counting_alone)
    path = tmp_path / "in.csv"
    path.write_text("id,name\n" + "".join(line.format(number) for number in range(301)))
    reads = everything(opened(FileSource(str(path), Item, on_error="skip")))
    taken = 301 if "wide" in line else 0
    assert len(rows(reads)) == taken
    assert sum(lengths) < 20 * path.stat().st_size


def test_a_record_without_an_end_ends_with_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "in.csv"
    path.write_text(content("csv", ["1,a", '2,"open', *(f"{number},n" for number in range(3, 200))]))
    monkeypatch.setattr(line_reader, "BLOCK_BYTES", 64)
    monkeypatch.setattr(line_reader, "RECORD_BYTES_MAX", 256)
    reads = everything(opened(FileSource(str(path), Item, on_error="skip")))
    assert [row["id"] for row in rows(reads)] == [1, *range(3, 200)]
    assert counted(reads) == {"rows_skipped": 1}


class Lone(Record):
    id: int | None


class LoneText(Record):
    name: str


@pytest.mark.parametrize("on_error", ["fail", "skip"])
@pytest.mark.parametrize("read_rows", [None, 1, 3])
@pytest.mark.parametrize(
    ("record", "lines", "values"),
    [
        (Lone, b"id\n\n1\n\r\n\n3\n\n", [None, 1, None, None, 3, None]),
        (Lone, b"id\n\n", [None]),
        (LoneText, b"name\n \na\n\n  \n", [" ", "a", "  "]),
    ],
)
def test_empty_lines_are_rows_if_the_only_column_may_be_null(
    record: type[Record], lines: bytes, values: list[Any], read_rows: int | None, on_error: Any, tmp_path: Path
) -> None:
    """Otherwise a null cannot be distinguished from no row."""
    path = tmp_path / "in.csv"
    path.write_bytes(lines)
    reads = everything(opened(FileSource(str(path), record, on_error=on_error), read_rows=read_rows))
    assert [value for row in rows(reads) for value in row.values()] == values


def test_a_line_of_spaces_is_text_also_beside_malformed_lines(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_bytes(b"name\n \n\xff\n")
    assert rows(everything(opened(FileSource(str(path), LoneText, on_error="skip")))) == [{"name": " "}]


def test_text_that_is_not_utf_8_is_malformed(tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    path.write_bytes(b"good\n\n\xff\xfe\nlast")
    reads = everything(opened(FileSource(str(path)).catch()))
    assert [row["line"] for row in rows(reads)] == ["good", "", "last"]
    assert [(row["line"], row["value"]) for row in rows(reads, 1)] == [(3, b"\xff\xfe")]


@pytest.mark.parametrize("format", ["jsonl", "csv"])
def test_a_record_is_malformed_even_if_its_bad_column_is_not_read(format: str, tmp_path: Path) -> None:
    path = tmp_path / f"in.{format}"
    bad = '{"id": "x", "name": "b"}' if format == "jsonl" else "x,b"
    path.write_text(content(format, [good(format, 1), bad, good(format, 3)]))
    source = FileSource(str(path), Item, on_error="skip")
    assert rows(everything(opened(source, ("name",)))) == [{"name": "n1"}, {"name": "n3"}]


def test_valid_records_are_parsed_together_and_few_malformed_ones_cost_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    parse = JsonLines.parse

    def counting(self: JsonLines, content: bytes) -> pa.RecordBatch:
        calls.append(len(content))
        return parse(self, content)

    monkeypatch.setattr(JsonLines, "parse", counting)
    path = tmp_path / "in.jsonl"
    lines = [good("jsonl", number) for number in range(10_000)]
    path.write_text(content("jsonl", lines))
    source = FileSource(str(path), Item, on_error="skip")
    calls.clear()
    assert len(rows(everything(opened(source)))) == 10_000
    assert len(calls) == 1
    lines[5_000] = '{"id": "x"}'
    path.write_text(content("jsonl", lines))
    assert len(rows(everything(opened(FileSource(str(path), Item, on_error="skip"))))) == 9_999
    assert len(calls) < 40


def test_growing_files_are_read_past_malformed_lines(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(content("jsonl", [good("jsonl", 1), "bad"]) + '{"id"')
    source = FileSource(str(path), Item, follow=True).catch()
    source.resolve()
    reader = opened(source)
    found = reader.poll(0)
    assert isinstance(found, Discovered)
    reader.discovered(found.starts)
    read = reader.poll(1)
    assert isinstance(read, Read)
    assert [row["line"] for row in rows([read], 1)] == [2]
    assert reader.reread(read.partition, read.start, read.stop) == read
    assert isinstance(reader.poll(2), Wait)
    with path.open("a") as file:
        file.write(": 3}\nworse\n")
    more = reader.poll(200_000)
    assert isinstance(more, Read)
    assert [row["id"] for row in rows([more])] == [3]
    assert [(row["line"], row["value"]) for row in rows([more], 1)] == [(4, b"worse")]


def test_the_error_names_the_ways_to_continue(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text(content("jsonl", [good("jsonl", 1), "bad"]))
    with pytest.raises(SourceError, match=r"in\.jsonl, line 2 .*: malformed record: .*on_error='skip', .*\.catch\(\)"):
        everything(opened(FileSource(str(path), Item)))


JSON_LACKS = [
    *(pa.list_(pa.duration("us")), pa.list_(pa.date32()), pa.struct([("on", pa.date32())]), pa.float16()),
    *(pa.struct([("for", pa.duration("us"))]), pa.map_(pa.string(), pa.int64()), pa.large_list(pa.int64())),
    *(pa.dictionary(pa.int32(), pa.string()), pa.list_(pa.struct([("on", pa.date32())]))),
]
CSV_LACKS = [
    *(pa.list_(pa.int64()), pa.struct([("id", pa.int64())]), pa.map_(pa.string(), pa.int64())),
    *(pa.float16(), pa.decimal256(50, 2)),
]


@pytest.mark.parametrize(
    ("format", "kind"), [*(("jsonl", kind) for kind in JSON_LACKS), *(("csv", kind) for kind in CSV_LACKS)], ids=str
)
@pytest.mark.parametrize("nullable", [False, True])
def test_a_type_that_a_format_lacks_is_refused_when_the_source_is_defined(
    format: str, kind: pa.DataType, nullable: bool
) -> None:
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("odd", kind, nullable)])
    with pytest.raises(GraphError, match=rf"FileSource: field 'odd' is .* cannot be read from {format}: declare it as"):
        FileSource(f"in.{format}", schema)
    if format == "jsonl":
        with pytest.raises(GraphError, match=r"WebhookSource: field 'odd' is .* cannot be read from json"):
            WebhookSource(8080, schema)
    FileSource("in.parquet", schema)


@pytest.mark.parametrize(
    ("format", "kind"),
    [
        *(("jsonl", kind) for kind in (pa.list_(pa.timestamp("us", "UTC")), pa.decimal256(50, 2), pa.date32())),
        *((format, kind) for kind in (pa.duration("us"), pa.decimal128(18, 2), pa.int8()) for format in BAD),
        ("csv", pa.dictionary(pa.int32(), pa.string())),
        ("jsonl", pa.list_(pa.struct([pa.field("id", pa.int64(), False)]))),
    ],
    ids=str,
)
def test_a_type_that_a_format_has_is_accepted(format: str, kind: pa.DataType) -> None:
    FileSource(f"in.{format}", pa.schema([pa.field("usual", kind, False)]))


def test_impossible_settings_for_malformed_records_are_refused() -> None:
    with pytest.raises(GraphError, match="unknown on_error='ignore': choose one of fail, skip, dead-letter"):
        FileSource("in.jsonl", Item, on_error="ignore")  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="a Parquet file has no malformed records"):
        FileSource("in.parquet", Item, on_error="skip")
    with pytest.raises(GraphError, match="a Parquet file has no malformed records"):
        FileSource("in.parquet", Item).catch()


def test_a_job_has_each_row_and_each_dead_letter_once_although_its_tasks_are_killed(tmp_path: Path) -> None:
    lines = ["bad" if number % 7 == 3 else good("jsonl", number) for number in range(10_000)]
    path = tmp_path / "in.jsonl"
    path.write_text(content("jsonl", lines))
    job = Job("caught", checkpoint_interval="100ms")
    items, bad = job.source(FileSource(str(path), Item).catch())
    letters, ids = MemorySink(), MemorySink()
    bad.rebalance().sink(letters)
    items.select("id").rebalance().sink(ids)
    run = job.start(runtime="local", parallelism=2, kills=["source-file[0]@100ms", "source-file[0]@250ms"])
    run.wait()
    assert [row["line"] for row in _sorted(letters, "line")] == list(range(4, 10_001, 7))
    assert [row["id"] for row in _sorted(ids, "id")] == [n for n in range(10_000) if n % 7 != 3]
    assert [amount for name, amount in run.counters.items() if name.endswith(".dead_letters")] == [1_429]


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=[pytest.mark.thorough] * (seed >= 3)) for seed in range(12)])
def test_the_same_records_are_caught_in_every_schedule(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_reader, "BLOCK_BYTES", 256)
    lines = ["bad" if number % 7 == 3 else good("csv", number) for number in range(700)]
    path = tmp_path / "in.csv"
    path.write_text(content("csv", lines))
    job = Job("schedules")
    items, bad = job.source(FileSource(str(path), Item).catch())
    letters, ids = MemorySink(), MemorySink()
    bad.rebalance().sink(letters)
    items.select("id").rebalance().sink(ids)
    counted: dict[str, int] = {}
    outcome = simulate_plan(
        plan(job, parallelism=2), seed, kills=2, observer=lambda at_us, task, seen: counted.update(seen.counts or {})
    )
    assert outcome.problems == []
    assert [row["line"] for row in _sorted(letters, "line")] == list(range(5, 702, 7))
    assert [row["id"] for row in _sorted(ids, "id")] == [n for n in range(700) if n % 7 != 3]
    assert counted["source-file.dead_letters"] == 100


def _sorted(sink: MemorySink, column: str) -> list[dict[str, Any]]:
    table = sink.table()
    assert table is not None
    return table.sort_by(column).to_pylist()


def test_a_job_counts_skipped_records_and_may_leave_dead_letters_unused(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text(content("csv", ["1,a", "x,b", "3,c"]))

    class Total(Record):
        rows: int

    totals = MemorySink()
    skipping = Job("skipping")
    source = skipping.source(FileSource(str(path), Item, on_error="skip")).named("items")
    source.aggregate(Total, rows=count()).at_end().sink(totals)
    run = skipping.start(runtime="local", parallelism=1)
    run.wait()
    assert totals.rows(Total)[-1] == Total(2)
    assert run.counters["items.rows_skipped"] == 1

    ignoring = Job("ignoring")
    items, _ = ignoring.source(pickle.loads(pickle.dumps(FileSource(str(path), Item).catch())))
    found = MemorySink()
    items.sink(found)
    ignoring.run(runtime="local", parallelism=1)
    assert json.dumps(_sorted(found, "id")) == '[{"id": 1, "name": "a"}, {"id": 3, "name": "c"}]'
