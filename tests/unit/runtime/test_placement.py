"""Where processes go."""

from __future__ import annotations

from clonos_py.model.ids import TaskId
from clonos_py.runtime.ray.placement import SUSPECT_S, Placement

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
    placement.place(2, MAP, ["a"])
    placement.remove(1, now_s=1)
    placement.heard(2, now_s=2)
    assert placement.place(3, JOIN, ["b", "a"]) == "b"
    assert placement.place(4, JOIN, ["b", "a"]) == "a"


def test_one_node_takes_everything() -> None:
    placement = Placement()
    assert {placement.place(number, JOIN, ["a"]) for number in range(3)} == {"a"}


def test_a_node_on_which_a_process_died_is_avoided_until_another_there_is_heard() -> None:
    placement = Placement()
    for number in range(4):
        placement.place(number, TaskId("map", number), ["a", "b"])
    placement.remove(0, now_s=10)
    assert placement.place(5, JOIN, ["a", "b"]) == "b"
    placement.heard(1, now_s=11)
    assert placement.place(6, MAP, ["a", "b"]) == "b", "that was the other node"
    placement.heard(2, now_s=11)
    assert placement.place(7, MAP, ["a", "b"]) == "a"


def test_a_silent_node_is_taken_if_there_is_no_other_and_again_when_ray_still_says_it_lives() -> None:
    placement = Placement()
    placement.place(1, JOIN, ["a", "b"])
    placement.place(2, MAP, ["b"])
    placement.remove(1, now_s=10)
    assert placement.place(3, JOIN, ["a"]) == "a"
    placement.remove(3, now_s=10)
    placement.heard(2, now_s=10 + SUSPECT_S)
    assert placement.place(4, JOIN, ["a", "b"]) == "a"


def test_where_a_process_really_is_counts() -> None:
    placement = Placement()
    placement.place(1, JOIN, ["a", "b"])
    placement.put(1, JOIN, "b")
    assert placement.place(2, JOIN, ["a", "b"]) == "a"
