"""Tables of any database, tested with SQLite: the sink and the source keep their contracts."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from clonos_py import GraphError, Job, Record, col
from clonos_py.connectors import CommitId, DatabaseSink, DatabaseSource
from clonos_py.connectors.database.client import Connect, DatabaseClient
from clonos_py.model.errors import SinkError, SourceError
from clonos_py.settings.definitions import Runtime
from clonos_py.testing import check_sink, check_source


class Part(Record):
    number: int
    text: str | None


def part(number: int) -> Part:
    return Part(number, None if number % 2 else f"part {number}")


def later(number: int) -> Part:
    return Part(number, "later")


@pytest.fixture
def database(tmp_path: Path) -> str:
    path = str(tmp_path / "parts.sqlite")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE parts (number INTEGER, text TEXT, more TEXT DEFAULT 'x')")
        connection.commit()
    return path


def opening(path: str) -> Connect:
    """A committing thread opens the connection, and the task's thread closes it."""
    return partial(sqlite3.connect, path, check_same_thread=False)


def rows_of(path: str) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(path)) as connection:
        return [{"number": number, "text": text} for number, text, _ in connection.execute("SELECT * FROM parts")]


def filled(path: str, *numbers: int) -> list[Part]:
    parts = [part(number) for number in numbers]
    with closing(sqlite3.connect(path)) as connection:
        connection.executemany("INSERT INTO parts VALUES (?, ?, '')", [(one.number, one.text) for one in parts])
        connection.commit()
    return parts


def test_the_sink_of_rows_keeps_the_contract(database: str) -> None:
    sink = DatabaseSink(opening(database), "parts")
    check_sink(sink, lambda: rows_of(database), row=part, deaths=12)


def test_the_sink_of_a_table_keeps_the_contract(database: str) -> None:
    sink = DatabaseSink(opening(database), "main.parts", key="number")
    check_sink(sink, lambda: rows_of(database), row=part, later=later, deaths=12)


@pytest.mark.parametrize("partitions", [1, 3, 100])
def test_the_source_keeps_the_contract(database: str, partitions: int) -> None:
    parts = filled(database, *range(-5, 9), 20, 21, 40)
    check_source(
        DatabaseSource(partial(sqlite3.connect, database), "parts", Part, key="number", partitions=partitions), parts
    )


def test_a_query_is_read_like_a_table_and_an_empty_one_ends(database: str) -> None:
    parts = filled(database, *range(10))
    query = "(SELECT number, text FROM parts WHERE number < 5)"
    check_source(DatabaseSource(partial(sqlite3.connect, database), query, Part, key="number"), parts[:5])
    none = DatabaseSource(partial(sqlite3.connect, database), "(SELECT * FROM parts WHERE 1 = 0)", Part, key="number")
    assert none.open(none.names[0]).read(0, 10) is None


def large_parts(shop: str, out: str) -> Job:
    job = Job("large-parts", checkpoint_interval="1s")
    parts = job.source(DatabaseSource(partial(sqlite3.connect, shop), "parts", Part, key="number", partitions=4))
    large = parts.filter(col("number") >= 100)
    to = partial(sqlite3.connect, out, check_same_thread=False)
    large.sink(DatabaseSink(to, "large_parts", key="number"))
    return job


def test_a_job_copies_rows_from_table_to_table(database: str, tmp_path: Path) -> None:
    parts = filled(database, *range(90, 300))
    out = str(tmp_path / "out.sqlite")
    with closing(sqlite3.connect(out)) as connection:
        connection.execute("CREATE TABLE large_parts (number INTEGER, text TEXT)")
        large_parts(database, out).run(runtime=Runtime.LOCAL)
        found = connection.execute("SELECT number, text FROM large_parts ORDER BY number").fetchall()
    assert found == [(one.number, one.text) for one in parts if one.number >= 100]


def test_what_does_not_fit_is_named_before_the_job_starts(database: str) -> None:
    sink = DatabaseSink(partial(sqlite3.connect, database), "pieces")
    with pytest.raises(SinkError, match="table pieces: OperationalError: no such table: pieces; it needs the columns"):
        sink.resolve(Part.schema())
    with pytest.raises(SourceError, match="OperationalError: no such table: pieces"):
        DatabaseSource(partial(sqlite3.connect, database), "pieces", Part, key="number").partitions()
    with pytest.raises(GraphError, match="key 'text' is not one of the columns of integers"):
        DatabaseSource(partial(sqlite3.connect, database), "parts", Part, key="text")
    with pytest.raises(GraphError, match="key 'id' is not one of the columns number, text"):
        DatabaseSink(partial(sqlite3.connect, database), "parts", key="id").create(Part.schema())
    with pytest.raises(GraphError, match="opens no connection"):
        DatabaseSink(database, "parts")  # type: ignore[arg-type]


def test_two_rows_with_the_same_key_end_the_job(database: str) -> None:
    filled(database, 1, 2, 2)
    source = DatabaseSource(partial(sqlite3.connect, database), "parts", Part, key="number", partitions=1)
    with pytest.raises(SourceError, match="two rows have the same key"):
        source.open(source.names[0]).read(0, 10)
    reader = source.open(source.names[0])
    found = reader.read(0, 2)
    assert found is not None
    with pytest.raises(SourceError, match="two rows have the same key"):
        reader.read(found[1], 2)


def test_a_lock_is_waited_for_and_a_row_that_is_refused_ends_the_job(database: str) -> None:
    with closing(sqlite3.connect(database)) as other:
        other.execute("CREATE UNIQUE INDEX numbers ON parts (number)")
        other.commit()
        committer = DatabaseSink(partial(sqlite3.connect, database, timeout=0), "parts", away="0s").open(Part.schema())
        rows = pa.table({"number": [1, 1], "text": ["a", "b"]})
        with pytest.raises(SinkError, match="table parts: IntegrityError: UNIQUE constraint failed"):
            committer.commit(CommitId("owner", 1), rows)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(SinkError, match="table parts: OperationalError: database is locked"):
            committer.commit(CommitId("owner", 1), rows.slice(0, 1))
        other.rollback()
        committer.commit(CommitId("owner", 1), rows.slice(0, 1))
    assert rows_of(database) == [{"number": 1, "text": "a"}]


def test_a_key_that_is_null_ends_the_job(database: str) -> None:
    committer = DatabaseSink(opening(database), "parts", key="text").open(Part.schema())
    with pytest.raises(SinkError, match="key 'text' is null in a row"):
        committer.commit(CommitId("owner", 1), pa.table({"number": [1, 2], "text": ["a", None]}))
    assert rows_of(database) == []


@pytest.mark.parametrize(
    ("style", "statement"),
    [("qmark", "a = ? AND b = ?"), ("format", "a = %s AND b = %s"), ("numeric", "a = :1 AND b = :2")],
)
def test_parameters_have_the_form_of_the_client(style: str, statement: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DatabaseClient, "module", lambda *_: SimpleNamespace(paramstyle=style, __name__="client"))
    client = DatabaseClient("owner", list, '"')
    assert client.parameters(None, "a = ? AND b = ?") == statement


def test_a_client_without_parameters_in_order_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DatabaseClient, "module", lambda *_: SimpleNamespace(paramstyle="named", __name__="client"))
    with pytest.raises(GraphError, match="client takes parameters by 'named' only"):
        DatabaseClient("owner", list, '"').parameters(None, "a = ?")
