"""``clonos sim``: its summary, its exit code, and its report of a seed that fails."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from clonos_py.cli.main import invoke
from clonos_py.runtime.ray.process_table import entries
from clonos_py.runtime.sim import campaign
from clonos_py.runtime.sim.scenario import ScenarioResult, run_scenario, run_seed
from tests.waiting import wait_until


@pytest.mark.parametrize(
    "options",
    [[], ["--protocol", "mixed", "--cycles"], ["--protocol", "mixed", "--recovery", "rollback"]],
    ids=" ".join,
)
def test_a_run_without_violations_is_one_line(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["sim", "--seeds", "3", "--tasks", "6", *options]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert len(out.splitlines()) == 1
    assert out.startswith("3 seeds")
    assert out.endswith("no violation\n")


def test_a_failing_seed_is_printed_with_the_command_that_repeats_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing(seed: int, *given: object) -> ScenarioResult:
        verdict = run_seed(seed, *given)  # type: ignore[arg-type]
        verdict.problems = ["planted"] if seed == 5 else []
        return verdict

    monkeypatch.setattr(campaign, "run_seed", failing)
    monkeypatch.setattr(campaign, "shrink", lambda verdict: verdict)
    options = ["--faults", "kill", "--tasks", "6", "--recovery", "causal"]
    assert invoke(["sim", "--start", "4", "--seeds", "3", *options]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["seed 5: planted", f"  again: clonos sim --start 5 --seeds 1 {' '.join(options)}"]
    assert any("source0" in line for line in lines)
    assert lines[-1].endswith("1 failed")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--faults", "kill,fire"], "there is no fault 'fire': choose from kill"),
        (["--depth", "deep"], "'deep' is not a sharing depth"),
        (["--seeds", "0"], "0 is not in the range"),
        (["--protocol", "chandy"], "'chandy' is not one of 'aligned', "),
        (["--recovery", "replay"], "'replay' is not one of 'causal', 'rollback', 'mixed'"),
        (["--recovery", "rollback", "--depth", "1"], "rollback recovery does not go with sharing depth 1"),
        (["--recovery", "causal", "--depth", "0"], "causal recovery does not go with sharing depth 0"),
    ],
)
def test_impossible_options_are_refused(options: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["sim", *options]) != 0
    (line,) = capsys.readouterr().err.splitlines()
    assert complaint in line


def test_a_scenario_determines_the_whole_run() -> None:
    verdict = run_seed(1)
    assert run_scenario(verdict.scenario).story == verdict.story


@pytest.mark.parametrize(
    "number",
    [pytest.param(signal.SIGTERM, marks=pytest.mark.thorough), signal.SIGKILL],
    ids=lambda number: number.name,
)
def test_a_campaign_that_is_killed_leaves_no_process(number: signal.Signals) -> None:
    command = [sys.executable, "-m", "clonos_py.cli.main", "sim", "--seeds", "100000"]
    process = subprocess.Popen(command)
    try:
        wait_until(lambda: bool(_pool(process.pid)))
        pool = _pool(process.pid)
        os.kill(process.pid, number)
        process.wait(30)
    finally:
        process.kill()
    wait_until(lambda: not pool & {process.pid for process, _ in entries()})


def _pool(parent: int) -> set[int]:
    return {process.pid for process, command in entries() if process.parent == parent and b"spawn_main" in command}
