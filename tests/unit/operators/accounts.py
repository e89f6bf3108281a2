"""Rows and process functions that several tests of process functions share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from clonos_py.model.processes import ProcessInput
from clonos_py.model.record import Instant, Record
from clonos_py.model.record_codec import encode
from clonos_py.model.times import micros
from clonos_py.operators.process import (
    MapState,
    Process,
    ProcessOperator,
    event_timer,
    map_state,
    processing_timer,
    state,
)
from clonos_py.services.context import Context
from tests.unit.operators.scripted import Collected

ACCOUNT = pa.schema([("account", pa.int64())])


class Txn(Record):
    account: int | None
    cents: int
    at: Instant | None


class Alert(Record):
    account: int | None
    cents: int


class Audit(Record):
    text: str


class Fraud(Process[Txn, Alert]):
    probed: bool = state(False, ttl="1d")
    seen: MapState[str, int] = map_state()
    forget = event_timer()

    def on_row(self, txn: Txn, ctx: Context) -> Iterator[Alert]:
        if self.probed and txn.cents > 50_000:
            yield Alert(txn.account, txn.cents)
        self.probed = txn.cents < 100
        self.seen["rows"] = self.seen.get("rows", 0) + 1
        self.forget.set(ctx.event_time + micros("1m"))

    @forget.fires
    def expired(self, ctx: Context) -> None:
        self.probed = False


class Story(Process[Txn, Audit]):
    """Reports all events, in order."""

    last: Txn | None = state(None)
    total: int = state(0)
    soon = event_timer()
    later = event_timer()

    def on_row(self, txn: Txn, ctx: Context) -> list[Audit]:
        before = "nothing" if self.last is None else str(self.last.cents)
        self.last = txn
        self.total += txn.cents
        self.soon.set(ctx.event_time + 5)
        if txn.cents % 2:
            self.later.set(ctx.event_time + 12)
        else:
            self.later.clear()
        return [Audit(f"{txn.account}: {txn.cents} at {ctx.event_time} after {before}, {self.total} in all")]

    @soon.fires
    def on_soon(self, ctx: Context) -> Audit:
        return Audit(f"{self.last.account if self.last else None}: soon at {ctx.event_time}")

    @later.fires
    def on_later(self, ctx: Context) -> Audit | None:
        self.last = None
        return Audit(f"later at {ctx.event_time}, {self.total} in all")


def txns(*rows: tuple[int | None, int, int | None]) -> pa.RecordBatch:
    return encode([Txn(*row) for row in rows], Txn.schema())


def operator(process: type[Process[Any, Any]], *outputs: type[Record], in_order: bool = False) -> ProcessOperator:
    return ProcessOperator(process, [ProcessInput(ACCOUNT, Txn, "at")], outputs, in_order)


def texts(out: Collected) -> list[str]:
    return [row["text"] for row in out.rows()]


class Alarm(Process[Txn, Audit]):
    account: int | None = state(None)
    ring = processing_timer()

    def on_row(self, txn: Txn, ctx: Context) -> None:
        self.account = txn.account
        if txn.cents:
            self.ring.set(txn.cents)
        else:
            self.ring.clear()

    @ring.fires
    def rang(self, ctx: Context) -> Iterator[Audit]:
        yield Audit(f"{self.account} rang, {self.ring.at} to come")
