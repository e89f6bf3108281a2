"""Rows, texts and the plot of checkpoint intervals."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.checkpoint.interval import IntervalModel, LocalFailures, Rollbacks
from clonos_py.evaluation.intervals.figures import BEST, best_setting, interval_rows, plot, span_text
from clonos_py.settings.kinds import DURATION

SYSTEM = IntervalModel(1.07, Rollbacks(0.01 / 60, 23.7))


@pytest.mark.parametrize(
    ("seconds", "text", "setting"),
    [
        (0.00052, "0.52 ms", "0.52ms"),
        (0.9651, "965.1 ms", "965ms"),
        (2.301, "2.301 s", "2.3s"),
        (113.6715, "113.7 s", "114s"),
        (249.21, "4.154 min", "4.15min"),
        (7_300, "2.028 h", "2.03h"),
        (200_000, "2.315 d", "2.31d"),
        (1e9, "11,574 d", "11574d"),
    ],
)
def test_a_time_is_shown_in_a_unit_that_suits_it(seconds: float, text: str, setting: str) -> None:
    assert (span_text(seconds), best_setting(seconds)) == (text, setting)


@given(st.floats(1e-4, 1e11))
def test_the_best_interval_is_shown_as_a_setting_that_can_be_read(seconds: float) -> None:
    assert DURATION.parse(best_setting(seconds)) / 1e6 == pytest.approx(seconds, rel=0.006)


@given(st.floats(1e-6, 0.5), st.sampled_from([None, 3.0]))
def test_rows_are_in_order_and_the_best_loses_nothing(share: float, speed: float | None) -> None:
    local = None if speed is None else LocalFailures(share, 0.5, speed)
    model = IntervalModel(1, Rollbacks(share, 0.5) if local is None else None, local)
    rows = interval_rows(model, own_s=7.0)
    assert [row.interval_s for row in rows] == sorted(row.interval_s for row in rows)
    assert next(row for row in rows if row.name == BEST).lost == 0
    assert all(-1e-12 <= row.lost <= 1 for row in rows)
    assert ("Daly" in {row.name for row in rows}) == (local is None)


def test_a_job_that_gets_no_work_done_is_shown_so() -> None:
    hopeless = IntervalModel(1, Rollbacks(1, 1_000))
    rows = interval_rows(hopeless)
    assert {(row.utilization, row.lost) for row in rows} == {(0.0, 0.0)}
    assert "0.00%" in plot(hopeless, rows)


def test_the_curve_of_the_plot_rises_to_the_best_interval_and_falls() -> None:
    drawn = plot(SYSTEM, interval_rows(SYSTEM))
    (path,) = re.findall(r'class="line hue0" d="M([^"]+)"', drawn)
    points = [tuple(map(float, point.split(","))) for point in path.split("L")]
    (best_x,) = (float(x) for x in re.findall(r'<line class="best" x1="([\d.]+)"', drawn))
    assert all(a[0] <= b[0] for a, b in pairwise(points))
    assert all(a[1] >= b[1] for a, b in pairwise(points) if b[0] < best_x)
    assert all(a[1] <= b[1] for a, b in pairwise(points) if a[0] > best_x)
