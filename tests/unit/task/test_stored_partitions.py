"""The partitions of a source come back from any snapshots, and each snapshot stores what has changed."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.model.state import Chunk, OperatorState
from clonos_py.task import stored_partitions
from clonos_py.task.stored_partitions import StoredPartition, StoredPartitions

STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "snapshot", "restart", "rescale"]), st.integers(0, 40), st.integers(1, 30)),
    max_size=30,
)


def read_back(state: OperatorState, stored: dict[str, Any]) -> OperatorState:
    """The state as storage gives it back. A chunk is stored once."""
    for chunk in state.tables.get("partitions", ()):
        if chunk.location is None:
            chunk.location = str(len(stored))
            stored[chunk.location] = chunk.rows
    tables = {
        table: [Chunk(stored[str(chunk.location)], chunk.location) for chunk in chunks]
        for table, chunks in state.tables.items()
    }
    return OperatorState(tables, msgspec.msgpack.decode(msgspec.msgpack.encode(dict(state.values)), strict=False))


@given(STEPS, st.integers(1, 3))
def test_partitions_come_back_from_any_snapshots(steps: list[tuple[str, int, int]], tasks: int) -> None:
    stored: dict[str, Any] = {}
    expected: dict[int, StoredPartition] = {}
    ours = [StoredPartitions() for _ in range(tasks)]
    reached = 0
    limit, stored_partitions._VALUES_MAX = stored_partitions._VALUES_MAX, 3
    try:
        for step, first, count in steps:
            match step:
                case "put":
                    for number in range(first, first + count):
                        reached += 1
                        at = StoredPartition(reached, number % 2 == 0, reached - 1, 2**64 - reached, reached)
                        expected[number] = at
                        ours[number % len(ours)].put(number, at)
                case "snapshot":
                    for each in ours:
                        each.snapshot()
                case _:
                    states = [read_back(each.snapshot(), stored) for each in ours]
                    tasks = len(ours) if step == "restart" else count % 3 + 1
                    ours = ours if step == "restart" and first % 2 else [StoredPartitions() for _ in range(tasks)]
                    for index, each in enumerate(ours):
                        parts = [states[index]] if step == "restart" else states
                        found = each.restore(parts, tasks, index)
                        assert {n: found[n] for n in found if n % tasks == index} == {
                            n: expected[n] for n in expected if n % tasks == index
                        }
            for index, each in enumerate(ours):
                for number in range(75):
                    assert each.get(number) == (expected.get(number) if number % len(ours) == index else None)
                assert each.finished == {number for number, found in each.all.items() if found.finished}
    finally:
        stored_partitions._VALUES_MAX = limit


def test_a_snapshot_stores_what_has_changed() -> None:
    ours, stored, written = StoredPartitions(), dict[str, Any](), list[int]()
    for number in range(16_000):
        ours.put(number, StoredPartition(1))
    values = list[int]()
    for turn in range(1_000):
        for number in range(turn * 20, turn * 20 + 20):
            ours.put(number % 16_000, StoredPartition(2))
        before = sum(rows.num_rows for rows in stored.values())
        state = ours.snapshot()
        read_back(state, stored)
        values.append(len(msgspec.msgpack.encode(dict(state.values))))
        written.append(sum(rows.num_rows for rows in stored.values()) - before)
        assert len(state.tables["partitions"]) <= 8
    assert max(values) < 10_000, "bytes within the manifest"
    assert sum(written[1:]) < 10 * 20 * 1_000, "rows of chunks; all rows each time would be 16,000,000"
