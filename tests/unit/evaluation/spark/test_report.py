"""The page of a run: complete in itself, well-formed, and with the right figures."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import pytest

from clonos_py.evaluation.plots import Axis, Plot, linear, logarithmic
from clonos_py.evaluation.spark.analysis_report import page
from clonos_py.evaluation.spark.analysis_words import number_text, percent_text, story, time_text

_SVG = re.compile(r"<svg.*?</svg>", re.DOTALL)


def figures(**changes: Any) -> dict[str, Any]:
    """Figures of a run of ten seconds in which a task <b> failed at 4 s."""
    steps = [
        {"at_s": s, "p50": 10.0, "p95": 12.0, "p99": 20.0, "max": 30.0 + 900 * (s == 5), "markers": 9}
        for s in range(10)
    ]
    level = {"vertex": "a", "frames_queued": 3, "in_flight_bytes": 5, "log_bytes": 4}
    totals = {"rows_in": 10, "rows_out": 10, "frames_sent": 3, "data_bytes": 900, "determinant_bytes": 9, "cpu_us": 0}
    failure = {
        "task": "<b>[0]", "how": "killed by --kill", "at_s": 4.0, "detected_ms": 21.0, "activated_ms": 36.0,
        "replayed_ms": 300.0, "first_new_effect_ms": 310.0, "restart_ms": 15.0, "recovery_ms": 1_900.0,
        "rows_replayed": 1_234, "latency_before_ms": 30.0, "latency_worst_ms": 930.0,
    }  # fmt: skip
    return {
        "job": "by-hand", "began": "2026-01-01T00:00:00", "settings": {"runtime": "ray"}, "seconds": 10.0,
        "ending": "finished", "notes": [], "failures": [failure],
        "latency_ms": {"undisturbed": {"p50": 10.0, "p99": 20.0}, "per_step": steps, "per_second": steps},
        "throughput": {
            "events": 10_000, "steady_events_per_s": 1_000.0,
            "per_second": [{"at_s": s, "events": 1_000, "replayed": 0} for s in range(10)],
        },
        "bytes": {"data": 900, "determinants": 9, "overhead": 1.01,
                  "per_second": [{"at_s": s, "data": 90, "determinants": 1} for s in range(10)]},
        "levels": [{"at_s": s, **level} for s in range(10)],
        "vertices_total": [{"vertex": "a", "tasks": 2, **totals}],
        "checkpoints": {
            "completed": 1, "aborted": 0, "skipped": 0, "median_ms": 40.0, "max_ms": 40.0,
            "all": [{"checkpoint": 1, "completed_s": 2.0, "duration_ms": 40.0, "bytes": 77}],
        },
        **changes,
    }  # fmt: skip


def test_the_page_needs_no_other_files() -> None:
    made = page(figures())
    assert not re.search(r"(?:src|href)=|url\(|@import|<script|https?://", made)


def test_every_plot_is_well_formed_and_lies_within_its_frame() -> None:
    plots = _SVG.findall(page(figures()))
    assert len(plots) == 6
    for plot in plots:
        root = ElementTree.fromstring(plot)
        _, top, width, height = (float(size) for size in root.attrib["viewBox"].split())
        for line in root.iter("line"):
            assert 0 <= float(line.attrib["x1"]) <= width
            assert top <= float(line.attrib["y1"]) <= float(line.attrib["y2"]) <= top + height


def test_a_failure_is_marked_on_every_plot_over_time_and_named_on_the_first() -> None:
    plots = _SVG.findall(page(figures()))
    assert all(plot.count('<line class="fail"') == 1 for plot in plots)
    assert all('class="heal"' in plot for plot in plots)
    assert "&lt;b&gt;[0] failed, 1.90 s to recover" in plots[0]
    assert [plot.count('class="label fail"') for plot in plots] == [1, 0, 0, 0, 0, 0]


def test_labels_that_would_overlap_are_put_into_rows() -> None:
    plot = Plot("t", 100.0, linear(1, 100), str, top=60)
    for at_s, label in ((1, "the first of them"), (2, "the second of them"), (60, "the third")):
        plot.mark(at_s, "fail", label)
    rows = [
        float(text.attrib["y"])
        for text in ElementTree.fromstring(plot.svg()).iter("text")
        if text.get("class") == "label fail"
    ]
    assert rows[0] != rows[1]
    assert rows[0] == rows[2]


def test_a_run_with_few_figures_has_a_page() -> None:
    bare = figures(
        failures=[], levels=[], latency_ms={"undisturbed": None, "per_step": [], "per_second": []},
        throughput={"events": 0, "steady_events_per_s": 0.0, "per_second": []},
        bytes={"data": 0, "determinants": 0, "overhead": None, "per_second": []},
        checkpoints={"completed": 0, "aborted": 0, "skipped": 0, "median_ms": None, "max_ms": None, "all": []},
        ending="unknown",
    )  # fmt: skip
    assert "Nothing failed. The trace has no end: the run was killed, or is still running." in page(bare)
    HTMLParser().feed(page(bare))


def test_the_story_names_the_failure_and_its_recovery() -> None:
    assert list(story(figures())) == [
        "<b>[0] failed at 4.0 s (killed by --kill): its standby took over after 36 ms, new results came after 310 ms, "
        "latency was normal again after 1.90 s.",
        "No other task was restarted.",
    ]


def test_the_story_names_the_end_of_a_run_that_did_not_finish() -> None:
    last_lines = [
        list(story(figures(failures=[], ending=ending)))[-1] for ending in ("interrupted", "CapacityError: full")
    ]
    assert last_lines == [
        "The run was interrupted at 10.0 s.",
        "The job ended with an error at 10.0 s: CapacityError: full",
    ]


def test_many_failures_are_summarized() -> None:
    one = figures()["failures"][0]
    many = [{**one, "at_s": float(s), "recovery_ms": 100.0 * s} for s in range(1, 10)]
    first, second, *_ = story(figures(failures=many))
    assert first == "9 tasks failed, the first at 1.0 s."
    assert second.endswith("after 500 ms in the median and 900 ms at most.")


@pytest.mark.parametrize(
    ("axis", "ticks"),
    [
        (Axis(0, 9, 100), [0, 2.5, 5, 7.5]),
        (Axis(0, 0.4, 100), [0, 0.1, 0.2, 0.3, 0.4]),
        (logarithmic([12.0, 60.0], 100), [10, 20, 50, 100]),
        (logarithmic([0.5, 9_000.0], 100), [0.1, 1, 10, 100, 1_000, 10_000]),
    ],
)
def test_ticks_are_round_values(axis: Axis, ticks: list[float]) -> None:
    assert axis.ticks(4) == pytest.approx(ticks)


def test_numbers_are_shown_with_units() -> None:
    assert [time_text(ms) for ms in (None, 0.25, 3.14, 42, 1_900, 61_500)] == [
        "–", "0.25 ms", "3.1 ms", "42 ms", "1.90 s", "61.5 s",
    ]  # fmt: skip
    assert [number_text(n) for n in (0, 7, 1_234, 2_500_000)] == ["0", "7", "1.23 k", "2.5 M"]
    assert [percent_text(share) for share in (None, 0.0123, 0.93, 1.5)] == ["–", "1.2%", "93%", "150%"]
