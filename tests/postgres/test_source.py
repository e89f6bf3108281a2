"""The changes of a table of PostgreSQL: each once, in order, whichever process reads them, and however often."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import psycopg
import pyarrow as pa
import pytest

from clonos_py import Job, Money, Record
from clonos_py.bench.postgres.server import PostgresServer
from clonos_py.cli.main import invoke
from clonos_py.connectors import FileSink, PostgresSource, read_results
from clonos_py.connectors.postgres import replication
from clonos_py.connectors.postgres.log_place import LogPlace
from clonos_py.model.errors import GraphError, SourceError
from clonos_py.observe.events import Event, Measured
from clonos_py.runtime.launch import planned, run_job
from clonos_py.settings.resolution import resolve
from clonos_py.testing import check_source
from examples import postgres_debts
from tests.postgres.conftest import drop_slots
from tests.postgres.followers import Follower, applied, following
from tests.waiting import wait_until

Database = psycopg.Connection[tuple[Any, ...]]


class Item(Record):
    id: int
    name: str
    size: float | None


COLUMNS = "(id int PRIMARY KEY, name text NOT NULL, size double precision)"


@pytest.fixture
def items(database: Database, table: str) -> str:
    """A table with three rows."""
    database.execute(f"CREATE TABLE {table} {COLUMNS}")
    database.execute(f"INSERT INTO {table} VALUES (1, 'one', 1), (2, 'two', NULL), (3, '', 3)")
    return table


def source(server: PostgresServer, table: str, rows: type[Record] = Item, **options: Any) -> PostgresSource:
    made = PostgresSource(server.dsn(), table, rows, **{"slot": table, **options})
    made.resolve()
    return made


def change(kind: str, id: int, name: str = "", size: float | None = None) -> dict[str, object]:
    return {"id": id, "name": name, "size": size, "_change": kind}


FIRST = [change("insert", 1, "one", 1.0), change("insert", 2, "two"), change("insert", 3, "", 3.0)]


def confirmed(database: Database, slot: str) -> int:
    found = database.execute(
        "SELECT confirmed_flush_lsn - '0/0'::pg_lsn FROM pg_replication_slots WHERE slot_name = %s", [slot]
    ).fetchone()
    assert found is not None
    return int(found[0])


@pytest.mark.parametrize("piece_rows", [3, 4_096])
def test_the_source_keeps_the_contract(
    server: PostgresServer, database: Database, table: str, piece_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if transactions are read in several pieces."""
    monkeypatch.setattr(replication, "PIECE_ROWS", piece_rows)
    database.execute(f"CREATE TABLE {table} {COLUMNS}")
    database.execute(f"INSERT INTO {table} SELECT n, 'row ' || n, n FROM generate_series(1, 12) n")
    source(server, table)
    database.execute(f"INSERT INTO {table} SELECT n, '', NULL FROM generate_series(31, 38) n")
    database.execute(f"UPDATE {table} SET name = 'changed' WHERE id <= 5")
    with database.transaction():
        database.execute(f"UPDATE {table} SET id = 100 WHERE id = 6")
        database.execute(f"DELETE FROM {table} WHERE id = 7")
    expected = [change("insert", n, f"row {n}", float(n)) for n in range(1, 13)]
    expected += [change("insert", n) for n in range(31, 39)]
    expected += [change("update", n, "changed", float(n)) for n in range(1, 6)]
    expected += [change("delete", 6), change("insert", 100, "row 6", 6.0), change("delete", 7)]
    check_source(source(server, table, stop="latest"), expected)


def test_nothing_is_missing_or_twice_between_the_table_and_its_changes(
    server: PostgresServer, database: Database, items: str
) -> None:
    """Transactions that are open while the slot is created delay it; those that begin meanwhile are changes."""
    with following(source(server, items)) as follower:
        database.execute(f"INSERT INTO {items} VALUES (4, 'four', 4)")
        assert follower.read(4) == [*FIRST, change("insert", 4, "four", 4.0)]


