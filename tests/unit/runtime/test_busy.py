from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Container

import pytest

from clonos_py.runtime.ray.busy import Busy
from clonos_py.runtime.ray.process_table import entry

SECOND_US = 1_000_000


def looks(busy: Busy, used: dict[int, list[int | None]], running: Container[int] = (1, 2, 3)) -> list[list[int]]:
    """The processes at work, second by second; ``used``: by process, its processor time at each look."""
    found = []
    for second in range(max(map(len, used.values()))):
        shown = {number: times[second] for number, times in used.items()}
        found.append(busy.find((second + 1) * SECOND_US, shown.__getitem__, running))
    return found


def test_a_silent_process_that_uses_processor_time_is_at_work() -> None:
    busy = Busy(SECOND_US)
    for number in (1, 2, 3):
        busy.seen(number, 0)
    found = looks(busy, {1: [0, 900_000, 1_800_000], 2: [0, 10_000, 20_000], 3: [None, None, None]})
    assert found == [[], [1], [1]]


def test_a_small_share_of_processor_time_is_enough_on_a_crowded_machine() -> None:
    busy = Busy(SECOND_US)
    busy.seen(1, 0)
    assert looks(busy, {1: [0, 60_000]}) == [[], [1]]


def test_processes_that_answer_or_are_gone_are_not_examined() -> None:
    busy = Busy(SECOND_US)
    busy.seen(1, 900_000)
    busy.seen(2, 0)
    assert looks(busy, {1: [0], 2: [0]}, running=(1,)) == [[]]
    assert Busy(0).find(SECOND_US, lambda number: 0, (1,)) == []


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="there is no process table")
def test_the_process_table_shows_parent_and_processor_time() -> None:
    code = "import time; print(sum(range(20_000_000)), flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        program.stdout.readline()
        found = entry(program.pid)
        program.kill()
    assert found is not None
    assert found.parent == os.getpid()
    assert found.cpu_us > 50_000
    assert entry(program.pid) is None
