"""The search for the maximum sustainable throughput, for jobs with a given maximum."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clonos_py.cli.main import invoke
from clonos_py.evaluation.nexmark import cell_runs
from clonos_py.evaluation.nexmark.sustained import RateTrial, judged, search


def job(maximum: float) -> Any:
    """A job that keeps up to ``maximum``."""
    return lambda rate: RateTrial(rate, rate <= maximum, 0.0, 0.0)


@pytest.mark.parametrize("maximum", [1_000.0, 77_777.0, 1_000_000.0, 1_300_000.0, 9_000_000.0])
def test_the_maximum_is_found_within_the_precision_from_above_and_below(maximum: float) -> None:
    found = search(1_000_000.0, 0.05, job(maximum))
    if maximum < 10_000:  # too far away for the limited number of trials
        assert found.low == 0
        return
    assert found.high is not None
    assert found.low <= maximum < found.high <= found.low * 1.05


def test_a_search_reports_its_bounds_after_each_trial() -> None:
    steps: list[tuple[float, float | None]] = []
    search(100.0, 0.2, job(160), lambda found: steps.append((found.low, found.high)))
    assert steps == [(100, None), (150, None), (150, 225), (150, 187.5), (150, 168.75)]


def report(*p50s: float) -> dict[str, Any]:
    seconds = [{"at_s": at_s, "p50": p50} for at_s, p50 in enumerate(p50s)]
    return {
        "latency_ms_per_second": seconds,
        "latency_steady_ms": {"p99": max(p50s, default=None)},
        "back_pressure": {"a": 0.5},
    }


def test_a_rate_is_sustained_if_the_last_quarter_is_not_behind() -> None:
    hiccup = report(*[10] * 8, 900, *[10] * 7)
    behind = report(*(50 * second for second in range(16)))
    assert judged(7.0, hiccup, 500) == RateTrial(7.0, True, 10, 900, 0.5)
    assert judged(7.0, behind, 500) == RateTrial(7.0, False, 675, 750, 0.5)


def test_a_trial_without_markers_sustains_no_rate() -> None:
    assert judged(7.0, report(), 500) == RateTrial(7.0, False, None, None, 0.5)


def command(monkeypatch: pytest.MonkeyPatch, maximum: float, *arguments: str) -> int:
    """``clonos nexmark mst`` for a query that falls behind above ``maximum`` events/s."""
    monkeypatch.setattr(
        cell_runs, "at_rate", lambda query, rate, *_: report(*([12.0] * 8 if rate <= maximum else [900.0] * 8))
    )
    return invoke(["nexmark", "mst", "q0", "--first", "100k", "--runtime", "local", *arguments])


def test_the_command_prints_the_highest_rate_and_stores_every_trial(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert command(monkeypatch, 130_000, "--precision", "10", "--report", str(tmp_path / "r.json")) == 0
    assert capsys.readouterr().out == "q0 sustains 125,000 events/s, p99 latency 12.0 ms; 137,500 was too much\n"
    kept = json.loads((tmp_path / "r.json").read_text())
    assert [trial["rate"] for trial in kept["trials"]] == [100_000, 150_000, 125_000, 137_500]
    assert (kept["events_per_s"], kept["report"]["latency_steady_ms"]["p99"]) == (125_000, 12.0)


def test_a_query_that_sustains_no_rate_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(monkeypatch, 0) == 1
    assert "q0 sustained none of 16 rates" in capsys.readouterr().out
