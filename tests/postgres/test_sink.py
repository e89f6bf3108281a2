"""Rows in tables of PostgreSQL: once, as whole checkpoints, and of a table the last ones."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Annotated, Any, cast

import psycopg
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import sql

from clonos_py import Money, Record
from clonos_py.bench.postgres.server import PASSWORD, PostgresServer
from clonos_py.connectors import CommitId, DatabaseSink, DatabaseSource, PostgresSink, Secret
from clonos_py.connectors.postgres.sink import PostgresCommitter
from clonos_py.model.errors import GraphError, SinkError
from clonos_py.model.record_codec import encode
from clonos_py.testing import check_sink, check_source


class Reading(Record):
    number: int
    text: str | None


def reading(number: int) -> Reading:
    return Reading(number, None if number % 2 else f'"{number}",\n\\.')


def later(number: int) -> Reading:
    return Reading(number, "later")


class Inner(Record):
    a: int | None
    b: list[str]


class Everything(Record):
    number: int
    small: Annotated[int, pa.int16()] | None
    ratio: float | None
    text: str | None
    flag: bool | None
    data: bytes | None
    at: datetime | None
    local: Annotated[datetime, pa.timestamp("us")] | None
    day: date | None
    length: timedelta | None
    price: Money | None
    numbers: list[int] | None
    words: list[str | None] | None
    inner: Inner | None
    inners: list[Inner] | None


_jobs = itertools.count()

EVERYTHING = """(number bigint PRIMARY KEY, small smallint, ratio double precision, text text, flag boolean, data bytea,
    at timestamptz, local timestamp, day date, length interval, price numeric(18,2), numbers bigint[],
    words text[], inner_ jsonb, inners jsonb)"""


def created(server: PostgresServer, table: str, columns: str) -> None:
    with server.connect() as connection:
        connection.execute(f"CREATE TABLE {table} {columns}")


def rows_of(server: PostgresServer, table: str) -> list[dict[str, Any]]:
    with server.connect() as connection:
        cursor = connection.cursor(row_factory=psycopg.rows.dict_row)
        return cursor.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(table))).fetchall()


def committer(sink: PostgresSink, rows: type[Record] = Reading) -> PostgresCommitter:
    return cast("PostgresCommitter", sink.open(rows.schema()))


def table_of(*rows: Record) -> pa.Table:
    return pa.Table.from_batches([encode(rows, type(rows[0]).schema())])


def write(sink: PostgresSink, *rows: Record) -> None:
    """As a task of a job of its own."""
    opened = committer(sink, type(rows[0]))
    opened.commit(CommitId(f"job/{next(_jobs)}", 1), table_of(*rows))
    opened.close()


def refused(sink: PostgresSink, rows: type[Record] = Reading) -> str:
    with pytest.raises(SinkError) as caught:
        sink.resolve(rows.schema())
    return str(caught.value)


def test_the_sink_of_rows_keeps_the_contract(server: PostgresServer, table: str) -> None:
    created(server, table, "(number bigint, text text)")
    check_sink(PostgresSink(server.dsn(), table), lambda: rows_of(server, table), row=reading, deaths=8)


def test_the_sink_of_a_table_keeps_the_contract(server: PostgresServer, table: str) -> None:
    created(server, table, "(number bigint PRIMARY KEY, text text)")
    sink = PostgresSink(server.dsn(), table, key="number")
    check_sink(sink, lambda: rows_of(server, table), row=reading, later=later, deaths=8)


def test_any_client_of_the_server_reads_and_writes_its_tables(server: PostgresServer, table: str) -> None:
    """A transaction has failed here as a whole once one of its statements has."""
    created(server, table, "(number bigint PRIMARY KEY, text text)")
    connect = partial(psycopg.connect, server.dsn())
    sink = DatabaseSink(connect, f"public.{table}", key="number")
    with server.connect() as connection:
        connection.execute("DROP TABLE clonos_commits")
    check_sink(sink, lambda: rows_of(server, table), row=reading, later=later, deaths=4)
    check_source(DatabaseSource(connect, table, Reading, key="number"), rows_of(server, table))
    with server.connect() as connection:
        connection.execute("DROP TABLE clonos_commits")


def test_each_type_arrives_as_it_was(server: PostgresServer, table: str) -> None:
    created(server, table, EVERYTHING.replace("inner_", '"inner"'))
    sink = PostgresSink(server.dsn(), table)
    full = Everything(
        1, -3, 0.1, 'a,"b"\\', True, b"\x00\xff", datetime(2024, 5, 6, 7, 8, 9, 10, UTC), datetime(1, 1, 1),
        date(9999, 12, 31), timedelta(days=-1, microseconds=1), Decimal("-12345678.90"),
        [1, -2], ['x"y\\', "", None, "NULL", "{,}"], Inner(None, ['"']), [Inner(1, []), Inner(2, ["z"])],
    )  # fmt: skip
    empty = Everything(2, *[None] * 14)
    hollow = Everything(3, 0, float("inf"), "", False, b"", None, None, None, None, None, [], [], None, [])
    sink.resolve(Everything.schema())
    write(sink, full, empty, hollow)
    found = sorted(rows_of(server, table), key=lambda row: cast("int", row["number"]))
    names = Everything.schema().names
    assert found[0] == {name: getattr(full, name) for name in names} | {
        "inner": {"a": None, "b": ['"']},
        "inners": [{"a": 1, "b": []}, {"a": 2, "b": ["z"]}],
    }
    assert found[1] == dict.fromkeys(names) | {"number": 2}
    assert found[2] == {name: getattr(hollow, name) for name in names}


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(
            st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"])),
            st.lists(st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"])) | st.none()),
        ),
        min_size=1,
        max_size=20,
    )
)
def test_any_text_arrives_as_it_was(server: PostgresServer, rows: list[tuple[str, list[str | None]]]) -> None:
    class Texts(Record):
        number: int
        text: str
        texts: list[str | None]

    with server.connect() as connection:
        connection.execute("DROP TABLE IF EXISTS texts")
    created(server, "texts", "(number int, text text, texts text[])")
    write(PostgresSink(server.dsn(), "texts"), *(Texts(number, *row) for number, row in enumerate(rows)))
    found = sorted((row["number"], row["text"], row["texts"]) for row in rows_of(server, "texts"))
    assert found == [(number, *row) for number, row in enumerate(rows)]


@pytest.mark.parametrize(
    ("columns", "key", "complaint"),
    [
        ("(number bigint)", (), "has no column 'text': ALTER TABLE {0} ADD COLUMN text text, or"),
        ("(number text, text text)", (), "column 'number' of table {0} has the type text, and the rows have int64"),
        ("(number bigint, text integer)", (), "TYPE text, or convert it"),
        ("(number bigint, text text, at date NOT NULL)", (), "column 'at' of table {0} needs a value"),
        ("(number bigint, text text GENERATED ALWAYS AS ('x') STORED)", (), "computes column 'text' itself"),
        ("(number bigint, text text)", "number", "no unique index on exactly the key number: ALTER TABLE {0} ADD PRIM"),
        ("(number bigint, text text, UNIQUE (number, text))", "number", "no unique index on exactly the key"),
        ("(number bigint UNIQUE, text text)", "number", "takes nulls, of which each counts as another key"),
        ("(number bigint PRIMARY KEY, text text) PARTITION BY HASH (number)", "number", ""),
        ("(number smallint, text varchar(5), more text, id int NOT NULL DEFAULT 1, i int GENERATED ALWAYS AS IDENTITY)",
         (), ""),
        ("(number numeric(5,1), text uuid)", (), ""),
    ],
)  # fmt: skip
def test_the_table_is_checked_when_the_job_is_submitted(
    server: PostgresServer, table: str, columns: str, key: str, complaint: str
) -> None:
    created(server, table, columns)
    sink = PostgresSink(server.dsn(), table, key=key)
    if complaint:
        assert complaint.format(table) in refused(sink)
    else:
        sink.resolve(Reading.schema())


def test_a_missing_table_is_named_with_the_statement_that_creates_it(server: PostgresServer, table: str) -> None:
    sink = PostgresSink(server.dsn(), f"public.{table}", key="number")
    said = refused(sink)
    _, _, statement = said.partition(f"there is no table public.{table}: ")
    assert statement == f"CREATE TABLE public.{table} (number bigint NOT NULL, text text, PRIMARY KEY (number))"
    created(server, table, statement.split(" ", 3)[3])
    sink.resolve(Reading.schema())


def test_what_a_user_may_not_do_is_named_when_the_job_is_submitted(
    server: PostgresServer, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    created(server, table, "(number bigint PRIMARY KEY, text text)")
    with server.connect() as connection:
        connection.execute("CREATE ROLE reader LOGIN; GRANT CREATE ON SCHEMA public TO reader")
    asked = PostgresSink(server.dsn(user="reader"), table, key="number")
    assert f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO reader" in refused(asked)
    monkeypatch.setenv("PASSWORD_OF_SINK", "wrong")
    wrong = PostgresSink(server.dsn(user="locked"), table, password=Secret(env="PASSWORD_OF_SINK"))
    assert 'password authentication failed for user "locked"' in refused(wrong)
    monkeypatch.setenv("PASSWORD_OF_SINK", PASSWORD)
    assert "may not write" in refused(wrong)
    assert 'database "nowhere" does not exist' in refused(PostgresSink(server.dsn("nowhere"), table))


def test_a_definition_that_cannot_work_is_refused_where_it_is_written(server: PostgresServer) -> None:
    with pytest.raises(GraphError, match=r"password=Secret"):
        PostgresSink("postgresql://me:word@host/db", "t")
    with pytest.raises(GraphError, match="write postgresql://"):
        PostgresSink("no address", "t")
    with pytest.raises(GraphError, match="key 'id' is not one of the columns number, text"):
        PostgresSink(server.dsn(), "t", key="id").create(Reading.schema())
    with pytest.raises(GraphError, match="no column of a table holds 'x', which is map"):
        PostgresSink(server.dsn(), "t").create(pa.schema([("x", pa.map_(pa.string(), pa.int64()))]))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ("DROP TABLE {0}", "there is no table {0}"),
        ("ALTER TABLE {0} DROP COLUMN text", "has no column 'text'"),
        ("ALTER TABLE {0} ALTER COLUMN number TYPE date USING NULL", "has the type date"),
        ("ALTER TABLE {0} ADD COLUMN more int NOT NULL", "needs a value"),
    ],
)
def test_a_table_that_changes_while_the_job_runs_ends_it(
    server: PostgresServer, table: str, change: str, complaint: str
) -> None:
    created(server, table, "(number bigint, text text)")
    writer = committer(PostgresSink(server.dsn(), table))
    writer.commit(CommitId(table, 1), table_of(Reading(1, "a")))
    with server.connect() as connection:
        connection.execute("DELETE FROM " + table)
        connection.execute(change.format(table))
    with pytest.raises(SinkError) as caught:
        writer.commit(CommitId(table, 2), table_of(Reading(2, "b")))
    assert complaint.format(table) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("columns", "row", "complaint"),
    [
        ("(number smallint, text text)", Reading(1 << 40, ""), 'value "1099511627776" is out of range'),
        ("(number bigint, text text)", Reading(1, "\x00"), 'invalid byte sequence for encoding "UTF8": 0x00'),
        ("(number bigint, text text NOT NULL DEFAULT '')", Reading(1, None), 'null value in column "text"'),
        ("(number bigint CHECK (number > 5), text text)", Reading(1, "x"), "violates check constraint"),
    ],
)
def test_a_row_that_the_table_refuses_ends_the_job_and_leaves_nothing(
    server: PostgresServer, table: str, columns: str, row: Reading, complaint: str
) -> None:
    created(server, table, columns)
    with pytest.raises(SinkError) as caught:
        write(PostgresSink(server.dsn(), table), Reading(9, "good"), row)
    assert complaint in str(caught.value)
    assert table in str(caught.value)
    assert rows_of(server, table) == []


def interrupted(monkeypatch: pytest.MonkeyPatch, interrupt: Callable[[], None]) -> None:
    """The first connection is interrupted after it has written the rows and the mark, before their commit."""
    from clonos_py.connectors.postgres.sink import _Writer

    original, calls = _Writer.write, list[None]()

    def write(self: _Writer, connection: Any, rows: pa.Table) -> None:
        original(self, connection, rows)
        if not calls:
            calls.append(None)
            interrupt()

    monkeypatch.setattr(_Writer, "write", write)


def test_a_server_that_dies_within_a_commit_gets_the_rows_when_it_is_back(
    server: PostgresServer, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    created(server, table, "(number bigint, text text)")

    def restart() -> None:
        server.kill()
        server.start()

    interrupted(monkeypatch, restart)
    write(PostgresSink(server.dsn(), table), Reading(1, "a"), Reading(2, "b"))
    assert [row["number"] for row in rows_of(server, table)] == [1, 2]


@pytest.mark.parametrize("state", ["40001", "40P01", "53100", "57P03"])
def test_a_failure_that_passes_is_tried_again(
    server: PostgresServer, table: str, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    """Conflicts of transactions, a full disk, and a server that starts."""
    created(server, table, "(number bigint, text text)")

    def fail() -> None:
        raise psycopg.errors.lookup(state)("as the test has ordered")

    interrupted(monkeypatch, fail)
    write(PostgresSink(server.dsn(), table), Reading(1, "a"))
    assert [row["number"] for row in rows_of(server, table)] == [1]


def test_a_server_that_is_away_for_too_long_ends_the_job(table: str) -> None:
    with pytest.raises(SinkError, match=r"PostgreSQL at /nowhere:5432.*No such file.*it was tried again for 0 s"):
        write(PostgresSink("host=/nowhere dbname=d", table, away="0s"), Reading(1, "a"))
