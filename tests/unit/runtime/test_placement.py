"""On which nodes, and in which host processes, processes are placed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from clonos_py.model.ids import TaskId
from clonos_py.model.resources import NO_RESOURCES, Resources
from clonos_py.runtime import placement as placing
from clonos_py.runtime.placement import SUSPECT_S, Seat


class Placement(placing.Placement):
    """One in which there is room for everything."""

    def place(self, *request: Any, **demands: Any) -> Seat:
        found = super().place(*request, **demands)
        assert found is not None
        return found


JOIN, MAP, SINK = TaskId("join", 0), TaskId("map", 0), TaskId("sink", 0)


def test_a_standby_goes_to_another_node_than_its_task() -> None:
    placement = Placement()
    active = placement.place(1, JOIN, ["a", "b"])
    placement.place(2, MAP, ["a", "b"])
    placement.place(3, MAP, ["a", "b"])
    assert placement.place(4, JOIN, ["a", "b"]).node != active.node


def test_processes_are_spread_evenly() -> None:
    placement = Placement()
    nodes = [placement.place(number, TaskId("map", number), ["a", "b", "c"]).node for number in range(9)]
    assert [nodes.count(node) for node in "abc"] == [3, 3, 3]


def test_a_removed_process_does_not_count() -> None:
    placement = Placement()
    placement.place(1, JOIN, ["a", "b"])
    placement.place(2, MAP, ["a"])
    placement.remove(1, now_s=1)
    placement.seen(2, now_s=2)
    assert placement.place(3, JOIN, ["b", "a"]).node == "b"
    assert placement.place(4, JOIN, ["b", "a"]).node == "a"


def test_standbys_share_a_host_unless_the_loss_of_a_node_would_promote_both() -> None:
    placement = Placement(standbys_per_host=8)
    tasks = [TaskId("map", index) for index in range(4)]
    for number, task in enumerate(tasks):
        placement.place(number, task, ["a", "b"])
    seats = [placement.place(10 + number, task, ["a", "b"], shares=True) for number, task in enumerate(tasks)]
    assert [seat.node for seat in seats] == ["b", "a", "b", "a"]
    assert len({seat.host_process for seat in seats}) == 4
    three = Placement(standbys_per_host=8)
    for number, (task, node) in enumerate(zip(tasks, "abab", strict=True)):
        three.place(number, task, [node])
    shared = [three.place(10 + number, task, ["c"], shares=True).host_process for number, task in enumerate(tasks)]
    assert shared == [10, 10, 12, 12]


def test_on_a_single_node_all_standbys_share_a_host() -> None:
    placement = Placement(standbys_per_host=8)
    for number in range(6):
        placement.place(number, TaskId("map", number), ["a"])
    assert {placement.place(10 + n, TaskId("map", n), ["a"], shares=True).host_process for n in range(6)} == {10}


def test_a_single_node_gets_all_processes() -> None:
    placement = Placement()
    assert {placement.place(number, JOIN, ["a"]).node for number in range(3)} == {"a"}


def test_a_node_on_which_a_process_died_is_avoided_until_another_process_there_answers() -> None:
    placement = Placement()
    for number in range(4):
        placement.place(number, TaskId("map", number), ["a", "b"])
    placement.remove(0, now_s=10)
    assert placement.place(5, JOIN, ["a", "b"]).node == "b"
    placement.seen(1, now_s=11)
    assert placement.place(6, MAP, ["a", "b"]).node == "b", "it was another node"
    placement.seen(2, now_s=11)
    assert placement.place(7, MAP, ["a", "b"]).node == "a"


def test_a_suspected_node_is_used_if_there_is_no_other_and_again_after_a_while() -> None:
    placement = Placement()
    placement.place(1, JOIN, ["a", "b"])
    placement.place(2, MAP, ["b"])
    placement.remove(1, now_s=10)
    assert placement.place(3, JOIN, ["a"]).node == "a"
    placement.remove(3, now_s=10)
    placement.seen(2, now_s=10 + SUSPECT_S)
    assert placement.place(4, JOIN, ["a", "b"]).node == "a"


def test_the_actual_node_of_a_process_counts() -> None:
    placement = Placement()
    placement.place(1, JOIN, ["a", "b"])
    placement.put(1, JOIN, Seat("b", 1))
    assert placement.place(2, JOIN, ["a", "b"]).node == "a"


# ---- shared hosts


def deployed(nodes: list[str], tasks: int, standbys: int, standbys_per_host: int) -> dict[int, tuple[TaskId, Seat]]:
    """By number, all placed processes: first one for each task, then standbys."""
    placement = Placement(standbys_per_host)
    requested = [(TaskId("map", index), False) for index in range(tasks)]
    requested += [(TaskId("map", index), True) for index in range(tasks) for _ in range(standbys)]
    return {
        number: (task, placement.place(number, task, nodes, shares)) for number, (task, shares) in enumerate(requested)
    }


def test_standbys_share_hosts_up_to_the_limit_and_tasks_share_none() -> None:
    seats = [seat for _, seat in deployed(["a"], tasks=7, standbys=1, standbys_per_host=3).values()]
    host_processes = [seat.host_process for seat in seats]
    assert [host_processes.count(host_process) for host_process in dict.fromkeys(host_processes)] == [1] * 7 + [3, 3, 1]


def test_with_a_limit_of_one_no_standby_shares_a_host() -> None:
    seats = deployed(["a", "b"], tasks=4, standbys=2, standbys_per_host=1)
    assert all(seat.host_process == number for number, (_, seat) in seats.items())


def test_two_standbys_of_one_task_never_share_a_host() -> None:
    seats = deployed(["a"], tasks=3, standbys=2, standbys_per_host=6)
    for host_process in {seat.host_process for _, seat in seats.values()}:
        tasks = [task for task, seat in seats.values() if seat.host_process == host_process]
        assert len(set(tasks)) == len(tasks)
    assert len({seat.host_process for _, seat in seats.values()}) == 3 + 2


def test_a_standby_shares_no_host_on_the_node_of_its_task() -> None:
    for nodes, host_processes in ((["a", "b"], 6), (["a", "b", "c"], 3), (["a", "b", "c", "d"], 2)):
        seats = deployed(nodes, tasks=6, standbys=1, standbys_per_host=6)
        for task in {task for task, _ in seats.values()}:
            assert len({seat.node for other, seat in seats.values() if other == task}) == 2
        assert len({seat.host_process for _, seat in seats.values()}) <= 6 + host_processes


def test_the_host_of_a_task_gets_no_more_standbys() -> None:
    placement = Placement(3)
    placement.place(1, JOIN, ["a"])
    host_process = placement.place(2, JOIN, ["a"], shares=True).host_process
    assert placement.place(3, MAP, ["a"], shares=True).host_process == host_process
    placement.promoted(3)
    assert placement.place(4, SINK, ["a"], shares=True).host_process == 4
    assert placement.sharing(2) == [2, 3]


def test_the_place_of_a_standby_that_left_is_used_again() -> None:
    placement = Placement(2)
    host_process = placement.place(1, JOIN, ["a"], shares=True).host_process
    placement.place(2, MAP, ["a"], shares=True)
    placement.leave(2)
    assert placement.place(3, SINK, ["a"], shares=True).host_process == host_process


def test_hosts_of_a_lost_coordinator_get_no_more_standbys() -> None:
    """A new coordinator cannot determine which of them are tasks."""
    placement = Placement(3)
    placement.put(1, JOIN, Seat("a", 1))
    assert placement.place(2, MAP, ["a"], shares=True).host_process == 2


def test_a_host_in_which_a_process_died_gets_no_more_standbys() -> None:
    placement = Placement(standbys_per_host=3)
    host_processes = [
        placement.place(number, TaskId("v", number), ["a"], shares=True).host_process for number in (1, 2)
    ]
    assert host_processes == [1, 1]
    placement.remove(1, 0.0)
    assert placement.place(3, TaskId("v", 3), ["a"], shares=True) == Seat("a", 3)
    assert placement.sharing(2) == []


def test_a_process_that_replaces_another_in_place_has_its_node_and_host() -> None:
    placement = Placement(standbys_per_host=2)
    seat = placement.place(1, JOIN, ["a"], shares=True)
    placement.place(2, MAP, ["a"], shares=True)
    placement.promoted(1)
    assert placement.take_place(3, JOIN, before=1) == seat
    assert placement.sharing(3) == [2, 3]
    assert placement.place(4, SINK, ["a"], shares=True).host_process == 4, "it is a task's"


def test_a_process_cannot_replace_a_dead_one_in_place() -> None:
    placement = Placement()
    placement.place(1, JOIN, ["a"])
    placement.remove(1, now_s=0.0)
    assert placement.take_place(2, JOIN, before=1) is None


# ---- resources


ALL_NODES = ["a", "b", "c"]
whole = st.builds(Resources, st.integers(0, 4), st.integers(0, 4), st.integers(0, 2))


@given(
    st.lists(whole, min_size=3, max_size=3),
    st.lists(st.tuples(whole, st.booleans(), st.integers(0, 3)), max_size=25),
)
def test_processes_never_get_more_than_a_node_has(sizes: list[Resources], requests: list[Any]) -> None:
    """Each comes up or leaves a while after it was placed. What is up is reserved, and so no longer free."""
    placement, total = placing.Placement(standbys_per_host=8), dict(zip(ALL_NODES, sizes, strict=True))
    running: dict[int, tuple[str, Resources, bool]] = {}
    for number, (demand, shares, what_then) in enumerate(requests):
        reserved = [(node, needed) for node, needed, up in running.values() if up]
        free = {node: total[node] - summed(needed for at, needed in reserved if at == node) for node in ALL_NODES}
        taken = {node: summed(needed for at, needed, _ in running.values() if at == node) for node in ALL_NODES}
        task = TaskId("map", number)
        seat = placement.place(number, task, ALL_NODES, shares, demand, free)
        if seat is None:
            assert not any(demand.fits_in(total[node] - taken[node]) for node in ALL_NODES), "it fits somewhere"
            continue
        assert not demand or demand.fits_in(total[seat.node] - taken[seat.node])
        assert not demand or placement.sharing(number) == [number]
        running[number] = seat.node, demand, False
        oldest = next(iter(running))
        if what_then == 1:
            node, needed, _ = running[oldest]
            placement.put(oldest, TaskId("map", oldest), Seat(node, placement.host_process_of(oldest)))
            running[oldest] = node, needed, True
        elif what_then == 2:
            placement.leave(oldest)
            del running[oldest]


def summed(amounts: Iterable[Resources]) -> Resources:
    return sum(amounts, NO_RESOURCES)


def test_a_process_without_a_demand_goes_anywhere() -> None:
    assert placing.Placement().place(1, JOIN, ["a"], free={"a": Resources(-1)}) == Seat("a", 1)
    assert placing.Placement().place(1, JOIN, ["a"], demand=Resources(1)) is None
    other_kinds = {"a": Resources(-3, 0, 1)}
    assert placing.Placement().place(1, JOIN, ["a"], demand=Resources(gpus=1), free=other_kinds) == Seat("a", 1)
