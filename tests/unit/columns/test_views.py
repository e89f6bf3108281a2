"""Views of columns: properties found without reading every value hold for all."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from clonos_py.columns.grouping import group
from clonos_py.columns.views import is_one_text


@given(
    st.one_of(
        st.lists(st.sampled_from(["", "a", "ab", "ba", "aba", None])),
        st.builds(lambda text, count: [text] * count, st.text(max_size=3), st.integers(0, 5)),
    ),
    st.integers(0, 2),
    st.sampled_from([pa.string(), pa.large_string()]),
)
@example(["ab", "ba", "ab"], 0, pa.string())
@example(["ab", "a", "bab"], 0, pa.string())
def test_a_column_of_one_repeated_text_is_recognized(texts: list[str | None], cut: int, kind: pa.DataType) -> None:
    found = is_one_text(pa.array(texts, kind).slice(cut))
    assert found == (len(texts) > cut and None not in texts[cut:] and len(set(texts[cut:])) == 1)


@given(st.lists(st.sampled_from(["", "b", "bb"]), max_size=4), st.integers(0, 6))
def test_groups_of_one_repeated_text_are_right(texts: list[str], count: int) -> None:
    same = ["b"] * count
    groups = group([pa.array(texts + same)], len(texts) + count)
    values = texts + same
    assert [values[first] for first in groups.first] == list(dict.fromkeys(values))
    assert [values[groups.first[number]] for number in groups.ids] == values
