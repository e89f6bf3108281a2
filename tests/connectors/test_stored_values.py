"""Values survive every format: nested nulls in Parquet, INT96, and numbers of times in JSON."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from clonos_py import Epoch, Instant, Record
from clonos_py.connectors.line_formats import JsonLines
from clonos_py.connectors.parquet_reader import ParquetPartition
from clonos_py.connectors.row_files import RowFile, json_lines
from clonos_py.model.record_codec import encode

MOMENTS = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999), timezones=st.just(UTC))
TEXT = st.text(st.sampled_from('a"\\\ue0f5'), max_size=4)


class Inner(Record):
    x: int
    s: str | None


class Outer(Record):
    """A field may be called as a type."""

    inner: Inner
    list: list[Inner | None]
    maybe: Inner | None


class Nested(Record):
    one: Inner | None
    two: Outer | None
    many: list[Outer] | None


class Timed(Record):
    s: Annotated[datetime, Epoch("s")] | None
    ms: Annotated[datetime, Epoch("ms")]
    us: Annotated[datetime, Epoch("us")]
    text: str


INNER = st.builds(Inner, st.integers(-9, 9), st.none() | st.text(max_size=2))
OUTER = st.builds(Outer, INNER, st.lists(st.none() | INNER, max_size=2), st.none() | INNER)
NESTED = st.builds(Nested, st.none() | INNER, st.none() | OUTER, st.none() | st.lists(OUTER, max_size=2))


def read(path: Path, schema: pa.Schema) -> pa.RecordBatch:
    found: Any = ParquetPartition(str(path), schema, None).next(0, None)
    return found.rows  # type: ignore[no-any-return]


@given(rows=st.lists(NESTED, min_size=1, max_size=5))
def test_parquet_gives_back_null_records_at_every_depth(tmp_path_factory: Any, rows: list[Nested]) -> None:
    path = tmp_path_factory.mktemp("nested") / "a.parquet"
    batch = encode(rows, Nested.schema())
    file = RowFile(str(path), "parquet", Nested.schema())
    file.write(batch)
    file.finish()
    assert read(path, Nested.schema()).equals(batch)


@given(times=st.lists(MOMENTS, min_size=1, max_size=3))
def test_int96_has_the_times_of_all_years(tmp_path_factory: Any, times: list[datetime]) -> None:
    path = tmp_path_factory.mktemp("int96") / "a.parquet"
    given = pa.array(times, pa.timestamp("us"))
    pq.write_table(pa.table({"at": given, "instant": given}), path, use_deprecated_int96_timestamps=True)

    class At(Record):
        at: datetime
        instant: Instant

    found = read(path, At.schema())
    assert found.column("at").to_pylist() == times
    assert found.column("instant").equals(given.cast(pa.int64()))


@given(st.lists(st.builds(Timed, st.none() | MOMENTS, MOMENTS, MOMENTS, TEXT), min_size=1, max_size=4))
def test_json_gives_back_numbers_of_times_to_the_microsecond(rows: list[Timed]) -> None:
    batch = encode(rows, Timed.schema())
    lines = bytes(json_lines(batch))
    assert b'ms":"' not in lines
    assert JsonLines(Timed.schema()).parse(lines).equals(batch)
