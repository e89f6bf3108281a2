"""Entries of ``list_state(ttl=)`` and ``map_state(ttl=)`` expire one by one, like those of a plain model."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.model.errors import UserCodeError
from clonos_py.model.processes import ProcessInput
from clonos_py.operators.process import ListState, MapState, Process, ProcessOperator, list_state, map_state
from clonos_py.operators.timed_collections import TimedList, TimedMap
from clonos_py.services.context import Context
from tests.unit.operators.accounts import ACCOUNT, Audit, Txn, operator, texts, txns
from tests.unit.operators.scripted import advance, opened, stored


class Now:
    def __init__(self) -> None:
        self.now = 0

    def time(self) -> int:
        return self.now


CHANGES = st.sampled_from(
    ["append", "extend", "insert", "pop", "set", "slice", "del", "iadd", "imul", "reverse", "sort", "remove", "tick"]
)


@given(st.lists(st.tuples(CHANGES, st.integers(0, 5), st.integers(0, 3)), max_size=15))
def test_a_list_keeps_the_time_of_each_item(changes: list[tuple[str, int, int]]) -> None:
    clock, found = Now(), TimedList[int]([], [])
    found.scope = clock
    model: list[tuple[int, int]] = []
    for change, value, at in changes:
        now, place = clock.now, min(at, max(len(model) - 1, 0))
        match change:
            case "append":
                found.append(value)
                model.append((value, now))
            case "extend" | "iadd":
                if change == "iadd":
                    found += [value, at]
                else:
                    found.extend(iter([value, at]))
                model += [(value, now), (at, now)]
            case "insert":
                found.insert(place, value)
                model.insert(place, (value, now))
            case "slice":
                found[place : place + 2] = [value]
                model[place : place + 2] = [(value, now)]
            case "imul":
                found *= at % 2 + 1
                model *= at % 2 + 1
            case "reverse":
                found.reverse()
                model.reverse()
            case "sort":
                found.sort(key=lambda item: -item, reverse=bool(at))
                model.sort(key=lambda pair: -pair[0], reverse=bool(at))
            case "tick":
                clock.now += value
                found.expire(clock.now - 7)
                model = [pair for pair in model if pair[1] > clock.now - 7]
            case "pop" if model:
                assert found.pop(place) == model.pop(place)[0]
            case "set" if model:
                found[place] = value
                model[place] = (value, now)
            case "del" if model:
                del found[place]
                del model[place]
            case "remove" if model:
                first = next(n for n, pair in enumerate(model) if pair[0] == model[place][0])
                found.remove(model.pop(first)[0])
        assert list(zip(found, found.times, strict=True)) == model
        assert found.oldest <= min(found.times, default=found.oldest)
    assert type(copy.deepcopy(found)) is list


@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from("abc"), st.integers(0, 5)), max_size=15))
def test_a_mapping_keeps_the_time_of_each_entry(changes: list[tuple[int, str, int]]) -> None:
    clock, found = Now(), TimedMap[str, int]({}, [])
    found.scope = clock
    model: dict[str, tuple[int, int]] = {}
    for change, key, value in changes:
        now = clock.now
        match change:
            case 0 | 1:
                found[key] = value
                model[key] = (value, now)
            case 2:
                found.update({key: value}, d=1)
                model |= {key: (value, now), "d": (1, now)}
            case 3:
                found |= {key: value}
                model[key] = (value, now)
            case 4:
                assert found.setdefault(key, value) == model.setdefault(key, (value, now))[0]
            case 5:
                assert found.pop(key, None) == model.pop(key, (None, 0))[0]
            case 6 if model:
                assert found.popitem()[0] == model.popitem()[0]
            case 7 if key in model:
                del found[key], model[key]
            case _:
                clock.now += value
                found.expire(clock.now - 7)
                model = {k: pair for k, pair in model.items() if pair[1] > clock.now - 7}
        assert list(zip(found, found.values(), found.times, strict=True)) == [(k, *pair) for k, pair in model.items()]


def catching(process: type[Process[Txn, Audit]]) -> ProcessOperator:
    return ProcessOperator(process, (ProcessInput(ACCOUNT, Txn, "at"),), (Audit,), catch=True)


class Recent(Process[Txn, Audit]):
    items: ListState[int] = list_state(ttl="10us")
    last: MapState[int, int] = map_state(ttl="10us")

    def on_row(self, txn: Txn, ctx: Context) -> Audit:
        self.items.append(txn.cents)
        self.last[txn.cents % 2] = txn.cents
        return Audit(f"{self.items} {self.last}")


ROWS = [(1, 7, 0), (1, 8, 6), (1, 10, 9), (1, 12, 11), (1, 13, 30)]
EXPECTED = ["[7] {1: 7}", "[7, 8] {1: 7, 0: 8}", "[7, 8, 10] {1: 7, 0: 10}", "[8, 10, 12] {0: 12}", "[13] {1: 13}"]


@pytest.mark.parametrize("cut", range(len(ROWS)))
def test_entries_expire_one_by_one_also_after_a_restart(cut: int) -> None:
    recent = operator(Recent, Audit)
    _, out = opened(recent)
    recent.on_rows(txns(*ROWS[:cut]), 0)
    restored = operator(Recent, Audit)
    _, after = opened(restored)
    restored.restore([stored(recent.snapshot())])
    restored.on_rows(txns(*ROWS[cut:]), 0)
    assert texts(out) + texts(after) == EXPECTED


def test_expired_entries_leave_the_state_without_further_rows() -> None:
    recent = operator(Recent, Audit)
    ctx, _ = opened(recent)
    recent.on_rows(txns(*ROWS), 0)
    assert recent.snapshot().tables["keys"]
    advance(recent, ctx, 40)
    assert recent.snapshot().tables["keys"][-1].rows.column("state").to_pylist() == [None]


def test_an_assignment_writes_all_entries_and_a_failed_call_none() -> None:
    class Assigned(Process[Txn, Audit]):
        items: ListState[int] = list_state(ttl="10us")

        def on_row(self, txn: Txn, ctx: Context) -> Audit:
            if txn.cents == 4:
                self.items = [5]
                raise ValueError("no")
            self.items = [*self.items, txn.cents] if txn.cents == 2 else self.items
            self.items += [txn.cents] if txn.cents != 2 else []
            return Audit(str(self.items))

    assigned = catching(Assigned)
    _, out = opened(assigned)
    assigned.on_rows(txns((1, 1, 0), (1, 2, 9), (1, 4, 10), (1, 3, 12), (1, 6, 20)), 0)
    assert texts(out) == ["[1]", "[1, 2]", "[1, 2, 3]", "[3, 6]"]


def test_another_type_is_refused_where_it_is_assigned() -> None:
    class Wrong(Process[Txn, Audit]):
        items: Any = list_state(ttl="10us")

        def on_row(self, txn: Txn, ctx: Context) -> None:
            self.items = 5

    wrong = operator(Wrong, Audit)
    opened(wrong)
    with pytest.raises(UserCodeError, match="items = 5: it is declared as a list, whose entries expire"):
        wrong.on_rows(txns((1, 1, 0)), 0)
