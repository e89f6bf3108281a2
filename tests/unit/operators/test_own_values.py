"""State of one key and results given are never changed through a list or mapping that something else refers to, too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import pyarrow as pa
import pytest

from clonos_py.model.processes import ProcessInput
from clonos_py.model.record import Instant, Record
from clonos_py.model.record_codec import encode
from clonos_py.operators.own_values import own_record, own_value
from clonos_py.operators.process import ListState, MapState, Process, ProcessOperator, list_state, map_state, state
from clonos_py.services.context import Context
from tests.unit.operators.scripted import Collected, opened

KEY = pa.schema([("key", pa.int64())])


class Item(Record):
    key: int
    number: int
    at: Instant
    tags: list[str]


class Tags(Record):
    names: list[str]


class Held(Record):
    key: int
    numbers: list[int]
    by_name: Annotated[dict[str, int], pa.map_(pa.string(), pa.int64())]
    groups: list[list[int]]
    tags: Tags | None = None


def held(key: int, numbers: list[int], by_name: dict[str, int] | None = None) -> Held:
    return Held(key, numbers, by_name or {}, [])


def started(process: type[Process[Item, Held]], catch: bool = False) -> tuple[ProcessOperator, Collected]:
    operator = ProcessOperator(process, [ProcessInput(KEY, Item, "at")], (Held,), catch=catch)
    return operator, opened(operator)[1]


def items(*rows: tuple[int, int]) -> pa.RecordBatch:
    return encode([Item(key, number, 0, ["one"]) for key, number in rows], Item.schema())


@pytest.mark.parametrize("catch", [False, True], ids=["failures stop", "failures are caught"])
@pytest.mark.parametrize("ttl", [None, "1d"], ids=["no ttl", "ttl"])
def test_a_list_that_two_keys_are_assigned_is_changed_for_one_only(ttl: str | None, catch: bool) -> None:
    empty: list[int] = []
    nothing: dict[str, int] = {}

    class Shared(Process[Item, Held]):
        numbers: ListState[int] = list_state(ttl=ttl)
        by_name: MapState[str, int] = map_state(ttl=ttl)

        def on_row(self, item: Item, ctx: Context) -> Held:
            if item.number:
                self.numbers.append(item.number)
                self.by_name[str(item.number)] = 1
            else:
                self.numbers, self.by_name = empty, nothing
            return held(item.key, self.numbers, self.by_name)

    operator, out = started(Shared, catch)
    operator.on_rows(items((1, 0), (2, 0), (1, 5), (2, 7), (1, 6), (3, 0)), 0)
    assert [row["numbers"] for row in out.rows()] == [[], [], [5], [7], [5, 6], []]
    assert [dict(row["by_name"]) for row in out.rows()][-2:] == [{"5": 1, "6": 1}, {}]
    assert (empty, nothing) == ([], {})


class Nested(Record):
    key: int
    shown: str


class Box(Record):
    names: list[int]
    inner: Tags | None = None


class Keeping(Process[Item, Nested]):
    """Puts a list that it keeps into each kind of value that can hold one, and then changes what the state holds."""

    box: Box = state(Box([7]))
    other: Box | None = state(None)
    deep: dict[str, list[int]] = state({"names": [7]})
    groups: ListState[list[int]] = list_state()
    by_name: MapState[str, list[int]] = map_state()
    boxes: list[Box] = state(list[Box]())

    def __init__(self) -> None:
        self.mine: list[int] = []

    def on_row(self, item: Item, ctx: Context) -> Nested:
        mine = self.mine
        if item.number == 0:
            self.other, self.groups, self.by_name, self.boxes = Box(mine), [mine, mine], {"mine": mine}, [Box(mine)]
        else:
            self.box.names.append(item.number)
            self.deep["names"].append(item.number)
            if self.other is not None:
                self.other.names.append(item.number)
            self.groups[0].append(item.number)
            self.by_name["mine"].append(item.number)
            self.boxes[0].names.append(item.number)
        held = [self.other, self.groups, self.by_name, self.boxes]
        return Nested(item.key, f"{self.box.names} {self.deep['names']} {held}")


def nested_rows(restart: bool) -> list[str]:
    operator = ProcessOperator(Keeping, [ProcessInput(KEY, Item, "at")], (Nested,))
    out, found = opened(operator)[1], []
    for row in ((1, 0), (2, 0), (1, 5), (2, 6), (1, 8)):
        operator.on_rows(items(row), 0)
        found = [str(shown["shown"]) for shown in out.rows()]
        if restart:
            operator.restore([operator.snapshot()])
    return found


def test_what_is_within_state_belongs_to_one_key_as_after_a_restart() -> None:
    """Defaults, too: a record with a list, a mapping of lists."""
    found = nested_rows(restart=False)
    assert found == nested_rows(restart=True)
    assert found[3].startswith("[7, 6] [7, 6] [Box(names=[6]"), "of key 2, after a row of key 1"
    assert found[4].startswith("[7, 5, 8] [7, 5, 8] [Box(names=[5, 8], inner=None), [[5, 8], []], {'mine': [5, 8]}")


def test_two_attributes_of_a_key_are_two_lists_as_after_a_restart() -> None:
    class Twice(Process[Item, Held]):
        numbers: ListState[int] = list_state()
        others: ListState[int] = list_state()

        def on_row(self, item: Item, ctx: Context) -> Held:
            if item.number:
                self.numbers.append(item.number)
            else:
                self.numbers = self.others = [1]
            return held(item.key, self.others)

    rows, results = [(1, 0), (1, 2), (1, 3)], []
    for restart in (False, True):
        operator, out = started(Twice)
        operator.on_rows(items(rows[0]), 0)
        if restart:
            part = operator.snapshot()
            operator.restore([part])
        operator.on_rows(items(*rows[1:]), 0)
        results.append([row["numbers"] for row in out.rows()])
    assert results == [[[1], [1], [1]]] * 2


def test_a_call_may_fill_a_list_that_it_has_assigned() -> None:
    class Filling(Process[Item, Held]):
        numbers: list[int] = state([0])

        def on_row(self, item: Item, ctx: Context) -> Iterator[Held]:
            mine: list[int] = []
            self.numbers = mine
            mine.append(item.number)
            yield held(item.key, self.numbers)
            mine.append(-1)
            yield held(item.key, self.numbers)

    operator, out = started(Filling)
    operator.on_rows(items((1, 4), (1, 5)), 0)
    assert [row["numbers"] for row in out.rows()] == [[4], [4, -1], [5], [5, -1]]


def test_what_a_failed_call_has_put_into_a_shared_list_is_in_the_state_of_no_other_key() -> None:
    kept: list[int] = []

    class Sloppy(Process[Item, Held]):
        numbers: ListState[int] = list_state()

        def on_row(self, item: Item, ctx: Context) -> Held:
            if item.number == 0:
                self.numbers = kept
            else:
                wrong: Any = "text"
                self.numbers.append(wrong if item.number < 0 else item.number)
            return held(item.key, self.numbers)

    operator, out = started(Sloppy, catch=True)
    operator.on_rows(items((1, 0), (2, 0), (1, 1), (1, -1), (2, 2), (1, 3)), 0)
    assert [row["numbers"] for row in out.rows()] == [[], [], [1], [2], [1, 3]]
    assert len(out.rows(1)) == 1


def test_results_are_what_they_were_when_the_function_gave_them() -> None:
    """Whatever rows come together in a batch."""

    class Changing(Process[Item, Held]):
        numbers: ListState[int] = list_state()
        by_name: MapState[str, int] = map_state()
        groups: ListState[list[int]] = list_state()
        names: ListState[str] = list_state()

        def on_row(self, item: Item, ctx: Context) -> list[Held]:
            self.numbers.append(item.number)
            self.by_name[str(item.number)] = item.number
            self.groups.append([])
            self.groups[0].append(item.number)
            self.names.append(str(item.number))
            return [Held(item.key, self.numbers, self.by_name, self.groups, Tags(self.names))]

    rows = [(1, 4), (2, 5), (1, 6), (1, 7), (2, 8)]
    one_by_one, together = started(Changing), started(Changing)
    for row in rows:
        one_by_one[0].on_rows(items(row), 0)
    together[0].on_rows(items(*rows), 0)
    assert together[1].rows() == one_by_one[1].rows()
    assert together[1].rows()[2]["groups"] == [[4, 6], []]


def test_a_result_that_was_good_is_not_spoilt_by_a_later_failure() -> None:
    class Spoiling(Process[Item, Held]):
        numbers: ListState[int] = list_state()

        def on_row(self, item: Item, ctx: Context) -> Held:
            wrong: Any = "text"
            self.numbers.append(wrong if item.number < 0 else item.number)
            return held(item.key, self.numbers)

    operator, out = started(Spoiling, catch=True)
    operator.on_rows(items((1, 4), (1, -1), (1, 5)), 0)
    assert [row["numbers"] for row in out.rows()] == [[4], [4, 5]]
    assert len(out.rows(1)) == 1


def test_only_what_can_be_changed_is_copied() -> None:
    plain, tagged = Item(1, 2, 3, []), Tags(["one"])
    values: list[Any] = [1, "text", None, plain.at]
    assert all(own_value(value) is value for value in values)
    assert own_record(tagged) == tagged
    assert own_record(tagged) is not tagged
    nested = {"a": [[1], {"b": [tagged]}], "c": {4}, "d": (1, [2])}
    copied = own_value(nested)
    assert copied == nested
    copied["a"][1]["b"][0].names.append("two")  # type: ignore[index]
    copied["d"][1].append(3)  # type: ignore[index]
    assert tagged.names == ["one"]
    assert nested["d"] == (1, [2])
