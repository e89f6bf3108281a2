"""Leftovers of killed runs in the temporary folder, cleared by the next run: real processes, real SIGKILLs."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from clonos_py.checkpoint.layout import manifest_name
from clonos_py.model.errors import ClusterLostError
from clonos_py.runtime.checkpoint_place import checkpoint_place
from clonos_py.runtime.held_folders import LOCK_FILE, hold, temporary, unheld
from clonos_py.runtime.leftovers import Leftover, clear
from tests.waiting import attempts

HOLDER = "import sys\nfrom pathlib import Path\nfrom clonos_py.runtime.held_folders import hold\n"
HOLDER += "held = [hold(Path(name)) for name in sys.argv[1:]]\nprint('held', flush=True)\nsys.stdin.read()\n"
SCRATCH, SPILLED, CHECKPOINTS = "clonos-0123456789ab", "clonos-spilled-x", "clonos-checkpoints-x"


@pytest.fixture(autouse=True)
def temp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary folder of these tests."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@contextmanager
def holder(*folders: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the folders until it is killed."""
    command = [sys.executable, "-c", HOLDER, *map(str, folders)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def left_by_a_killed_process(*folders: Path) -> None:
    with holder(*folders) as process:
        process.kill()
        process.wait()


def complete(folder: Path, job: str, checkpoint: int, age_s: float = 0) -> None:
    """A folder of checkpoints with one manifest."""
    manifest = folder / job / "line" / "manifests" / manifest_name(checkpoint, 1)
    manifest.parent.mkdir(parents=True, exist_ok=True)
    manifest.touch()
    written_s = time.time() - age_s
    os.utime(manifest, (written_s, written_s))


def names(temp: Path) -> list[str]:
    return sorted(path.name for path in temp.iterdir())


def test_scratch_and_spilled_frames_of_a_killed_process_are_removed(temp: Path) -> None:
    left_by_a_killed_process(temp / SCRATCH, temp / SPILLED)
    (temp / SCRATCH / "spilled-3").mkdir()
    (temp / SCRATCH / "spilled-3" / "frames").write_text("rows")
    assert clear("bids") == []
    assert names(temp) == []


def test_a_folder_held_by_another_process_stays(temp: Path) -> None:
    with holder(temp / SCRATCH), holder(temp / SCRATCH) as other:
        other.kill()
        other.wait()
        clear("bids")
        assert names(temp) == [SCRATCH]
    clear("bids")
    assert names(temp) == []


def test_folders_of_other_programs_stay(temp: Path) -> None:
    (temp / "clonos-demo-x").mkdir()
    (temp / SCRATCH).mkdir()
    assert clear("bids") == []
    assert names(temp) == [SCRATCH, "clonos-demo-x"]


def test_checkpoints_without_a_complete_one_are_removed(temp: Path) -> None:
    left_by_a_killed_process(temp / CHECKPOINTS)
    complete(temp / CHECKPOINTS, "bids", 7)
    manifest = next(temp.rglob("*.manifest"))
    manifest.rename(f"{manifest}.incomplete")
    assert clear("bids") == []
    assert names(temp) == []


def test_checkpoints_of_the_same_job_are_named_and_those_of_others_stay(temp: Path) -> None:
    left_by_a_killed_process(temp / CHECKPOINTS)
    complete(temp / CHECKPOINTS, "bids", 6)
    complete(temp / CHECKPOINTS, "bids", 7)
    assert clear("bids") == [Leftover(temp / CHECKPOINTS, 7)]
    assert clear("another") == []
    assert names(temp) == [CHECKPOINTS]


def test_checkpoints_are_removed_after_a_week(temp: Path) -> None:
    left_by_a_killed_process(temp / CHECKPOINTS)
    complete(temp / CHECKPOINTS, "bids", 7, age_s=6.9 * 86_400)
    clear("another")
    assert names(temp) == [CHECKPOINTS]
    complete(temp / CHECKPOINTS, "bids", 7, age_s=7.1 * 86_400)
    clear("another")
    assert names(temp) == []


def test_named_checkpoints_are_held_by_the_run_that_resumes_from_them(temp: Path) -> None:
    left_by_a_killed_process(temp / CHECKPOINTS)
    with checkpoint_place("bids", str(temp / CHECKPOINTS)):
        clear("bids")
        assert names(temp) == [CHECKPOINTS]
    clear("bids")
    assert names(temp) == []


def test_temporary_checkpoints_stay_only_after_the_loss_of_the_cluster_and_a_complete_one(temp: Path) -> None:
    def fail(error: Exception, checkpoint: int | None) -> None:
        with checkpoint_place("bids", None) as place:
            if checkpoint is not None:
                complete(Path(place), "bids", checkpoint)
            raise error

    for error, checkpoint in ((ValueError("wrong"), 7), (ClusterLostError("gone"), None)):
        with pytest.raises(type(error)):
            fail(error, checkpoint)
        assert names(temp) == []
    with pytest.raises(ClusterLostError):
        fail(ClusterLostError("gone"), 7)
    assert [left.checkpoint for left in clear("bids")] == [7]


def test_no_folder_is_removed_on_a_file_system_without_locks(temp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "flock", refuse)
        hold(temp / SCRATCH).release()
        assert list((temp / SCRATCH).iterdir()) == []
        left_by_a_killed_process(temp / SPILLED)
        clear("bids")
        assert names(temp) == [SCRATCH, SPILLED]
    clear("bids")
    assert names(temp) == [SCRATCH]


def test_a_folder_that_is_removed_while_a_process_takes_hold_of_it_is_created_again(temp: Path) -> None:
    """Holders of a folder and runs that clear take turns in all orders; a folder that is held is never missing."""

    def clear_often(_: Any) -> None:
        for _ in range(150):
            clear("bids")

    def hold_often(_: Any) -> None:
        for _ in range(150):
            held = hold(temp / SCRATCH)
            assert (temp / SCRATCH / LOCK_FILE).exists()
            (temp / SCRATCH / "socket").touch()
            held.release()

    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(clear_often, 0), threads.submit(clear_often, 1)] + [
            threads.submit(hold_often, number) for number in range(2)
        ]:
            done.result()
    clear("bids")
    assert names(temp) == []


