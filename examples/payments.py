"""Scores payments: how unusual is each for its account? With a fault that shows at night: see docs/tasks/replays.md."""

from __future__ import annotations

from collections.abc import Iterator

from clonos_py import Context, Job, Process, Record, state
from clonos_py.connectors import FileSink, FileSource


class Payment(Record):
    id: int
    account: int
    cents: int


class Score(Record):
    id: int
    account: int
    score: float
    at: int


class Scores(Process[Payment, Score]):
    mean: float = state(0.0)
    payments: int = state(0)

    def on_row(self, row: Payment, ctx: Context) -> Iterator[Score]:
        self.payments += 1
        self.mean += (row.cents - self.mean) / self.payments
        noise = ctx.random.uniform(0.99, 1.01)
        yield Score(row.id, row.account, noise * row.cents / self.mean, ctx.time.now())


def job(folder: str = "payments") -> Job:
    job = Job("payments", checkpoint_interval="1s")
    payments = job.source(FileSource(f"{folder}/in/*.jsonl", Payment))
    scored = payments.key_by("account").process(Scores).named("scores")
    scored.sink(FileSink(f"{folder}/scores")).named("scored")
    return job
