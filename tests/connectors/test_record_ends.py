"""The rows of a file depend on its bytes and the schema, and not on how it is read.

Files are drawn from the pieces that could confuse a reader, and are read in blocks and rows of any size, followed or
not, with each handling of malformed records. The expected records are those of Python's ``csv`` and ``json``.
"""

from __future__ import annotations

import csv
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clonos_py import Job, Record
from clonos_py.connectors import (
    FileSource,
    MemorySink,
    SocketSource,
    line_feed,
    line_reader,
    read_results,
    socket_source,
)
from clonos_py.connectors.file_content import LocalContent
from clonos_py.connectors.line_formats import CsvLines, JsonLines, LineFormat
from clonos_py.connectors.line_reader import LinePartition
from clonos_py.connectors.malformed import OnError, OnErrorWord, RequestedColumns, parsed
from clonos_py.connectors.partitions import PartitionRead
from clonos_py.model.errors import SourceError
from clonos_py.model.operators import End, Wait
from tests.connectors.test_malformed import everything, opened, rows
from tests.line_servers import serving
from tests.waiting import SOON_S

MARK = "\ufeff"
CSV_PIECES = ["a", "é", MARK, " ", ",", ",", '"', '"', '""', "\n", "\n", "\r", "\r\n", '"a\nb"', ',"', '"\n', '5" x']
JSON_PIECES = [
    *(
        '{"a":1}',
        '{"a":1}',
        '{"a":',
        "1}",
        '{"a":2,"b":"é\u2028"}',
        '{"b":{}',
        '{"a":3',
        "}",
        "[",
        '"',
        "null",
        "5",
        "\0",
    ),
    *("\n", "\n", "\n", "\r\n", "\r", " ", "\t", MARK, '{"a": 4, "b": null} ', " " * 40),
]
MANY = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)


class Place(NamedTuple):
    """A malformed record: its line, its content without the line end, and the reason; None if it is not checked."""

    line: int
    value: bytes
    reason: str | None


class Outcome(NamedTuple):
    rows: list[dict[str, Any]]
    malformed: list[Place]


class Two(Record):
    a: str
    b: str | None


class OneText(Record):
    a: str


class OneNull(Record):
    a: str | None


class Item(Record):
    a: int
    b: str | None


def csv_lines(text: str) -> list[str]:
    return re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", text)


def records_of_csv(lines: list[str], several: bool) -> Iterator[tuple[int, str, list[str] | None]]:
    """The line number, the content and the fields of each record, in the order of the file; None if it is broken."""
    at = 0
    while at < len(lines):
        alone = csv.reader([lines[at], "x\n"])
        fields: list[str] | None = next(alone)
        end = at + 1
        if alone.line_num > 1:
            try:
                reader = csv.reader(lines[at:] if several else lines[at:end], strict=True)
                fields = next(reader)
                end = at + reader.line_num
            except csv.Error:
                fields = None
        yield at + 1, "".join(lines[at:end]), fields
        at = end


def expected_of_csv(text: str, schema: pa.Schema, header: bool = True) -> Outcome:
    lines = csv_lines(text.removeprefix(MARK))
    names = schema.names
    found = Outcome([], [])
    blank_is_row = len(schema) == 1 and schema.field(0).nullable
    for line, content, fields in records_of_csv(lines, several=header):
        if header and line == 1:
            continue
        if fields == [] and blank_is_row:
            found.rows.append({names[0]: ""})
        elif fields is None or len(fields) not in (0, len(names)):
            what = "a quote is not closed"
            if fields is not None:
                what = f"it has {len(fields)} fields, but there are {len(names)} columns"
            found.malformed.append(Place(line, content.encode().removesuffix(b"\n").removesuffix(b"\r"), what))
        elif fields:
            found.rows.append(dict(zip(names, fields, strict=True)))
    return found


