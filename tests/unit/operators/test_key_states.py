"""Snapshots of a process function's keys: few chunks, read once by a standby, and exact after a rollback."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos_py.model.record import Record
from clonos_py.operators import key_states
from clonos_py.operators.key_states import KeyStates
from clonos_py.operators.process import Process, event_timer, state
from clonos_py.operators.process_keys import ProcessKeys
from clonos_py.operators.process_state import Cell


class Counting(Process[Any, Any]):
    count: int = state(0)


def put(states: KeyStates, key: int, count: int) -> None:
    states.cell(b"%d" % key, 0).values["count"] = count


def counts(states: KeyStates) -> dict[bytes, int]:
    return {key: cell.values["count"] for key, cell in states.cells.items() if not cell.empty}


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "snapshot", "standby", "roll back"]), st.integers(0, 9), st.integers(0, 3)
    ),
    min_size=8,
    max_size=60,
)


@settings(max_examples=100)  # few of them roll back to a snapshot of which a chunk was merged since
@given(STEPS)
def test_standbys_and_rollbacks_have_the_state_of_each_snapshot(steps: list[tuple[str, int, int]]) -> None:
    task, standby = KeyStates(Counting), KeyStates(Counting)
    taken = [(task.chunks(), counts(task))]
    for step, key, count in steps:
        if step == "put":
            put(task, key, count)
        elif step == "roll back":
            chunks, known = taken[key % len(taken)]
            task.load(chunks)
            assert counts(task) == known
        else:
            taken.append((task.chunks(), counts(task)))
            if step == "standby":
                standby.load(taken[-1][0])
                assert counts(standby) == taken[-1][1]


def test_keys_that_change_seldom_leave_few_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_states, "_SLACK_ROWS", 1 << 40)
    task, standby = KeyStates(Counting), KeyStates(Counting)
    for key in range(5_000):
        put(task, key, 1)
    longest = 0
    for time in range(2_000):
        put(task, time % 700, time)
        longest = max(longest, len(task.chunks()))
    assert longest <= 8 * 5
    assert sum(chunk.rows.num_rows for chunk in task.chunks()) < 5_000 + 2_000, "the later entry of a key is enough"
    standby.load(task.chunks())
    assert counts(standby) == counts(task)


def test_a_standby_decodes_only_new_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    task, standby = KeyStates(Counting), KeyStates(Counting)
    for key in range(2_000):
        put(task, key, 1)
    standby.load(task.chunks())
    decoded: list[bytes] = []
    decode = KeyStates._decoded

    def noted(self: KeyStates, key: bytes, group: int, state: bytes) -> Cell:
        decoded.append(key)
        return decode(self, key, group, state)

    monkeypatch.setattr(KeyStates, "_decoded", noted)
    for key in (3, 5):
        put(task, key, 7)
        standby.load(task.chunks())
    assert decoded == [b"3", b"5"]


class CountingMore(Process[Any, Any]):
    count: int = state(0)
    more: int = state(5)
    until = event_timer()

    @until.fires
    def forget(self, ctx: Any) -> None:
        self.more = 0


class CountingText(Process[Any, Any]):
    count: int = state(0)
    more: str = state("none")


@pytest.mark.parametrize("later", [CountingMore, CountingText])
@pytest.mark.parametrize("touched", [0, 1, 3])
@pytest.mark.parametrize("standby", [False, True])
def test_an_attribute_that_was_removed_begins_again_with_its_default(
    later: type[Process[Any, Any]], touched: int, standby: bool
) -> None:
    """``touched``: how many of three keys change while it is not declared. Timers are attributes, too."""
    first, without, again = KeyStates(CountingMore), KeyStates(Counting), KeyStates(later)
    for key in range(3):
        put(first, key, key)
        first.cell(b"%d" % key, 0).values["more"] = 7
        first.cell(b"%d" % key, 0).timers["until"] = 9
    chunks = first.chunks()
    without.load(chunks)
    for key in range(touched):
        put(without, key, 4)
    for _ in range(2):  # a standby may be promoted before or after the first checkpoint of its run
        written = without.chunks()
        if standby:
            without = KeyStates(Counting)
            without.load(chunks)
            without.load(written)
    again.load(without.chunks())
    assert {key: (cell.values, cell.timers) for key, cell in again.cells.items()} == {
        b"%d" % key: ({"count": 4 if key < touched else key}, {}) for key in range(3)
    }


class Part(Record):
    number: int


class PartWithNote(Record):
    number: int
    note: int = 5


class PartWithText(Record):
    number: int
    note: str = "none"


class Whole(Record):
    part: Part


class WholeWithNote(Record):
    part: PartWithNote


class WholeWithText(Record):
    part: PartWithText


def holding(type_: Any) -> KeyStates:
    """Keys with an attribute of this type."""
    annotated = {"__annotations__": {"held": type_}, "__module__": __name__}
    return KeyStates(type("Holding", (Process,), {**annotated, "held": state(None)}))


AROUND: list[tuple[Callable[[Any], Any], Callable[[Any], Any]]] = [
    (lambda part: part, lambda value: value),
    (lambda part: part | None, lambda value: value),
    (lambda part: list[part], lambda value: [value]),  # type: ignore[valid-type]
    (lambda part: dict[str, part], lambda value: {"a": value}),  # type: ignore[valid-type]
    (lambda part: tuple[int, part], lambda value: (1, value)),  # type: ignore[valid-type]
    (lambda part: dict[str, list[part | None]], lambda value: {"a": [None, value]}),  # type: ignore[valid-type]
]
"""What is around a record: of its type, and of a value."""


@pytest.mark.parametrize("again", [PartWithNote, PartWithText])
@pytest.mark.parametrize("inner", [False, True])
@pytest.mark.parametrize("around", range(len(AROUND)))
@pytest.mark.parametrize("touched", [0, 1])
def test_a_field_that_was_removed_begins_again_with_its_default(
    again: type[Record], inner: bool, around: int, touched: int
) -> None:
    """As an attribute does, wherever its record is: ``inner``, within another record."""
    type_around, value_around = AROUND[around]
    whole = {Part: Whole, PartWithNote: WholeWithNote, PartWithText: WholeWithText}

    def states(part: type[Record]) -> KeyStates:
        return holding(type_around(whole[part] if inner else part))

    def held(part: Record) -> Any:
        return value_around(whole[type(part)](part) if inner else part)

    first, without, later = states(PartWithNote), states(Part), states(again)
    for key in range(3):
        first.cell(b"%d" % key, 0).values["held"] = held(PartWithNote(key, 7))
    without.load(first.chunks())
    for key in range(touched):
        without.cell(b"%d" % key, 0).values["held"] = held(Part(key))
    later.load(without.chunks())
    assert [cell.values["held"] for cell in later.cells.values()] == [held(again(key)) for key in range(3)]
    assert later.chunks() != without.chunks(), "the default is stored from now on"
    kept = states(again)
    kept.load(later.chunks())
    assert kept.chunks() == later.chunks(), "nothing was removed"


def test_keys_without_removed_attributes_are_not_written_again() -> None:
    task, again = KeyStates(CountingMore), KeyStates(CountingMore)
    put(task, 1, 1)
    chunks = task.chunks()
    again.load(chunks)
    assert again.chunks() == chunks


def test_values_in_nested_keys_have_the_types_of_their_columns() -> None:
    part = pa.struct([pa.field("price", pa.decimal128(18, 2)), pa.field("took", pa.list_(pa.duration("us")))])
    schema = pa.schema([pa.field("days", pa.list_(pa.date32())), pa.field("part", part)])
    values: list[dict[str, Any]] = [
        {"days": [date(2020, 1, 1), None], "part": {"price": Decimal("1.20"), "took": [timedelta(1)]}},
        {"days": None, "part": None},
    ]
    encoded = key_states.encoded_keys(pa.RecordBatch.from_pylist(values, schema), schema.names)

    assert [ProcessKeys(schema).by_name(key) for key in encoded] == values


@given(st.lists(st.lists(st.integers(0, 5), max_size=5), min_size=3, max_size=12), st.integers(0, 2))
def test_snapshots_have_the_same_chunks_after_a_restore(batches: list[list[int]], begin: int) -> None:
    """A replay starts from a snapshot, and compares the chunks of later ones."""
    task, restored = KeyStates(Counting), KeyStates(Counting)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_states, "_SLACK_ROWS", 0)
        for number, keys in enumerate(batches):
            for key in keys:
                put(task, key, number)
                if number > begin:
                    put(restored, key, number)
            chunks = task.chunks()
            if number == begin:
                restored.load(chunks)
            elif number > begin:
                assert [c.rows.to_pylist() for c in restored.chunks()] == [c.rows.to_pylist() for c in chunks]
