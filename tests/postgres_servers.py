"""Servers of PostgreSQL for tests, which are skipped where none is installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from clonos_py.bench.postgres.server import MISSING, PostgresServer, installed, postgres_server


@contextmanager
def running() -> Iterator[PostgresServer]:
    programs = installed()
    if programs is None:
        pytest.skip(MISSING)
    with postgres_server(programs) as made:
        yield made
