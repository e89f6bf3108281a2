"""The loop of the reachability query against a direct computation: any order of deltas, any restart."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from clonos_py.bench.reachability.query import Extension, projected, without_cycles
from clonos_py.bench.reachability.rows import PATHS, changes, links_batch, paths_batch
from clonos_py.columns.keys import key_groups
from clonos_py.evaluation.reachability.generator import Command, Reachability
from clonos_py.model.errors import SettingError
from clonos_py.model.state import OperatorState
from clonos_py.operators.delta_join import DeltaJoin
from tests.expected_paths import expected_paths
from tests.unit.operators.scripted import Collected, ScriptedContext, compacted_early, opened, stored

Path = tuple[int, ...]

LINKS_SIDE, PATHS_SIDE = 0, 1


def delta_join() -> DeltaJoin:
    columns = (("path", 1, "path"), ("target", 0, "target"))
    return DeltaJoin((("node",), ("node",)), (("node", "target"), ("node", "path")), columns, Extension.schema())


def extended(out: Collected) -> list[pa.RecordBatch]:
    """What the join has emitted, as paths that go round."""
    found = [projected(without_cycles(rows)) for _, rows in out.batches]
    out.batches.clear()
    return [rows for rows in found if rows.num_rows]


def path_of(data: bytes) -> Path:
    return tuple(np.frombuffer(data, "<i8").tolist())


def weights_of(batches: Iterable[pa.RecordBatch]) -> Counter[Path]:
    """The weights by path, without those of 0."""
    total: Counter[Path] = Counter()
    for batch in batches:
        for row in batch.to_pylist():
            path = path_of(row["path"])
            assert path[-1] == row["node"]
            total[path] += row["weight"]
    return Counter({path: weight for path, weight in total.items() if weight})


class Loop:
    """Instances of the operator with queued rows: only the order of rows is random."""

    def __init__(self, count: int, draw: random.Random) -> None:
        self._draw = draw
        self.found: list[pa.RecordBatch] = []
        self._on_their_way: list[deque[tuple[pa.RecordBatch, int]]] = [deque() for _ in range(count)]
        self._start([], count)

    def _start(self, parts: list[OperatorState], count: int) -> None:
        self._running: list[tuple[DeltaJoin, Collected]] = []
        for number in range(count):
            operator = delta_join()
            groups = range(128 * number // count, 128 * (number + 1) // count)
            _, out = opened(operator, ScriptedContext(groups))
            operator.restore(parts)
            self._running.append((operator, out))

    def offer(self, rows: pa.RecordBatch, side: int) -> None:
        """Queues rows for the instances of their key groups, in pieces."""
        groups = key_groups(rows, ["node"], 128) if rows.num_rows else np.empty(0, np.int32)
        count = len(self._running)
        for number, queue in enumerate(self._on_their_way):
            mine = (groups >= 128 * number // count) & (groups < 128 * (number + 1) // count)
            part = rows.filter(pa.array(mine))
            while part.num_rows:
                size = self._draw.randint(1, 8)
                queue.append((part.slice(0, size), side))
                part = part.slice(size)

    def step(self) -> bool:
        """One instance takes some of its queued rows, not always the first."""
        ready = [number for number, queue in enumerate(self._on_their_way) if queue]
        if not ready:
            return False
        number = self._draw.choice(ready)
        queue = self._on_their_way[number]
        queue.rotate(self._draw.choice((0, 0, 1, 2)))
        operator, out = self._running[number]
        operator.on_rows(*queue.popleft())
        for rows in extended(out):
            assert rows.schema == PATHS
            self.found.append(rows)
            self.offer(rows, PATHS_SIDE)
        return True

    def restart(self) -> None:
        """All instances restart from their snapshots."""
        self._start([stored(operator.snapshot()) for operator, _ in self._running], len(self._running))


def drawn_commands(draw: random.Random, nodes: int, links: int, sources: int) -> list[dict[str, Any]]:
    """Adds links and sources, some twice, deletes some of them, in any order."""
    added = [(draw.randrange(nodes), draw.randrange(nodes)) for _ in range(links)]
    starts = [(draw.randrange(nodes), None) for _ in range(sources)]
    every = [*added, *starts]
    gone = draw.sample(every, len(every) // 3)
    rows = [(what, True) for what in every] + [(what, False) for what in gone]
    draw.shuffle(rows)
    return [{"node": node, "target": target, "added": there, "date_time": 0} for (node, target), there in rows]


def commands_of(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, Command.schema())


def simple_paths(rows: list[dict[str, Any]]) -> Counter[Path]:
    """A third way, row by row: all paths by depth-first search, with their number of copies."""
    there: Counter[tuple[int, int | None]] = Counter()
    for row in rows:
        there[row["node"], row["target"]] += 1 if row["added"] else -1
    found: Counter[Path] = Counter()

    def follow(path: Path, weight: int) -> None:
        for (node, target), count in there.items():
            if node == path[-1] and target is not None and target not in path and count:
                found[*path, target] = weight * count
                follow((*path, target), weight * count)

    for (node, target), count in there.items():
        if target is None and count:
            follow((node,), count)
    return found


@pytest.mark.parametrize("seed", range(40))
def test_any_order_of_commands_leads_to_the_same_paths(seed: int) -> None:
    draw = random.Random(seed)
    rows = drawn_commands(draw, draw.randint(2, 8), draw.randint(0, 16), draw.randint(0, 4))
    commands = commands_of(rows)
    expected = simple_paths(rows)
    assert weights_of([expected_paths([commands])]) == expected
    with compacted_early():
        loop = Loop(draw.randint(1, 3), draw)
        links, sources = changes(commands)
        offered = [(links, LINKS_SIDE), (sources, PATHS_SIDE)]
        draw.shuffle(offered)
        for rows_of_side, side in offered:
            loop.offer(rows_of_side, side)
        while loop.step():
            if draw.random() < 0.05:
                loop.restart()
    assert weights_of(loop.found) == expected


def test_the_random_inputs_have_cycles_and_long_paths() -> None:
    """Of the random inputs some have long paths, and some that would never end without the selection."""
    lengths: Counter[int] = Counter()
    for seed in range(40):
        draw = random.Random(seed)
        rows = drawn_commands(draw, draw.randint(2, 8), draw.randint(0, 16), draw.randint(0, 4))
        lengths.update(len(path) for path in simple_paths(rows))
    assert lengths[2] > 30
    assert max(lengths) >= 5


def test_the_generated_commands_give_the_expected_paths() -> None:
    made = Reachability(3_000, nodes=3_000, disorder=2_000)
    commands = made.batch(0, 3_000)
    draw = random.Random(1)
    loop = Loop(2, draw)
    for start in range(0, 3_000, 250):
        links, sources = changes(commands.slice(start, 250))
        loop.offer(links, LINKS_SIDE)
        loop.offer(sources, PATHS_SIDE)
        for _ in range(draw.randrange(200)):
            loop.step()
    while loop.step():
        pass
    expected = weights_of([expected_paths([commands])])
    assert weights_of(loop.found) == expected
    assert len(expected) > 200


def test_a_deleted_link_retracts_every_path_over_it() -> None:
    operator = delta_join()
    _, out = opened(operator)
    take(operator, out, [(1, 2, 1), (2, 3, 1)], [])
    assert take(operator, out, [], [((1,), 1)]) == {(1, 2): 1, (1, 2, 3): 1}
    assert take(operator, out, [(1, 2, -1)], []) == {(1, 2): -1, (1, 2, 3): -1}
    assert rows_kept(operator) == 2, "the other link and the source"


def test_a_deletion_before_its_addition_leaves_no_path() -> None:
    operator = delta_join()
    _, out = opened(operator)
    assert take(operator, out, [(1, 2, -1), (2, 3, 1)], [((1,), 1)]) == {(1, 2): -1, (1, 2, 3): -1}
    assert take(operator, out, [(1, 2, 1)], []) == {(1, 2): 1, (1, 2, 3): 1}


def test_a_path_never_visits_a_node_twice() -> None:
    operator = delta_join()
    _, out = opened(operator)
    assert take(operator, out, [(1, 2, 1), (2, 1, 1), (2, 2, 1)], [((1,), 1)]) == {(1, 2): 1}


def test_a_restored_operator_emits_the_same_rows_in_the_same_order() -> None:
    draw = random.Random(3)
    rows = drawn_commands(draw, 6, 60, 10)
    links, sources = changes(commands_of(rows))
    operator, ctx = delta_join(), ScriptedContext()
    _, out = opened(operator, ctx)
    with compacted_early():
        for start in range(0, links.num_rows, 5):
            operator.on_rows(links.slice(start, 5), LINKS_SIDE)
        twin = delta_join()
        _, twins = opened(twin)
        twin.restore([stored(operator.snapshot())])
        for each in (operator, twin):
            for start in range(0, sources.num_rows, 2):
                each.on_rows(sources.slice(start, 2), PATHS_SIDE)
                each.on_rows(links.slice(start, 2), LINKS_SIDE)
    assert out.rows()
    assert [rows for _, rows in out.batches] == [rows for _, rows in twins.batches]


def test_too_many_paths_are_refused() -> None:
    complete = [{"node": a, "target": b, "added": True, "date_time": 0} for a in range(9) for b in range(9)]
    with pytest.raises(SettingError, match="more than 1000 paths"):
        expected_paths([commands_of([*complete, complete[0] | {"target": None}])], paths_max=1_000)


def test_no_commands_give_no_paths() -> None:
    assert expected_paths([]).num_rows == 0


def rows_kept(operator: DeltaJoin) -> int:
    """The rows in the state, without dead ones."""
    state = operator.snapshot()
    rows: int = sum(chunk.rows.num_rows for chunks in state.tables.values() for chunk in chunks)
    dead: int = sum(byte.bit_count() for bits in state.values.values() for byte in bits)
    return rows - dead


def take(
    operator: DeltaJoin, out: Collected, links: list[tuple[int, int, int]], paths: list[tuple[Path, int]]
) -> dict[Path, int]:
    """The output, fed back until there is none."""
    emitted: list[pa.RecordBatch] = []
    if links:
        operator.on_rows(links_batch(*np.array(links, np.int64).T), LINKS_SIDE)
    if paths:
        starts = np.cumsum([0, *(len(path) for path, _ in paths)])
        nodes = np.array([node for path, _ in paths for node in path], np.int64)
        operator.on_rows(paths_batch(starts, nodes, np.array([weight for _, weight in paths])), PATHS_SIDE)
    while longer := extended(out):
        emitted += longer
        for rows in longer:
            operator.on_rows(rows, PATHS_SIDE)
    return dict(weights_of(emitted))
