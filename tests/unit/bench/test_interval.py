"""The benchmark of checkpoint intervals: the pure parts are computed once, and its job counts every row."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from clonos_py.bench import interval
from clonos_py.bench.__main__ import bench
from clonos_py.cli.endings import ended
from clonos_py.evaluation.intervals.comparison import simulated_points
from clonos_py.model.coordinator_events import Deployed, IntervalChosen, Replayed
from clonos_py.model.operators import Read
from clonos_py.observe.events import TaskFailed

SMALL = ["--runs", "4", "--failures", "20"]
CHOSEN = IntervalChosen(5.0, 5.0, None, 0.1, None, None, 0.01, 1.0)


def test_simulations_run_once_and_everything_is_shown(tmp_path: Path) -> None:
    out, html = tmp_path / "interval.jsonl", tmp_path / "page.html"
    arguments = [*SMALL, "--out", str(out), "--html", str(html)]
    first = CliRunner().invoke(interval.command, arguments, catch_exceptions=False)
    assert first.exit_code == 0
    assert out.read_text().count("\n") == 1 + len(simulated_points())
    again = CliRunner().invoke(interval.command, arguments, catch_exceptions=False)
    assert again.stdout == first.stdout
    assert out.read_text().count("\n") == 1 + len(simulated_points())
    for text in ("46.45202", "Table 1", "standard errors from the model at most", f"the page is {html}"):
        assert text in first.stdout
    assert "Figure 15" in html.read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--interval", "5"], "'5' has no unit"),
        (["--interval", "auto"], "'auto' is not a duration"),
        (["--minutes", "0"], "0 is not in the range 1<=x<=600"),
        (["--keys", "-1"], "'-1' is not a number of events"),
        (["--html", "/nowhere/page.html"], "/nowhere/page.html must be a file in a folder that exists"),
    ],
)
def test_a_bad_value_is_refused_before_anything_runs(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(bench, ["interval", "--out", str(tmp_path / "out.jsonl"), *arguments], "bench") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("per_minute", [1, 3, 6])
def test_kills_are_recorded_and_as_frequent_as_asked(per_minute: int) -> None:
    times = interval.kill_times_s(per_minute, 200, seed=4)
    assert times == interval.kill_times_s(per_minute, 200, seed=4) != interval.kill_times_s(per_minute, 200, seed=5)
    assert times == sorted(times)
    assert len(times) == pytest.approx(200 * per_minute, rel=0.2)


def test_a_run_ends_after_its_time() -> None:
    watch = interval.Watch(seconds=10)
    for at_s, event in ((3, Deployed(2, 2)), (12, CHOSEN), (13.5, CHOSEN)):
        assert not watch.stop.requested
        watch(round(at_s * 1e6), event)
    assert watch.stop.requested
    assert watch.end_us == 13_500_000


def test_a_standstill_of_the_machine_is_seen() -> None:
    watch = interval.Watch(seconds=100)
    for at_s in (1, 9, 9.25, 12.5, 109.5, 300):
        watch(round(at_s * 1e6), Deployed(2, 2) if at_s == 9 else CHOSEN)
        if at_s == 12.5:
            assert watch.still_s == 3.25
    assert watch.still_s == 97, "what comes after the end does not count"


def test_a_run_that_finds_its_interval_ends_with_the_choice_after_its_last_recovery() -> None:
    watch = interval.Watch(seconds=1_000, failures=2)
    failed, replayed = TaskFailed(task=interval.BOTTLENECK, how="killed"), Replayed(interval.BOTTLENECK, 1)
    for event in (Deployed(2, 2), failed, replayed, CHOSEN, failed, CHOSEN, replayed):
        watch(1, event)
        assert not watch.stop.requested
    watch(2, CHOSEN)
    assert watch.stop.requested


def test_the_measured_job_counts_the_rows_of_each_key() -> None:
    source = interval.EndlessNumbers(keys=10).create(())
    source.open(0, 1)
    first, second = source.poll(0), source.poll(0)
    assert isinstance(first, Read)
    assert isinstance(second, Read)
    (rows,) = first.rows
    assert rows is not None
    assert rows.column("id").to_pylist()[:3] == [0, 1, 2]
    assert set(rows.column("key").to_pylist()) == set(range(10))
    assert second.start == rows.num_rows
