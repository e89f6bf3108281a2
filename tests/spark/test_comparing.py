"""Which results count as equal: every row with its number of copies, every digit; how files become rows."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clonos_py.evaluation.spark.verify import Comparison, compare, found_rows
from clonos_py.model.errors import SparkError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def frame(spark: SparkSession, **columns: list[Any]) -> DataFrame:
    return spark.createDataFrame(pa.table(columns))


def test_rows_are_counted_and_every_digit_matters(spark: SparkSession) -> None:
    expected = frame(spark, id=[1, 2, 2, 3], price=[Decimal(price) for price in ("1.500", "2.000", "2.000", "3.001")])
    same = frame(spark, key=[2, 1, 3, 2], euros=[Decimal(price) for price in ("2.0000", "1.5000", "3.0010", "2.0000")])
    assert compare(expected, same) == Comparison(4, 0, 0)
    other = frame(spark, id=[1, 2, 3, 3, 3], price=[Decimal(price) for price in ("1.5", "2.0", "3.0", "3.0", "9.0")])
    assert list(compare(expected, other).lines("q1")) == [
        "q1: DIFFERENT, of 4 rows 2 are missing, 3 are too many",
        "first 2 missing:",
        "  - id=2, price=2.000",
        "  - id=3, price=3.001",
        "first 2 too many:",
        "  + id=3, price=3.000  (2 times)",
        "  + id=3, price=9.000",
    ]


def test_an_empty_result_equals_only_an_empty_result(spark: SparkSession, tmp_path: Path) -> None:
    expected = frame(spark, id=[1])
    none = found_rows(spark, tmp_path, expected)
    assert compare(none, none) == Comparison(0, 0, 0)
    assert compare(expected, none) == Comparison(1, 1, 0, ("id=1",))


def test_columns_that_cannot_be_compared_are_named(spark: SparkSession) -> None:
    numbers = frame(spark, id=[1])
    with pytest.raises(SparkError, match="the results have columns id, more; expected were id"):
        compare(numbers, frame(spark, id=[1], more=[2]))
    with pytest.raises(SparkError, match="column 'id' of the results is double, expected was bigint"):
        compare(numbers, frame(spark, id=[1.0]))


def test_text_that_cannot_be_converted_is_a_difference(spark: SparkSession) -> None:
    assert compare(frame(spark, id=[1]), frame(spark, id=["1"])).identical
    assert compare(frame(spark, id=[1]), frame(spark, id=["one"])) == Comparison(1, 1, 1, ("id=1",), ("id=None",))


def test_names_of_folders_become_columns(spark: SparkSession, tmp_path: Path) -> None:
    for minute, price in (("09%3A30", 5), ("10%3A00", 6)):
        folder = tmp_path / "dt=2026-01-31" / f"hm={minute}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"price": [price]}), folder / "sink-0.parquet")
    (tmp_path / ".staged").mkdir()
    (tmp_path / ".staged" / "sink-1.parquet").write_bytes(b"not yet")
    expected = frame(spark, price=[5, 6], dt=["2026-01-31"] * 2, hm=["09:30", "10:00"])
    assert compare(expected, found_rows(spark, tmp_path, expected)).identical
