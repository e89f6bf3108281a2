"""``clonos replay --debug`` stops where it was told to, with what a user wants to see there."""

from __future__ import annotations

import os
import subprocess
import sys
from bdb import BdbQuit
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.jobs.recorded import JOB, ROWS, recorded, replayed, until

FUNCTIONS = {
    "map": "txns.map(double)",
    "flat_map": "txns.flat_map(halves)",
    "async": "txns.map(slow)",
    "async_flat_map": "txns.flat_map(both)",
    "batches": "txns.map_batches(whole, Pair)",
}
"""By kind of function: how it is called."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The job of ``recorded``, which has run."""
    made = tmp_path_factory.mktemp("recorded")
    recorded(made)
    return made


def test_it_stops_before_the_rows_for_which_a_condition_holds(folder: Path) -> None:
    done = replayed(folder, "--debug", "--row", "amount >= 593 and account in (0, 2)")
    assert done.returncode == 0, done.stderr
    assert [(stop["operator"], stop["row"].amount) for stop in done.stops] == [("double", 595), ("double", 597)]
    stop = done.stops[0]
    assert (stop["key"], stop["state"], stop["timer"]) == (None, None, None)
    assert str(stop["task"]).startswith("txns[") or str(stop["task"]).startswith("double[")
    assert "row: Txn(id=595, account=0, amount=595, " in done.stdout
    assert "operator: double, job.py:" in done.stdout


def test_the_replay_after_a_stop_is_the_same(folder: Path) -> None:
    done = replayed(folder, "--debug", "--row", "amount == 30")
    assert len(done.stops) == 1
    assert "identical: " in done.stdout


def test_a_process_function_shows_its_key_and_state_and_the_recorded_time_and_frame(folder: Path) -> None:
    done = replayed(folder, "--debug", "--operator", "count", "--row", "id == 31")
    (stop,) = done.stops
    assert (stop["row"].id, stop["key"], stop["state"]) == (31, {"account": 3}, {"seen": 4})
    assert stop["time"].endswith("UTC, the last answer of the clock")
    number, sender = stop["frame"].split(" of ", 1)
    assert number.isdigit()
    assert sender.startswith("txns[")
    assert "state: {'seen': 4}" in done.stdout


def test_without_an_answer_of_the_clock_it_says_so(folder: Path) -> None:
    done = replayed(folder, "--debug", "--operator", "double", "--nth", "1")
    assert done.stops[0]["time"].startswith("not asked for since ")


def test_it_stops_at_the_nth_row_only(folder: Path) -> None:
    every = replayed(folder, "--debug", "--operator", "count", "--row", "account == 0")
    assert len(every.stops) == len(until(ROWS - 5))
    fifth = replayed(folder, "--debug", "--operator", "count", "--row", "account == 0", "--nth", "5")
    assert [stop["row"].id for stop in fifth.stops] == [every.stops[4]["row"].id]
    assert fifth.stops[0]["state"] == {"seen": 4}


def test_a_condition_on_the_timer_stops_at_timers(folder: Path) -> None:
    done = replayed(folder, "--debug", "--row", "timer == 'quiet' and account == 2 and key == 2")
    (stop,) = done.stops
    assert (stop["operator"], stop["row"], stop["timer"]) == ("count", None, "quiet")
    assert (stop["key"], stop["state"]) == ({"account": 2}, {"seen": 86})
    assert "timer: quiet" in done.stdout
    assert "row:" not in done.stdout


@pytest.mark.parametrize(("operator", "condition"), [("positive", "amount == 30"), ("seen", "id == 30")])
def test_an_operator_without_a_function_stops_before_the_batch_that_has_the_row(
    operator: str, condition: str, folder: Path
) -> None:
    done = replayed(folder, "--debug", "--operator", operator, "--row", condition)
    (stop,) = done.stops
    assert stop["operator"] == operator
    assert stop["row"].id == 30
    assert 30 in stop["rows"].column("id").to_pylist()
    assert "identical: " in done.stdout


def test_a_keyed_operator_without_a_function_shows_the_key(folder: Path) -> None:
    done = replayed(folder, "--debug", "--operator", "sums", "--nth", "1")
    assert list(done.stops[0]["key"]) == ["account"]


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_each_kind_of_function_is_the_next_step(kind: str, tmp_path: Path) -> None:
    """A tracing function sees what a debugger's ``step`` would lead to: the next call in this thread."""
    called = FUNCTIONS[kind].split("(")[-1].split(",")[0].rstrip(")")
    job = JOB.split("doubled = ")[0] + f'{FUNCTIONS[kind]}.named("called").sink(MemorySink()).named("out")\n'
    recorded(tmp_path, job)
    calls: list[str] = []

    def trace(frame: FrameType, event: str, argument: Any) -> None:
        calls.append(frame.f_code.co_name)
        sys.settrace(None)

    done = replayed(tmp_path, "--debug", "--row", "id == 7", seen=lambda frame: sys.settrace(trace))
    assert done.stops[0]["operator"] == "called"
    assert done.stops[0]["row"].id == 7
    calls = [name for name in calls if name not in ("stop", "<lambda>")]
    assert calls == [called]
    assert "identical: " in done.stdout


