"""A job on real actors follows a table and keeps others up to date, while tasks and the server are killed."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from clonos_py import Job, Money, Record
from clonos_py.bench.postgres.server import PostgresServer
from clonos_py.connectors import PostgresSink, PostgresSource
from clonos_py.model.coordinator_events import Deployed, RolledBack
from clonos_py.observe.events import Event
from clonos_py.runtime.launch import run_job
from clonos_py.runtime.ray.cluster import Cluster
from clonos_py.settings.resolution import resolve
from examples import postgres_debts
from tests.observed import killed
from tests.postgres_servers import running

pytestmark = pytest.mark.ray

TRANSACTIONS = 500
KILLS = ["changes[0]@2s", "copied[0]@3s", "owed[0]@4s"]


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with running() as made:
        yield made


class Order(Record):
    id: int
    customer: str
    price: Money
    paid: bool


def followed(dsn: str) -> Job:
    """The example, and a copy of the table."""
    job = postgres_debts.job(dsn)
    copied = job.source(PostgresSource(dsn, "orders", Order, slot="copied")).named("copied")
    copied.sink(PostgresSink(dsn, "copy_of_orders", key="id")).named("copy")
    return job


def change_orders(server: PostgresServer) -> None:
    """Some transactions are rolled back, and one meets the death of the server."""
    draw = random.Random(3)
    for part in range(2):
        with server.connect() as connection:
            for _ in range(TRANSACTIONS // 2):
                id, price, paid = draw.randrange(300), draw.randrange(1, 9_000) / 100, draw.random() < 0.3
                with connection.transaction(force_rollback=draw.random() < 0.1):
                    connection.execute(
                        "INSERT INTO orders VALUES (%s, %s, %s, %s) ON CONFLICT (id) DO UPDATE "
                        "SET price = excluded.price, paid = excluded.paid",
                        [id, f"customer {id % 7}", price, paid],
                    )
                    connection.execute("DELETE FROM orders WHERE id = %s", [draw.randrange(300)])
                time.sleep(0.01)
        if part == 0:
            server.kill()
            server.start()


def differences(server: PostgresServer) -> list[Any]:
    with server.connect() as connection:
        return (
            connection.execute(
                "(TABLE orders EXCEPT TABLE copy_of_orders) UNION ALL (TABLE copy_of_orders EXCEPT TABLE orders)"
            ).fetchall()
            + connection.execute(
                "WITH expected AS (SELECT customer, count(*) AS orders, sum(price) AS owed FROM orders WHERE NOT paid "
                "GROUP BY customer) (TABLE expected EXCEPT TABLE debts) UNION ALL (TABLE debts EXCEPT TABLE expected)"
            ).fetchall()
        )


@pytest.mark.thorough
def test_tables_are_kept_up_to_date_although_tasks_and_the_server_are_killed(
    cluster: Cluster, server: PostgresServer, tmp_path: Path
) -> None:
    with server.connect() as connection:
        columns = "(id bigint PRIMARY KEY, customer text NOT NULL, price numeric(12,2) NOT NULL, paid boolean NOT NULL)"
        connection.execute(f"CREATE TABLE orders {columns}")
        connection.execute(f"CREATE TABLE copy_of_orders {columns}")
        connection.execute("CREATE TABLE debts (customer text PRIMARY KEY, orders bigint, owed numeric(12,2))")
        connection.execute("INSERT INTO orders SELECT n, 'customer ' || n % 7, n, false FROM generate_series(1, 200) n")
    events: list[Event] = []
    writers = ThreadPoolExecutor(1)
    written: list[Future[None]] = []

    def listener(at_us: int, event: Event) -> None:
        events.append(event)
        if isinstance(event, Deployed):
            written.append(writers.submit(change_orders, server))
        done = written and written[0].done() and (written[0].exception() or len(killed(events)) == len(KILLS))
        if done and (written[0].exception() or not differences(server)):
            raise KeyboardInterrupt

    settings = {"kills": KILLS, "checkpoint_interval": "500ms", "parallelism": 1, "checkpoints": str(tmp_path)}
    with pytest.raises(KeyboardInterrupt), writers:
        run_job(followed(server.dsn()), resolve(command_line=settings), listener)
    written[0].result()
    assert differences(server) == []
    assert not [event for event in events if isinstance(event, RolledBack)]
    with server.connect() as connection:
        slots = "SELECT count(*) FROM pg_replication_slots WHERE confirmed_flush_lsn > '0/0'"
        assert connection.execute(slots).fetchone() == (2,)
