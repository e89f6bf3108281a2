"""``clonos stop`` ends a job that another command runs on a cluster, with a last checkpoint."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clonos_py.runtime.ray.process_table import descendants
from deploy.start_raylets import Raylets, raylets
from tests.ray.numbers_command import CLONOS, await_checkpoint, started
from tests.visible_rows import visible_rows
from tests.waiting import WAIT_S_MAX, wait_until

pytestmark = pytest.mark.ray

TOTAL = 100_000
STOPPED = re.compile("^stopped after .* s; the next run with its checkpoints goes on from there$", re.M)


def command(cluster: Raylets, job: str, *options: str) -> list[str]:
    return [CLONOS, "stop", job, "--address", cluster.address, *options]


def stop(cluster: Raylets, job: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(cluster, job, *options), capture_output=True, text=True, check=False, timeout=WAIT_S_MAX
    )


def actors(cluster: Raylets, name: str) -> list[int]:
    """The ids of the processes of the actors whose class has that name."""
    return [pid for pid, command in descendants(cluster.head_pid) if command.startswith(f"ray::{name}")]


SLOW_STOP = """
import sys
import ray
from clonos_py.runtime.ray.cluster import connected
from clonos_py.runtime.ray.stopping import coordinator_of

with connected(sys.argv[1]) as cluster:
    coordinator = coordinator_of(cluster.named(sys.argv[2]))
    ray.get(coordinator.stop.remote("slow"))
    print("asked", flush=True)
    sys.stdin.readline()
    end = ray.get(coordinator.end.remote())
    ray.get(coordinator.unwatch.remote("slow"))
print(end.error, end.stopped)
"""


def stopped_twice(cluster: Raylets, job: str) -> tuple[subprocess.CompletedProcess[str], str]:
    """Two processes stop the job. Returns the command, and what the other one has read after the command has ended: the
    run has ended before."""
    script = [sys.executable, "-c", SLOW_STOP, cluster.address, job]
    with subprocess.Popen(script, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as slow:
        assert slow.stdout is not None
        assert slow.stdout.readline() == "asked\n"
        stopped = stop(cluster, job)
        answer, _ = slow.communicate("\n", timeout=WAIT_S_MAX)
    return stopped, answer.strip()


def wait_for_coordinator(cluster: Raylets) -> int:
    wait_until(lambda: actors(cluster, "CoordinatorActor"))
    (found,) = actors(cluster, "CoordinatorActor")
    return found


def arguments(folder: Path, cluster: Raylets) -> list[str]:
    given = ["--total", str(TOTAL), "--checkpoints", str(folder / "checkpoints"), "--address", cluster.address]
    return [*given, "--unpaced", str(folder / "unpaced")]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Raylets]:
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    with raylets(1) as found:
        yield found


def test_a_job_is_stopped_by_its_name_and_the_next_run_goes_on(cluster: Raylets, tmp_path: Path) -> None:
    """It runs to its end."""
    checkpoints, given = tmp_path / "checkpoints", arguments(tmp_path, cluster)
    with started(tmp_path, *given, "--checkpoint-interval", "500ms") as process:
        await_checkpoint(checkpoints, process)
        before = len(visible_rows(tmp_path / "out"))
        refused = stop(cluster, "nobody")
        stopped, answer = stopped_twice(cluster, "numbers")
        _, printed = process.communicate(timeout=WAIT_S_MAX)
    assert (refused.returncode, refused.stdout.count("\n")) == (1, 0)
    assert refused.stderr == "error: no job named 'nobody' is running on this cluster; running: 'numbers'\n"
    assert stopped.returncode == 0, stopped.stderr
    assert STOPPED.search(stopped.stdout), stopped.stdout
    assert answer == "None True"
    assert process.returncode == 0, printed
    assert printed.splitlines()[-1].startswith("to continue from the last checkpoint: clonos run job.py "), printed
    assert before < len(visible_rows(tmp_path / "out")) < TOTAL

    (tmp_path / "unpaced").touch()
    with started(tmp_path, *given) as process:
        _, printed = process.communicate(timeout=WAIT_S_MAX)
        assert process.returncode == 0, printed
    again = stop(cluster, "numbers")
    assert again.stderr == "error: no job named 'numbers' is running on this cluster; running: none\n"
    assert sorted(row["id"] for row in visible_rows(tmp_path / "out")) == list(range(TOTAL))


@pytest.mark.thorough
def test_a_coordinator_that_hangs_is_named_and_one_that_is_killed_is_replaced(cluster: Raylets, tmp_path: Path) -> None:
    """It is killed before it has answered; its successor takes the last checkpoint."""
    with started(tmp_path, *arguments(tmp_path, cluster), "--checkpoint-interval", "1h") as process:
        coordinator = wait_for_coordinator(cluster)
        os.kill(coordinator, signal.SIGSTOP)
        hung = stop(cluster, "numbers", "--timeout", "1s")
        assert hung.returncode == 1
        assert hung.stderr.startswith("error: the coordinator of 'numbers' has not answered within 1 s: try again")
        with subprocess.Popen(command(cluster, "numbers"), stdout=subprocess.PIPE, text=True) as stopping:
            assert stopping.stdout is not None
            assert stopping.stdout.readline().startswith("stopping 'numbers'")
            os.kill(coordinator, signal.SIGKILL)
            assert STOPPED.search(stopping.stdout.read())
        process.wait(WAIT_S_MAX)
    found = [row["id"] for row in visible_rows(tmp_path / "out")]
    assert len(found) == len(set(found)) < TOTAL
