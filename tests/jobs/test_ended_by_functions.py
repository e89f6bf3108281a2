"""A function of the user's that ends its process, or hangs, is named with its line. Ctrl-C is no failure of one."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from clonos_py import testing
from clonos_py.cli.main import invoke
from clonos_py.dsl.loading import load_job_file
from tests.jobs.failing import FATAL, place, written
from tests.observed import without_warnings
from tests.waiting import SOON_S


def command(file: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "clonos_py.cli.main", *more, str(file)]


EXITS, CRASHES, ABORTS = FATAL
FATAL_RUNS = [
    (*EXITS, "local"),
    (*CRASHES, "local"),
    pytest.param(*ABORTS, "local", marks=pytest.mark.thorough),  # another signal than that of a crash
    (*EXITS, "sim"),
]


@pytest.mark.parametrize(("function", "said", "runtime"), FATAL_RUNS)
def test_a_function_that_ends_the_process_is_named_in_one_line(
    function: str, said: str, runtime: str, tmp_path: Path
) -> None:
    file = written(tmp_path, "fatal", f"rows.map({function}).named('guilty').sink(out)")
    done = subprocess.run(
        [*command(file, "run"), "--runtime", runtime], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode != 0
    (line,) = without_warnings(done.stderr)
    assert line.startswith(f"error: operator 'guilty' {said}")
    assert line.endswith(f"; at {place(file, function, function)}"), "no checkpoint outlives the run"


INTACT = " (the last checkpoint is intact)"
KEEPING = """
import ctypes
import os
import time
from pathlib import Path
from clonos_py import *
from clonos_py.connectors import *

class Row(Record):
    id: int

def fatal(row: Row) -> Row:
    complete = len(list(Path(os.environ["KEPT"]).glob("**/*.manifest")))
    if complete >= int(os.environ["COMPLETE"]):
        os._exit(3) if os.environ["ENDS"] == "exit" else ctypes.string_at(0)
    time.sleep(0.001)
    return row

job = Job("keeping", checkpoint_interval="10ms", runtime="local")
job.source(FileSource("rows.jsonl", Row)).map(fatal).named("guilty").sink(BlackholeSink())
"""


def test_the_error_says_that_a_checkpoint_is_left(tmp_path: Path) -> None:
    """One of this run, or of an earlier one."""
    file = tmp_path / "keeping.py"
    file.write_text(KEEPING)
    (tmp_path / "rows.jsonl").write_text("".join(f'{{"id": {number}}}\n' for number in range(20_000)))
    for ends, complete in (("exit", "2"), ("crash", "0")):
        done = subprocess.run(
            [*command(file, "run"), "--checkpoints", "kept"],
            cwd=tmp_path,
            env={**os.environ, "ENDS": ends, "COMPLETE": complete, "KEPT": str(tmp_path / "kept")},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        assert line.startswith("error: operator 'guilty' ")
        assert line.endswith(INTACT)


@pytest.mark.parametrize(("function", "said"), [CRASHES])
def test_a_check_names_a_function_that_ends_the_process(
    function: str, said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, f"fatal_{function}", f"rows.map({function}).named('guilty').sink(out)")
    assert invoke(["check", str(file)]) == 1
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith(f"error: operator 'guilty' {said}")
    assert f"; at {place(file, function, function)}" in line


def test_a_killed_run_reports_no_function(tmp_path: Path) -> None:
    file = written(tmp_path, "killed", "rows.map(sleeps).sink(out)")
    with subprocess.Popen([*command(file, "run"), "--runtime", "local"], stderr=subprocess.PIPE, text=True) as run:
        assert run.stderr is not None
        assert run.stderr.readline() == "asleep\n"
        run.kill()
        assert run.stderr.read() == ""


@pytest.mark.parametrize("function", ["leaves", "interrupts", "recursive"])
def test_an_exit_that_can_be_caught_becomes_a_dead_letter(function: str, tmp_path: Path) -> None:
    verbs = f"good, bad = rows.map({function}).catch()\ngood.sink(out)\nbad.sink(BlackholeSink()).named('bad')"
    file = written(tmp_path, f"caught_{function}", verbs)
    (letter,) = testing.run(load_job_file(str(file)).job(), {}, kills=1, seeds=3)["bad"]
    assert letter.place == place(file, function, function)


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.thorough), signal.SIGTERM])
def test_an_interrupt_does_not_wait_for_a_function_that_sleeps(number: signal.Signals, tmp_path: Path) -> None:
    """The function sleeps for ten minutes."""
    file = written(tmp_path, "sleeping", "good, bad = rows.map(sleeps).catch()\ngood.sink(out)\nbad.sink(PrintSink())")
    with subprocess.Popen([*command(file, "run"), "--runtime", "local"], stderr=subprocess.PIPE, text=True) as run:
        assert run.stderr is not None
        assert run.stderr.readline() == "asleep\n"
        before = time.monotonic()
        run.send_signal(number)
        rest = run.stderr.read()
    assert time.monotonic() - before < SOON_S
    assert run.returncode == 128 + number
    how, last = rest.splitlines()[-2:]
    assert how.startswith("this run left no checkpoints: with --checkpoints FOLDER ")
    assert last == ("interrupted" if number == signal.SIGINT else "terminated")


def test_an_interrupt_that_a_function_swallows_stops_the_run(tmp_path: Path) -> None:
    verbs = """
def swallows(row: Row) -> Row:
    try:
        return sleeps(row)
    except BaseException:
        return row
rows.map(swallows).sink(out)
"""
    file = written(tmp_path, "swallowing", verbs)
    with subprocess.Popen([*command(file, "run"), "--runtime", "local"], stderr=subprocess.PIPE, text=True) as run:
        assert run.stderr is not None
        assert run.stderr.readline() == "asleep\n"
        run.send_signal(signal.SIGINT)
        assert run.stderr.read().splitlines()[-1] == "interrupted"
    assert run.returncode == 130


def test_a_function_that_hangs_is_reported_once_and_does_not_end_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, "hanging", "rows.map(hangs).named('slow').sink(out)")
    assert invoke(["run", str(file), "--runtime", "local", "--function-timeout", "300ms"]) == 0
    warning, summary = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"warning: operator 'slow' has been at work on one row for 0\.\d+ s; at (.*)", warning)
    assert warning.endswith(f"; at {place(file, 'hangs', 'hangs')}")
    assert "finished" in summary
