"""One server for all tests of this folder: it takes a second to start. Each test has a folder of its own in it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from clonos_py.object_store import client
from tests.s3_server import BUCKET, S3Server, running, use

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def server() -> Iterator[S3Server]:
    with running() as server:
        yield server


@pytest.fixture
def s3(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """The server, with which nothing is wrong, as the one that clients find."""
    use(server, monkeypatch)
    server.requests.clear()
    server.seen.clear()
    yield server
    server.heal()


@pytest.fixture
def uri(s3: S3Server) -> str:
    return f"s3://{BUCKET}/some/folder-{next(_numbers)}"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients try again once only."""
    monkeypatch.setattr(client, "_RETRIES_MAX", 1)
