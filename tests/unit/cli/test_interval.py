"""``clonos interval``: what it prints and writes, what it takes from a run, and what it says about bad values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from clonos_py.cli import main
from tests.unit.observe.traces import write

SYSTEM = ["--failure-rate", "0.01/min", "--cost", "1.07s", "--restart", "23.7s"]
"""With DEEP, a row of table 1 of the paper, but for the delay, which is rounded there."""
DEEP = ["--depth", "5", "--delay", "14ms"]

Printed = pytest.CaptureFixture[str]


def printed(capsys: Printed, *arguments: str) -> str:
    code = main.invoke(["interval", *arguments])
    found = capsys.readouterr()
    assert (code, found.err) == (0, "")
    return found.out


def as_json(capsys: Printed, *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(printed(capsys, *arguments, "--json"))
    return found


def refused(capsys: Printed, *arguments: str) -> str:
    """The one line with which the command ends."""
    code = main.invoke(["interval", *arguments])
    found = capsys.readouterr()
    assert (code, found.out) == (2, "")
    (line,) = found.err.splitlines()
    assert line.startswith("error: ")
    return line.removesuffix(" (see clonos interval --help)")


def test_the_best_interval_is_printed_with_the_setting_and_a_table_around_it(capsys: Printed) -> None:
    text = printed(capsys, *SYSTEM, *DEEP, "--interval", "30min")
    assert text.startswith("best interval: 113.7 s (--checkpoint-interval 114s), utilization 97.74%\n")
    rows = [line.split() for line in text.splitlines()[3:]]
    assert [row[0] for row in rows] == ["28.42", "56.84", "113.5", "113.5", "113.7", "3.789", "7.578", "30"]
    assert (rows[-1][-1], rows[-1][2]) == ("yours", "85.36%")
    assert {row[-1] for row in rows} >= {"Daly", "Zhuang", "best"}


def test_json_has_the_model_and_the_intervals_in_seconds(capsys: Printed) -> None:
    found = as_json(capsys, *SYSTEM, *DEEP)
    assert found["model"]["cost_s"] == 1.07
    assert found["model"]["rollbacks"] == {"per_s": pytest.approx(0.01 / 60), "restart_s": 23.7}
    assert (found["model"]["local"], found["model"]["lag_s"]) == (None, pytest.approx(0.056))
    assert found["best"]["interval_s"] / 60 == pytest.approx(1.8945, abs=5e-5)
    assert found["best"]["utilization"] == pytest.approx(0.9774, abs=5e-5)
    assert found["best"]["bounds"]["visible_s_max"] == pytest.approx(found["best"]["interval_s"] + 0.056)
    assert [row["interval_s"] for row in found["intervals"]] == sorted(row["interval_s"] for row in found["intervals"])


def test_a_replay_speed_makes_failures_local(capsys: Printed) -> None:
    found = as_json(capsys, *SYSTEM, "--replay-speed", "4")
    assert found["model"]["rollbacks"] is None
    assert found["model"]["local"]["replay_speed"] == 4
    assert found["best"]["interval_s"] == pytest.approx(2 * 113.7, rel=0.01)
    both = as_json(capsys, *SYSTEM, "--replay-speed", "4", "--rollback-rate", "1/d", "--rollback-restart", "1min")
    assert both["model"]["rollbacks"] == {"per_s": pytest.approx(1 / 86_400), "restart_s": 60}
    assert both["best"]["interval_s"] < found["best"]["interval_s"]


def test_with_fed_standbys_only_rollbacks_make_an_interval_too_long(capsys: Printed) -> None:
    local = [*SYSTEM, "--replay-speed", "4", "--feed-lag", "100ms"]
    assert "a local failure costs the same after any interval: add --rollback-rate and --rollback-restart" in refused(
        capsys, *local
    )
    found = as_json(capsys, *local, "--rollback-rate", "1/d", "--rollback-restart", "1min")
    assert found["model"]["local"]["feed_lag_s"] == 0.1
    alone = as_json(capsys, "--failure-rate", "1/d", "--cost", "1.07s", "--restart", "1min")
    assert found["best"]["interval_s"] == pytest.approx(alone["best"]["interval_s"], rel=0.01)
    assert found["best"]["bounds"]["replay_s_max"] == 0.025


def test_a_data_rate_shows_what_a_task_retains_and_whether_the_budget_holds_it(
    capsys: Printed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = printed(capsys, *SYSTEM, "--data-rate", "20MB/s")
    assert "2.3 GB" in next(line for line in text.splitlines() if line.endswith("best  "))
    assert "an in-flight budget of 1GiB allows 53.69 s at most: give a larger --in-flight-budget" in text
    assert "budget" not in printed(capsys, *SYSTEM, "--data-rate", "20MB/s", "--in-flight-budget", "3GB")
    assert "budget of 1KB allows 0 ms at most" in printed(
        capsys, *SYSTEM, "--depth", "2", "--delay", "1s", "--data-rate", "20MB/s", "--in-flight-budget", "1KB"
    )


def test_the_plot_is_a_file_with_its_own_style(capsys: Printed, tmp_path: Path) -> None:
    path = tmp_path / "utilization.svg"
    assert f"the plot is {path}" in printed(capsys, *SYSTEM, "--interval", "30min", "--svg", str(path))
    root = ElementTree.fromstring(path.read_text(encoding="utf-8"))
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    texts = [text for element in root.iter() if element.text and (text := element.text.strip())]
    assert "Utilization by checkpoint interval" in texts
    assert {"best: 113.7 s, 97.74%", "yours: 30 min, 85.36%"} <= set(texts)
    assert any(".line" in text for text in texts)


# ---- from a run


def test_the_report_of_a_job_that_found_its_interval_gives_everything(
    capsys: Printed, report: dict[str, Any], tmp_path: Path
) -> None:
    report["settings"]["checkpoint_interval"] = "auto"
    report["interval"] = {"interval_s": 4.2, "cost_s": 0.012, "replay_speed": 12.5}
    path = saved(report, tmp_path)
    found = as_json(capsys, "--from", path)
    assert found["model"]["cost_s"] == 0.012
    assert found["model"]["local"]["replay_speed"] == 12.5
    assert next(row["interval_s"] for row in found["intervals"] if row["name"] == "yours") == 4.2
    assert as_json(capsys, "--from", path, "--cost", "1s")["model"]["cost_s"] == 1


@pytest.fixture
def report(tmp_path: Path) -> dict[str, Any]:
    return {
        "format": 1, "seconds": 105.0, "deployed_s": 5.0,
        "settings": {"guarantee": "exactly-once", "sharing_depth": "full", "checkpoint_interval": "5s"},
        "checkpoints": {"median_ms": 120.0},
        "failures": [
            {"standby_activated_ms": 40.0, "restarted_ms": 90.0},
            {"standby_activated_ms": 60.0, "restarted_ms": 310.0},
            {"standby_activated_ms": None, "restarted_ms": None},
        ],
    }  # fmt: skip


def saved(report: dict[str, Any], folder: Path) -> str:
    path = folder / "report.json"
    path.write_text(json.dumps(report), encoding="utf-8")
    return str(path)


def test_a_report_gives_rate_restart_completion_and_interval(
    capsys: Printed, report: dict[str, Any], tmp_path: Path
) -> None:
    path = saved(report, tmp_path)
    found = as_json(capsys, "--from", path, "--cost", "20ms", "--replay-speed", "3")
    assert found["model"] == {
        "cost_s": 0.02, "rollbacks": None, "lag_s": pytest.approx(0.12),
        "local": {
            "per_s": pytest.approx(0.03), "restart_s": pytest.approx(0.05), "replay_speed": 3.0, "feed_lag_s": None,
        },
    }  # fmt: skip
    assert next(row["interval_s"] for row in found["intervals"] if row["name"] == "yours") == 5
    assert f"{path}: a failure every 33.33 s, a restart of 50 ms" in printed(
        capsys, "--from", path, "--cost", "20ms", "--replay-speed", "3"
    )


def test_a_report_gives_what_a_checkpoint_costs(capsys: Printed, report: dict[str, Any], tmp_path: Path) -> None:
    report["checkpoints"]["cost_ms"] = 12.5
    path = saved(report, tmp_path)
    assert as_json(capsys, "--from", path, "--replay-speed", "3")["model"]["cost_s"] == 0.0125
    assert "a checkpoint costs 12.5 ms" in printed(capsys, "--from", path, "--replay-speed", "3")


def test_options_win_over_the_run(capsys: Printed, report: dict[str, Any], tmp_path: Path) -> None:
    run = ["--from", saved(report, tmp_path), "--replay-speed", "3"]
    found = as_json(capsys, *run, *SYSTEM, *DEEP, "--interval", "1min")
    assert found["model"]["lag_s"] == pytest.approx(0.056)
    local = {"per_s": pytest.approx(0.01 / 60), "restart_s": 23.7, "replay_speed": 3.0, "feed_lag_s": None}
    assert found["model"]["local"] == local
    assert next(row["interval_s"] for row in found["intervals"] if row["name"] == "yours") == 60


def test_a_run_with_rollback_recovery_counts_until_all_tasks_have_restarted(
    capsys: Printed, report: dict[str, Any], tmp_path: Path
) -> None:
    report["settings"]["sharing_depth"] = "0"
    found = as_json(capsys, "--from", saved(report, tmp_path), "--cost", "20ms")
    assert found["model"]["rollbacks"] == {"per_s": pytest.approx(0.03), "restart_s": pytest.approx(0.2)}
    assert found["model"]["local"] is None


def test_a_trace_is_read_like_a_report(capsys: Printed, tmp_path: Path) -> None:
    trace = write(tmp_path / "trace", deploying_us=3_200_000)
    assert "give --replay-speed, such as --replay-speed 3" in refused(capsys, "--from", str(trace), "--cost", "20ms")
    found = as_json(capsys, "--from", str(trace), "--cost", "20ms", "--replay-speed", "3")
    assert found["model"]["local"]["per_s"] == pytest.approx(1 / 10.5)
    assert found["model"]["local"]["restart_s"] == pytest.approx(0.05)
    assert found["model"]["lag_s"] == pytest.approx(0.2)


# ---- bad values


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "give --cost, such as --cost 1.07s"),
        (["--cost", "1s"], "give --failure-rate, such as --failure-rate 0.01/min"),
        (["--cost", "1s", "--failure-rate", "1/h"], "give --restart, such as --restart 23.7s"),
        ([*SYSTEM, "--failure-rate", "0.01"], "Invalid value for '--failure-rate': '0.01' is not a rate"),
        ([*SYSTEM, "--failure-rate", "-1/h"], "Invalid value for '--failure-rate': '-1/h' must be more than 0"),
        ([*SYSTEM, "--failure-rate", "inf/h"], "Invalid value for '--failure-rate': 'inf/h' is not a rate"),
        ([*SYSTEM, "--cost", "0s"], "Invalid value for '--cost': '0s' must be more than 0"),
        ([*SYSTEM, "--cost", "5"], "Invalid value for '--cost': '5' has no unit: write one of"),
        ([*SYSTEM, "--restart", "-1s"], "Invalid value for '--restart': '-1s' must be more than 0"),
        ([*SYSTEM, "--replay-speed", "0"], "Invalid value for '--replay-speed': '0' is not a finite number"),
        ([*SYSTEM, "--replay-speed", "inf"], "Invalid value for '--replay-speed': 'inf' is not a finite number"),
        ([*SYSTEM, "--feed-lag", "100ms"], "--feed-lag is for local failures: add --replay-speed"),
        ([*SYSTEM, "--replay-speed", "3", "--feed-lag", "1"], "Invalid value for '--feed-lag': '1' has no unit"),
        ([*SYSTEM, "--interval", "1.07s"], "'--interval': 1.07 s leaves no time to work, as a checkpoint costs 1.07 s"),
        ([*SYSTEM, "--replay-speed", "1e-300"], "'--cost': failures leave no time for a checkpoint, whatever the"),
        ([*SYSTEM, "--interval", "inf"], "Invalid value for '--interval': 'inf' is not a duration"),
        ([*SYSTEM, "--depth", "0", "--delay", "1s"], "Invalid value for '--depth'"),
        ([*SYSTEM, "--depth", "5"], "give both --depth and --delay"),
        ([*SYSTEM, "--delay", "5ms"], "give both --depth and --delay"),
        ([*SYSTEM, "--rollback-rate", "1/d", "--rollback-restart", "1s"], "add --rollback-rate to --failure-rate"),
        (
            [*SYSTEM, "--replay-speed", "2", "--rollback-rate", "1/d"],
            "give both --rollback-rate",
        ),
        ([*SYSTEM, "--data-rate", "20MB"], "Invalid value for '--data-rate': '20MB' is not bytes per second"),
        ([*SYSTEM, "--svg", "/nowhere/plot.svg"], "'--svg': /nowhere/plot.svg must be a file in a folder that exists"),
        ([*SYSTEM, "--from", "/nowhere"], "'--from': /nowhere cannot be read as a report: name a report of"),
    ],
)
def test_a_bad_value_is_one_line_with_the_option_and_the_remedy(
    capsys: Printed, arguments: list[str], said: str
) -> None:
    assert said in refused(capsys, *arguments)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": 2}, "is a report of format 2, this version reads 1: run the query again"),
        ({"format": None}, "is a report of format None, this version reads 1"),
        ({"failures": []}, "nothing failed, so it has no rate of failures: name a run with failures"),
        ({"settings": {"checkpoint_interval": "10ms"}}, "10 ms leaves no time to work, as a checkpoint costs 20 ms"),
        ({"failures": [{"standby_activated_ms": None}]}, "no recovery was finished in"),
    ],
)
def test_a_report_that_does_not_suffice_says_what_to_do(
    capsys: Printed, report: dict[str, Any], tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    path = saved({**report, **change}, tmp_path)
    assert said in refused(capsys, "--from", path, "--cost", "20ms", "--replay-speed", "3")


def test_a_report_without_a_cost_says_why_the_cost_is_needed(
    capsys: Printed, report: dict[str, Any], tmp_path: Path
) -> None:
    said = "says how long checkpoints took, not how much work one costs: give --cost"
    assert said in refused(capsys, "--from", saved(report, tmp_path))
    assert "does not say how fast tasks replayed: give --replay-speed" in refused(
        capsys, "--from", saved(report, tmp_path), "--cost", "20ms"
    )


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"settings": 1}', "\x00"])
def test_another_file_is_no_report(capsys: Printed, tmp_path: Path, content: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(content, encoding="utf-8")
    line = refused(capsys, "--from", str(path), *SYSTEM)
    assert f"'--from': {path} " in line
    assert "name a report of `clonos nexmark run --report`, or a trace" in line


def test_a_trace_of_another_version_is_refused(capsys: Printed, tmp_path: Path) -> None:
    trace = write(tmp_path / "trace")
    header = json.loads((trace / "run.json").read_text(encoding="utf-8"))
    (trace / "run.json").write_text(json.dumps({**header, "format": 7}), encoding="utf-8")
    assert "is a trace of format 7, this version reads 1" in refused(capsys, "--from", str(trace), *SYSTEM)
    assert "holds no trace: name a folder that" in refused(capsys, "--from", str(tmp_path), *SYSTEM)
