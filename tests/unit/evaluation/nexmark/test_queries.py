"""Every query, run by the engine's own machines in virtual time, against the independent answers."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from clonos_py.bench import oracle
from clonos_py.checkpoint.memory import MemoryStore
from clonos_py.connectors import BlackholeSink, MemorySink
from clonos_py.evaluation.nexmark.jobs import CHAINS, QUERIES, build
from clonos_py.evaluation.nexmark.new_users import difference
from clonos_py.evaluation.nexmark.queries.q7 import highest_in_batch
from clonos_py.evaluation.nexmark.queries.q14 import count_c
from clonos_py.evaluation.nexmark.source import NexmarkSource
from clonos_py.job.events import JobPolicy
from clonos_py.model.errors import SettingError
from clonos_py.plan.physical import plan
from clonos_py.process.contract import TaskState
from clonos_py.runtime.sim.run import SimulatedEnvironment
from clonos_py.runtime.sim.schedule import VirtualTime
from clonos_py.runtime.world.world import World, WorldSettings

SOURCE = NexmarkSource(events=4_000, event_rate=100)


class Kills:
    """Kills a running task at two moments of a run, drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._at = sorted(self._random.sample(range(50, 90), 2))
        self.done = 0

    def __call__(self, world: World) -> None:
        running = [p.number for p in world.processes.values() if p.link.state is TaskState.RUNNING]
        if self._at and world.actions_done >= self._at[0] and running:
            self._at.pop(0)
            self.done += 1
            world.kill(self._random.choice(running))


@pytest.mark.parametrize("parallelism", [pytest.param(1, marks=pytest.mark.thorough), 2])
@pytest.mark.parametrize("query", [query for query in QUERIES if query != "q12"])
def test_a_query_has_the_answer_of_the_oracle(query: str, parallelism: int) -> None:
    assert difference(oracle.expected(query, SOURCE), _answers(query, parallelism)) is None


@pytest.mark.parametrize("query", ["q3", "q4", "q5", "q6", "q8", "q9", "q11", "q16", "q19"])
def test_a_query_has_the_same_answer_when_tasks_are_killed(query: str) -> None:
    expected = oracle.expected(query, SOURCE)
    for seed in range(2):
        kills = Kills(seed)
        assert difference(expected, _answers(query, 2, seed, kills)) is None
        assert kills.done == 2


def test_query_12_counts_every_bid_once_in_some_window() -> None:
    for kills in (None, Kills(1)):
        assert sum(row[1] for row in _answers("q12", 2, kills=kills)) == oracle.total_bids(SOURCE)


def test_query_7_keeps_the_highest_bids_of_each_window_in_a_batch() -> None:
    columns = {"price": [5, 9, 9, 3, 7, 1], "date_time": [1, 2, 3, 10_000_000, 10_000_001, 35_000_000]}
    kept = highest_in_batch(pa.RecordBatch.from_pydict(columns))
    assert kept.to_pydict() == {"price": [9, 9, 7, 1], "date_time": [2, 3, 10_000_001, 35_000_000]}


def test_a_chain_changes_only_prices() -> None:
    prices = sorted(row[2] for row in _answers("chain", 2))
    assert prices == sorted(row[2] + 5 for row in oracle.expected("q0", SOURCE))


@pytest.mark.parametrize("query", [*QUERIES, *CHAINS])
def test_every_query_is_planned_with_only_the_columns_it_reads(query: str) -> None:
    planned = plan(build(query, SOURCE, BlackholeSink()), parallelism=2)
    (source,) = [vertex.source for vertex in planned.vertices if vertex.source is not None]
    read = {name for schema in source.schemas for name in schema.names}
    assert ("url" in read) == (query in ("q18", "q19", "q20", "q21", "q22", "wide_chain"))


def test_an_unknown_query_is_refused_with_the_known_ones() -> None:
    with pytest.raises(SettingError, match="no Nexmark query 'q23': choose one of q0, q1"):
        build("q23", SOURCE, BlackholeSink())


def _answers(query: str, parallelism: int, seed: int = 0, kills: Kills | None = None) -> list[tuple[Any, ...]]:
    random_ = random.Random(seed)
    time, sink = VirtualTime(random_), MemorySink()
    store = MemoryStore(query)
    World(
        plan(build(query, SOURCE, sink), parallelism=parallelism),
        store,
        time,
        lambda task: SimulatedEnvironment(time.now_us, random_, store, task),
        WorldSettings(JobPolicy(checkpoint_interval_us=20_000), linger_us=2_000, events_max=100_000),
        hook=kills or (lambda world: None),
    ).run()
    table = sink.table()
    sink.clear()
    return [] if table is None else [tuple(row.values()) for row in table.to_pylist()]


@example(["abc", "", "ac", "", ""], 0)
@given(st.lists(st.text("abcé", max_size=4)), st.integers(0, 3))
def test_letters_are_counted_in_empty_texts_and_slices(texts: list[str], cut: int) -> None:
    assert count_c(pa.array(texts, pa.string()).slice(cut)).to_pylist() == [text.count("c") for text in texts[cut:]]
