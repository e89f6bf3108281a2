"""A row for each element, in order, however rows are cut into batches."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.operators import explosion
from clonos_py.operators.explosion import Explode
from tests.unit.operators.scripted import opened, schema

LISTS = st.one_of(st.none(), st.lists(st.one_of(st.none(), st.integers(0, 9)), max_size=4))
RESULT = schema(("id", pa.int64()), ("tags", pa.int64()))


def batch(lists: list[Any], kind: Any) -> pa.RecordBatch:
    columns: list[Any] = [pa.array(range(len(lists)), pa.int64()), pa.array(lists, kind)]
    return pa.RecordBatch.from_arrays(columns, names=["id", "tags"])


@given(st.lists(LISTS, max_size=12), st.integers(0, 12), st.booleans(), st.sampled_from([pa.list_, pa.large_list]))
def test_it_gives_what_python_gives(lists: list[Any], cut: int, keep_empty: bool, kind: Any) -> None:
    rows = batch(lists, kind(pa.int64()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(explosion, "EMIT_ROWS", 3)
        operator = Explode("tags", RESULT, keep_empty)
        _, out = opened(operator)
        for part in (rows.slice(0, cut), rows.slice(cut)):
            operator.on_rows(part, 0)
    nothing = [None] if keep_empty else []
    expected = [(at, tag) for at, tags in enumerate(lists) for tag in (tags or nothing)]
    assert [(row["id"], row["tags"]) for row in out.rows()] == expected
