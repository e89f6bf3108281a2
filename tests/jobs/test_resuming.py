"""Jobs that are interrupted or killed as a whole and run again: in files every row is visible once, at any parallelism,
and both sinks agree on every row although its value is random. Runs that a signal ends have a process of their own."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from clonos_py.connectors import read_results
from tests.disks import make_read_only
from tests.jobs import in_process
from tests.observed import without_warnings

JOB = """
from __future__ import annotations
import time
from pathlib import Path
from clonos_py import Context, Instant, Job, Record, col, count, every, session, tumbling
from clonos_py.connectors import FileSink, FileSource

class Row(Record):
    id: int
    key: int
    at: Instant

class Seen(Record):
    id: int
    key: int
    at: Instant
    dice: float

class Window(Record):
    key: int
    window_end: Instant
    rows: int

PACE = Path(__file__).with_name("pace")

def rolled(row: Row, ctx: Context) -> Seen:
    if PACE.exists():
        time.sleep(0.02)
    return Seen(row.id, row.key, row.at, ctx.random.random())

def job(folder: str) -> Job:
    job = Job("resumed", checkpoint_interval="20ms", runtime="local")
    rows = job.source(FileSource(f"{folder}/in", format="jsonl", schema=Row), event_time="at").named("rows")
    seen = rows.map(rolled)
    seen.sink(FileSink(f"{folder}/out/left")).named("left")
    seen.rebalance().filter(col("key") >= 0).sink(FileSink(f"{folder}/out/right")).named("right")
    windows = seen.key_by("key").window(tumbling("10s")).aggregate(Window, rows=count())
    windows.sink(FileSink(f"{folder}/out/windows")).named("windows")
    early = seen.key_by("key").window(session("1s"), emit=every("100ms", processing_time=True))
    sessions = early.aggregate(rows=count()).named("sessions")
    sessions.changes(kind="kind").sink(FileSink(f"{folder}/out/sessions")).named("changes")
    return job