def test_changes_only_begin_where_the_slot_was_created(server: PostgresServer, database: Database, items: str) -> None:
    made = source(server, items, snapshot=False)
    database.execute(f"DELETE FROM {items} WHERE id = 1")
    with following(made) as follower:
        assert follower.read(1) == [change("delete", 1)]


class Kinds(Record):
    id: int
    small: Annotated[int, pa.int16()] | None
    ratio: float | None
    text: str | None
    flag: bool | None
    data: bytes | None
    at: datetime | None
    local: Annotated[datetime, pa.timestamp("us")] | None
    day: date | None
    price: Money | None
    whole: Annotated[Decimal, pa.decimal128(20, 0)] | None
    other: str | None
    numbers: str | None


KINDS = """(id bigint PRIMARY KEY, small smallint, ratio real, text text, flag boolean, data bytea, at timestamptz,
    local timestamp, day date, price numeric(12,2), whole bigint, other jsonb, numbers int[])"""
VALUES = [
    (1, -3, 0.5, 'a,"b"\\\n', True, b"\x00\xff", datetime(2024, 5, 6, 7, 8, 9, 10, UTC), datetime(1, 1, 1),
     date(9999, 12, 31), Decimal("-1234.50"), Decimal(1 << 60), '{"a": [1, null]}', "{1,-2}"),
    (2, *[None] * 12),
    (3, 0, float("-inf"), "", False, b"", datetime(1900, 1, 1, tzinfo=UTC), datetime(2024, 2, 29), date(1, 1, 1),
     Decimal("0.00"), Decimal(0), "null", "{}"),
]  # fmt: skip


@pytest.mark.parametrize("later", [False, True], ids=["copied", "changed"])
def test_each_type_is_read_as_it_is(server: PostgresServer, database: Database, table: str, later: bool) -> None:
    database.execute(f"CREATE TABLE {table} {KINDS}")
    if later:
        made = source(server, table, Kinds)
    for values in VALUES:
        database.execute(f"INSERT INTO {table} VALUES ({', '.join(['%s'] * 13)})", values)
    if not later:
        made = source(server, table, Kinds)
    with following(made) as follower:
        found = follower.read(3)
    assert [tuple(row.values())[:-1] for row in found] == VALUES


