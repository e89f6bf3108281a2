"""The command: wrong options are refused, and finished runs are not repeated."""

from __future__ import annotations

from pathlib import Path

import pytest

from clonos_py.bench.__main__ import bench
from clonos_py.bench.checkmate import running
from clonos_py.bench.checkmate.command import Forecast
from clonos_py.bench.checkmate.grid import CheckmateCell, GridSelection, Variant, cells
from clonos_py.bench.checkmate.jobs import VICTIMS, job_of
from clonos_py.bench.checkmate.running import MissingRuns, RunTerms
from clonos_py.cli.endings import ended
from clonos_py.evaluation.checkmate.dimensions import CYCLE
from clonos_py.evaluation.checkmate.results import RUN, results
from clonos_py.model.errors import SettingError, SpillError
from clonos_py.plan.physical import plan
from clonos_py.runtime.run_settings import kills

SHORT = ("--skews", "0", "--rate", "2k", "--warm-up-s", "0", "--seconds", "5", "--runs", "1", "--parallelism", "1")


def run(path: Path, *arguments: str) -> int:
    return ended(bench, ["checkmate", "--out", str(path), *arguments], "python -m clonos_py.bench")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--queries", "q2"],
            "there is no query 'q2' in CheckMate's evaluation: choose from q1, q3, q8, q12, reachability",
        ),
        (["--protocols", "aligned,chandy"], "there is no protocol 'chandy'"),
        (["--recoveries", "prayer"], "choose from causal, rollback, none"),
        (["--parallelism", "1,two"], "parallelism 'two' is not a whole number"),
        (["--skews", "0,1000"], "skew 1000 cannot be run: choose from 0 to 100"),
        (["--queries", "q1,q1"], "'q1,q1' is not a list"),
        (["--runs", "0"], "0 is not in the range x>=1"),
        (["--rate", "fast"], "'fast' is not a number of events"),
        (["--checkpoint-interval", "often"], "'often' is not a duration"),
        (["--spill", "regenerate"], "contradicts"),
        (["--machines", "2"], "--machines needs a simulated cluster: add --runtime sim, or leave it out"),
        (["--runtime", "local", "--rows-per-row", "10"], "--rows-per-row needs a simulated cluster"),
        (["--rate", "1k", "--unpaced", "1k"], "--rate and --unpaced contradict each other: leave one of them out"),
        (["--unpaced", "many"], "'many' is not a number of events"),
        (["--runtime", "sim", "--processors", "0"], "0 is not in the range x>=1"),
    ],
)
def test_impossible_options_are_refused_in_one_line_before_anything_runs(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(tmp_path / "out", *arguments) in (1, 2)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert said in line
    assert not (tmp_path / "out").exists()


def test_finished_runs_are_kept_and_not_repeated(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    short = (*SHORT, "--queries", "q1", "--recoveries", "none", "--runtime", "sim")
    assert run(tmp_path / "out", *short) == 0
    printed = capsys.readouterr()
    assert "0 of 1 runs are done, 1 left" in printed.err
    assert "1/1 q1, no checkpoints, parallelism 1, run 1: 2,000 events/s" in printed.err
    before = (tmp_path / "out").read_bytes()
    (line,) = results(tmp_path / "out").good(RUN)
    assert line["settings"]["chaining"] == "off"
    assert line["rate"] == 2_000
    assert line["metrics"]["failure"] is None
    assert run(tmp_path / "out", *short) == 0
    assert "1 of 1 runs are done, 0 left" in capsys.readouterr().err
    assert (tmp_path / "out").read_bytes() == before


def test_an_unpaced_run_reports_the_events_read_per_second(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    options = ("--skews", "0", "--warm-up-s", "0", "--runs", "1", "--parallelism", "1", "--runtime", "sim")
    chosen = ("--queries", "q1", "--recoveries", "rollback", "--protocols", "aligned", "--rows-per-row", "100")
    assert run(tmp_path / "out", *options, *chosen, "--unpaced", "20M") == 0
    (line,) = results(tmp_path / "out").good(RUN)
    assert line["rate"] is None
    assert line["metrics"]["failure"] is None, "nothing is killed"
    read = line["metrics"]["throughput_events_per_s"]
    assert read > 1_000_000
    printed = capsys.readouterr()
    assert f"run 1: {read:,.0f} events/s" in printed.err
    assert f"| {read:,.0f} |" in printed.out


def test_a_run_that_fails_is_named_kept_and_tried_again(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_cell(*_: object) -> dict[str, object]:
        raise SpillError("the disk is full")

    monkeypatch.setattr(running, "run_cell", run_cell)
    short = (*SHORT, "--queries", "q1", "--recoveries", "causal", "--protocols", "aligned", "--runtime", "sim")
    for _ in range(2):
        assert run(tmp_path / "out", *short) == 1
        printed = capsys.readouterr().err
        assert "0 of 1 runs are done, 1 left" in printed
        assert "SpillError: the disk is full" in printed
        assert "1 of 1 runs failed; the same command tries them again" in printed


def test_the_maximum_rate_is_searched_once_and_a_share_of_it_is_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched: list[Variant] = []
    offered: list[float] = []

    def search_rate(variant: Variant, *_: object) -> dict[str, object]:
        searched.append(variant)
        return {"events_per_s": 1_000.0, "trials": []}

    def run_cell(cell: CheckmateCell, rate: float, *_: object) -> dict[str, object]:
        offered.append(rate)
        raise SpillError("the disk is full")

    monkeypatch.setattr(running, "search_rate", search_rate)
    monkeypatch.setattr(running, "run_cell", run_cell)
    selection = GridSelection(("q3",), ("aligned",), ("causal",), (1,), (0, 10), 1, ("hash",))
    work = MissingRuns(cells(selection, paced=False), terms(), results(tmp_path / "out"))
    said = [work.perform(cell, print) for cell in work.cells]
    assert said[0] == "q3, aligned, causal, parallelism 1, 80% load, run 1: SpillError: the disk is full"
    assert offered == [800.0, 500.0, 800.0]
    assert len(searched) == 1
    assert work.missing == work.cells
    assert work.searches == []


def test_a_search_that_fails_is_not_repeated_for_each_of_its_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched: list[Variant] = []

    def search_rate(variant: Variant, *_: object) -> dict[str, object]:
        searched.append(variant)
        raise SettingError("none was sustained")

    monkeypatch.setattr(running, "search_rate", search_rate)
    selection = GridSelection(("q3",), ("aligned",), ("causal",), (1,), (0,), 3)
    work = MissingRuns(cells(selection, paced=False), terms(), results(tmp_path / "out"))
    assert all("none was sustained" in work.perform(cell, print) for cell in work.cells)
    assert len(searched) == 1
    assert len(work.missing) == 3


def terms(**given: object) -> RunTerms:
    return RunTerms(30.0, 60.0, 20.0, None, given)


@pytest.mark.parametrize("query", list(VICTIMS))
@pytest.mark.parametrize("parallelism", [1, 4])
def test_the_victim_exists_and_is_killed_at_the_time_of_the_paper(query: str, parallelism: int) -> None:
    variant = Variant(query, "uncoordinated", "rollback", parallelism)
    settings = terms().settings(variant, kills=(terms().kill(variant),))
    physical = plan(job_of(query, 1_000, 100.0, settings), settings)
    ((at_us, task),) = kills(physical, settings)
    assert at_us == (30 + (48 if query == CYCLE else 18)) * 1_000_000
    assert str(task) == VICTIMS[query]
    assert len(physical.vertices) >= 3, "nothing is chained"


@pytest.mark.parametrize("query", ["q3", "q8", "q12"])
def test_keys_by_remainder_add_a_vertex_to_the_same_query(query: str) -> None:
    settings = terms().settings(Variant(query, "aligned", "causal", 2))
    by_hash, by_remainder = (
        plan(job_of(query, 1_000, 100.0, settings, skew=10, keys=keys), settings) for keys in ("hash", "mod")
    )
    assert len(by_hash.vertices) < len(by_remainder.vertices)
    assert VICTIMS[query].partition("[")[0] in by_remainder.by_name


def test_given_settings_hold_except_those_of_the_variant() -> None:
    variant = Variant("q1", "aligned", "rollback", 2)
    settings = terms(checkpoint_interval="1s", standbys="0").settings(variant)
    assert (settings.checkpoint_interval_us, settings.standbys) == (1_000_000, 0)
    assert settings.rollback


def test_the_forecast_counts_the_runs_and_searches_that_are_left(tmp_path: Path) -> None:
    selection = GridSelection(("q1",), ("aligned",), ("causal", "none"), (1,), (0,), 2)
    work = MissingRuns(cells(selection, paced=False), terms(), results(tmp_path / "out"))
    forecast = Forecast(work)
    first, *left = work.cells
    forecast.record(first, forecast.began + 385.0)  # a search of 8 trials and a run, as long as they are meant to take
    # three runs of 105 s and a search of 280 s
    assert forecast.text(left) == "3 left, about 0 h 10 min"
    assert forecast.text([]) == "none left"