def expected_of_json(text: str) -> Outcome:
    found = Outcome([], [])
    for number, line in enumerate(text.removeprefix(MARK).split("\n"), 1):
        if not line.strip(" \t\r"):
            continue
        try:
            value = json.loads(line)
        except ValueError:
            value = None
        if isinstance(value, dict) and type(value.get("a")) is int and isinstance(value.get("b"), str | None):
            found.rows.append({"a": value["a"], "b": value.get("b")})
        else:
            found.malformed.append(Place(number, line.encode().removesuffix(b"\r"), None))
    return found


def outcome(reads: list[PartitionRead]) -> Outcome:
    rows = [row for read in reads for row in read.rows.to_pylist()]
    letters = [row for read in reads if read.letters is not None for row in read.letters.to_pylist()]
    return Outcome(rows, [Place(row["line"], row["value"], row["reason"]) for row in letters])


def nulls_as_text(found: Outcome) -> Outcome:
    """Python's ``csv`` does not distinguish null and empty text."""
    return found._replace(rows=[{name: value or "" for name, value in row.items()} for row in found.rows])


def without_reasons(found: Outcome) -> Outcome:
    return found._replace(malformed=[place._replace(reason=None) for place in found.malformed])


def ports_of(schema: pa.Schema, on_error: OnError) -> RequestedColumns:
    letters = FileSource.letter.schema() if on_error is OnError.DEAD_LETTER else None
    return RequestedColumns(schema, tuple(schema.names), on_error, letters)


class Read(NamedTuple):
    """How a file is read."""

    block_bytes: int
    read_rows: int | None
    rows_max: int | None


CSV = st.lists(st.sampled_from(CSV_PIECES), max_size=14).map("".join)
JSON = st.lists(st.sampled_from(JSON_PIECES), max_size=14).map("".join)
RECORDS: list[type[Record]] = [Two, OneText, OneNull]
ROWS = st.sampled_from([None, 1, 3])
HOW = st.builds(Read, st.sampled_from([1, 2, 3, 5, 16, 1 << 20]), ROWS, ROWS)


def read_all(path: Path, size: int, format: LineFormat, ports: RequestedColumns, how: Read) -> list[PartitionRead]:
    """All reads of the file up to a size. Each gives the same rows when it is repeated."""
    partition = LinePartition(LocalContent(str(path), size), format, ports, how.read_rows)
    reads, at = [], 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_reader, "BLOCK_BYTES", how.block_bytes)
        patch.setattr(line_reader, "HEAD_BYTES", how.block_bytes)
        while (read := partition.next(at, how.rows_max)) is not None:
            assert partition.between(at, read.stop) == read
            at = read.stop
            reads.append(read)
            if read.last:
                break
    assert at == size
    return reads


def followed(path: Path, size: int, format: LineFormat, ports: RequestedColumns, how: Read) -> list[PartitionRead]:
    """All reads of a file that grows byte by byte."""
    partition = LinePartition(LocalContent(str(path), 0, grows=True), format, ports, how.read_rows, grows=True)
    reads, at = [], 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_reader, "BLOCK_BYTES", how.block_bytes)
        for grown in range(size + 1):
            partition.grow(grown)
            while (read := partition.next(at, how.rows_max)) is not None:
                assert partition.between(at, read.stop) == read
                at = read.stop
                reads.append(read)
    return reads


def formats(schema: pa.Schema, name: str) -> LineFormat:
    return CsvLines(schema) if name == "csv" else JsonLines(schema)


