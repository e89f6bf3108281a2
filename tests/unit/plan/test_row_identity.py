"""Which columns of a source of changes identify the rows that these are about, in the tables and sinks of a job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from clonos_py import Job, Record, col, count
from clonos_py.connectors import DatabaseSink, FileSink, PostgresSink, PostgresSource
from clonos_py.plan.logical import ReadSource
from clonos_py.plan.row_identity import row_identities

DSN = "dbname=none"


class Item(Record):
    id: int
    name: str
    size: float | None


def sink(key: str) -> PostgresSink:
    return PostgresSink(DSN, "items", key=key)


def connected() -> Any:
    raise AssertionError("nothing connects")


def of_a_database() -> DatabaseSink:
    return DatabaseSink(connected, "items", key="name")


CASES: dict[str, tuple[Callable[[Any], Any], set[str]]] = {
    "table": (lambda rows: rows.to_table("name").sink(sink("name")), {"name"}),
    "two tables": (
        lambda rows: (
            rows.to_table("id").sink(sink("id")),
            rows.to_table("name", "size").named("second").sink(sink("id")).named("more"),
        ),
        {"id", "name", "size"},
    ),
    "renamed and computed": (
        lambda rows: (
            rows.filter(col("size") > 1)
            .select("_change", of=col("name"), sum=col("id") + col("size"))
            .to_table("of", "sum")
            .sink(sink("of"))
        ),
        {"id", "name", "size"},
    ),
    "a condition of the job's own": (
        lambda rows: rows.to_table("name", deleted=col("_change") == "delete").at_end().sink(FileSink("out")),
        {"name"},
    ),
    "the key of a sink": (lambda rows: rows.sink(sink("name")), {"name"}),
    "the key of another sink": (lambda rows: rows.rebalance().sink(of_a_database()), {"name"}),
    "no deletions": (lambda rows: rows.select("id", "name").to_table("name").at_end().sink(FileSink("out")), set()),
    "what deletes is no change of the source": (
        lambda rows: rows.to_table("name", deleted=col("size") == 0).at_end().sink(FileSink("out")),
        set(),
    ),
    "events": (lambda rows: rows.key_by("name").aggregate(n=count()).sink(sink("name")), set()),
}


@pytest.mark.parametrize("case", CASES)
def test_keys_of_tables_and_sinks_identify_rows_of_a_source(case: str) -> None:
    job = Job("mirrored")
    build, expected = CASES[case]
    build(job.source(PostgresSource(DSN, "items", Item, slot="s")))
    graph = job.graph()
    (found,) = row_identities(graph).items()
    assert isinstance(graph.by_id[found[0]].work, ReadSource)
    assert found[1] == expected


def test_each_source_has_its_own() -> None:
    job = Job("mirrored")
    first, second = (job.source(PostgresSource(DSN, "items", Item, slot=slot)).named(slot) for slot in ("a", "b"))
    first.union(second).to_table("name").sink(sink("name"))
    second.to_table("id").named("by-id").sink(sink("id")).named("more")
    assert list(row_identities(job.graph()).values()) == [{"name"}, {"id", "name"}]
