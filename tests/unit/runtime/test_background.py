"""Work at a lower priority: its results, its errors, its order, and its thread."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from unittest.mock import Mock

import pytest

from clonos_py.model.times import MAX_TIME
from clonos_py.process.contract import MayProduce, RestoreState, ToTask
from clonos_py.runtime.executors.task import TaskEnvironment, TaskExecutor
from clonos_py.runtime.ray.background import NICENESS, Background
from clonos_py.runtime.ray.task_loop import TaskLoop
from clonos_py.runtime.ray.work_times import WorkTimes
from clonos_py.task.outcome import Outcome


@pytest.fixture
def background() -> Iterator[Background]:
    made = Background("tested")
    yield made
    made.stop()


def niceness() -> int:
    """The priority of the calling thread."""
    return os.getpriority(os.PRIO_PROCESS, 0)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere threads have no priority of their own")
def test_only_the_background_thread_has_a_lower_priority(background: Background) -> None:
    before = niceness()
    assert background.do(niceness) == min(before + NICENESS, 19)
    assert niceness() == before


def test_the_work_is_done_where_priorities_are_forbidden(
    background: Background, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(which: int, who: int, priority: int) -> None:
        raise PermissionError("not in here")

    monkeypatch.setattr(os, "setpriority", forbidden)
    assert background.do(lambda: 3) == 3


def test_an_error_is_raised_to_the_waiting_thread_and_the_background_thread_survives(background: Background) -> None:
    with pytest.raises(ZeroDivisionError):
        background.do(lambda: 1 // 0)
    assert background.do(lambda: 4) == 4


def test_one_thread_does_all_the_work(background: Background) -> None:
    found: set[int] = set()
    askers = [threading.Thread(target=lambda: found.add(background.do(threading.get_ident))) for _ in range(8)]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    assert len(found) == 1
    assert threading.get_ident() not in found


def test_a_task_loads_state_in_the_background_only_before_its_promotion(background: Background) -> None:
    machine = Mock(held_back=False)
    own: list[bool] = []
    machine.offer.side_effect = lambda item: own.append(threading.current_thread().name == "the task")
    machine.step.return_value = Outcome([], MAX_TIME, [])
    problems: list[BaseException] = []
    executor = TaskExecutor(machine, TaskEnvironment(Mock(), Mock(), background, lambda: 0, lambda: 0))
    task = TaskLoop(executor, problems.append, Mock(), lambda: 0, WorkTimes(lambda: 0))
    task.put(RestoreState(1, {}, None, ahead=True))
    task.put(RestoreState(2, {}, None))
    task.put(MayProduce(True))
    task.stop()
    asker = threading.Thread(target=task.run, name="the task")
    asker.start()
    asker.join()
    assert problems == []
    assert own == [False, True, True]


def test_no_thread_is_started_before_there_is_work() -> None:
    before = set(threading.enumerate())
    idle = Background("idle")
    idle.stop()
    assert not set(threading.enumerate()) - before


def test_a_standby_without_low_priority_loads_the_last_checkpoint_when_it_is_promoted() -> None:
    machine = Mock()
    executor = TaskExecutor(machine, TaskEnvironment(Mock(), Mock(), None, lambda: 0, lambda: 0))
    checkpoints = [RestoreState(number, {}, None, ahead=True) for number in (1, 2, 3)]
    fed = RestoreState(3, {}, None, ahead=True, feed_point=1)
    taken: list[list[ToTask]] = []
    items: tuple[ToTask, ...] = (
        *checkpoints[:2],
        MayProduce(True),
        MayProduce(False),
        checkpoints[2],
        fed,
        MayProduce(True),
    )
    for item in items:
        executor.offer(item)
        taken.append([call.args[0] for call in machine.offer.call_args_list])
        machine.offer.reset_mock()
    assert taken == [[], [], [checkpoints[1], MayProduce(True)], [MayProduce(False)], [], [fed], [MayProduce(True)]]
