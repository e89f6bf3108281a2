"""Processes on other nodes than the coordinator's watch each other, whichever come and go."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from clonos_py.runtime.ray.neighbours import Neighbours, NeighbourWatch


def test_two_processes_of_a_node_watch_each_other() -> None:
    found = Neighbours()
    assert found.add(1, "a", 1) == []
    assert found.add(2, "b", 2) == []
    assert found.add(3, "a", 3) == [NeighbourWatch(3, 1), NeighbourWatch(1, 3)]


def test_a_process_that_loses_its_watcher_gets_another() -> None:
    found = Neighbours()
    for number in (1, 2, 3):
        found.add(number, "a", number)
    assert found.remove(2) == [NeighbourWatch(3, 1), NeighbourWatch(1, 3)]
    assert found.remove(3) == []
    assert found.remove(3) == []
    assert found.add(4, "a", 4) == [NeighbourWatch(4, 1), NeighbourWatch(1, 4)]


def test_processes_of_one_host_process_die_together_and_do_not_watch_each_other() -> None:
    found = Neighbours()
    found.add(1, "a", 1)
    assert found.add(2, "a", 1) == []
    assert found.add(3, "a", 3) == [NeighbourWatch(3, 1), NeighbourWatch(3, 2), NeighbourWatch(2, 3)]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 7), st.integers(0, 2)), max_size=30))
def test_each_process_with_a_neighbour_is_watched_by_one_that_is_there(steps: list[tuple[bool, int, int]]) -> None:
    found, places = Neighbours(), dict[int, tuple[str, int]]()
    watchers = dict[int, int]()
    for number, (comes, host_process, node) in enumerate(steps):
        if comes:
            places[number] = f"{node}", 10 * node + host_process
            changes = found.add(number, *places[number])
        else:
            gone = min(places, default=0)
            places.pop(gone, None)
            changes = found.remove(gone)
        watchers |= {watch.watched: watch.watcher for watch in changes}
        for process, (at, host) in places.items():
            neighbours = {n for n, (node_, other) in places.items() if node_ == at and other != host}
            assert not neighbours or watchers[process] in neighbours
