"""How the thread of a task has spent its time. Times come from a clock of the test."""

from __future__ import annotations

from clonos_py.model.counters import ProcessCounters
from clonos_py.runtime.ray.work_times import WorkTimes


class Clock:
    now_us = 100

    def __call__(self) -> int:
        return self.now_us


def spent(times: WorkTimes) -> tuple[int, int, int]:
    counters = times.added_to(ProcessCounters(rows_in=7))
    assert counters.rows_in == 7
    return counters.alive_us, counters.idle_us, counters.held_back_us


def test_waits_are_told_apart_by_their_cause() -> None:
    clock = Clock()
    times = WorkTimes(clock)
    assert spent(times) == (0, 0, 0)  # the thread has not started
    times.begin()
    clock.now_us = 110
    times.waits(held_back=False)
    clock.now_us = 140
    times.works()
    clock.now_us = 150
    times.waits(held_back=True)
    clock.now_us = 155
    times.works()
    assert spent(times) == (55, 30, 5)


def test_a_wait_counts_while_it_lasts() -> None:
    clock = Clock()
    times = WorkTimes(clock)
    times.begin()
    times.waits(held_back=True)
    clock.now_us = 1_100
    assert spent(times) == (1_000, 0, 1_000)
    times.works()
    clock.now_us = 1_200
    assert spent(times) == (1_100, 0, 1_000)
