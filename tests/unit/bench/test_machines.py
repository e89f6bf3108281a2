"""Processors of a simulated cluster: which process waits for one, and how long it is held."""

from __future__ import annotations

from functools import partial

from clonos_py.bench.cluster.costs import Amount, CostedTime, Costs, UnitPrice
from clonos_py.bench.cluster.machines import Machine, QueuedWork, Thread
from clonos_py.runtime.world.actions import Actions

COSTS = Costs({"take": UnitPrice(10, 2.0, 1.0)}, {"network": UnitPrice(100, 0, 8.0)})


def ended_at(
    processors: int, *work: tuple[int, float], later_us: float = 0.0, background: float = 0.0, wake_us: float = 0.0
) -> list[tuple[int, int]]:
    """By piece of work (process, microseconds), in the order in which they are done: the process, and when.
    ``later_us``: so much longer each is when it has been done."""
    actions = Actions(CostedTime(COSTS), lambda: None, 1_000)
    machine, began_us, ended = Machine(processors, background, wake_us), actions.now_us, []

    def done(process: int) -> float:
        ended.append((process, actions.now_us - began_us))
        if len(ended) == len(work):
            actions.stop()
        return later_us

    for process, us in work:
        machine.do(process, QueuedWork(us, partial(done, process)), actions)
    actions.run()
    return ended


def test_work_waits_for_a_processor() -> None:
    assert ended_at(1, (1, 100), (2, 50)) == [(1, 100), (2, 150)]
    assert ended_at(2, (1, 100), (2, 50)) == [(2, 50), (1, 100)]


def test_a_process_does_one_thing_at_a_time_and_processes_take_turns() -> None:
    assert ended_at(2, (1, 100), (1, 50)) == [(1, 100), (1, 150)]
    assert ended_at(1, (1, 100), (1, 50), (2, 10)) == [(1, 100), (1, 150), (2, 160)], "all in one slice of time"
    assert ended_at(1, (1, 1_500), (2, 10)) == [(2, 1_010), (1, 1_510)]
    assert ended_at(1, (1, 700), (1, 700), (2, 10)) == [(1, 700), (2, 1_010), (1, 1_410)]
    assert ended_at(1, (1, 3_000), (2, 1_500)) == [(2, 3_500), (1, 4_500)]


def test_the_link_and_the_task_of_a_process_take_turns() -> None:
    actions, ended = Actions(CostedTime(COSTS), lambda: None, 1_000), list[str]()
    machine = Machine(2)

    def done(name: str) -> float:
        ended.append(name)
        if len(ended) == 4:
            actions.stop()
        return 0.0

    for name, thread in [("a", Thread.LINK), ("b", Thread.LINK), ("c", Thread.LINK), ("d", Thread.TASK)]:
        machine.do(1, QueuedWork(10, partial(done, name), thread), actions)
    actions.run()
    assert ended == ["a", "d", "b", "c"]


def test_a_process_that_ends_does_not_finish_its_work() -> None:
    actions, ended = Actions(CostedTime(COSTS), lambda: None, 1_000), list[int]()
    machine = Machine(1)

    def done(process: int) -> float:
        ended.append(process)
        if process == 2:
            actions.stop()
        return 0.0

    for process in (1, 1, 2):
        machine.do(process, QueuedWork(5_000, partial(done, process)), actions)
    actions.at(actions.now_us + 2_500, partial(machine.ended, 1))
    actions.run()
    assert ended == [2]


def test_work_whose_cost_is_measured_afterwards_holds_the_processor_then() -> None:
    assert ended_at(1, (1, 0), (2, 0), later_us=30) == [(1, 0), (2, 30)]


def test_work_takes_longer_when_background_work_uses_a_part_of_the_processors() -> None:
    assert ended_at(2, (1, 100), (2, 50), background=0.5) == [(2, 66), (1, 133)]
    assert ended_at(1, (1, 100), background=5.0) == [(1, 1_000)], "a tenth is left for work"


def test_a_process_pays_for_waking_up_only_after_it_was_idle() -> None:
    assert ended_at(2, (1, 100), (1, 50), (2, 10), wake_us=40) == [(2, 50), (1, 140), (1, 190)]


def test_fractions_of_a_microsecond_are_not_lost() -> None:
    assert ended_at(1, *[(1, 0.25)] * 8)[-1] == (1, 2)


def test_prices_are_per_call_row_and_kib() -> None:
    assert COSTS.work_us([Amount("take", 2, 5, 2_048), Amount("unknown", 9)]) == 2 * 10 + 5 * 2 + 2
    assert COSTS._replace(rows_per_row=10).work_us([Amount("take", 2, 5, 2_048)]) == 2 * 10 + 50 * 2 + 20
