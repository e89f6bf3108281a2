"""When planned kills are carried out, and that they are tried again until there is something to kill."""

from __future__ import annotations

from clonos_py.model.ids import TaskId
from clonos_py.runtime.planned_kills import PlannedKills

FIRST, SECOND = TaskId("first", 0), TaskId("second", 0)


class Processes:
    """Records the tasks that are killed. ``there``: whether they have a process."""

    def __init__(self) -> None:
        self.tried: list[TaskId] = []
        self.there = True

    def kill(self, task: TaskId) -> bool:
        self.tried.append(task)
        return self.there


def test_kills_count_from_the_first_deployment() -> None:
    processes, kills = Processes(), PlannedKills([(200, SECOND), (100, FIRST)])
    assert kills.next_us is None
    kills.deployed(1_000)
    kills.deployed(1_050)
    assert kills.next_us == 1_100
    kills.carry_out(1_099, processes.kill)
    assert processes.tried == []
    kills.carry_out(1_200, processes.kill)
    assert processes.tried == [FIRST, SECOND]
    assert kills.next_us is None


def test_a_kill_is_tried_again_until_the_task_has_a_process() -> None:
    processes, kills = Processes(), PlannedKills([(100, FIRST)], deployed_us=0)
    processes.there = False
    kills.carry_out(100, processes.kill)
    later_us = kills.next_us
    assert later_us is not None
    assert later_us > 100
    processes.there = True
    kills.carry_out(later_us - 1, processes.kill)
    assert processes.tried == [FIRST]
    kills.carry_out(later_us, processes.kill)
    assert processes.tried == [FIRST, FIRST]
    assert kills.next_us is None
