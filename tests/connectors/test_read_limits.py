"""Sources before slow functions read as few rows as they are asked to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from clonos_py import Record
from clonos_py.connectors import FileSource, MemorySource
from clonos_py.evaluation.nexmark.source import NexmarkSource
from clonos_py.model.connectors import SourceDefinition
from clonos_py.model.operators import Read, Source

ROWS = 500


class Line(Record):
    number: int


def _csv(folder: Path) -> SourceDefinition:
    pa_csv.write_csv(_table(), folder / "lines.csv")
    return FileSource(str(folder / "lines.csv"), Line, "csv")


def _json(folder: Path) -> SourceDefinition:
    (folder / "lines.json").write_text("".join(f'{{"number": {n}}}\n' for n in range(ROWS)))
    return FileSource(str(folder / "lines.json"), Line, "jsonl")


def _parquet(folder: Path) -> SourceDefinition:
    pq.write_table(_table(), folder / "lines.parquet", row_group_size=200)
    return FileSource(str(folder / "lines.parquet"), Line, "parquet")


def _memory(folder: Path) -> SourceDefinition:
    return MemorySource([Line(n) for n in range(ROWS)])


def _table() -> pa.Table:
    return pa.table({"number": pa.array(range(ROWS), pa.int64())})


@pytest.mark.parametrize("made", [_csv, _json, _parquet, _memory])
def test_a_read_has_at_most_the_requested_rows_and_skips_none(
    made: Callable[[Path], SourceDefinition], tmp_path: Path
) -> None:
    source = made(tmp_path).create((None,))
    source.open(0, 1)
    source.seek({})
    found: list[Any] = []
    rows_max = 1
    while isinstance(read := _limited(source, rows_max), Read):
        (rows,) = read.rows
        numbers = rows.column("number").to_pylist() if rows is not None else []
        assert len(numbers) <= rows_max
        found += numbers
        rows_max = rows_max * 2 % 127
    assert found == list(range(ROWS))


def test_a_nexmark_read_has_at_most_the_requested_events() -> None:
    source = NexmarkSource(events=1_000).create(((), (), ("auction",)))
    source.open(0, 1)
    source.seek({})
    assert [_limited(source, rows_max).event_count for rows_max in (1, 5, 20)] == [1, 5, 20]


def _limited(source: Source, rows_max: int) -> Any:
    source.limit(rows_max)
    return source.poll(0)
