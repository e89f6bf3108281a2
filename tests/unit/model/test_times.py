"""Durations as users write them: text with a unit, or a timedelta."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.model.errors import SettingError
from clonos_py.model.times import micros

_UNITS = {"us": 1, "ms": 10**3, "s": 10**6, "m": 6 * 10**7, "min": 6 * 10**7, "h": 36 * 10**8, "d": 864 * 10**8}


@given(st.integers(-(10**7), 10**7), st.sampled_from(sorted(_UNITS)))
def test_text_and_timedelta_are_exact(number: int, unit: str) -> None:
    found = micros(f"{number}{unit}")
    assert found == number * _UNITS[unit]
    assert micros(timedelta(microseconds=found)) == found


@pytest.mark.parametrize(
    ("duration", "us"),
    [("1.5 min", 90_000_000), (" -5m ", -300_000_000), ("0.1ms", 100), ("9007199254740993us", 2**53 + 1), (0, 0)],
)
def test_text_may_have_a_fraction_spaces_and_a_sign_and_0_needs_no_unit(duration: Any, us: int) -> None:
    assert micros(duration) == us


@pytest.mark.parametrize("bare", [10, -3, 1.5, "10", " 1.5 "])
def test_a_number_without_a_unit_is_refused_with_the_remedy(bare: Any) -> None:
    number = str(bare).strip()
    with pytest.raises(SettingError, match=f"has no unit: write one of us, ms, .* such as '{number}s'"):
        micros(bare)


@pytest.mark.parametrize("other", ["ten seconds", "", "1e3s", "5 weeks", None, True, [10], b"10s", object()])
def test_anything_else_is_no_duration(other: Any) -> None:
    with pytest.raises(SettingError, match=r"is not a duration: write a number and one of us.*or give a timedelta"):
        micros(other)


@pytest.mark.parametrize("long", ["99999999999999d", timedelta.max])
def test_a_duration_beyond_the_times_of_windows_is_refused(long: Any) -> None:
    with pytest.raises(SettingError, match="is too long a duration"):
        micros(long)