def check(path: Path, name: str, schema: pa.Schema, how: Read, expected: Outcome, plain: Any) -> None:
    """Reads a file in every way, and compares."""
    size = path.stat().st_size
    letters = outcome(read_all(path, size, formats(schema, name), ports_of(schema, OnError.DEAD_LETTER), how))
    assert plain(letters) == expected
    skipped = read_all(path, size, formats(schema, name), ports_of(schema, OnError.SKIP), how)
    assert outcome(skipped).rows == letters.rows
    assert sum(sum(read.counts.values()) for read in skipped) == len(letters.malformed)
    failing = formats(schema, name), ports_of(schema, OnError.FAIL), how
    if letters.malformed:
        first = letters.malformed[0]
        with pytest.raises(SourceError) as failed:
            read_all(path, size, *failing)
        assert f", line {first.line} (byte " in str(failed.value)
        assert f": malformed record: {first.reason}; correct it" in str(failed.value)
    else:
        assert outcome(read_all(path, size, *failing)) == letters
    grown = outcome(followed(path, size, formats(schema, name), ports_of(schema, OnError.DEAD_LETTER), how))
    assert grown.rows == letters.rows[: len(grown.rows)]
    assert grown.malformed == letters.malformed[: len(grown.malformed)]
    if path.read_bytes().endswith(b"\n") and not any("quote" in str(place.reason) for place in letters.malformed):
        assert grown == letters


@MANY
@given(body=CSV, record=st.sampled_from(RECORDS), how=HOW, data=st.data())
def test_a_csv_file_has_the_same_rows_in_reads_of_any_size(
    body: str, record: type[Record], how: Read, data: st.DataObject, tmp_path: Path
) -> None:
    header = ",".join(record.schema().names) + data.draw(st.sampled_from(["\n", "\r\n", "\r"]))
    text = data.draw(st.sampled_from(["", MARK])) + header + body
    path = tmp_path / "in.csv"
    path.write_bytes(text.encode())
    check(path, "csv", record.schema(), how, expected_of_csv(text, record.schema()), nulls_as_text)


