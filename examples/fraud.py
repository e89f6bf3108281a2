"""Raises an alert when a large payment follows a tiny one on the same account within a minute.

A thief first tries a stolen card with a few cents. The test of this job is in tests/examples.

    clonos run examples/fraud.py --runtime local
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from clonos_py import Context, Instant, Job, Process, Record, event_timer, micros, state
from clonos_py.connectors import FileSource, PrintSink

TRANSACTIONS = str(Path(__file__).parent / "data" / "transactions.jsonl")


class Txn(Record):
    account: int
    cents: int
    at: Instant


class Alert(Record):
    account: int
    cents: int


class Fraud(Process[Txn, Alert]):
    probed: bool = state(False, ttl="1d")
    forget = event_timer()

    def on_row(self, txn: Txn, ctx: Context) -> Iterator[Alert]:
        if self.probed and txn.cents > 50_000:
            yield Alert(txn.account, txn.cents)
        self.probed = txn.cents < 100
        self.forget.set(ctx.event_time + micros("1m"))

    @forget.fires
    def expired(self, ctx: Context) -> None:
        self.probed = False


source = FileSource(TRANSACTIONS, Txn)

job = Job("fraud")
txns = job.source(source, event_time="at", out_of_order="5s").named("txns")
txns.key_by("account").process(Fraud, in_order=True).sink(PrintSink()).named("alerts")
