"""A process function with ``open`` and two inputs on real actors, with real SIGKILLs."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest

from clonos_py import Context, CoProcess, Job, OpenContext, Record, state
from clonos_py.connectors import FileSink, MemorySource, read_results
from clonos_py.model.coordinator_events import RolledBack, StandbyActivated
from clonos_py.observe.events import Event
from clonos_py.runtime.launch import run_job
from clonos_py.runtime.ray.cluster import Cluster
from clonos_py.settings.resolution import resolve
from tests.observed import killed

pytestmark = pytest.mark.ray

ROWS, KEYS = 20_000, 40


class Order(Record):
    id: int
    key: int


class Payment(Record):
    id: int
    key: int


class Scored(Record):
    key: int
    number: int
    id: int
    side: str
    score: int
    drawn: float


class Scorer(CoProcess[Order, Payment, Scored]):
    """Numbers the rows of a key; ``open`` writes down where and by which process it was called."""

    rows: int = state(0)

    def __init__(self, factor: int, notes: str) -> None:
        self.factor, self.notes = factor, notes

    def open(self, ctx: OpenContext) -> None:
        self.model = {key: key * self.factor for key in range(KEYS)}
        with Path(self.notes, f"opened-{ctx.index}").open("a") as note:
            note.write("opened\n")

    def on_left(self, row: Order, ctx: Context) -> Scored:
        return self.scored(row.id, "order", ctx)

    def on_right(self, row: Payment, ctx: Context) -> Scored:
        return self.scored(row.id, "payment", ctx)

    def scored(self, number: int, side: str, ctx: Context) -> Scored:
        self.rows += 1
        return Scored(ctx.key, self.rows, number, side, self.model[ctx.key], ctx.random.random())


def paced(row: Order) -> Order:
    time.sleep(0.0002)
    return row


def job(folder: Path) -> Job:
    made = Job("two-inputs")
    orders = made.source(MemorySource([Order(n, n % KEYS) for n in range(ROWS)], partitions=2)).named("orders")
    payments = made.source(MemorySource([Payment(n, n * 7 % KEYS) for n in range(ROWS)], partitions=2))
    left, right = orders.map(paced).key_by("key"), payments.named("payments").key_by("key")
    scored = left.connect(right).process(Scorer(3, str(folder))).named("scorer")
    scored.sink(FileSink(str(folder / "out"))).named("out")
    return made


@pytest.mark.thorough
def test_a_killed_task_with_two_inputs_recovers_its_model_and_its_state(cluster: Cluster, tmp_path: Path) -> None:
    heard: list[Event] = []
    given = {
        "parallelism": 2, "checkpoint_interval": "500ms", "checkpoints": str(tmp_path / "checkpoints"),
        "kills": ["scorer[0]@700ms", "scorer[1]@1500ms"],
    }  # fmt: skip
    run_job(job(tmp_path), resolve(command_line=given), lambda at_us, event: heard.append(event))
    assert len(killed(heard)) == 2
    assert [event for event in heard if isinstance(event, StandbyActivated)]
    assert RolledBack not in map(type, heard)
    rows = read_results(str(tmp_path / "out"))
    assert Counter(row["side"] for row in rows) == {"order": ROWS, "payment": ROWS}
    assert len({(row["side"], row["id"]) for row in rows}) == 2 * ROWS
    numbers = Counter((row["key"], row["number"]) for row in rows)
    assert numbers == Counter({(key, n): 1 for key in range(KEYS) for n in range(1, 2 * ROWS // KEYS + 1)})
    assert all(row["score"] == 3 * row["key"] for row in rows)
    for index in range(2):
        opened = len((tmp_path / f"opened-{index}").read_text().splitlines())
        assert opened >= 3, "the task, its standby, and the standby of the one that took over"
