"""Columns may have any name: the engine's own columns never collide with them, and rows can be read by function."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from clonos_py import (
    Job,
    Process,
    Record,
    Stream,
    col,
    count,
    event_timer,
    hopping,
    session,
    tumbling,
)
from clonos_py.connectors import FileSink, FileSource, MemorySink, MemorySource, read_results
from clonos_py.model.errors import GraphError
from clonos_py.model.record import record_type
from tests.unit.dsl.connectors import Nowhere

NAMES = (
    *("_rows", "_pane", "_start", "_end", "_weight", "_group", "_passed", "_arrival", "_window", "_change", "_state"),
    *("_value", "_seen", "_dead", "rows", "pane", "group", "weight", "key", "start", "value", "n:count", "s:sum"),
    *("event_time", "schema", "extend", "Order ID", "2024", "class", "a.b", "", "ä", "x~", "arrival", "input:s"),
    *("__op", "__deleted", "__x__", "___", "_op"),
)
"""Names of the engine's columns, of attributes of a Record, and names that are no identifiers."""
_numbers = itertools.count()
Verb = Callable[[Any, tuple[str, ...]], Any]

VERBS: dict[str, Verb] = {
    "table": lambda s, k: s.key_by(*k).aggregate(n=count(), s=col("v").sum(), d=col("v").count_distinct()).at_end(),
    "first and last": lambda s, k: s.key_by(*k).aggregate(f=col("v").first(), c=(col("v") + 1).collect()).at_end(),
    "table of a table": lambda s, k: (
        s.key_by(*k, "v").aggregate(n=count()).named("a").key_by(*k).aggregate(s=col("n").sum()).named("b").at_end()
    ),
    "top": lambda s, k: s.key_by(*k).top(1, by=col("v").desc()).at_end(),
    "top by the columns": lambda s, k: s.key_by("v").top(1, by=[(col(name) + 1).desc() for name in k]).at_end(),
    "top of a table": lambda s, k: (
        s.key_by(*k).aggregate(n=count()).named("a").top(2, by=(col("n") * 2).desc()).named("b").at_end()
    ),
    "tumbling": lambda s, k: s.key_by(*k).window(tumbling("1s")).aggregate(n=count(), s=(col("v") + 1).sum()),
    "hopping": lambda s, k: s.key_by(*k).window(hopping("2s", "1s")).aggregate(n=count(), f=col("v").first()),
    "session": lambda s, k: s.key_by(*k).window(session("1s")).aggregate(n=count(), s=col("v").sum()),
    "top of windows": lambda s, k: s.key_by(*k).window(tumbling("1s")).top(1, by=col("v").desc()),
    "names of aggregates": lambda s, k: (
        s.key_by("v").window(tumbling("1s")).aggregate(**{name: (col("v") + 1).sum() for name in k})
    ),
    "distinct": lambda s, k: s.distinct(*k, ttl="1s"),
    "map": lambda s, k: s.map(lambda row: row, returns=s.schema),
    "select": lambda s, k: s.select(*k, twice=col(k[0]) * 2).filter(col(k[-1]) > 1),
}


def ran(verb: Verb, names: tuple[str, ...]) -> list[tuple[Any, ...]]:
    """The values of all rows that a job makes of rows with these columns."""
    fields = [pa.field(column, pa.int64(), nullable=False) for column in (*names, "v", "at")]
    values: list[Any] = [*([[1, 1, 2]] * len(names)), [10, 20, 30], [100, 200, 300]]
    job, sink = Job("names"), MemorySink(f"names-{next(_numbers)}")
    verb(job.source(MemorySource(pa.table(values, schema=pa.schema(fields))), event_time="at"), names).sink(sink)
    job.run(runtime="local")
    found: Any = sink.table()
    return sorted(tuple(row.values()) for row in found.to_pylist())


@pytest.mark.parametrize("verb", VERBS)
def test_results_do_not_depend_on_the_names_of_columns(verb: str) -> None:
    plain = tuple(f"plain{number}" for number, _ in enumerate(NAMES))
    expected = ran(VERBS[verb], plain)
    assert expected
    assert ran(VERBS[verb], NAMES) == expected


@pytest.mark.parametrize("file_format", ["jsonl", "csv", "parquet"])
def test_files_have_the_names_of_the_columns(file_format: str, tmp_path: Path) -> None:
    schema = pa.schema([pa.field(name, pa.int64(), nullable=False) for name in NAMES])
    rows: pa.Table = pa.table([[number, -number] for number, _ in enumerate(NAMES)], schema=schema)
    job, sink = Job("written"), MemorySink(f"names-{next(_numbers)}")
    job.source(MemorySource(rows)).sink(FileSink(str(tmp_path), file_format))
    job.run(runtime="local")
    assert all(list(row) == list(NAMES) for row in read_results(str(tmp_path)))
    job = Job("read")
    job.source(FileSource(f"{tmp_path}/*", schema, file_format)).sink(sink)
    job.run(runtime="local")
    assert sink.table() == rows


