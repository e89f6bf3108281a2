"""Windows in definitions of state: what is written can be read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.model.window_texts import window_of, window_text
from clonos_py.model.windows import Counted, Cumulative, Hopping, Session, Tumbling, Window

DURATIONS = st.integers(1, 10**15)
ROWS = st.integers(1, 10**9)
WINDOWS: st.SearchStrategy[Window | Counted] = st.one_of(
    st.builds(Tumbling, DURATIONS, st.booleans()),
    st.builds(Hopping, DURATIONS, DURATIONS, st.booleans()),
    st.builds(Cumulative, DURATIONS, DURATIONS, st.booleans()),
    st.builds(Session, DURATIONS, st.booleans()),
    st.builds(Counted, ROWS, ROWS),
)


@given(WINDOWS)
def test_every_window_is_read_back(window: Window | Counted) -> None:
    assert window_of(window_text(window)) == window


@pytest.mark.parametrize(
    "text", ["", "tumbling", "10s", "tumbling 10", "4 rows", "10s every", "10s by", "tumbling 1s of time"]
)
def test_other_texts_are_no_windows(text: str) -> None:
    with pytest.raises(ValueError, match="is no window"):
        window_of(text)
