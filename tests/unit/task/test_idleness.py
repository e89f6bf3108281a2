"""When a silent partition counts as idle: never because the task did not read."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from clonos_py.task.idleness import Idleness

IDLE_US = 100


def seen(*partitions: int, idle_us: int | None = IDLE_US) -> Idleness:
    """Partitions that were active at 0."""
    idleness = Idleness(idle_us)
    assert idleness.due(partitions, 0) is None
    return idleness


def test_a_partition_is_idle_once_the_source_has_had_nothing_for_it_for_the_idle_time() -> None:
    idleness = seen(0, 1)
    idleness.had_nothing(99)
    assert idleness.due([0, 1], 99) is None
    assert idleness.next_us([0, 1]) == 100
    idleness.had_nothing(100)
    assert idleness.due([0, 1], 100) == 0
    assert idleness.due([1], 100) == 1


def test_a_partition_is_not_idle_while_the_task_does_not_read() -> None:
    """Rows of it may wait: the task has processed others for so long, or its outputs were full."""
    idleness = seen(0, 1)
    idleness.had_nothing(50)
    idleness.gave(0, 60)
    assert idleness.due([0, 1], 5_000) is None
    idleness.gave(1, 5_000)
    idleness.had_nothing(5_001)
    assert idleness.due([0, 1], 5_001) == 0, "its idle time is over, and the source has nothing"
    assert idleness.due([1], 5_001) is None


def test_a_source_that_is_never_without_rows_lets_silent_partitions_fall_idle() -> None:
    """Two rounds of three active partitions without a row of it, after its idle time."""
    idleness, found = seen(0, 1, 2), []
    for at in range(100, 107):
        found.append(idleness.due([0, 1, 2], at))
        idleness.gave(0, at)
    assert found == [None] * 6 + [1]


def test_no_partition_falls_idle_without_an_idle_time() -> None:
    idleness = seen(0, idle_us=None)
    idleness.had_nothing(1 << 40)
    assert idleness.due([0], 1 << 40) is None
    assert idleness.next_us([0]) is None


def test_idle_partitions_are_known_until_they_give_rows() -> None:
    idleness = Idleness(IDLE_US)
    idleness.begin([0, 1])
    idleness.gave(1, 10)
    assert idleness.idle == {0}
    idleness.begin()
    assert not idleness.idle


@given(
    st.integers(2, 5),
    st.lists(st.integers(1, 1_000), min_size=1, max_size=40),
    st.integers(1, 4),
)
def test_partitions_that_take_turns_are_never_idle_however_long_a_read_takes(
    partitions: int, pauses: list[int], together: int
) -> None:
    """The source has rows of all partitions all the time, and gives some reads in each poll."""
    own = list(range(partitions))
    idleness, now, turn = seen(*own), 0, 0
    for pause in pauses:
        now += pause
        assert idleness.due(own, now) is None
        for _ in range(together):
            idleness.gave(turn % partitions, now)
            turn += 1
