"""Sinks whose rows are visible at once: rows computed again after a failure equal those written before."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import ClassVar

import pyarrow as pa

from clonos_py import Context, Job, Process, Record
from clonos_py.connectors import IdempotentSink, MemorySource, RowWriter
from clonos_py.plan.physical import plan
from clonos_py.runtime.sim.run import simulate_plan
from clonos_py.settings.resolution import resolve

SEEDS = 16


class Order(Record):
    id: int
    user: int


class Ticket(Record):
    user: int
    number: int


class Drawn(Process[Order, Ticket]):
    """Draws a value that no computation could repeat."""

    def on_row(self, order: Order, ctx: Context) -> Iterator[Ticket]:
        yield Ticket(order.id, ctx.random.getrandbits(40))


class Shown(IdempotentSink):
    """All rows that were ever visible, by key."""

    seen: ClassVar[defaultdict[int, set[int]]] = defaultdict(set)
    writes: ClassVar[Counter[int]] = Counter()

    def __init__(self, key: str, value: str) -> None:
        self.key, self.value = key, value

    def open(self, schema: pa.Schema) -> RowWriter:
        return ShownRows(self)


class ShownRows(RowWriter):
    def __init__(self, sink: Shown) -> None:
        self._sink = sink

    def write(self, rows: pa.RecordBatch) -> None:
        columns = (rows.column(name).to_pylist() for name in (self._sink.key, self._sink.value))
        for key, value in zip(*columns, strict=True):
            Shown.seen[key].add(value)
            Shown.writes[key] += 1

    def flush(self) -> None:
        pass


def test_after_a_failure_no_other_row_of_a_key_is_written() -> None:
    """The value that a process draws is in the log of its task, which the task of the sink holds."""
    job = Job("shown")
    orders = job.source(MemorySource([Order(number, number) for number in range(400)], partitions=2, batch_rows=2))
    orders.key_by("user").process(Drawn).sink(Shown("user", "number"))
    made = plan(job, resolve(command_line={"parallelism": 2}))
    calm = simulate_plan(made, 0, kills=0)
    again = 0
    for seed in range(SEEDS):
        Shown.seen.clear()
        Shown.writes.clear()
        outcome = simulate_plan(made, seed, kills=1, actions_expected=3 * calm.actions // 2)
        assert not outcome.problems, outcome.problems
        changed = {key: values for key, values in Shown.seen.items() if len(values) > 1}
        assert not changed, f"seed {seed}: {changed}"
        again += sum(times > 1 for times in Shown.writes.values())
    assert again > SEEDS, "too little was written again to prove anything"
