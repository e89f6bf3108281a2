"""Files that were read are read on by the next run, unless they are no longer what was read."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py import Job, Record
from clonos_py.connectors import FileSink, FileSource, read_results
from clonos_py.model.errors import SourceError
from clonos_py.testing.reading import Reading

LINES = {"csv": (b"id\n", b"%d\n"), "jsonl": (b"", b'{"id": %d}\n'), "text": (b"", b"%d\n")}
Change = Callable[[bytes, bytes], bytes]


class Row(Record):
    id: int


class Line(Record):
    line: str


def content(file_format: str, ids: range) -> bytes:
    head, line = LINES[file_format]
    return head + b"".join(line % number for number in ids)


CHANGES: dict[str, tuple[Change, str | None]] = {
    "nothing": (lambda old, _: old, None),
    "appended lines": (lambda old, line: old + line % 9 + line % 9, None),
    "a longer file": (lambda old, line: old.replace(b"1", b"7") + line % 9, "was replaced or written again"),
    "another file as long": (lambda old, _: old.replace(b"2", b"8"), "was replaced or written again"),
    "a shorter file": (lambda old, line: old[: -len(line % 1)], "has shrunk"),
    "a continued last line": (lambda old, line: old[:-1] + b"0\n" + line % 9, "was continued at byte"),
}


@pytest.mark.parametrize("file_format", LINES)
@pytest.mark.parametrize("change", CHANGES)
def test_the_next_run_reads_on_or_says_what_has_changed(file_format: str, change: str, tmp_path: Path) -> None:
    path, out = tmp_path / "in", tmp_path / "out"
    before = content(file_format, range(1, 4))
    make, problem = CHANGES[change]
    ends_open = change == "a continued last line"
    path.write_bytes(before[:-1] if ends_open else before)

    def run() -> None:
        job = Job("changed", checkpoints=tmp_path / "checkpoints")
        source: Any = FileSource(path, None if file_format == "text" else Row, file_format)
        job.source(source).sink(FileSink(out))
        job.run(runtime="local")

    run()
    run()  # reads nothing
    path.write_bytes(make(before, LINES[file_format][1]))
    if problem is None:
        run()
    else:
        with pytest.raises(SourceError, match=f"{path} {problem}.*(--fresh|as they are)"):
            run()
    added = 2 if change == "appended lines" else 0
    assert [int(next(iter(row.values()))) for row in read_results(out)] == [1, 2, 3, *([9] * added)]


def test_a_parquet_file_that_was_replaced_is_refused_also_by_a_job_that_reads_other_columns(tmp_path: Path) -> None:
    path = str(tmp_path / "in.parquet")
    schema = pa.schema([pa.field(name, pa.int64(), nullable=False) for name in ("id", "other")])

    def reading(columns: tuple[str, ...]) -> Reading:
        definition = FileSource(path, schema)
        return Reading(definition, definition, 0, 1, (columns,))

    def write(*ids: int) -> None:
        pq.write_table(pa.table([list(ids), list(ids)], schema=schema), path)

    write(1, 2)
    first = reading(("id",))
    first.read_on(10)
    for ids, same in (((1, 2), True), ((1, 3), False), ((1, 2, 3), False)):
        os.unlink(path)
        write(*ids)
        again = reading(("other",))
        again.seek(first.positions_after(9), None, first.reads)
        if same:
            again.read_on(10)
            assert not any(read.row_count for read in again.reads)
        else:
            with pytest.raises(AssertionError, match=r"in\.parquet was replaced or written again"):
                again.read_on(10)


@given(st.lists(st.sampled_from([b"1\n", b"2\r\n", b"3\r", b"4", b"\n", b"\r\n", b"\r"]), max_size=6), st.data())
def test_a_file_that_grew_between_runs_is_read_as_at_once_or_refused(pieces: list[bytes], data: Any) -> None:
    """CSV, whose rows may depend on where it was cut."""
    whole = b"id\n" + b"".join(pieces)
    cut = data.draw(st.integers(0, len(whole)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "in.csv"

        def found(content: bytes, *before: Reading) -> Reading:
            path.write_bytes(content)
            definition = FileSource(path, Row)
            reading = Reading(definition, definition, 0, 1)
            for one in before:
                reading.seek(one.positions_after(len(one.reads)), None, one.reads)
            reading.read_on(100)
            return reading

        first = None
        with suppress(AssertionError):  # half of a header
            first = found(whole[:cut])
        if first is None:
            return
        try:
            rest = found(whole, first)
        except AssertionError as error:
            if "was continued at byte" not in str(error):
                raise
            return
        rows = first.content
        rows.add(rest.reads)
        assert rows.get((0, 0), []) == found(whole).content.get((0, 0), [])
