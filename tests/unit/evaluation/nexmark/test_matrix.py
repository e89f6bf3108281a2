"""A matrix of runs: every combination once, and a second start continues where the first stopped."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from clonos_py.cli.main import invoke
from clonos_py.evaluation.nexmark import cell_runs
from clonos_py.evaluation.nexmark.cell_runs import CellWorkload
from clonos_py.evaluation.nexmark.matrix import HEADINGS, RUN, MatrixCell, cells, results, row
from clonos_py.model.errors import CapacityError, SettingError
from clonos_py.settings.definitions import Settings

FULL = MatrixCell("q0", "1", "full", "exactly-once")


def matrix(out: Path, *more: str) -> int:
    shared = ("--events", "5k", "--runtime", "local", "--checkpoint-interval", "1s")
    return invoke(["nexmark", "matrix", "--out", str(out), *shared, *more])


def test_every_combination_is_run_and_contradictions_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dimensions = ("--queries", "q0,q1", "--sharing-depth", "0,full", "--guarantee", "exactly-once,at-most-once")
    assert matrix(tmp_path / "m", *dimensions) == 0
    printed = capsys.readouterr().out
    assert "6 runs, throughput" in printed
    assert "left out 2: " in printed
    assert "at-most-once replays nothing" in printed
    found = results(tmp_path / "m").of(RUN, asdict(replace(FULL, query="q1")))
    assert found is not None
    assert found["report"]["throughput"]["events"] == 5_000
    assert (tmp_path / "m" / "summary.md").read_text().count("\n") == 2 + 6


def test_a_second_start_runs_only_what_is_missing_or_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert matrix(tmp_path, "--queries", "q0") == 0
    ran: list[str] = []
    honest = cell_runs.run_cell

    def watched(query: str, workload: CellWorkload, settings: Settings) -> dict[str, Any]:
        ran.append(query)
        return honest(query, workload, settings)

    monkeypatch.setattr(cell_runs, "run_cell", watched)
    results(tmp_path).keep(RUN, asdict(replace(FULL, query="q1")), {"error": "ClusterError: it was late"})
    assert matrix(tmp_path, "--queries", "q0,q1,q2") == 0
    assert ran == ["q1", "q2"]


def test_a_run_that_fails_is_reported_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run_cell(*_: object) -> dict[str, Any]:
        raise CapacityError("the in-flight log is full")

    monkeypatch.setattr(cell_runs, "run_cell", run_cell)
    assert matrix(tmp_path, "--queries", "q0,q1") == 1
    printed = capsys.readouterr().out
    assert "2 of 2 runs failed" in printed


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--queries", "q0,q0"], "different values with commas"),
        (["--queries", "q99"], "there is no Nexmark query 'q99'"),
        (["--queries", "q0", "--parallelism", "1,many"], "'many' is not a whole number"),
        (["--queries", "q0", "--rate", "5k"], "omit --events"),
        (["--queries", "q0", "--mst"], "omit --rate and --events"),
    ],
)
def test_impossible_options_are_refused_before_anything_runs(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert matrix(tmp_path / "m", *arguments) in (1, 2)
    printed = capsys.readouterr().err
    assert said in printed
    assert not (tmp_path / "m").exists()


def test_a_row_has_the_slowest_restart_and_the_overhead_as_all_reports_define_them() -> None:
    failures = [{"restart_ms": ms, "latency_normal_ms": 10 * ms} for ms in (40.0, 290.0)]
    report = {
        "bytes": {"data": 1_000, "determinants": 20}, "failures": [*failures, dict.fromkeys(failures[0])],
        "latency_steady_ms": {"p50": 1.0, "p99": 2.0}, "checkpoints": {"median_ms": None}, "rollbacks": 0,
    }  # fmt: skip
    shown = dict(zip(HEADINGS, row(FULL, {"events_per_s": 5.0, "report": report}), strict=True))
    assert (shown["restart ms"], shown["recovery ms"], shown["overhead"]) == ("290.0", "2,900.0", "1.020")


def test_a_folder_of_runs_with_other_terms_is_refused(tmp_path: Path) -> None:
    results(tmp_path).begin({"events": 5})
    with pytest.raises(SettingError, match=rf"--out {tmp_path} holds .* events \(5, now 6\); name another folder"):
        results(tmp_path).begin({"events": 6})


def test_a_folder_that_cannot_be_written_is_named() -> None:
    with pytest.raises(SettingError, match=r"--out /proc/absent: .* name a folder that can be written"):
        results(Path("/proc/absent")).begin({})


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m").touch()
    with pytest.raises(SettingError, match=rf"--out {tmp_path}/m/.* cannot be read: .*; name another folder"):
        results(tmp_path / "m")


def test_a_result_that_is_cut_off_is_named_and_repeated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert matrix(tmp_path, "--queries", "q0") == 0
    path = tmp_path / "matrix.jsonl"
    path.write_bytes(path.read_bytes()[:-1])
    capsys.readouterr()
    assert matrix(tmp_path, "--queries", "q0") == 0
    assert "line 2: cut off; it is dropped, and its run is repeated" in capsys.readouterr().err
    assert results(tmp_path).finished(RUN, asdict(FULL))


def test_the_cells_of_a_query_are_together() -> None:
    names = [cell.query for cell in cells(["q0", "q1"], ["1", "2"], ["full"], ["exactly-once"])]
    assert names == ["q0", "q0", "q1", "q1"]
