"""Flags transactions above limits that change while the job runs: each task gets every change of a limit.

    clonos run examples/limits.py --runtime local --out flagged

A transaction waits until the watermark has passed it, so that the limits of its time are known.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from clonos_py import BroadcastProcess, Context, Instant, Job, Record, broadcast_state, event_timer, list_state
from clonos_py.connectors import FileSink, FileSource

DATA = Path(__file__).parent / "data"


class Txn(Record):
    account: int
    cents: int
    at: Instant


class Limit(Record):
    name: str
    cents: int | None
    """None: from now on there is no such limit."""
    at: Instant


class Flagged(Record):
    account: int
    cents: int
    at: Instant
    limit: str


class Limits(BroadcastProcess[Txn, Limit, Flagged]):
    limits: dict[str, list[Limit]] = broadcast_state()
    waiting: list[Txn] = list_state()
    known = event_timer()

    def on_broadcast(self, limit: Limit, ctx: Context) -> None:
        self.limits.setdefault(limit.name, []).append(limit)

    def on_row(self, txn: Txn, ctx: Context) -> None:
        self.waiting.append(txn)
        self.known.set(min(txn.at for txn in self.waiting))

    @known.fires
    def judge(self, ctx: Context) -> Iterator[Flagged]:
        due = [txn for txn in self.waiting if txn.at <= ctx.watermark]
        self.waiting = [txn for txn in self.waiting if txn.at > ctx.watermark]
        if self.waiting:
            self.known.set(min(txn.at for txn in self.waiting))
        for txn in due:
            for name, changes in self.limits.items():
                valid = max((limit for limit in changes if limit.at < txn.at), key=lambda limit: limit.at, default=None)
                if valid is not None and valid.cents is not None and txn.cents > valid.cents:
                    yield Flagged(txn.account, txn.cents, txn.at, name)


def job(out: str = "flagged") -> Job:
    job = Job("limits")
    txns = job.source(FileSource(str(DATA / "transactions.jsonl"), Txn), event_time="at", out_of_order="5s")
    limits = job.source(FileSource(str(DATA / "limits.jsonl"), Limit), event_time="at").named("limits")
    flagged = txns.named("txns").key_by("account").connect(limits.broadcast()).process(Limits).named("flagged")
    flagged.sink(FileSink(out)).named("list")
    return job
