"""The server of PostgreSQL that these tests share."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from clonos_py.bench.postgres.server import PostgresServer
from tests.postgres_servers import running
from tests.waiting import wait_until

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    with running() as made:
        yield made


@pytest.fixture
def database(server: PostgresServer) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    """A connection. What replication slots the test leaves behind are dropped."""
    connection = server.connect()
    yield connection
    connection.close()
    with server.connect() as last:
        drop_slots(last)


def drop_slots(connection: psycopg.Connection[tuple[Any, ...]]) -> None:
    """Drops all replication slots. The server has to notice first that nobody reads them any more."""
    wait_until(lambda: not connection.execute("SELECT FROM pg_replication_slots WHERE active").fetchall())
    connection.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")


@pytest.fixture
def table(server: PostgresServer) -> str:
    """The name of a new table, which the test creates."""
    return f"t_{os.getpid()}_{next(_numbers)}"