FAILS = "    if row.id == 40:\n        broken = row.amount\n        {}[broken]\n    return Doubled("


def test_a_failure_opens_pdb_at_the_line_that_raised(folder: Path) -> None:
    job = (folder / "job.py").read_text()
    try:
        (folder / "job.py").write_text(job.replace("    return Doubled(", FAILS, 1))
        done = replayed(folder, "--debug", typed="p broken, row.account\n")
    finally:
        (folder / "job.py").write_text(job)
    assert done.returncode == 1
    assert done.stops == []
    assert "(40, 5)" in done.stdout
    assert "row: Txn(id=40, account=5, amount=40, " in done.stdout
    assert "KeyError: 40" in done.stdout
    assert "(Pdb) " in done.stdout


def test_the_state_of_a_failed_process_function_can_be_read(folder: Path) -> None:
    job = (folder / "job.py").read_text()
    try:
        (folder / "job.py").write_text(job.replace("self.seen += 1", "self.seen += 1 // (row.id - 40)", 1))
        done = replayed(folder, "--debug", typed="p self.seen, row.id\n")
    finally:
        (folder / "job.py").write_text(job)
    assert done.returncode == 1
    assert "state: {'seen': " in done.stdout
    assert ", 40)\n" in done.stdout


def test_a_library_that_raises_is_below_the_frame_of_the_user(folder: Path) -> None:
    job = (folder / "job.py").read_text()
    broken = "    import json; note = row.id\n    if row.id == 40: json.loads('{')\n    return Doubled("
    try:
        (folder / "job.py").write_text(job.replace("    return Doubled(", broken, 1))
        done = replayed(folder, "--debug", typed="p note\n")
    finally:
        (folder / "job.py").write_text(job)
    assert "(Pdb) 40\n" in done.stdout


def test_without_a_failure_it_says_so(folder: Path) -> None:
    done = replayed(folder, "--debug")
    assert done.returncode == 0
    assert "nothing failed in this interval: name a row by --row or --nth" in done.stderr
    assert "identical: " in done.stdout


def test_quit_ends_the_replay(folder: Path) -> None:
    def left(frame: FrameType) -> None:
        raise BdbQuit

    done = replayed(folder, "--debug", "--row", "amount >= 10", seen=left)
    assert (done.returncode, len(done.stops)) == (0, 1)
    assert "identical" not in done.stdout


MISTAKES = [
    (["--row", "amount >"], 2, "'amount >' is no Python expression (invalid syntax)"),
    (["--row", "amuont > 3"], 1, "no row has a column 'amuont': double has id, account, amount, at; count has id, "),
    (["--row", "timer and amount"], 1, "no function's rows have all columns of 'timer and amount': "),
    (["--row", "1 / amount > 3"], 1, "raised ZeroDivisionError: division by zero for Txn(id=0"),
    (["--row", "amount == -1"], 1, "there was no stop: amount == -1 holds for no row of double in this interval"),
    (["--operator", "double", "--nth", "601"], 1, "there was no stop: double got 600 rows in this interval"),
    (["--operator", "duoble"], 1, "there is no operator 'duoble': choose from with_event_time, positive, double, "),
    (["--nth", "3"], 1, "name the operator whose row it is by --operator: with_event_time, positive, double, "),
    (["--nth", "0"], 2, "--nth"),
]


@pytest.mark.parametrize(("options", "code", "message"), MISTAKES)
def test_a_mistake_is_one_line(options: list[str], code: int, message: str, folder: Path) -> None:
    done = replayed(folder, "--debug", *options)
    assert done.returncode == code
    assert message in done.stderr.splitlines()[-1]
    assert done.stops == []


def test_rows_without_debug_are_a_mistake(folder: Path) -> None:
    done = replayed(folder, "--row", "amount == 3")
    assert done.returncode == 2
    assert "add --debug" in done.stderr


def test_only_the_tasks_that_lead_to_the_operator_are_replayed(folder: Path) -> None:
    whole = replayed(folder, "--debug", "--operator", "count", "--nth", "1")
    part = replayed(folder, "--debug", "--operator", "double", "--nth", "1")
    assert "(2 tasks, " in part.stdout
    assert "(4 tasks, " in whole.stdout


def test_the_command_reads_what_pdb_is_given(folder: Path) -> None:
    """In a process of its own, with pdb itself."""
    command = [sys.executable, "-m", "clonos_py.cli.main", "replay", "job.py", "--checkpoints", "checkpoints"]
    done = subprocess.run(
        [*command, "--debug", "--row", "amount == 31"],
        cwd=folder, input="p row.id\ns\ns\np row.account\nc\n", capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "(Pdb) 31\n" in done.stdout
    assert "job.py" in done.stdout.split("--Call--")[1].splitlines()[1]
    assert "(Pdb) 3\n" in done.stdout
    assert "identical: " in done.stdout
