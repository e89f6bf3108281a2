"""Datetimes of other zones in the state of process functions: they become UTC, live and restored."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from clonos_py.model.record import Record
from clonos_py.operators.process import Process, list_state, map_state, state
from clonos_py.services.context import Context
from tests.unit.operators.accounts import Audit, Txn, operator, texts, txns
from tests.unit.operators.scripted import opened, stored

JANUARY = datetime(2026, 1, 1, 9, tzinfo=ZoneInfo("Europe/Berlin"))


class Due(Process[Txn, Audit]):
    since: datetime | None = state(None)

    def on_row(self, txn: Txn, ctx: Context) -> Audit:
        if self.since is None:
            self.since = JANUARY
        return Audit(str((self.since + timedelta(days=180)).astimezone(UTC)))


class Visit(Record):
    at: datetime


class DueInMany(Process[Txn, Audit]):
    since: list[datetime] = state([])
    by_name: dict[str, datetime | None] = state({})
    visits: list[Visit] = state([])

    def on_row(self, txn: Txn, ctx: Context) -> Audit:
        if not self.since:
            self.since.append(JANUARY)
            self.by_name["first"] = JANUARY
            self.visits.append(Visit(JANUARY))
        held = [self.since[0], self.by_name["first"] or JANUARY, self.visits[0].at]
        (later,) = {(at + timedelta(days=180)).astimezone(UTC) for at in held}
        return Audit(str(later))


class DueInAny(Process[Txn, Audit]):
    since = list_state()
    by_name = map_state()

    def on_row(self, txn: Txn, ctx: Context) -> Audit:
        if not self.since:
            self.since.append(JANUARY)
            self.by_name["first"] = [JANUARY]
        (later,) = {str((at + timedelta(days=180)).astimezone(UTC)) for at in (self.since[0], self.by_name["first"][0])}
        return Audit(later)


@pytest.mark.parametrize("process", [Due, DueInMany, DueInAny])
def test_half_a_year_later_is_the_same_time_after_a_restart(process: type[Process[Txn, Audit]]) -> None:
    live = operator(process, Audit)
    _, out = opened(live)
    live.on_rows(txns((1, 5, 0)), 0)
    snapshot = stored(live.snapshot())
    live.on_rows(txns((1, 5, 0)), 0)
    after = operator(process, Audit)
    _, restored = opened(after)
    after.restore([snapshot])
    after.on_rows(txns((1, 5, 0)), 0)
    assert texts(out)[1:] == texts(restored) == ["2026-06-30 08:00:00+00:00"]
