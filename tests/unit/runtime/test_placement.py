"""Where processes go."""

from __future__ import annotations

from clonos_py.model.ids import TaskId
from clonos_py.runtime.ray.placement import Placement

JOIN, MAP = TaskId("join", 0), TaskId("map", 0)


def test_a_standby_goes_to_another_node_than_its_task() -> None:
    placement = Placement()
    active = placement.place(1, JOIN, ["a", "b"])
    placement.place(2, MAP, ["a", "b"])
    placement.place(3, MAP, ["a", "b"])
    assert placement.place(4, JOIN, ["a", "b"]) != active


def test_processes_are_spread_evenly() -> None:
    placement = Placement()
    nodes = [placement.place(number, TaskId("map", number), ["a", "b", "c"]) for number in range(9)]
    assert [nodes.count(node) for node in "abc"] == [3, 3, 3]


def test_a_process_that_is_gone_takes_no_room() -> None:
    placement = Placement()
    placement.place(1, JOIN, ["a", "b"])
    placement.remove(1)
    assert placement.place(2, JOIN, ["a", "b"]) == "a"


def test_one_node_takes_everything() -> None:
    placement = Placement()
    assert {placement.place(number, JOIN, ["a"]) for number in range(3)} == {"a"}