def test_of_a_deleted_row_columns_without_nulls_are_zero_or_empty(
    server: PostgresServer, database: Database, table: str
) -> None:
    filled = [(field.name, field.type) for field in Kinds.schema()]
    rows = pa.schema([pa.field(name, kind, nullable=False) for name, kind in filled])
    database.execute(f"CREATE TABLE {table} {KINDS}")
    for name, _ in filled:
        database.execute(f"ALTER TABLE {table} ALTER COLUMN {name} SET NOT NULL")
    database.execute(f"INSERT INTO {table} VALUES ({', '.join(['%s'] * 13)})", VALUES[0])
    made = PostgresSource(server.dsn(), table, rows, slot=table, snapshot=False)
    made.resolve()
    database.execute(f"DELETE FROM {table}")
    began = datetime(1970, 1, 1)
    with following(made) as follower:
        (found,) = follower.read(1)
    assert list(found.values()) == [
        1, 0, 0.0, "", False, b"", began.replace(tzinfo=UTC), began, began.date(), Decimal("0.00"), Decimal(0), "", "",
        "delete",
    ]  # fmt: skip


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.thorough)])
def test_any_changes_give_the_table(
    server: PostgresServer,
    database: Database,
    table: str,
    identity: str,
    seed: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With transactions in pieces, some of which are rolled back, and connections that are lost between any two."""
    monkeypatch.setattr(replication, "PIECE_ROWS", 4)
    draw = random.Random(seed)
    database.execute(f"CREATE TABLE {table} {COLUMNS}")
    database.execute(f"ALTER TABLE {table} REPLICA IDENTITY {identity}")
    database.execute(f"INSERT INTO {table} SELECT n, 'first', n FROM generate_series(1, 20) n")

    def changed() -> None:
        with database.transaction(force_rollback=draw.random() < 0.2):
            for _ in range(draw.choice([1, 2, 15])):
                id, other = draw.randrange(40), draw.randrange(40)
                database.execute(
                    draw.choice(
                        [
                            f"INSERT INTO {table} VALUES ({id}, 'n{other}', {other}) ON CONFLICT DO NOTHING",
                            f"UPDATE {table} SET name = 'u{other}' WHERE id % 10 = {id % 10}",
                            f"UPDATE {table} SET id = {40 + draw.randrange(1 << 30)} WHERE id = {id}",
                            f"DELETE FROM {table} WHERE id = {id}",
                        ]
                    )
                )

    made = source(server, table)
    with following(made) as follower:
        for _ in range(12):
            changed()
            follower.step()
            if draw.random() < 0.3:
                database.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active")
    with following(source(server, table, stop="latest"), {0: follower.position}) as rest:
        rest.read_all()
    rows = {row[0]: dict(zip(Item.schema().names, row, strict=True)) for row in database.execute(f"TABLE {table}")}
    assert applied(follower.rows + rest.rows) == rows


def test_a_whole_identity_gives_all_values_of_deleted_rows(
    server: PostgresServer, database: Database, items: str
) -> None:
    database.execute(f"ALTER TABLE {items} REPLICA IDENTITY FULL")
    with following(source(server, items)) as follower:
        database.execute(f"DELETE FROM {items} WHERE id = 1")
        assert follower.read(4)[3] == change("delete", 1, "one", 1.0)


def test_a_large_value_that_an_update_left_as_it_was(server: PostgresServer, database: Database, items: str) -> None:
    """The server does not send it. A whole identity has it; else the job ends."""
    database.execute(f"ALTER TABLE {items} ALTER COLUMN name SET STORAGE EXTERNAL, REPLICA IDENTITY FULL")
    large = "x" * 10_000
    with following(source(server, items)) as follower:
        database.execute(f"INSERT INTO {items} VALUES (4, '{large}', 0)")
        database.execute(f"UPDATE {items} SET size = 4 WHERE id = 4")
        assert follower.read(5)[4] == change("update", 4, large, 4.0)
        database.execute(f"ALTER TABLE {items} REPLICA IDENTITY DEFAULT")
        database.execute(f"UPDATE {items} SET size = 5 WHERE id = 4")
        with pytest.raises(SourceError, match=r"column 'name' has a large value that an update left as it was.*FULL"):
            follower.read(6)


# ---- what identifies a row


def by_name(server: PostgresServer, items: str, folder: Path) -> Job:
    job = Job("by-name", checkpoints=str(folder / "checkpoints"), runtime="local", checkpoint_interval="1s")
    changes = job.source(PostgresSource(server.dsn(), items, Item, slot=items, stop="latest"))
    changes.to_table("name").at_end().sink(FileSink(folder / "out"))
    return job


def test_a_table_by_another_key_than_the_replica_identity_is_refused(
    server: PostgresServer, database: Database, items: str, tmp_path: Path
) -> None:
    """A deletion has the primary key only, and would be one of the row without a name."""
    with pytest.raises(
        SourceError, match=rf"by 'name' \(to_table.* the old id only: ALTER TABLE {items} REPLICA IDENTI"
    ):
        by_name(server, items, tmp_path).run()
    assert not database.execute("SELECT FROM pg_replication_slots").fetchall(), "no slot keeps changes for it"
    database.execute(f"ALTER TABLE {items} REPLICA IDENTITY FULL")
    planned(by_name(server, items, tmp_path), resolve({"checkpoints": str(tmp_path / "checkpoints")}))
    database.execute(f"UPDATE {items} SET name = 'new' WHERE id = 1")
    database.execute(f"DELETE FROM {items} WHERE id = 2")
    by_name(server, items, tmp_path).run()
    assert sorted((row["id"], row["name"]) for row in read_results(tmp_path / "out")) == [(1, "new"), (3, "")]


def test_an_index_may_identify_rows(server: PostgresServer, database: Database, items: str) -> None:
    """Of a deleted row its columns are known, and not those of the primary key."""
    database.execute(f"CREATE UNIQUE INDEX {items}_name ON {items} (name)")
    database.execute(f"ALTER TABLE {items} REPLICA IDENTITY USING INDEX {items}_name")
    made = source(server, items)
    with following(made) as follower:
        database.execute(f"UPDATE {items} SET name = 'new' WHERE id = 1")
        database.execute(f"UPDATE {items} SET size = 9 WHERE id = 2")
        database.execute(f"DELETE FROM {items} WHERE id = 3")
        assert follower.read(7)[3:] == [
            change("delete", 0, "one"), change("insert", 1, "new", 1.0), change("update", 2, "two", 9.0),
            change("delete", 0, ""),
        ]  # fmt: skip
        assert applied(follower.rows, "name").keys() == {"new", "two"}
        database.execute(f"ALTER TABLE {items} REPLICA IDENTITY DEFAULT")
        database.execute(f"DELETE FROM {items} WHERE id = 1")
        with pytest.raises(SourceError, match="identity of the table has changed: the server does not send the old 'n"):
            follower.read(8)
    made.identified_by(frozenset(["id"]))
    database.execute(f"ALTER TABLE {items} REPLICA IDENTITY USING INDEX {items}_name")
    with pytest.raises(SourceError, match=r"by 'id' .* sends the old name only"):
        made.resolve()


# ---- positions


def test_the_slot_keeps_what_no_checkpoint_covers(server: PostgresServer, database: Database, items: str) -> None:
    """A replacement reads it again. The rows of the copy are kept as long."""
    made = source(server, items)
    database.execute(f"INSERT INTO {items} VALUES (4, 'four', 4)")
    copy = f"SELECT to_regclass('clonos_copy_{items}')::text"
    with following(made) as follower:
        start = confirmed(database, items)
        follower.read(4)
        inside = follower.reads[0].stop
        follower.reader.commit({0: 2})
        assert confirmed(database, items) == start
        assert database.execute(copy).fetchone() != (None,)
        covered = follower.position
        follower.reader.commit({0: covered})
        wait_until(lambda: confirmed(database, items) == LogPlace.of(covered).lsn)
        assert database.execute(copy).fetchone() == (None,)
        database.execute(f"UPDATE {items} SET name = 'other' WHERE id = 4")
        follower.read(5)
        assert confirmed(database, items) == LogPlace.of(covered).lsn, "not what was only read"
    assert inside > 3
    with following(made, {0: covered}) as replacement:
        assert replacement.read(1) == [change("update", 4, "other", 4.0)]


def test_the_size_of_what_the_slot_keeps_is_known(server: PostgresServer, database: Database, items: str) -> None:
    """In the log of the server 2,000 rows take far more than what other tests write meanwhile."""
    made = source(server, items)
    database.execute(f"INSERT INTO {items} SELECT n, repeat('x', 500), n FROM generate_series(11, 2010) n")
    with following(made) as follower:
        assert follower.reader.bytes_kept() is None, "it has not connected yet"
        follower.read(3 + 2_000)
        kept = follower.reader.bytes_kept()
        assert kept is not None
        assert kept > 1_000_000
        follower.reader.commit({0: follower.position})
        left = follower.reader.bytes_kept()
        assert left is not None
        assert left < kept - 1_000_000


def test_a_job_reports_what_the_slot_keeps(server: PostgresServer, items: str, tmp_path: Path) -> None:
    job = Job("kept", checkpoints=str(tmp_path / "checkpoints"))
    job.source(PostgresSource(server.dsn(), items, Item, slot=items, stop="latest")).sink(FileSink(tmp_path / "out"))
    events: list[Event] = []
    run_job(job, resolve(job.settings, command_line={"runtime": "local"}), lambda _, event: events.append(event))
    measured = [process.counters for event in events if isinstance(event, Measured) for process in event.readings]
    assert any(counters.bytes_kept is not None for counters in measured)


def test_a_definition_that_is_run_again_reads_up_to_the_new_end(
    server: PostgresServer, database: Database, items: str
) -> None:
    made = source(server, items, stop="latest")
    with following(made) as first:
        assert first.read_all() == FIRST
    database.execute(f"INSERT INTO {items} VALUES (4, 'four', 4)")
    made.resolve()
    with following(made, {0: first.position}) as second:
        assert second.read_all() == [change("insert", 4, "four", 4.0)]


def test_progress_is_confirmed_after_the_end(server: PostgresServer, database: Database, items: str) -> None:
    with following(source(server, items, stop="latest")) as follower:
        assert follower.read_all() == FIRST
        follower.reader.commit({0: follower.position})
    wait_until(lambda: confirmed(database, items) == LogPlace.of(follower.position).lsn)


def test_the_position_follows_the_log_of_other_tables(
    server: PostgresServer, database: Database, items: str, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the server would keep it for a table that does not change. A replay finds the same positions."""
    monkeypatch.setattr("clonos_py.connectors.postgres.change_reader._IDLE_BYTES", 100_000)
    made = source(server, items)
    with following(made) as follower:
        follower.read(3)
        before = follower.position
        database.execute(f"CREATE TABLE other_{items} AS SELECT repeat('x', 100) FROM generate_series(1, 2000)")
        wait_until(lambda: follower.step() and follower.position > before)
        assert follower.reads[-1].row_count == 0
        database.execute(f"INSERT INTO {items} VALUES (4, 'four', 4)")
        follower.read(4)
    with following(made) as replayed:
        again = [replayed.reader.reread(0, read.start, read.stop) for read in follower.reads]
    assert [(read.start, read.stop, read.checksum) for read in again] == [
        (read.start, read.stop, read.checksum) for read in follower.reads
    ]


def test_a_replacement_takes_the_slot_over_and_the_former_attempt_does_not_take_it_back(
    server: PostgresServer, database: Database, items: str
) -> None:
    made = source(server, items)
    with following(made) as hung:
        hung.read(3)
        hung.step()
        with following(made) as replacement:
            database.execute(f"INSERT INTO {items} VALUES (4, 'four', 4)")
            replacement.read(4)
            for number in range(5, 8):
                database.execute(f"INSERT INTO {items} VALUES ({number}, '', NULL)")
                hung.step()
            assert len(replacement.read(7)) == 7


def test_a_server_that_dies_is_followed_on_when_it_is_back(
    server: PostgresServer, database: Database, items: str
) -> None:
    with following(source(server, items)) as follower:
        database.execute(f"INSERT INTO {items} VALUES (4, 'four', 4)")
        follower.read(4)
        server.kill()
        server.start()
        with server.connect() as again:
            again.execute(f"INSERT INTO {items} VALUES (5, 'five', 5)")
        assert follower.read(5)[4] == change("insert", 5, "five", 5.0)


# ---- what cannot be followed


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [
        ("TRUNCATE {0}", "the table was truncated"),
        ("ALTER TABLE {0} DROP COLUMN size; UPDATE {0} SET name = ''", "column 'size' is gone"),
        ("UPDATE {0} SET size = NULL; UPDATE {0} SET name = 'x'; ALTER TABLE {0} DROP COLUMN name CASCADE; "
         "INSERT INTO {0} VALUES (9)", "column 'name' is gone"),
        ("ALTER TABLE {0} ALTER COLUMN name DROP NOT NULL; UPDATE {0} SET name = NULL", "'name' has nulls: declare it"),
        ("ALTER TABLE {0} ALTER COLUMN size TYPE text USING 'much'", "has a value that double does not hold: 'much'"),
    ],
)  # fmt: skip
def test_a_change_that_cannot_be_followed_ends_the_job_with_one_line(
    server: PostgresServer, database: Database, items: str, broken: str, complaint: str
) -> None:
    with following(source(server, items)) as follower:
        follower.read(3)
        for statement in broken.format(items).split("; "):
            database.execute(statement)
        database.execute(f"UPDATE {items} SET id = id + 10")
        with pytest.raises(SourceError) as caught:
            follower.read(100)
    said = str(caught.value)
    assert complaint in said
    assert f"slot '{items}'" in said
    assert "\n" not in said