def test_names_of_the_engine_are_refused_where_they_are_written() -> None:
    plain = Job("j").source(MemorySource(pa.table({"a": [1]})))
    hidden = pa.schema([pa.field("~rows", pa.int64())])
    refused: tuple[Callable[[], Any], ...] = (
        lambda: Job("j").source(MemorySource(pa.table({"~rows": [1]}))),
        lambda: plain.select(col("a").alias("~rows")),
        lambda: plain.with_columns(**{"~rows": col("a")}),
        lambda: plain.key_by(**{"~rows": "a"}),
        lambda: plain.map(lambda row: row, returns=hidden),
        lambda: plain.key_by("a").aggregate(**{"~rows": count()}),
        lambda: plain.key_by("a").top(2, by="a", rank="~rows"),
        lambda: plain.key_by("a").aggregate(n=count()).changes(kind="~rows"),
    )
    for write in refused:
        with pytest.raises(GraphError, match=r"test_column_names.py:\d+: .*'~rows'.*call it 'rows'"):
            write()


def test_a_bound_of_a_window_is_not_a_key_nor_a_column_of_a_side() -> None:
    job = Job("j")
    rows = job.source(MemorySource(pa.table({"k": [1], "at": [1]})), event_time="at")
    windows = rows.key_by("k").window(tumbling("1s")).aggregate(n=count())
    with pytest.raises(GraphError, match=r"'window_start' is a bound of the window, and a key.*key_by\(key='window_st"):
        windows.key_by("window_start").window(tumbling("1m")).aggregate(m=count())
    renamed = windows.key_by(minute="window_start").window(tumbling("1m")).aggregate(m=count())
    assert renamed.schema.names == ["minute", "window_start", "window_end", "m"]
    with pytest.raises(GraphError, match="'window_start' is a bound of the window, and a column of a stream"):
        windows.join(windows.select("k", "window_end"), on="k", within=tumbling("1m"))


def test_a_column_for_the_kind_of_a_change_is_not_a_column_of_the_table() -> None:
    table = Job("j").source(MemorySource(pa.table({"_change": [1]}))).key_by("_change").aggregate(n=count())
    with pytest.raises(GraphError, match="column '_change': a sink that takes updates gets the kind of a change"):
        table.sink(Nowhere(upserts=True, deletes=True))


def test_two_columns_of_one_name_are_refused() -> None:
    both = pa.schema([pa.field("a", pa.int64()), pa.field("a", pa.int64())])
    plain = Job("j").source(MemorySource(pa.table({"a": [1]})))
    twice = pa.table([[1], [2]], schema=both)
    with pytest.raises(GraphError, match="has two columns 'a': give one of them another name"):
        Job("j").source(MemorySource(twice))
    with pytest.raises(GraphError, match="the schema has two columns 'a'"):
        plain.map(lambda row: row, returns=both)


def test_rows_without_columns_are_refused() -> None:
    class Empty(Record):
        pass

    plain = Job("j").source(MemorySource(pa.table({"a": [1]})))
    refused: tuple[Callable[[], Any], ...] = (
        lambda: Job("j").source(MemorySource([Empty()])),
        lambda: plain.map(lambda row: row, returns=Empty),
    )
    for write in refused:
        with pytest.raises(GraphError, match=r"its rows would have no columns.*give them at least one"):
            write()


class Envelope(Record):
    schema: str  # type: ignore[assignment]
    extend: int  # type: ignore[assignment]


class Keyed(Process[Envelope, Envelope]):
    due = event_timer()

    def on_row(self, row: Envelope, ctx: Any) -> Envelope:
        return Envelope(row.schema + "!", row.extend + 1)

    @due.fires
    def fired(self, ctx: Any) -> None:
        pass


def test_fields_may_be_named_as_what_a_record_has() -> None:
    def enveloped(row: Envelope) -> Envelope:
        return Envelope(row.schema.upper(), row.extend)

    def run(build: Callable[[Stream[Envelope]], Any]) -> list[dict[str, Any]]:
        job, sink = Job("envelopes"), MemorySink(f"envelopes-{next(_numbers)}")
        build(job.source(MemorySource([Envelope("a", 1)]))).sink(sink)
        job.run(runtime="local")
        found: Any = sink.table()
        rows: list[dict[str, Any]] = found.to_pylist()
        return rows

    assert run(lambda s: s.map(enveloped)) == [{"schema": "A", "extend": 1}]
    assert run(lambda s: s.key_by("schema").process(Keyed)) == [{"schema": "a!", "extend": 2}]
    assert run(lambda s: s.select(Envelope, schema=col("schema").upper())) == [{"schema": "A", "extend": 1}]


class Order(Record):
    order: int = msgspec.field(name="Order ID")
    amount: int = 1


def test_a_field_may_have_a_column_of_another_name() -> None:
    def twice(row: Order) -> Order:
        return Order(order=row.order * 2, amount=row.amount)

    job, sink = Job("orders"), MemorySink("orders")
    job.source(MemorySource([Order(1), Order(2, 3)])).key_by("Order ID").top(1, by="amount").at_end().map(twice).sink(
        sink
    )
    job.run(runtime="local")
    assert sink.rows(Order) == [Order(2), Order(4, 3)]


def test_functions_read_columns_that_are_no_identifiers_under_similar_names() -> None:
    names = ["Order ID", "Order_ID", "2024", "class", "__dict__", "", "ä"]
    row: Any = record_type(pa.schema([pa.field(name, pa.int64()) for name in names]))(*range(7))
    assert (row.Order_ID, row.Order_ID_, row._2024, row.class_, row.dict, row._, row.ä) == (0, 1, 2, 3, 4, 5, 6)
    with pytest.raises(GraphError, match="cannot be a field of a row"):
        record_type(pa.schema([pa.field('a"b', pa.int64())]))
