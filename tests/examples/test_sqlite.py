"""The examples over SQLite: a sink and a source of one's own keep their contracts, and every row is visible once."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from datetime import timedelta
from decimal import Decimal
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from clonos_py import Record
from clonos_py.cli.main import invoke
from clonos_py.connectors import CommitId, MemorySource, read_results
from clonos_py.plan.physical import plan
from clonos_py.runtime.sim.run import simulate_plan
from clonos_py.settings.resolution import resolve
from clonos_py.testing import check_sink, check_source
from examples import sqlite_sink
from examples.sqlite_sink import Order, SqliteCommitter, SqliteSink
from examples.sqlite_source import LargeOrder, SqliteSource
from tests.small_pieces import in_small_pieces

ROOT = Path(__file__).resolve().parents[2]
ORDERS = [
    json.loads(line)
    for path in sorted((ROOT / "examples" / "data").glob("orders-*.jsonl"))
    for line in path.read_text().splitlines()
]
LARGE = [(order["id"], order["symbol"], order["quantity"]) for order in ORDERS if order["quantity"] >= 30]


@pytest.fixture(autouse=True)
def few_deaths(monkeypatch: pytest.MonkeyPatch) -> None:
    """``tests/connectors/test_check_sink.py`` has the check itself, with as many as users have."""
    defaults = check_sink.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "deaths", 8)


class Measurement(Record):
    sensor: int
    value: float
    note: str | None


def measurement(sensor: int) -> Measurement:
    return Measurement(sensor, sensor / 4, None if sensor % 2 else "even")


def corrected(sensor: int) -> Measurement:
    return Measurement(sensor, -1.0, "corrected")


def rows_of(database: Path, table: str) -> list[dict[str, Any]]:
    """Without a table there are no rows."""
    with closing(sqlite3.connect(database)) as connection:
        connection.row_factory = sqlite3.Row
        if connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone() is None:
            return []
        return [dict(row) for row in connection.execute(f'SELECT * FROM "{table}"')]


def test_the_sink_keeps_the_contract(tmp_path: Path) -> None:
    database = tmp_path / "out.sqlite"
    check_sink(SqliteSink(str(database), "measured"), lambda: rows_of(database, "measured"), row=measurement)


def test_the_sink_of_a_table_keeps_the_contract(tmp_path: Path) -> None:
    database = tmp_path / "out.sqlite"
    sink = SqliteSink(str(database), "latest", key=["sensor"])
    check_sink(sink, lambda: rows_of(database, "latest"), row=measurement, later=corrected)


def test_a_sink_checks_what_it_writes_to_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = f"{ROOT}/examples/sqlite_sink.py"
    assert invoke(["run", job, "--runtime", "local", "--database", f"{tmp_path}/nowhere/out.sqlite"]) == 1
    assert f"error: there is no folder {tmp_path}/nowhere for the database: create it" in capsys.readouterr().err


class Latest(Record):
    sensor: int | None
    took: timedelta


def test_a_key_may_be_null(tmp_path: Path) -> None:
    database = tmp_path / "out.sqlite"
    schema = pa.schema([*Latest.schema(), pa.field("_change", pa.string(), nullable=False)])
    committer = SqliteCommitter(str(database), "latest", schema, ["sensor"])

    def commit(checkpoint: int, *rows: tuple[int | None, int, str]) -> list[dict[str, Any]]:
        given = [{"sensor": key, "took": timedelta(seconds=n), "_change": change} for key, n, change in rows]
        committer.commit(CommitId("owner", checkpoint), pa.Table.from_pylist(given, schema))
        return rows_of(database, "latest")

    assert len(commit(1, (None, 1, "insert"), (7, 1, "insert"))) == 2
    changed = commit(2, (None, 3, "update"))
    assert sorted(map(str, changed)) == [
        "{'sensor': 7, 'took': '0:00:01'}",
        "{'sensor': None, 'took': '0:00:03'}",
    ]
    assert [row["sensor"] for row in commit(3, (None, 3, "delete"))] == [7]
    committer.close()


def assert_each_row_is_there_once(database: Path) -> None:
    found = [(row["id"], row["symbol"], row["quantity"]) for row in rows_of(database, "large_orders")]
    assert sorted(found) == sorted(LARGE)
    counts = Counter(order["symbol"] for order in ORDERS)
    volumes = {(row["symbol"], row["orders"], row["quantity"]) for row in rows_of(database, "volumes")}
    assert volumes == {
        (symbol, count, sum(order["quantity"] for order in ORDERS if order["symbol"] == symbol))
        for symbol, count in counts.items()
    }
    symbols = {row["orders"]: row["symbols"] for row in rows_of(database, "symbols")}
    assert symbols == Counter(counts.values()), "rows that have left the table are deleted"


def test_each_row_is_in_the_database_once_under_any_failures(tmp_path: Path) -> None:
    kills, commits = 0, 0
    for seed in range(1):
        clean = tmp_path / f"clean-{seed}.sqlite"
        killed = tmp_path / f"killed-{seed}.sqlite"
        actions = simulated(clean, seed, 0, None).actions
        outcome = simulated(killed, seed, 3, actions)
        kills += outcome.kills
        for database in (clean, killed):
            commits = max(commits, *(row["checkpoint"] for row in rows_of(database, "_commits")))
            assert_each_row_is_there_once(database)
    assert kills > 2
    assert commits > 2, "it commits several checkpoints"


def simulated(database: Path, seed: int, kills: int, actions: int | None) -> Any:
    rows = [Order(**(order | {"price": Decimal(order["price"])})) for order in ORDERS]
    job = sqlite_sink.job(database=str(database)).with_connectors({"orders": MemorySource(rows, 2, batch_rows=2)})
    small = in_small_pieces(plan(job, resolve({}), parallelism=2))
    outcome = simulate_plan(small, seed, kills, actions_expected=actions, linger_us=0)
    assert outcome.problems == []
    return outcome


@pytest.mark.parametrize("parallelism", [pytest.param("1", marks=pytest.mark.thorough), "3"])
def test_a_run_writes_each_row_once_and_a_source_reads_them_again(tmp_path: Path, parallelism: str) -> None:
    database = tmp_path / "orders.sqlite"
    run("sqlite_sink", "--database", str(database), "--parallelism", parallelism)
    assert_each_row_is_there_once(database)
    run("sqlite_source", "--database", str(database), "--out", str(tmp_path / "counted"), "--parallelism", parallelism)
    counted = {row["symbol"]: row["orders"] for row in read_results(str(tmp_path / "counted"))}
    assert counted == Counter(symbol for _, symbol, _ in LARGE)


def run(example: str, *options: str) -> None:
    assert invoke(["run", str(ROOT / "examples" / f"{example}.py"), "--runtime", "local", *options]) == 0


@pytest.fixture
def tables(tmp_path: Path) -> tuple[Path, list[LargeOrder]]:
    """Two tables, with gaps between their rowids, and their rows."""
    database, rows = tmp_path / "in.sqlite", [LargeOrder(*values) for values in LARGE]
    with closing(sqlite3.connect(database)) as connection, connection:
        for number, table in enumerate(("one", "two")):
            connection.execute(f"CREATE TABLE {table} (id INTEGER, symbol TEXT, quantity INTEGER)")
            for at, row in enumerate(rows[number::2]):
                values = (7 * at + 3, row.id, row.symbol, row.quantity)
                connection.execute(f"INSERT INTO {table} (rowid, id, symbol, quantity) VALUES (?, ?, ?, ?)", values)
    return database, rows


@pytest.mark.parametrize("follow", [False, True])
def test_the_source_keeps_the_contract(tables: tuple[Path, list[LargeOrder]], follow: bool) -> None:
    database, rows = tables
    check_source(SqliteSource(str(database), "one", "two", follow=follow), rows)


def commit_some(database: str, owner: int) -> None:
    """In a process of its own: opens the database at the same time as others, and writes."""
    schema = pa.schema([("owner", pa.int64()), ("number", pa.int64())])
    committer = SqliteCommitter(database, "shared", schema, ())
    for checkpoint in range(1, 21):
        rows = pa.table({"owner": [owner], "number": [checkpoint]}, schema=schema)
        committer.commit(CommitId(f"run/out/{owner}", checkpoint), rows)
    committer.close()


def test_processes_share_a_new_database(tmp_path: Path) -> None:
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        list(pool.map(abs, range(2)))  # all are up before the first opens it
        for attempt in range(3):
            database = tmp_path / f"{attempt}.sqlite"
            list(pool.map(commit_some, [str(database)] * 2, range(2)))
            found = Counter((row["owner"], row["number"]) for row in rows_of(database, "shared"))
            assert found == Counter((owner, number) for owner in range(2) for number in range(1, 21))