@MANY
@given(text=JSON, how=HOW)
def test_a_json_file_has_the_same_rows_in_reads_of_any_size(text: str, how: Read, tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(text.encode())
    check(path, "jsonl", Item.schema(), how, expected_of_json(text), without_reasons)


@MANY
@given(text=CSV, record=st.sampled_from(RECORDS), data=st.data())
def test_lines_of_csv_without_a_header_are_records(text: str, record: type[Record], data: st.DataObject) -> None:
    schema = record.schema()
    content, found = text.encode(), Outcome([], [])
    expected = expected_of_csv(MARK + text, schema, header=False)
    cuts = {end + 1 for end, byte in enumerate(content) if byte == 10 and data.draw(st.booleans())} | {len(content)}
    at = lines = 0
    for cut in sorted(cuts):
        format = CsvLines(schema, schema.names)
        records = format.records(content[at:cut], whole=True)
        got = parsed(format, content[at:cut], records)
        bounds = [at, *(at + records.ends).tolist()]
        found.rows.extend(got.rows.to_pylist())
        for one in got.refused:
            value = content[bounds[one.record] : bounds[one.record + 1]].removesuffix(b"\n").removesuffix(b"\r")
            found.malformed.append(Place(lines + one.record + 1, value, one.reason))
        at, lines = cut, lines + len(records.ends)
    assert nulls_as_text(found) == expected


class Sent(NamedTuple):
    """How bytes come from a server and are taken."""

    received_bytes: int
    read_bytes: int
    rows_max: int | None


SENT = st.builds(Sent, st.sampled_from([1, 2, 3, 7, 1 << 16]), st.sampled_from([1, 5, 1 << 16]), ROWS)
BROKEN = [b"\xff", b"\xef\xbb", b"\xe2\x80", b"\xc3"]
"""Bytes that are no text."""


def of_socket(content: bytes, name: Any, record: type[Record], sent: Sent) -> Outcome:
    """What a source gives of a server that sends these bytes and closes the connection."""

    def read_all() -> Iterator[Any]:
        while not isinstance(got := source.poll(0), End):
            if isinstance(got, Wait):
                assert woken.wait(SOON_S)
                woken.clear()
            else:
                yield got

    woken = threading.Event()
    with serving(lambda connection, number: connection.sendall(content)) as server, pytest.MonkeyPatch.context() as p:
        p.setattr(line_feed, "_RECEIVED_BYTES", sent.received_bytes)
        p.setattr(socket_source, "READ_BYTES", sent.read_bytes)
        definition = SocketSource("127.0.0.1", server.port, record, name, reconnect=False, on_error="dead-letter")
        source = definition.create((None, None))
        source.open(0, 1)
        source.notify(woken.set)
        source.seek({})
        if sent.rows_max is not None:
            source.limit(sent.rows_max)
        reads = list(read_all())
        source.close()
    rows, letters = ([row for r in reads if r.rows[port] for row in r.rows[port].to_pylist()] for port in (0, 1))
    return Outcome(rows, [Place(letter["line"], letter["value"], letter["reason"]) for letter in letters])


def of_file(path: Path, name: str, schema: pa.Schema) -> Outcome:
    how = Read(1 << 20, None, None)
    return outcome(
        read_all(path, path.stat().st_size, formats(schema, name), ports_of(schema, OnError.DEAD_LETTER), how)
    )


def without_open_quotes(content: bytes) -> bytes:
    """The lines, without the quotes of a line in which one is not closed: in a file it may end in a later line."""

    def closed(line: str) -> str:
        reader = csv.reader([line, "x\n"])
        next(reader)
        return line if reader.line_num == 1 else line.replace('"', "")

    return "".join(map(closed, csv_lines(content.decode("latin-1")))).encode("latin-1")


@settings(MANY, max_examples=40)
@given(
    pieces=st.lists(st.sampled_from([*map(str.encode, CSV_PIECES), *BROKEN]), max_size=14),
    record=st.sampled_from(RECORDS),
    sent=SENT,
    mark=st.booleans(),
)
def test_csv_from_a_server_has_the_rows_of_a_file(
    pieces: list[bytes], record: type[Record], sent: Sent, mark: bool, tmp_path: Path
) -> None:
    """The file has a header, too."""
    body = without_open_quotes(b"".join(pieces))
    begins = MARK.encode() if mark or body.startswith(MARK.encode()) else b""
    path = tmp_path / "in.csv"
    path.write_bytes(",".join(record.schema().names).encode() + b"\n" + body)
    of = of_file(path, "csv", record.schema())
    expected = of._replace(malformed=[place._replace(line=place.line - 1) for place in of.malformed])
    assert of_socket(begins + body, "csv", record, sent) == expected


@settings(MANY, max_examples=40)
@given(pieces=st.lists(st.sampled_from([*map(str.encode, JSON_PIECES), *BROKEN]), max_size=14), sent=SENT)
def test_json_from_a_server_has_the_rows_of_a_file(pieces: list[bytes], sent: Sent, tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(b"".join(pieces))
    assert of_socket(path.read_bytes(), "json", Item, sent) == of_file(path, "jsonl", Item.schema())


@pytest.mark.parametrize("on_error", ["fail", "skip"])
@pytest.mark.parametrize(
    ("content", "record", "right"),
    [
        (b"a,b\r1,x\r2,y\r", Two, [{"a": "1", "b": "x"}, {"a": "2", "b": "y"}]),
        (b"a,b", Two, []),
        (b'a,b\n"x",', Two, [{"a": "x", "b": None}]),
        (b'a,b\n"",\n"",', Two, [{"a": "", "b": None}] * 2),
        (b"\xef\xbb\xbfa,b\r\n", Two, []),
        (b"\xef\xbb\xbf", Two, []),
        (b'a,"b"', Two, []),
        (b'"a","b"\n\xef\xbb\xbf"x",\n', Two, [{"a": '\ufeff"x"', "b": None}]),
        (b'"b\nb",a\n1,2\n', OneText, [{"a": "2"}]),
        (b"x" * 300_000 + b",a\n1,2\n", OneText, [{"a": "2"}]),
        (b"a\n\xef\xbb\xbf\xef\xbb\xbfx\n\xefx\n", OneText, None),
        (b"a\n\xef\xbc\x81\n", OneText, [{"a": "\uff01"}]),
        (b"a\n" + b'"%s"\n' % (b"x\n" * 200_000), OneText, [{"a": "x\n" * 200_000}]),
    ],
)  # fmt: skip
def test_files_at_the_edges_are_read(
    content: bytes, record: type[Record], right: list[dict[str, Any]] | None, on_error: OnErrorWord, tmp_path: Path
) -> None:
    path = tmp_path / "in.csv"
    path.write_bytes(content)
    if right is None and on_error == "fail":
        with pytest.raises(SourceError, match=r"line 3 \(byte 10\): malformed record: field 'a' is not UTF-8 text"):
            rows(everything(opened(FileSource(str(path), record))))
        return
    found = rows(everything(opened(FileSource(str(path), record, on_error=on_error))))
    assert found == ([{"a": "\ufeff\ufeffx"}] if right is None else right)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b'a,"b\n1,2\n', "the first line is not a CSV header .a quote is not closed"),
        (b"\na,b\n1,2\n", "the first line is not a CSV header"),
        (b"a,c\n1,2\n", "the header has no column b; it has a, c"),
        (b"a, b\n1,2\n", "the header has no column b; it has a, ' b'; blanks beside a comma belong to the name"),
        (b"a,b\xff\n1,2\n", "the first line is not a CSV header"),
        (b"a,b,a\n1,2,3\n", "in.csv: the header has the column 'a' 2 times, so .* rename all but one"),
        (b"b,a,b,b\n1,2,3,4\n", "the header has the column 'b' 3 times"),
        (b'x,"a",b,x,"a"\n1,2,3,4,5\n', "the header has the column 'a' 2 times"),
        (b"\xef\xbb\xbfa,b,a", "the header has the column 'a' 2 times"),
    ],
)
def test_a_header_that_is_not_understood_is_named(content: bytes, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_bytes(content)
    with pytest.raises(SourceError, match=complaint):
        everything(opened(FileSource(str(path), Two)))


def test_columns_that_are_not_read_may_have_one_name(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_bytes(b"x,a,,b,x,\n1,2,3,4,5,6\n")
    assert rows(everything(opened(FileSource(str(path), Two)))) == [{"a": "2", "b": "4"}]


def test_results_with_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "out-0.csv").write_bytes(b"a,b,a\n1,2,3\n")
    with pytest.raises(SourceError, match="the header has the column 'a' 2 times"):
        read_results(str(tmp_path))


@pytest.mark.parametrize("format", ["csv", "json"])
def test_a_mark_at_the_start_of_a_connection_is_no_part_of_the_first_line(format: Any) -> None:
    sent = "\ufeff1,x\r\n2,\ufeffy\n" if format == "csv" else '\ufeff{"a": 1, "b": "x"}\n{"a": 2, "b": "\ufeffy"}\n'
    with serving(lambda connection, number: connection.sendall(sent.encode())) as server:
        job, sink = Job("rows"), MemorySink()
        job.source(SocketSource("127.0.0.1", server.port, Item, format, reconnect=False)).sink(sink)
        job.run(runtime="local", parallelism=1)
    table = sink.table()
    assert table is not None
    assert table.to_pylist() == [{"a": 1, "b": "x"}, {"a": 2, "b": "\ufeffy"}]


def test_results_in_csv_have_fields_of_any_length_and_only_complete_rows(tmp_path: Path) -> None:
    long = "x,\n" * 200_000
    (tmp_path / "rows.csv").write_text(f'"a","b"\n"{long}","y"\n"","5"" z"\n"half')
    assert read_results(str(tmp_path)) == [{"a": long, "b": "y"}, {"a": "", "b": '5" z'}]
    (tmp_path / "rows.csv").write_text('"a","b')
    assert read_results(str(tmp_path)) == []
