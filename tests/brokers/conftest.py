"""Servers of messages for the tests of this folder. What is not installed is skipped."""

from __future__ import annotations

import itertools
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import wait_until

_numbers = itertools.count(1)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def answers(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its address."""
    program = shutil.which("nats-server")
    if program is None:
        pytest.skip("needs nats-server: apt-get install nats-server")
    port, folder = free_port(), tmp_path_factory.mktemp("nats")
    server = subprocess.Popen(
        [program, "-js", "-sd", str(folder), "-a", "127.0.0.1", "-p", str(port)], stderr=subprocess.DEVNULL
    )
    try:
        wait_until(lambda: answers(port))
        yield f"nats://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


@pytest.fixture(scope="session")
def mosquitto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Its port."""
    program = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        pytest.skip("needs mosquitto: apt-get install mosquitto")
    port, settings = free_port(), tmp_path_factory.mktemp("mosquitto") / "settings"
    settings.write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\nmax_inflight_messages 0\nmax_queued_messages 0\n"
    )
    server = subprocess.Popen([program, "-c", str(settings)], stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: answers(port))
        yield port
    finally:
        server.kill()
        server.wait()


@pytest.fixture
def name(tmp_path: Path) -> str:
    """A name that no other test has."""
    return f"t{next(_numbers)}"
