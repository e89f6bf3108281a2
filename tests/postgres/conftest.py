"""The server of PostgreSQL that these tests share."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest

from clonos_py.bench.postgres.server import PostgresServer
from tests.postgres_servers import running

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    with running() as made:
        yield made


@pytest.fixture
def table(server: PostgresServer) -> str:
    """The name of a new table, which the test creates."""
    return f"t_{os.getpid()}_{next(_numbers)}"
