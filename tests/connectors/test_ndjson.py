"""Lines of JSON: the same bytes whether a few rows are written or many."""

from __future__ import annotations

import io
import subprocess
import sys

import polars as pl
import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from clonos_py.connectors import ndjson

VALUES: dict[pa.DataType, st.SearchStrategy[object]] = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.string(): st.text(),
    pa.bool_(): st.booleans(),
    pa.float64(): st.floats() | st.floats(-1e7, 1e7) | st.integers(-(10**18), 10**18).map(float),
    pa.list_(pa.int64()): st.lists(st.integers(-5, 5), max_size=2),
}


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    rows = draw(st.integers(1, 4))
    columns = {}
    for name in draw(st.lists(st.text(max_size=3), min_size=1, max_size=3, unique=True)):
        type_ = draw(st.sampled_from(list(VALUES)))
        values = draw(st.lists(st.none() | VALUES[type_], min_size=rows, max_size=rows))
        columns[name] = pa.array(values, type_)
    return pa.table(columns)


@given(tables())
@example(pa.table({"x": [1e15, 1e17, -1e300, 1e-4, 1e-5, 5e-324, 0.0, -0.0, float("nan"), float("inf"), None]}))
@example(pa.table({"x": [0.0, -0.0, 1e-4, 999999999999999.9, None]}))
@example(pa.table({"x": pa.nulls(2)}))
@example(pa.table({"x": pa.array([], pa.int64())}))
def test_a_few_rows_are_written_as_many_are(rows: pa.Table) -> None:
    lines = io.BytesIO()
    frame = pl.DataFrame(pl.from_arrow(rows))
    frame.columns = rows.schema.names
    frame.write_ndjson(lines)
    assert bytes(ndjson.encoded(rows)) == lines.getvalue()


def test_polars_is_not_imported_for_a_few_rows() -> None:
    program = (
        "import sys, pyarrow as pa; from clonos_py.connectors import ndjson\n"
        "for rows in (ndjson._FEW, ndjson._FEW + 1):\n"
        "    ndjson.encoded(pa.table({'a': [1] * rows, 'b': ['x'] * rows, 'c': [0.5] * rows}))\n"
        "    print('polars' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
