"""Compares the results of a query with Spark's answer: as multisets of rows, exact to every digit and microsecond."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from clonos_py.evaluation.nexmark.source import NexmarkSource
from clonos_py.evaluation.spark.oracle import answer, sql, view_files, view_generated
from clonos_py.evaluation.spark.session import named_errors, session, shown
from clonos_py.model.errors import SparkError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

SHOWN_ROWS = 10

_FORMATS = (".parquet", ".jsonl", ".csv")
_MOST_DIGITS = 38
_TOTALS = {"q12": ("bidder", "bid_count")}
"""Queries of which only sums are deterministic: the grouping column and the summed column."""


@dataclass(frozen=True)
class Comparison:
    """The result of a comparison. ``missing`` and ``surplus`` count rows; the first rows of each are given as text."""

    rows: int
    missing: int
    surplus: int
    first_missing: tuple[str, ...] = ()
    first_surplus: tuple[str, ...] = ()

    @property
    def identical(self) -> bool:
        return not self.missing and not self.surplus

    def lines(self, query: str) -> Iterator[str]:
        """The comparison as lines of text."""
        if self.identical:
            yield f"{query}: identical, all {self.rows:,} rows"
            return
        yield f"{query}: DIFFERENT, of {self.rows:,} rows {self.missing:,} are missing, {self.surplus:,} are too many"
        for title, sign, rows in (("missing", "-", self.first_missing), ("too many", "+", self.first_surplus)):
            if rows:
                yield f"first {len(rows)} {title}:"
                yield from (f"  {sign} {row}" for row in rows)


def verify(query: str, events: NexmarkSource | Path, results: Path, master: str | None = None) -> Comparison:
    """Compares the results in a folder with Spark's answer. ``events``: a folder of events, or the source that
    generates them. Raises SparkError if there are no results."""
    sql(query)
    if not results.is_dir():
        raise SparkError(f"{results} is not a folder of results: give the one that clonos nexmark run wrote with --out")
    with session("nexmark verify", master) as spark, named_errors(f"{query} cannot be verified"):
        if isinstance(events, Path):
            view_files(spark, events)
        else:
            view_generated(spark, events)
        expected = answer(spark, query)
        with shown(spark, f"verifying {query}"):
            return compare(expected, _summed(query, found_rows(spark, results, expected)))


def compare(expected: DataFrame, found: DataFrame) -> Comparison:
    """Compares two data frames in one pass. Raises SparkError if their columns cannot be compared."""
    from pyspark.sql import functions as f

    expected, found = _aligned(expected, found)
    sides = expected.withColumn("__side", f.lit(1)).unionAll(found.withColumn("__side", f.lit(-1)))
    balance = sides.groupBy(*expected.columns).agg(
        f.sum("__side").alias("__more"), f.sum(f.greatest("__side", f.lit(0))).alias("__rows")
    )
    more, less = f.greatest("__more", f.lit(0)), f.greatest(-f.col("__more"), f.lit(0))
    totals = balance.agg(f.sum("__rows"), f.sum(more), f.sum(less)).collect()[0]
    rows, missing, surplus = (int(total or 0) for total in totals)
    first_missing = _first(balance, f.col("__more") > 0, expected.columns) if missing else ()
    first_surplus = _first(balance, f.col("__more") < 0, expected.columns) if surplus else ()
    return Comparison(rows, missing, surplus, first_missing, first_surplus)


def _first(balance: DataFrame, condition: Any, columns: list[str]) -> tuple[str, ...]:
    rows = balance.where(condition).orderBy(*columns).limit(SHOWN_ROWS).collect()
    return tuple(_row_text({name: row[name] for name in columns}, abs(row["__more"])) for row in rows)


def _row_text(row: dict[str, Any], times: int) -> str:
    return ", ".join(f"{name}={value}" for name, value in row.items()) + (f"  ({times} times)" if times > 1 else "")


def found_rows(spark: SparkSession, folder: Path, expected: DataFrame) -> DataFrame:
    """The rows in a folder of results, including subfolders named ``column=value``. Columns of text formats are
    converted to the expected types later. Raises SparkError for files of several formats, or of an unknown one."""
    paths = sorted(str(path) for path in _visible(folder))
    kinds = {os.path.splitext(path)[1] for path in paths}
    if len(kinds) > 1 or not kinds <= set(_FORMATS):
        raise SparkError(
            f"{folder} holds {', '.join(sorted(kinds))}: results are files of one of {', '.join(_FORMATS)}"
        )
    if not paths:
        return spark.createDataFrame([], expected.schema)
    read = spark.read.option("basePath", str(folder))
    match kinds.pop():
        case ".parquet":
            return read.parquet(*paths)
        case ".csv":
            return read.option("header", True).option("multiLine", True).csv(paths)
        case _:
            names = list(msgspec.json.decode(Path(paths[0]).read_bytes().partition(b"\n")[0]))
            return read.schema(", ".join(f"`{name}` STRING" for name in names)).json(paths)


def _visible(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        hidden = any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
        if path.is_file() and not hidden and path.stat().st_size:
            yield path


def _summed(query: str, found: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    if query not in _TOTALS:
        return found
    by, amount = _TOTALS[query]
    return found.groupBy(by).agg(f.sum(amount).cast("bigint").alias(amount))


def _aligned(expected: DataFrame, found: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Both data frames with equal types and the names of the expected columns; columns are matched by position. Text
    that cannot be converted to its column's type becomes null, which no expected row has."""
    from pyspark.sql import functions as f

    if len(expected.columns) != len(found.columns):
        raise SparkError(
            f"the results have columns {', '.join(found.columns)}; expected were {', '.join(expected.columns)}"
        )
    wide_expected, wide_found = [], []
    for field, given in zip(expected.schema.fields, found.schema.fields, strict=True):
        common = _common(field.name, field.dataType, given.dataType)
        wide_expected.append(f.col(field.name).cast(common).alias(field.name))
        wide_found.append(f.col(given.name).try_cast(common).alias(field.name))
    return expected.select(*wide_expected), found.select(*wide_found)


def _common(name: str, expected: DataType, given: DataType) -> DataType:
    """The type in which two columns are compared, without loss of digits of either."""
    from pyspark.sql.types import DecimalType, IntegralType, LongType, StringType

    numbers = (DecimalType, IntegralType)
    if isinstance(expected, IntegralType) and isinstance(given, IntegralType):
        return LongType()
    if isinstance(expected, numbers) and isinstance(given, numbers):
        scales = [kind.scale for kind in (expected, given) if isinstance(kind, DecimalType)]
        return DecimalType(_MOST_DIGITS, max(scales))
    if expected == given or isinstance(given, StringType):
        return expected
    raise SparkError(
        f"column {name!r} of the results is {given.simpleString()}, expected was {expected.simpleString()}"
    )