def test_an_added_column_is_left_out(server: PostgresServer, database: Database, items: str) -> None:
    with following(source(server, items)) as follower:
        database.execute(f"INSERT INTO {items} VALUES (4, 'four', 4)")
        database.execute(f"ALTER TABLE {items} ADD COLUMN more int DEFAULT 7")
        database.execute(f"INSERT INTO {items} VALUES (5, 'five', 5, 5)")
        assert follower.read(5)[3:] == [change("insert", 4, "four", 4.0), change("insert", 5, "five", 5.0)]


class Wrong(Record):
    id: int
    name: int
    size: float


class Short(Record):
    name: str


@pytest.mark.parametrize(
    ("prepared", "rows", "complaint"),
    [
        ("DROP TABLE {0}", Item, "there is no table {0}"),
        ("ALTER TABLE {0} DROP COLUMN size", Item, "has no column 'size'"),
        ("", Wrong, "column 'name' of table {0} has the type text, and is declared as int64"),
        ("", Short, "column 'id' identifies a row of table {0}: declare it, too"),
        ("ALTER TABLE {0} ALTER COLUMN name DROP NOT NULL", Item, "column 'name' of table {0} takes nulls"),
        ("ALTER TABLE {0} DROP CONSTRAINT {0}_pkey", Item, "has nothing that identifies an old row"),
        ("CREATE PUBLICATION clonos_{0}", Item, "ALTER PUBLICATION clonos_{0} ADD TABLE public.{0}"),
        ("CREATE PUBLICATION clonos_{0} FOR TABLE {0} WITH (publish = 'insert')", Item, "SET (publish = 'insert, up"),
        ("SELECT pg_create_logical_replication_slot('{0}', 'pgoutput')", Item, "was not created by this source"),
        ("SELECT pg_create_logical_replication_slot('{0}', 'test_decoding')", Item, "it is of plugin 'test_decoding'"),
    ],
)
def test_what_cannot_be_followed_is_named_when_the_job_is_submitted(
    server: PostgresServer, database: Database, items: str, prepared: str, rows: type[Record], complaint: str
) -> None:
    if prepared:
        database.execute(prepared.format(items))
    with pytest.raises(SourceError) as caught:
        source(server, items, rows)
    assert complaint.format(items) in str(caught.value)


