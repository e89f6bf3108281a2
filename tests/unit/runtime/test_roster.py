"""The roster of a job's processes: which belong to the job, and which host process each of them has."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.job.events import StartProcess
from clonos_py.model.ids import TaskId
from clonos_py.runtime.roster import Roster

MAP, JOIN, SINK = (TaskId(vertex, 0) for vertex in ("map", "join", "sink"))


class Left:
    """A roster of one node, and the processes that have left it, in order."""

    def __init__(self, standbys_per_process: int = 2) -> None:
        self.numbers: list[int] = []
        self.roster = Roster(standbys_per_process, self.numbers.append)

    def up(self, number: int, task: TaskId, shares: bool = False) -> int:
        """Starts a process. Returns its host process."""
        seat = self.roster.place(StartProcess(number, task, shares=shares), ("a",))
        assert seat is not None
        self.roster.created(number)
        return seat.host_process


def test_a_dismissed_process_leaves_and_the_others_in_its_host_process_stay() -> None:
    left = Left()
    assert left.up(1, MAP, shares=True) == left.up(2, JOIN, shares=True) == 1
    left.roster.dismiss(1)
    assert left.numbers == [1]
    assert 2 in left.roster
    assert left.roster.in_host_process(1) == [2]


def test_a_process_that_is_dismissed_before_it_is_created_leaves_when_it_is() -> None:
    left = Left()
    left.roster.place(StartProcess(1, MAP), ("a",))
    left.roster.dismiss(1)
    assert 1 not in left.roster
    assert (left.roster.host_process(1), left.numbers) == (1, [])
    left.roster.created(1)
    assert (left.roster.host_process(1), left.numbers) == (None, [1])


def test_the_end_of_a_host_process_ends_all_in_it_and_names_those_of_the_job() -> None:
    left = Left(standbys_per_process=3)
    for number, task in ((1, MAP), (2, JOIN), (3, SINK)):
        assert left.up(number, task, shares=True) == 1
    left.roster.place(StartProcess(4, MAP, reuse=1), ())
    left.roster.dismiss(4)
    assert left.roster.end_host_process(1, 0.0) == [1, 2, 3]
    assert left.numbers == [1, 2, 3, 4]
    assert list(left.roster) == []


def test_a_process_begins_in_the_place_of_another_which_then_leaves() -> None:
    left = Left()
    left.up(1, MAP)
    seat = left.roster.place(StartProcess(2, MAP, reuse=1), ())
    assert seat is not None
    assert (seat.node, seat.host_process) == ("a", 1)
    assert left.roster.in_host_process(1) == [1, 2], "the host process never seems empty"
    left.roster.drop(1)
    assert left.numbers == [1]


def test_no_process_begins_in_the_place_of_one_that_is_gone_or_whose_place_is_unknown() -> None:
    left = Left()
    left.up(1, MAP)
    left.roster.end_host_process(1, 0.0)
    assert left.roster.place(StartProcess(2, MAP, reuse=1), ()) is None
    left.roster.adopt(3, JOIN, 3)
    assert left.roster.place(StartProcess(4, JOIN, reuse=3), ()) is None
    assert left.roster.introduce(3, "b")
    assert left.roster.place(StartProcess(5, JOIN, reuse=3), ()) == ("b", 3)


def test_the_place_of_a_process_that_has_left_is_not_taken() -> None:
    left = Left()
    left.up(1, MAP)
    left.roster.dismiss(1)
    assert not left.roster.introduce(1, "b")
    with pytest.raises(KeyError):
        left.roster.created(1)


STEPS = st.lists(st.tuples(st.sampled_from(["start", "create", "dismiss", "drop", "end", "reuse"]), st.integers(0, 9)))


@given(STEPS, st.integers(1, 3))
def test_every_process_leaves_once_and_only_from_its_own_host_process(
    steps: list[tuple[str, int]], standbys: int
) -> None:
    left, hosts = Left(standbys), dict[int, int]()
    for number, (step, choice) in enumerate(steps, 100):
        roster, known = left.roster, list(left.roster)
        chosen = known[choice % len(known)] if known else None
        before = {other: roster.host_process(other) for other in known}
        if step == "start" or (chosen is None and step == "reuse"):
            seat = roster.place(StartProcess(number, (MAP, JOIN, SINK)[choice % 3], shares=choice > 4), ("a", "b"))
            assert seat is not None
            hosts[number] = seat.host_process
        elif chosen is None:
            continue
        elif step == "reuse":
            seat = roster.place(StartProcess(number, MAP, reuse=chosen), ())
            if seat is not None:
                hosts[number] = seat.host_process
                assert seat.host_process == before[chosen]
                roster.drop(chosen)
        elif step == "create":
            roster.created(chosen)
        elif step == "end":
            host_process = hosts[chosen]
            assert set(roster.end_host_process(host_process, 0.0)) <= set(known)
            assert all(other not in list(roster) for other in known if before[other] == host_process)
        else:
            (roster.dismiss if step == "dismiss" else roster.drop)(chosen)
        assert all(roster.host_process(other) == hosts[other] for other in roster)
    assert len(left.numbers) == len(set(left.numbers))
    assert sorted([*left.numbers, *left.roster]) == sorted(hosts)
