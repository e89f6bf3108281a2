"""The figures of the paper beside ours: what agrees, what does not, and that every figure is there."""

from __future__ import annotations

import numpy as np
import pytest

from clonos_py.evaluation.intervals.comparison import figures, numbers, simulated_points, table_1
from clonos_py.evaluation.intervals.page import found_rows, measured_rows, number_rows, page, simulated_rows

FOUND = {
    "start": "ten times too long", "failures": 10, "first_s": 30.0, "interval_s": 3.3, "best_s": 3.0,
    "cost_s": 0.1, "restart_s": 0.5, "replay_speed": 2.0, "failures_per_s": 0.05,
    "path": [[5.0, 30.0], [60.0, 3.3]], "failures_s": [20.0, 40.0],
}  # fmt: skip
MEASURED = {
    "recovery": "rollback", "per_minute": 3, "failures_s": [1.0, 2.0], "interval_s": 5.0, "cost_s": 0.1,
    "restart_s": 0.5, "replay_speed": None, "lag_s": 0.2, "utilization": 0.81, "foretold": 0.8, "equation": 0.78,
}  # fmt: skip


def test_all_numbers_of_the_paper_but_two_are_ours_in_the_printed_digits() -> None:
    """11.6 follows from the rounded utilizations that are printed; 1.73 is cut off after 1.74."""
    found = numbers()
    assert len(found) == 16
    differing = [number for number in found if not number.agrees]
    assert [(number.printed, number.computed) for number in differing] == [("11.6", "11.529"), ("1.73", "1.7444")]
    assert [row[-1] for row in number_rows()].count("differs") == 2


def test_table_1_shows_that_its_last_column_does_not_follow() -> None:
    rows = table_1()
    assert [row[7] == row[6] for row in rows] == [True] * 6
    assert [row[9] == row[8] for row in rows] == [True] * 6
    assert [row[-1] for row in rows] == ["0.9311", "0.9115", "0.9774", "0.9732", "0.9841", "0.9775"]


def test_every_figure_has_its_curves_and_its_simulated_points() -> None:
    points = simulated_points()
    found = {tuple(point.key.values()): {**point.run(np.random.default_rng(1), 4, 20), "runs": 4.0} for point in points}
    assert len(found) == len(points)
    drawn = figures({(figure, line, interval): value for (figure, line, interval), value in found.items()})
    keys = [figure.key for figure in drawn]
    assert keys == [
        "4", "5", "10", "11", *(f"12 {rate} failures/min" for rate in ("0.005", "0.025", "0.05", "0.1")), "13a", "13b",
        "14", "15a", "15b", "16", "local", "both",
    ]  # fmt: skip
    assert sum(len(each) for figure in drawn for each in figure.simulated.values()) == len(points)
    for figure in drawn:
        assert set(figure.simulated) <= set(figure.curves)
        assert all(len(curve) > 50 for curve in figure.curves.values())


def test_a_measured_run_is_judged_by_its_distance() -> None:
    ((*_, apart, equation, verdict),) = measured_rows([MEASURED])
    assert (apart, equation, verdict) == ("+0.0100", "0.7800", "within 0.03")
    assert measured_rows([{**MEASURED, "foretold": 0.77}])[0][-1] == "differs"
    assert found_rows([FOUND])[0][-1] == "within 25%"
    assert found_rows([{**FOUND, "interval_s": 2.2}])[0][-1] == "differs"


def test_the_page_has_everything() -> None:
    point = simulated_points()[0]
    line = {**point.key, **point.run(np.random.default_rng(1), 4, 20), "runs": 4}
    html = page([line], [MEASURED], [FOUND], {"minutes": 10.0})
    for text in ("Figure 4:", "Figure 16:", "Table 1", "Measured utilization", "ten times too long", "0.9311"):
        assert text in html
    assert html.count("<svg") == 16 + 1
    bare = page([], [], [], {})
    assert "Measured utilization" not in bare
    assert "Simulated points" not in bare


def test_the_row_of_a_simulated_point_has_the_value_of_the_model() -> None:
    point = simulated_points()[0]
    found = {**point.key, **point.run(np.random.default_rng(1), 50, 100), "runs": 50}
    ((*_, model, _, _, _),) = simulated_rows([found])
    assert float(model) == pytest.approx(point.model.utilization(point.interval), abs=1e-5)
