"""Values of NumPy in the state of process functions: from a checkpoint on they are plain values, live and restored."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from clonos_py.model.errors import UserCodeError
from clonos_py.model.record import Record
from clonos_py.operators.process import MapState, Process, list_state, map_state, state
from clonos_py.services.context import Context
from tests.unit.operators.accounts import Audit, Txn, operator, texts, txns
from tests.unit.operators.scripted import opened, stored


class Point(Record):
    x: int
    y: float


class Kept(Process[Txn, Audit]):
    total: int = state(0)
    mean: float = state(0.0)
    name: str = state("")
    last: Point | None = state(None)
    seen: list[float] = list_state()
    counts: MapState[str, int] = map_state()

    def on_row(self, txn: Txn, ctx: Context) -> Audit:
        before = (self.total, self.mean, self.name, self.last, self.seen, self.counts)
        audit = Audit(f"{before!r}")
        self.total = np.int64(self.total + txn.cents)  # type: ignore[assignment]
        self.mean = np.float32(0.1)  # type: ignore[assignment]
        self.name = np.str_("n")
        self.last = Point(np.int32(txn.cents), np.float64(0.5))  # type: ignore[arg-type]
        self.seen.append(np.float32(0.25))  # type: ignore[arg-type]
        self.counts[np.str_("a")] = np.uint8(3)  # type: ignore[assignment]
        return audit


def test_restored_values_equal_those_of_the_live_task() -> None:
    live = operator(Kept, Audit)
    _, out = opened(live)
    live.on_rows(txns((1, 5, 0)), 0)
    snapshot = stored(live.snapshot())
    live.on_rows(txns((1, 5, 0)), 0)
    after = operator(Kept, Audit)
    _, restored = opened(after)
    after.restore([snapshot])
    after.on_rows(txns((1, 5, 0)), 0)
    assert texts(restored) == texts(out)[1:]
    mean = float(np.float32(0.1))
    assert texts(restored) == [f"(5, {mean!r}, 'n', Point(x=5, y=0.5), [0.25], {{'a': 3}})"]


class Wrong(Process[Txn, Audit]):
    names: list[str] = list_state()

    def on_row(self, txn: Txn, ctx: Context) -> None:
        self.names.append(np.int64(1))  # type: ignore[arg-type]


def test_a_value_of_another_type_is_named() -> None:
    wrong = operator(Wrong, Audit)
    opened(wrong)
    wrong.on_rows(txns((1, 5, 0)), 0)
    with pytest.raises(UserCodeError, match=r"Wrong\.names holds \[np\.int64\(1\)\], which cannot be stored"):
        wrong.snapshot()


def test_values_read_between_checkpoints_are_plain() -> None:
    class Reading(Process[Txn, Audit]):
        value: Any = state(0)

        def on_row(self, txn: Txn, ctx: Context) -> Audit:
            self.value = np.int64(7)
            return Audit(type(self.value).__name__)

    reading = operator(Reading, Audit)
    _, out = opened(reading)
    reading.on_rows(txns((1, 5, 0)), 0)
    assert texts(out) == ["int"]
