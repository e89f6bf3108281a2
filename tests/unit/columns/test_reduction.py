"""The least and the greatest text of groups, by either way."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.columns import reduction
from clonos_py.columns.grouping import group
from clonos_py.columns.reduction import greatest, least

ROWS = st.lists(st.tuples(st.integers(0, 3), st.sampled_from([None, "", "a", "b", "ab", "é", "z"])), max_size=30)


@pytest.mark.parametrize("few", [0, 1 << 40])
@given(ROWS)
def test_extremes_of_texts_are_those_of_plain_python(few: int, rows: list[tuple[int, str | None]]) -> None:
    column: Any = pa.array([text for _, text in rows], pa.string())
    groups = group([pa.array([key for key, _ in rows], pa.int64())], len(rows))
    keys = [rows[first][0] for first in groups.first.tolist()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reduction, "_ROWS_FOR_EACH_TEXT", few)
        for function, chosen in ((least, min), (greatest, max)):
            found = function(column, groups)
            texts = {key: [text for of, text in rows if of == key and text is not None] for key in keys}
            assert found.type == pa.string()
            assert found.to_pylist() == [chosen(texts[key], key=str.encode, default=None) for key in keys]