def test_a_user_without_rights_is_named(server: PostgresServer, database: Database, items: str) -> None:
    database.execute("CREATE ROLE follower LOGIN")
    made = PostgresSource(server.dsn(user="follower"), items, Item, slot=items)
    with pytest.raises(SourceError, match=r"let the owner of the table CREATE PUBLICATION"):
        made.resolve()
    database.execute(f"CREATE PUBLICATION clonos_{items} FOR TABLE {items}")
    with pytest.raises(SourceError, match=r"ALTER ROLE ... REPLICATION, SELECT on the table, and CREATE on its schema"):
        made.resolve()


def test_a_server_without_logical_decoding_is_named(server: PostgresServer, items: str) -> None:
    """Once logical decoding is switched off, the server does not start with a logical slot."""

    def with_level(level: str) -> None:
        with server.connect() as connection:
            connection.execute(f"ALTER SYSTEM SET wal_level = '{level}'")
        server.stop()
        server.start()

    with_level("replica")
    try:
        with pytest.raises(SourceError, match="wal_level is 'replica': ALTER SYSTEM SET wal_level = 'logical'"):
            source(server, items)
    finally:
        with_level("logical")


def test_a_slot_that_another_program_follows_is_named(
    server: PostgresServer, database: Database, items: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run does not take it over."""
    with following(source(server, items)) as other:
        other.read(3)
        database.execute(f"INSERT INTO {items} VALUES (4, 'four', 4)")
        other.read(4)
        late, complaint = source(server, items, away="0s"), r"is active for PID \d+: another program follows the slot"
        with following(late) as follower, pytest.raises(SourceError, match=complaint):
            follower.read(4)
        database.execute(f"INSERT INTO {items} VALUES (5, 'five', 5)")
        other.read(5)


def test_a_slot_that_is_gone_is_named(server: PostgresServer, database: Database, items: str) -> None:
    made = source(server, items)
    with following(made) as follower:
        follower.read(3)
        saved = follower.reader.snapshot()
    drop_slots(database)
    lost = "changes since the last checkpoint are lost; start over with --fresh"
    with following(made, {0: follower.position}, saved) as replacement, pytest.raises(SourceError, match=lost):
        replacement.read(1)
    anew = source(server, items)
    with pytest.raises(SourceError, match="dropped and created again since the checkpoint"):
        Follower(anew, {0: follower.position}, saved)


def test_a_run_without_the_checkpoint_of_the_one_before_is_told_so(
    server: PostgresServer, database: Database, items: str
) -> None:
    """Such as one with --fresh. It reads the copy again as long as that is there."""
    for _ in range(2):
        with following(source(server, items, stop="latest")) as follower:
            assert follower.read_all() == FIRST
    with following(source(server, items, stop="latest"), {0: follower.position}) as last:
        last.reader.commit({0: follower.position})
    told = r"this run does not have its checkpoint: .*pg_drop_replication_slot"
    with following(source(server, items)) as fresh, pytest.raises(SourceError, match=told):
        fresh.read(1)
    database.execute(f"INSERT INTO {items} VALUES (4, 'four', 4)")
    with following(source(server, items, stop="latest"), {0: follower.position}) as later:
        later.read_all()
        later.reader.commit({0: later.position})
    told = "were confirmed by a later checkpoint than that of this run"
    behind = {0: follower.position}
    with following(source(server, items), behind) as earlier, pytest.raises(SourceError, match=told):
        earlier.read(1)
    drop_slots(database)
    with following(source(server, items)) as anew:
        assert anew.read(4) == [*FIRST, change("insert", 4, "four", 4.0)]


def test_a_slot_that_the_server_has_given_up_is_named(server: PostgresServer, database: Database, items: str) -> None:
    made = source(server, items)
    database.execute("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'")
    database.execute("SELECT pg_reload_conf()")
    try:
        for _ in range(3):
            database.execute(f"INSERT INTO {items} SELECT max(id) + 1, 'x', 0 FROM {items}")
            database.execute("SELECT pg_switch_wal()")
        database.execute("CHECKPOINT")
        told = "raise that, SELECT pg_drop_replication_slot"
        with following(made) as follower, pytest.raises(SourceError, match=told):
            follower.read(5)
        with pytest.raises(SourceError, match="max_slot_wal_keep_size"):
            source(server, items)
    finally:
        database.execute("ALTER SYSTEM RESET max_slot_wal_keep_size")
        database.execute("SELECT pg_reload_conf()")


def test_a_plan_and_a_check_do_not_connect(capsys: pytest.CaptureFixture[str]) -> None:
    """A check makes rows up: to read some would create the slot."""
    job = str(Path(postgres_debts.__file__))
    assert invoke(["plan", job, "--dsn", "host=/nowhere"]) == 0
    assert invoke(["check", job, "--dsn", "host=/nowhere"]) == 0
    assert "source 'changes' gave no rows: they were made up from its schema" in capsys.readouterr().out


def test_a_definition_that_cannot_work_is_refused_where_it_is_written() -> None:
    class Changed(Record):
        id: int
        _change: str

    with pytest.raises(GraphError, match="up to 48 small letters, digits and underscores"):
        PostgresSource("dbname=d", "t", Item, slot="My-Slot")
    with pytest.raises(GraphError, match="column '_change' is that for the kind of change"):
        PostgresSource("dbname=d", "t", pa.schema([("_change", pa.string())]), slot="s")
    with pytest.raises(GraphError, match="unknown stop='earliest'"):
        PostgresSource("dbname=d", "t", Item, slot="s", stop="earliest")  # type: ignore[arg-type]
