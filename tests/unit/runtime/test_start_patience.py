"""A coordinator that takes long to start is waited for as long as there are signs of progress."""

from __future__ import annotations

import os
import subprocess
import sys

from clonos_py.runtime.ray.start_patience import Signs, StartingWorker, StartPatience
from clonos_py.runtime.ray.worker_signs import signs_of

SECOND_US = 1_000_000
TIMEOUT_US = 60 * SECOND_US


def waiting(patience: StartPatience, until_s: int, ticks_per_s: int, from_s: int = 1) -> int:
    """Observes once a second a worker that uses so much processor time. Returns when the patience was over."""
    for second in range(from_s, until_s):
        patience.update(
            Signs([StartingWorker(7, second * ticks_per_s)], "load 41.0 on 2 processors"), second * SECOND_US
        )
        if patience.has_expired:
            return second
    return until_s


def test_without_a_sign_of_progress_the_wait_lasts_for_the_start_timeout() -> None:
    patience = StartPatience(TIMEOUT_US, 0)
    for second in range(1, 60):
        patience.update(Signs([]), second * SECOND_US)
        assert not patience.has_expired
    patience.update(Signs([]), TIMEOUT_US)
    assert patience.has_expired
    assert patience.error_message("bids") == (
        "the coordinator of 'bids' could not be started: waited 60 s for Ray, the last 60 s without a sign of a "
        "starting process (no worker process starts); see with `ray status` whether memory is left and every node "
        "answers, or wait longer with --start-timeout"
    )


def test_a_worker_that_uses_processor_time_has_up_to_ten_timeouts() -> None:
    assert waiting(StartPatience(TIMEOUT_US, 0), 1_000, ticks_per_s=1) == 600


def test_a_worker_that_stops_using_processor_time_has_one_timeout_more() -> None:
    patience = StartPatience(TIMEOUT_US, 0)
    assert waiting(patience, 100, ticks_per_s=1) == 100
    assert waiting(patience, 1_000, ticks_per_s=0, from_s=100) == 160
    assert "waited 160 s for Ray, the last 60 s without a sign" in patience.error_message("bids")
    assert "(1 worker process starting, load 41.0 on 2 processors)" in patience.error_message("bids")


def test_a_worker_that_appears_or_disappears_is_a_sign_of_progress() -> None:
    patience = StartPatience(TIMEOUT_US, 0)
    patience.update(Signs([StartingWorker(7, 0)]), 50 * SECOND_US)
    patience.update(Signs([]), 100 * SECOND_US)
    patience.update(Signs([]), 159 * SECOND_US)
    assert not patience.has_expired
    patience.update(Signs([]), 160 * SECOND_US)
    assert patience.has_expired


def test_the_wait_is_reported_after_two_seconds_and_then_every_ten() -> None:
    patience = StartPatience(TIMEOUT_US, 0)
    reported = []
    for second in range(1, 31):
        patience.update(Signs([]), second * SECOND_US)
        if patience.reports():
            reported.append(second)
    assert reported == [2, 12, 22]


def test_only_children_of_the_raylet_of_the_node_are_starting_workers() -> None:
    """Processes that look like a raylet and its workers."""
    sleep = "import time; time.sleep(60)"
    raylet = (
        "import subprocess, sys, time\n"
        f"workers = [subprocess.Popen([sys.executable, '-c', {sleep!r}, name]) for name in sys.argv[2:]]\n"
        "print(*[worker.pid for worker in workers], flush=True)\n"
        "sys.stdin.read()\n"
        "for worker in workers: worker.kill()\n"
    )
    command = [sys.executable, "-c", raylet, f"--node_id=n{os.getpid()}", "default_worker.py", "ray::IDLE"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        starting = int(process.stdout.readline().split()[0])
        assert [worker.pid for worker in signs_of(f"n{os.getpid()}").starting] == [starting]
        assert signs_of("another").starting == []
        assert "load" in signs_of("another").load