"""
FILES, ROWS, KEYS = 3, 300, 7

Arguments = Callable[..., list[str]]


@pytest.fixture
def command(tmp_path: Path) -> Arguments:
    (tmp_path / "resumed.py").write_text(JOB)
    (tmp_path / "in").mkdir()
    for number in range(FILES):
        rows = [{"id": number * ROWS + row, "key": row % KEYS, "at": row * 20_000} for row in range(ROWS)]
        (tmp_path / "in" / f"{number}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def arguments(*more: str) -> list[str]:
        job = [str(tmp_path / "resumed.py"), "--folder", str(tmp_path), "--checkpoints", str(tmp_path / "checkpoints")]
        return [sys.executable, "-m", "clonos_py.cli.main", "run", *job, *more]

    return arguments


def check(folder: Path) -> None:
    left, right, windows = (read_results(str(folder / "out" / name)) for name in ("left", "right", "windows"))
    assert sorted(row["id"] for row in left) == list(range(FILES * ROWS))
    assert Counter((row["id"], row["dice"]) for row in left) == Counter((row["id"], row["dice"]) for row in right)
    expected = Counter((r % KEYS, (r * 20_000 // 10_000_000 + 1) * 10_000_000) for r in range(ROWS))
    assert Counter({(row["key"], row["window_end"]): row["rows"] for row in windows}) == Counter(
        {window: rows * FILES for window, rows in expected.items()}
    )
    assert len(windows) == len(expected)
    check_sessions(read_results(str(folder / "out" / "sessions")))


def check_sessions(changes: list[dict[str, Any]]) -> None:
    """One session of each key is left: those that it grew from are deleted."""
    left, rows = Counter[tuple[int, int, int]](), Counter[int]()
    for change in changes:
        key = change["key"]
        left[key, change["window_start"], change["window_end"]] += {"insert": 1, "update": 0, "delete": -1}[
            change["kind"]
        ]
        rows[key] = max(rows[key], change["rows"])
    ends = {key: max(range(key, ROWS, KEYS)) * 20_000 + 1_000_000 for key in range(KEYS)}
    assert left == Counter({(key, key * 20_000, end): 1 for key, end in ends.items()})
    assert rows == Counter({key: len(range(key, ROWS, KEYS)) * FILES for key in range(KEYS)})


@contextmanager
def slow(folder: Path) -> Iterator[None]:
    """Within the block the job takes its time, so that it does not end before it is to be ended."""
    pace = folder / "pace"
    pace.touch()
    yield
    pace.unlink()


def ended_by(sent: signal.Signals, command: list[str], folder: Path, said: Path = Path(os.devnull)) -> int:
    """Runs until some new results are committed, also of sessions before their end, then sends a signal. ``said``: the
    file for standard error."""
    out = folder / "out"
    before = len(list(out.glob("left/*.jsonl")))

    def enough() -> bool:
        return len(list(out.glob("left/*.jsonl"))) >= before + 2 and any(out.glob("sessions/*.jsonl"))

    with slow(folder), said.open("w") as words, subprocess.Popen(command, stderr=words) as process:
        while process.poll() is None and not enough():
            time.sleep(0.01)
        process.send_signal(sent)
    return process.returncode


def ended(command: list[str]) -> in_process.Ended:
    script, *options = command[command.index("run") + 1 :]
    return in_process.run(Path(script), *options)


def finished(command: list[str]) -> str:
    done = ended(command)
    assert done.returncode == 0, done.stderr
    return done.stderr


def refused(command: list[str]) -> str:
    """The line of the error; another may warn that the rows are of 1970."""
    done = ended(command)
    assert done.returncode == 1
    (line,) = without_warnings(done.stderr)
    return line


def interrupted(folder: Path, checkpoints: Path | None = None) -> None:
    """Runs the job until some results are committed."""
    settings = {"checkpoints": str(checkpoints or folder / "checkpoints")}

    def enough() -> bool:
        return len(list((folder / "out" / "left").glob("*.jsonl"))) >= 2

    with slow(folder):
        in_process.run_until(enough, folder / "resumed.py", {"folder": str(folder)}, **settings)


def test_an_interrupted_job_resumes_at_another_parallelism(command: Arguments, tmp_path: Path) -> None:
    said = tmp_path / "said"
    assert ended_by(signal.SIGINT, command("--fresh", "--kill", "rows[0]@1h"), tmp_path, said) == 130
    how, last = said.read_text().splitlines()[-2:]
    assert last == "interrupted"
    assert how.removeprefix("to continue from the last checkpoint: ") == shlex.join(["clonos", *command()[3:]])
    assert ended_by(signal.SIGKILL, command("--parallelism", "2"), tmp_path) == -signal.SIGKILL
    finished(command("--parallelism", "3"))
    check(tmp_path)
    assert " 0 rows read" in finished(command())
    check(tmp_path)


def test_the_command_that_continues_drops_no_state_again(command: Arguments, tmp_path: Path) -> None:
    """The run has dropped it, and the state in its checkpoints is new."""
    interrupted(tmp_path)
    said = tmp_path / "said"
    given = command("--drop-state", "windows", "--drop-state=windows", "--checkpoint-interval", "100ms")
    assert ended_by(signal.SIGINT, given, tmp_path, said) == 130
    how = said.read_text().splitlines()[-2].removeprefix("to continue from the last checkpoint: ")
    assert how == shlex.join(["clonos", *command("--checkpoint-interval", "100ms")[3:]])


def test_a_resume_with_changed_code_is_reported_and_is_no_error(command: Arguments, tmp_path: Path) -> None:
    interrupted(tmp_path)
    (tmp_path / "resumed.py").write_text(f"{JOB}# a comment is a change\n")
    assert re.search(r"  the code has changed since checkpoint \d+, from which this run went on\n", finished(command()))
    check(tmp_path)
    assert "code has changed" not in finished(command())


def test_fresh_starts_over_and_does_not_mix_with_old_results(command: Arguments, tmp_path: Path) -> None:
    interrupted(tmp_path)
    message = refused(command("--fresh", "--checkpoint-interval", "350ms"))
    assert "written by another run: move the results away or choose another folder" in message
    (tmp_path / "out").rename(tmp_path / "old")
    finished(command("--fresh"))
    check(tmp_path)


def test_a_full_checkpoint_folder_stops_the_job_and_it_resumes_when_there_is_room(
    command: Arguments, tmp_path: Path, small_disk: Path
) -> None:
    (small_disk / "ballast").write_bytes(bytes((1 << 20) - (16 << 10)))
    on_small_disk = ("--checkpoints", str(small_disk / "checkpoints"))
    assert "the checkpoint folder is full: free space" in refused(command(*on_small_disk))
    (small_disk / "ballast").unlink()
    finished(command(*on_small_disk))
    check(tmp_path)


def test_a_read_only_checkpoint_folder_is_refused_and_stays_valid(
    command: Arguments, tmp_path: Path, small_disk: Path
) -> None:
    on_small_disk = ("--checkpoints", str(small_disk / "checkpoints"))
    interrupted(tmp_path, small_disk / "checkpoints")
    make_read_only(small_disk)
    assert "the checkpoint folder cannot be written: allow it" in refused(command(*on_small_disk))
    subprocess.run(["mount", "-o", "remount,rw", small_disk], check=True)
    finished(command(*on_small_disk))
    check(tmp_path)


def test_damage_between_runs_is_named_and_the_job_resumes_after_the_repair(command: Arguments, tmp_path: Path) -> None:
    interrupted(tmp_path)
    line, first = tmp_path / "checkpoints" / "resumed" / "line", tmp_path / "in" / "0.jsonl"
    for files, place in (("state/*.chunks", 400), ("manifests/*.manifest", 1_000)):
        good = {path: path.read_bytes() for path in line.glob(files)}
        for path, content in good.items():
            path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        assert "is corrupt: its checksum differs; restore the file from a copy" in refused(command())
        for path, content in good.items():
            path.write_bytes(content)
    content = first.read_bytes()
    first.unlink()
    assert "the list of inputs has changed since the checkpoint" in refused(command())
    first.write_bytes(content[:20])
    assert "0.jsonl has shrunk" in refused(command())
    first.write_bytes(content)
    finished(command())
    check(tmp_path)
