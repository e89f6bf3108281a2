"""Clock steps of one process, as the soak makes them."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from clonos_py.bench.clock_shim import clock_steps

CLOCKS = """
import datetime, os, sys, time
for _ in sys.stdin:
    time.sleep(0.1)
    print(time.time(), datetime.datetime.now().timestamp(), time.monotonic(), flush=True)
"""


def clocks(child: subprocess.Popen[str]) -> tuple[float, float, float]:
    """The differences of a process's times of day, read in two ways, and its monotonic clock from ours."""
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write("\n")
    child.stdin.flush()
    day, date, monotonic = map(float, child.stdout.readline().split())
    return day - time.time(), date - time.time(), monotonic - time.monotonic()


def test_a_step_changes_the_time_of_day_of_one_process_and_no_other_clock() -> None:
    with clock_steps() as steps:
        if steps is None:
            pytest.skip("there is no compiler")
        command = [sys.executable, "-c", CLOCKS]
        children = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)
        ]
        try:
            for seconds in (3_600.0, -3_600.0):
                steps.step(children[0].pid, seconds)
                assert clocks(children[0]) == pytest.approx((seconds, seconds, 0), abs=60)
                assert clocks(children[1]) == pytest.approx((0, 0, 0), abs=60)
        finally:
            for child in children:
                child.kill()
                child.communicate()
    assert "LD_PRELOAD" not in os.environ
