"""Pieces of a Parquet file are its rows, however they are encoded and wherever the pieces begin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clonos_py.connectors.parquet_reader import ParquetPartition
from clonos_py.model.errors import SourceError

ROWS = 30_000
FIELDS: list[pa.Field[Any]] = [
    pa.field("word", pa.string()),
    pa.field("code", pa.binary()),
    pa.field("n", pa.int64(), False),
]
SCHEMA = pa.schema(FIELDS)


@pytest.fixture(scope="module")
def table() -> pa.Table:
    """Few words in the first row groups, only distinct ones in the last."""
    words = [None if n % 11 == 0 else f"word {n % 13 if n < 20_000 else n}" for n in range(ROWS)]
    return pa.table([words, [b"%d" % (n % 3) for n in range(ROWS)], range(ROWS)], schema=SCHEMA)


@pytest.fixture(scope="module")
def path(table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> str:
    path: Path = tmp_path_factory.mktemp("parquet") / "words.parquet"
    pq.write_table(table, path, row_group_size=10_000)
    return str(path)


@pytest.mark.parametrize("columns", [["word", "code", "n"], ["n", "word"]])
@pytest.mark.parametrize("rows", [999, 10_000, 12_345])
def test_ranges_are_the_rows_of_the_file(table: pa.Table, path: str, columns: list[str], rows: int) -> None:
    schema = pa.schema([SCHEMA.field(name) for name in columns])
    partition = ParquetPartition(path, schema, None)
    for start in [*range(0, ROWS, rows), 25_000, 5_000]:
        found = partition.range(start, min(start + rows, ROWS))
        assert found.schema == schema
        assert found.to_pylist() == table.select(columns).slice(start, rows).to_pylist()


def test_a_short_range_does_not_hold_the_memory_of_the_rows_around_it(path: str) -> None:
    partition = ParquetPartition(path, SCHEMA, None)
    for start in (0, 10, 8_190):  # within a decoded batch, and over the end of one
        assert partition.range(start, start + 10).get_total_buffer_size() < 1_000


def test_a_range_without_rows_has_the_columns(path: str) -> None:
    assert ParquetPartition(path, SCHEMA, None).between(20_000, 20_000).rows == pa.RecordBatch.from_pylist([], SCHEMA)


def test_a_file_without_rows_has_none(tmp_path: Path) -> None:
    pq.write_table(SCHEMA.empty_table(), tmp_path / "empty.parquet")
    partition = ParquetPartition(str(tmp_path / "empty.parquet"), SCHEMA, None)
    assert partition.rows == 0
    assert partition.next(0, None) is None


def test_an_inner_object_may_be_null_but_not_a_field_of_it(tmp_path: Path) -> None:
    path = tmp_path / "rooms.parquet"
    loose = pa.schema([("place", pa.struct([("floor", pa.int64())]))])
    strict = pa.schema([("place", pa.struct([pa.field("floor", pa.int64(), nullable=False)]))])
    rows: list[dict[str, Any]] = [{"place": None}, {"place": {"floor": 3}}]
    pq.write_table(pa.Table.from_pylist(rows, loose), path)
    found = ParquetPartition(str(path), strict, None).range(0, 2)
    assert (found.schema, found.to_pylist()) == (strict, rows)
    pq.write_table(pa.Table.from_pylist([{"place": {"floor": None}}], loose), path)
    with pytest.raises(SourceError, match=r"rooms\.parquet: column 'place': floor is null, but may not be"):
        ParquetPartition(str(path), strict, None).range(0, 1)
