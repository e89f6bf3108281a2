"""The page with the figures of CheckMate."""

from __future__ import annotations

from typing import Any

from clonos_py.evaluation.checkmate.page import figures, page
from tests.unit.evaluation.checkmate.test_tables import run


def timed(number: int, parallelism: int, **more: Any) -> dict[str, Any]:
    line = run(number, **{"parallelism": parallelism, **more})
    line["metrics"]["failure"]["at_s"] = 18.0
    line["metrics"]["latency_ms_per_second"] = [{"at_s": s, "p50": 1.0 + number, "p99": 9.0} for s in range(3)]
    return line


def search(parallelism: int, rate: float) -> dict[str, Any]:
    return {
        "query": "q3", "protocol": "aligned", "recovery": "causal", "parallelism": parallelism, "events_per_s": rate
    }  # fmt: skip


RUNS = [timed(1, 2), timed(3, 2), timed(4, 4), timed(2, 2, skew=10, load=50)]


def titled(title: str) -> list[list[tuple[float, float]]]:
    """The lines of a figure."""
    (found,) = [figure for figure in figures([search(4, 9e5), search(2, 5e5)], RUNS) if figure.title == title]
    return [list(line) for line in found.lines.values() if line]


def test_points_over_workers_are_medians_of_the_repetitions() -> None:
    assert titled("Figure 8: average checkpointing time, ms: q3") == [[(2.0, 14.0), (4.0, 28.0)]]
    assert titled("Figure 7: maximum sustainable throughput, events/s: q3") == [[(2, 5e5), (4, 9e5)]]


def test_latency_is_drawn_over_time_and_restarts_over_skew() -> None:
    assert titled("Figure 9: median latency, ms: q3, 2 workers") == [[(0.0, 3.0), (1.0, 3.0), (2.0, 3.0)]]
    assert titled("Figure 13: restart time, ms under skew: q3, 2 workers, 50% load, keys by hash") == [[(10.0, 100.0)]]


def test_all_figures_with_points_and_the_tables_of_the_paper_are_on_the_page() -> None:
    found = page([search(2, 5e5)], RUNS, {"seconds": 60})
    for number in range(7, 14):
        assert f"<h2>Figure {number}: " in found
    assert "455 (4%)" in found
    assert found.count("<svg") == found.count("</svg>") > 7


def test_without_runs_there_are_no_figures() -> None:
    assert figures([], []) == []