def test_a_temporary_folder_is_held_and_removed_at_the_end(temp: Path) -> None:
    with temporary("clonos-spilled-") as folder:
        clear("bids")
        assert folder.is_dir()
        with unheld(folder) as left_behind:
            assert not left_behind
    assert names(temp) == []


JOB = """
from clonos_py import Job
from clonos_py.bench.witnesses import PacedNumbers
from clonos_py.connectors import FileSink

def job(folder: str, total: int) -> Job:
    job = Job("numbers")
    job.source(PacedNumbers(total, 200)).sink(FileSink(folder, format="jsonl"))
    return job
"""


def test_a_run_names_the_checkpoints_of_a_killed_one_before_it(temp: Path) -> None:
    """The whole command, twice; files of its own are beside its temporary folder."""
    (temp / "t").mkdir()
    (temp / "job.py").write_text(JOB)

    def command(total: int) -> subprocess.Popen[str]:
        words = ["run", "job.py", "--folder", "out", "--total", str(total), "--runtime", "local"]
        return subprocess.Popen(
            [sys.executable, "-m", "clonos_py.cli.main", *words, "--checkpoint-interval", "100ms"],
            cwd=temp,
            env={**os.environ, "TMPDIR": str(temp / "t"), "PYTHONPATH": str(Path(__file__).parents[2])},
            stderr=subprocess.PIPE,
            text=True,
        )

    with command(100_000) as killed:
        for _ in attempts():
            assert killed.poll() is None
            if list((temp / "t").rglob("*.manifest")) and list((temp / "out").glob("*.jsonl")):
                break
        killed.kill()
    kinds = sorted(name.split("-")[1] for name in names(temp / "t"))
    assert kinds == ["checkpoints", "runs", "spilled"], "runs: the sockets by which runs are stopped"
    with command(100) as following:
        _, error = following.communicate(timeout=300)
    (left,) = (temp / "t").glob("clonos-checkpoints-*")
    assert "an earlier run was killed after checkpoint " in error
    assert f"run the job with --checkpoints {left}\n" in error
    assert (following.returncode, error.count("\n")) == (1, 2), "it found results of another run"
