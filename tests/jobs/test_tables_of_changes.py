"""Tables of changes that come from elsewhere, compared with plain Python over the same changes, while tasks are
killed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from clonos_py import GraphError, Job, Record, Stream, Table, col, count, testing, when
from clonos_py.connectors import MemorySink, MemorySource
from tests.jobs.rows import SEEDS, both_parallelisms, values


class Change(Record):
    id: int
    group: str
    value: int
    op: str


class Kept(Record):
    id: int
    group: str
    value: int


def some_changes() -> list[Change]:
    """A row that does not exist may be deleted, too. A deletion has other values than the row."""
    draw = random.Random(11)
    return [
        Change(draw.randrange(12), draw.choice("abc"), draw.randrange(100), draw.choice("iuud")) for _ in range(150)
    ]


CHANGES = some_changes()


def kept_rows() -> list[Kept]:
    rows: dict[int, Kept] = {}
    for change in CHANGES:
        rows.pop(change.id, None)
        if change.op != "d":
            rows[change.id] = Kept(change.id, change.group, change.value)
    return list(rows.values())


def sums() -> Counter[tuple[str, int, int]]:
    groups: dict[str, list[int]] = {}
    for row in kept_rows():
        groups.setdefault(row.group, []).append(row.value)
    return Counter((group, len(found), sum(found)) for group, found in groups.items())


IN_SEVENS = [CHANGES[n : n + 7] for n in range(0, len(CHANGES), 7)]


def ran(body: Callable[[Stream[Change]], Stream[Any]], parallelism: int) -> list[Any]:
    job = Job("changes")
    body(job.source(MemorySource(CHANGES)).named("in")).sink(MemorySink()).named("out")
    return testing.run(job, {"in": IN_SEVENS}, kills=2, seeds=SEEDS, parallelism=parallelism)["out"]


def kept(changes: Stream[Change]) -> Table[Kept]:
    return changes.to_table("id", deleted=col("op") == "d").named("kept").select(Kept)


@both_parallelisms
def test_the_last_row_of_each_key_stays_unless_it_is_deleted(parallelism: int) -> None:
    assert values(ran(lambda changes: kept(changes).at_end(), parallelism)) == values(kept_rows())


@both_parallelisms
def test_aggregates_follow_the_changes(parallelism: int) -> None:
    """The values of a row that is replaced or deleted no longer count, though its change does not have them."""

    def body(changes: Stream[Change]) -> Stream[Any]:
        return kept(changes).key_by("group").aggregate(rows=count(), sum=col("value").sum()).at_end()

    assert values(ran(body, parallelism)) == sums()


def test_the_column_for_the_kind_of_change_is_no_column_of_the_table() -> None:
    """It need not say whether a row is new: the table knows."""

    def body(changes: Stream[Change]) -> Stream[Any]:
        kinds = when(col("op") == "d").then("delete").otherwise("update")
        table = changes.select("id", "value", _change=kinds).to_table("id")
        assert table.schema.names == ["id", "value"]
        return table.changes(kind="change")

    rows: dict[int, int] = {}
    for change in ran(body, 2):
        assert (change.id in rows) == (change.change != "insert")
        if change.change == "delete":
            assert rows.pop(change.id) == change.value, "its last values"
        else:
            rows[change.id] = change.value
    assert rows == {row.id: row.value for row in kept_rows()}


def test_rows_that_delete_nothing_make_a_table_that_only_grows() -> None:
    latest = {change.id: change for change in CHANGES}
    found = ran(lambda changes: changes.to_table("id").changes(), 2)
    assert {row.id: row for row in found} == latest


@pytest.mark.parametrize(
    ("written", "complaint"),
    [
        (lambda changes: changes.to_table(), "at least one column that identifies a row"),
        (lambda changes: changes.to_table("ident"), "no column 'ident' among id, group, value, op"),
        (lambda changes: changes.to_table("id", deleted=col("op")), "is string, not bool"),
        (lambda changes: changes.to_table("id").changes().to_table("id"), "it is a table already"),
        (lambda changes: changes.to_table("id").ttl("1h"), "loses the rows that its changes delete"),
        (lambda changes: changes.to_table("id", deleted=col("op") == "d").changes(), "may be deleted"),
    ],
)
def test_what_is_no_table_is_refused_where_it_is_written(
    written: Callable[[Stream[Change]], object], complaint: str
) -> None:
    with pytest.raises(GraphError) as caught:
        written(Job("changes").source(MemorySource(CHANGES)))
    assert complaint in str(caught.value)
    assert "test_tables_of_changes.py" in str(caught.value)
