"""When parts of a state are saved again, and what a damaged order of input leads to."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.model.counters import SavedParts
from clonos_py.model.errors import CheckpointError
from clonos_py.model.operators import Extent, PartwiseOperator
from clonos_py.model.protocols import FootprintPolicy
from clonos_py.model.state import Chunk, OperatorState
from clonos_py.process.contract import ORDER_TABLE, InputProgress, TaskProgress
from clonos_py.task.partwise import SPEED, Arrival, Checks, PartwiseState

SECOND = 1_000_000
extents = st.lists(st.tuples(st.integers(1, 50), st.integers(0, 50)), min_size=1, max_size=8).map(
    lambda found: Extent(
        list(range(len(found))),
        [records for records, _ in found],
        [max(1, min(live, records)) if n == 0 else min(live, records) for n, (records, live) in enumerate(found)],
    )
)


def wanted(policy: FootprintPolicy, extent: Extent, rows: list[int], ages_us: list[int], part_us: float = 1.0) -> int:
    checks = Checks(policy)
    checks.part_us = part_us
    return checks.parts(extent, rows, ages_us, now_us=0)


def after(extent: Extent, parts: int) -> tuple[int, int]:
    """The records of the extent once so many of the oldest parts are saved again, and its oldest batch left."""
    moved, first = parts, 0
    while first < len(extent.live) and moved >= extent.live[first]:
        moved -= extent.live[first]
        first += 1
    return sum(extent.records[first:]) + parts, first


@given(extents, st.integers(0, 120))
def test_the_fewest_parts_are_saved_that_meet_the_target_of_the_extent(extent: Extent, most: int) -> None:
    """If none do, as the target is below what is open, all are."""
    policy = FootprintPolicy(extent_max=most, check_us=SECOND) if most else FootprintPolicy(replay_max=10**9)
    rows = [0] * len(extent.positions)
    parts = wanted(policy, extent, rows, rows)
    counts = [0, *np.cumsum(extent.live).tolist()]
    meets = [count for count in counts if not most or after(extent, count)[0] <= most]
    assert parts == (min(meets) if meets else counts[-1])


def test_the_rows_to_take_again_are_bounded() -> None:
    extent = Extent([0, 5, 9], [4, 3, 2], [2, 3, 1])
    policy = FootprintPolicy(replay_max=100, check_us=SECOND)
    assert wanted(policy, extent, [90, 50, 10], [3, 2, 1]) == 0
    assert wanted(policy, extent, [110, 50, 10], [3, 2, 1]) == 2
    assert wanted(policy, extent, [210, 150, 10], [3, 2, 1]) == 5


def test_by_cost_a_part_is_saved_once_that_saves_more_than_it_takes() -> None:
    """A footprint of age a costs a failure a / SPEED of replay. The loss so far is half of that, times the failures."""
    extent = Extent([0], [100], [100])
    policy = FootprintPolicy(check_us=SECOND, failure_us=1_000 * SECOND)
    cost_us = 100 * 10.0
    age_us = (2 * cost_us * SPEED * policy.failure_us) ** 0.5
    assert wanted(policy, extent, [1], [int(age_us * 0.99)], part_us=10.0) == 0
    assert wanted(policy, extent, [1], [int(age_us * 1.01)], part_us=10.0) == 100


def test_slow_windows_are_saved_alone() -> None:
    extent = Extent([0, 9], [1_000, 50_000], [10, 50_000])
    policy = FootprintPolicy(check_us=SECOND, failure_us=100 * SECOND)
    assert wanted(policy, extent, [9, 1], [60 * SECOND, 1_000]) == 10


def test_a_check_takes_no_longer_than_its_share_as_measured() -> None:
    checks = Checks(FootprintPolicy(extent_max=1, check_us=1_000, period_us=10_000))
    extent = Extent([0], [9_000], [9_000])
    assert checks.due(0)
    parts = checks.parts(extent, [1], [1], 0)
    now_us = 0
    for _ in range(60):
        now_us += 10 * parts  # each part takes 10 us
        checks.due(now_us)
        now_us += 10_000
        assert checks.due(now_us)
        parts = checks.parts(extent, [1], [1], now_us)
    assert parts == pytest.approx(100, rel=0.05)
    assert not checks.due(now_us + 9_999)
    assert checks.due(now_us + 10_000)


@pytest.mark.parametrize(
    ("open_", "extent", "rows", "missed"),
    [
        (10, 40, 100, ""),
        (10, 75, 100, ""),
        (10, 76, 100, "extent_max"),
        (51, 51, 0, "extent_max"),
        (10, 40, 1_501, "replay_max"),
    ],
)
def test_a_target_that_is_not_met_is_named(open_: int, extent: int, rows: int, missed: str) -> None:
    checks = Checks(FootprintPolicy(extent_max=50, replay_max=1_000))
    assert checks.missed(SavedParts(open_, extent, rows)) == missed
    assert Checks(FootprintPolicy()).missed(SavedParts(open_, extent, rows)) == ""


def test_checks_can_be_off() -> None:
    assert not Checks(FootprintPolicy(extent_max=1, check_us=0)).due(10**18)


class Kept(PartwiseOperator):
    """Has a part for each of ``positions``, at which it was saved."""

    def __init__(self) -> None:
        self.positions = [0]

    def save_in_parts(self) -> None:
        pass

    def save(self, position: int) -> None:
        pass

    def begin_rebuild(self) -> None:
        pass

    @property
    def extent(self) -> Extent:
        ones = [1] * len(self.positions)
        return Extent(self.positions, ones, ones)

    def footprints(self) -> OperatorState:
        return OperatorState({}, {"at": self.positions})


def inputs(next_seq: int) -> list[InputProgress]:
    return [InputProgress(next_seq)]


def progress(state: PartwiseState, at: list[InputProgress]) -> TaskProgress:
    back_to, rebuild = state.rebuild_from()
    found = TaskProgress(at, [], [], [], False, 0, [], [], [], {})
    return msgspec.structs.replace(found, taken=state.taken, rebuild_taken=back_to, rebuild=rebuild)


def taken(state: PartwiseState, events: int, rows: int = 1) -> None:
    for _ in range(events):
        state.took(Arrival(0, 1), rows)


def saved() -> tuple[PartwiseState, OperatorState, TaskProgress]:
    """Snapshots at the events 2, 5 and 7; the part was saved with the second."""
    operator = Kept()
    state = PartwiseState(operator, 0, FootprintPolicy())
    taken(state, 2)
    state.save(inputs(2), 0)
    taken(state, 3)
    operator.positions = [5]
    state.save(inputs(5), 0)
    taken(state, 2)
    return state, state.save(inputs(7), 0), progress(state, inputs(7))


def test_a_restore_takes_the_input_since_the_oldest_footprint_again() -> None:
    _, found, at = saved()
    assert (at.taken, at.rebuild_taken, at.covered, at.begun.inputs) == (7, 5, [5], inputs(5))
    state = PartwiseState(Kept(), 0, FootprintPolicy())
    state.restore([found], at)
    state.begin_rebuild()
    events = []
    while (arrival := state.next()) is not None:
        state.begin(inputs(state.taken), 0)
        events.append((state.taken, arrival))
        state.came(1)
    state.finish(inputs(7), 0)
    assert events == [(5, (0, 1)), (6, (0, 1))]
    assert state.rebuild_from() == (5, inputs(5)), "the next snapshot may go back to the same mark"


def test_a_whole_state_goes_back_to_nothing() -> None:
    operator = Kept()
    state, _, _ = saved()
    state.operator = operator
    operator.forget = lambda: None  # type: ignore[method-assign]
    state.save_whole()
    assert state.rebuild_from() == (7, [])


def test_a_long_order_is_a_few_chunks() -> None:
    """Those of marks that no footprint needs are joined, those of the others are not."""
    operator = Kept()
    operator.positions = [0, 150]
    state = PartwiseState(operator, 0, FootprintPolicy())
    for seq in range(300):
        found = state.save(inputs(seq), 0)
        taken(state, 1)
    found = state.save(inputs(300), 0)
    chunks = found.tables[ORDER_TABLE]
    assert len(chunks) < 20
    bounds = [0, *np.cumsum([chunk.rows.num_rows for chunk in chunks]).tolist()]
    assert (150 in bounds, bounds[-1]) == (True, 300)
    operator.positions = [150]
    found = state.save(inputs(300), 0)
    assert state.rebuild_from() == (150, inputs(150))
    assert sum(chunk.rows.num_rows for chunk in found.tables[ORDER_TABLE]) == 150


@pytest.mark.parametrize("events", [1, 3])
def test_an_order_that_does_not_end_at_the_snapshot_is_refused(events: int) -> None:
    _, found, at = saved()
    order: Any = pa.record_batch(
        {"channel": pa.array([0] * events, pa.int32()), "frames": pa.array([1] * events, pa.int32())}
    )
    altered = OperatorState({**found.tables, ORDER_TABLE: [Chunk(order)]}, found.values)
    state = PartwiseState(Kept(), 0, FootprintPolicy())
    with pytest.raises(CheckpointError, match=f"ends at event {5 + events}, the snapshot at 7"):
        state.restore([altered], at)
