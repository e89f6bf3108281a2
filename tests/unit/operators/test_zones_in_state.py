"""Datetimes of other zones in the state of process functions: they are of UTC, live and restored."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from clonos_py.operators.process import Process, state
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


def test_half_a_year_later_is_the_same_time_after_a_restart() -> None:
    live = operator(Due, Audit)
    _, out = opened(live)
    live.on_rows(txns((1, 5, 0)), 0)
    snapshot = stored(live.snapshot())
    live.on_rows(txns((1, 5, 0)), 0)
    after = operator(Due, Audit)
    _, restored = opened(after)
    after.restore([snapshot])
    after.on_rows(txns((1, 5, 0)), 0)
    assert texts(out) == ["2026-06-30 08:00:00+00:00"] * 2
    assert texts(restored) == texts(out)[1:]
