"""Functions with ``open``: each task has a copy of its own, opened before its first row, and ``open`` calls no
service."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from clonos_py.model.calls import Waiting
from clonos_py.model.errors import UserCodeError
from clonos_py.model.ids import TaskId
from clonos_py.model.operators import Operator
from clonos_py.model.processes import ProcessInput
from clonos_py.model.record_codec import encode
from clonos_py.operators.async_rows import MapAsyncRows
from clonos_py.operators.process import Process, ProcessOperator, event_timer, state
from clonos_py.operators.rows import MapRows
from clonos_py.operators.stateless import MapBatches
from clonos_py.services.context import Context
from clonos_py.services.open_context import OpenContext
from tests.unit.operators.accounts import ACCOUNT, Audit, Txn, texts, txns
from tests.unit.operators.scripted import ScriptedContext, advance, opened, stored

ROWS = txns((1, 10, 0), (2, 20, 0))
closed: list[str] = []


class Scorer(Process[Txn, Audit]):
    rows: int = state(0)

    def __init__(self, model: str) -> None:
        self.model = model
        self.weights = [1]

    def open(self, ctx: OpenContext) -> None:
        self.weights.append(len(self.weights) + 1)
        self.loaded = f"{self.model} in {ctx.operator} {ctx.index} of {ctx.parallelism}"

    def on_row(self, txn: Txn, ctx: Context) -> Audit:
        self.rows += 1
        return Audit(f"{txn.account}: {self.rows} by {self.loaded}, {self.weights}")

    def close(self) -> None:
        closed.append(self.loaded)


def scoring(process: Any) -> ProcessOperator:
    return ProcessOperator(process, [ProcessInput(ACCOUNT, Txn, "at")], (Audit,))


def test_an_object_is_opened_before_its_first_row_and_keeps_its_state_by_key() -> None:
    operator = scoring(Scorer("m.bin"))
    _, out = opened(operator)
    operator.on_rows(txns((1, 10, 0), (2, 20, 0), (1, 5, 0)), 0)
    loaded = "m.bin in probe 0 of 1, [1, 2]"
    assert texts(out) == [f"1: 1 by {loaded}", f"2: 1 by {loaded}", f"1: 2 by {loaded}"]


def test_tasks_share_nothing_of_the_object_they_were_made_from() -> None:
    given = Scorer("m.bin")
    expected = []
    for index in range(2):
        ctx = ScriptedContext()
        ctx.task, ctx.parallelism = TaskId("vertex", index), 2
        operator = scoring(given)
        _, out = opened(operator, ctx)
        operator.on_rows(ROWS, 0)
        expected.append(texts(out)[0])
    assert expected == [f"1: 1 by m.bin in probe {index} of 2, [1, 2]" for index in range(2)]
    assert given.weights == [1]
    assert not hasattr(given, "loaded")


def test_a_replacement_opens_its_function_and_then_restores_the_state() -> None:
    operator = scoring(Scorer("m.bin"))
    opened(operator)
    operator.on_rows(ROWS, 0)
    after = scoring(Scorer("m.bin"))
    _, out = opened(after)
    after.restore([stored(operator.snapshot())])
    after.on_rows(ROWS, 0)
    assert texts(out)[0] == "1: 2 by m.bin in probe 0 of 1, [1, 2]"


def test_an_opened_function_is_closed() -> None:
    closed.clear()
    operator = scoring(Scorer("m.bin"))
    opened(operator)
    operator.close()
    assert closed == ["m.bin in probe 0 of 1"]


class Releasing(Scorer):
    def close(self) -> None:
        super().close()
        self.loaded = ""


class Reading(Scorer):
    def close(self) -> None:
        closed.append(str(self.rows))


def test_close_may_assign_attributes_of_open_and_has_no_key() -> None:
    operator = scoring(Releasing("m.bin"))
    opened(operator)
    operator.on_rows(ROWS, 0)
    operator.close()
    reading = scoring(Reading("m.bin"))
    opened(reading)
    reading.on_rows(ROWS, 0)
    with pytest.raises(UserCodeError, match=r"failed in close: .*state and timers need a current key"):
        reading.close()


class Asking(Scorer):
    def __init__(self, ask: Callable[[Any], object]) -> None:
        super().__init__("m")
        self.ask = ask

    def open(self, ctx: OpenContext) -> None:
        self.ask(ctx)


@pytest.mark.parametrize("ask", [lambda c: c.time.now(), lambda c: c.random, lambda c: c.http, lambda c: c.call])
def test_services_are_refused_in_open(ask: Callable[[Any], object]) -> None:
    with pytest.raises(UserCodeError, match=r"failed in open: ctx\..* is not available in open: a replacement calls"):
        opened(scoring(Asking(ask)))


def test_nothing_is_counted_in_open() -> None:
    with pytest.raises(UserCodeError, match=r"there is no ctx\.metrics in open: a replacement calls open again"):
        opened(scoring(Asking(lambda ctx: ctx.metrics)))


def test_there_is_no_key_in_open() -> None:
    with pytest.raises(UserCodeError, match=r"there is no ctx\.key in open: no row is being processed"):
        opened(scoring(Asking(lambda ctx: ctx.key)))


def test_an_error_in_open_names_its_line() -> None:
    with pytest.raises(UserCodeError, match=r"operator 'probe' failed in open: ZeroDivisionError: .*test_opening.py:"):
        opened(scoring(Asking(lambda ctx: 1 // 0)))


class Counting(Scorer):
    def __init__(self) -> None:
        super().__init__("m")
        self.rows = 1


class Setting(Scorer):
    later = event_timer()

    def open(self, ctx: OpenContext) -> None:
        self.later.set(0)

    @later.fires
    def fired(self, ctx: Context) -> None: ...


def test_state_and_timers_need_a_key() -> None:
    with pytest.raises(
        UserCodeError, match="state and timers need a current key, and __init__, open and close have none"
    ):
        Counting()
    with pytest.raises(UserCodeError, match="state and timers need a current key"):
        opened(scoring(Setting("m")))


class Assigning(Scorer):
    def on_row(self, txn: Txn, ctx: Context) -> Audit:
        self.model = "another"
        return Audit("")


def test_a_configured_attribute_cannot_be_assigned_for_a_row() -> None:
    operator = scoring(Assigning("m"))
    opened(operator)
    with pytest.raises(UserCodeError, match=r"Assigning\.model is not declared; write 'model = state\(\.\.\.\)'"):
        operator.on_rows(ROWS, 0)


def test_an_attribute_that_cannot_be_copied_is_named() -> None:
    given = Scorer("m")
    given.weights = threading.Lock()  # type: ignore[assignment]
    with pytest.raises(UserCodeError, match=r"Scorer cannot be copied for each task .* make such things in its open"):
        opened(scoring(given))


class Model:
    """A function that is an object."""

    def __init__(self, factor: int) -> None:
        self.factor = factor
        self.opened = 0

    def open(self, ctx: OpenContext) -> None:
        self.opened += 1

    def __call__(self, txn: Txn, more: int = 0) -> Audit:
        return Audit(f"{txn.cents * self.factor + more} {self.opened}")


class Several(Model):
    def __call__(self, txn: Txn, more: int = 0) -> Iterator[Audit]:  # type: ignore[override]
        yield super().__call__(txn)


class Later(Model):
    async def __call__(self, txn: Txn, more: int = 0) -> AsyncIterator[Audit]:  # type: ignore[override]
        yield super().__call__(txn)


class Whole(Model):
    def __call__(self, rows: pa.RecordBatch, more: int = 0) -> pa.RecordBatch:  # type: ignore[override]
        return encode([Model.__call__(self, Txn(**row)) for row in rows.to_pylist()], Audit.schema())


WAITING = Waiting(4, True, None)


@pytest.mark.parametrize(
    "make",
    [
        lambda: MapRows(Model(3), Txn, Audit.schema(), "map"),
        lambda: MapRows(partial(Model(2), more=10), Txn, Audit.schema(), "map"),
        lambda: MapRows(Several(3), Txn, Audit.schema(), "flat_map"),
        lambda: MapAsyncRows(Later(3), Txn, Audit.schema(), "flat_map", False, WAITING),
        lambda: MapBatches(Whole(3), Audit.schema()),
    ],
)
def test_a_function_that_is_an_object_is_opened(make: Callable[[], Operator]) -> None:
    operator = make()
    _, out = opened(operator)
    operator.on_rows(txns((1, 10, 0)), 0)
    assert texts(out) == ["30 1"]
    operator.close()


# ctx.key


class Keys(Process[Any, Audit]):
    seen: bool = state(False)
    soon = event_timer()

    def on_row(self, row: Any, ctx: Context) -> Audit:
        self.seen = True
        self.soon.set(5)
        return Audit(repr(ctx.key))

    @soon.fires
    def fired(self, ctx: Context) -> Audit:
        return Audit(f"timer of {ctx.key!r}")


MONEY = pa.decimal128(18, 2)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"a": pa.array(["x"])}, "'x'"),
        ({"a": pa.array([b"x"])}, "b'x'"),
        ({"a": pa.array([None], pa.int64())}, "None"),
        ({"a": pa.array([Decimal("1.10")], MONEY)}, "Decimal('1.10')"),
        ({"a": pa.array([1]), "b": pa.array(["y"])}, "(1, 'y')"),
    ],
)
def test_a_key_is_the_value_of_one_column_or_a_tuple_of_several(columns: dict[str, Any], expected: str) -> None:
    rows = pa.RecordBatch.from_pydict(columns)
    inputs = [ProcessInput(rows.schema, None)]
    operator = ProcessOperator(Keys, inputs, (Audit,))
    _, out = opened(operator)
    operator.on_rows(rows, 0)
    assert texts(out) == [expected]
    after = ProcessOperator(Keys, inputs, (Audit,))
    ctx, out = opened(after)
    after.restore([stored(operator.snapshot())])
    advance(after, ctx, 9)
    assert texts(out) == [f"timer of {expected}"]


def test_functions_without_a_key_have_no_ctx_key() -> None:
    operator = MapRows(lambda row, ctx: Audit(ctx.key), Txn, Audit.schema(), "map", wants_ctx=True)
    opened(operator)
    with pytest.raises(UserCodeError, match=r"there is no ctx\.key here"):
        operator.on_rows(ROWS, 0)
