"""Servers of messages for the tests of this folder. What is not installed is skipped."""

from __future__ import annotations

import itertools
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.kafka.certificates import issued
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
    with running_mosquitto(tmp_path_factory.mktemp("mosquitto"), "allow_anonymous true") as port:
        yield port


class Guarded(NamedTuple):
    """A broker that wants a login, and encrypts. ``trusted``, ``strange``: files with the certificates of those who
    vouch for it, and of others."""

    port: int
    trusted: str
    strange: str


USER, PASSWORD = "clonos", "open sesame"


@pytest.fixture(scope="session")
def guarded_mosquitto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    parties, passwords = issued(folder), folder / "passwords"
    passwords.touch(0o600)
    subprocess.run([program("mosquitto_passwd"), "-b", str(passwords), USER, PASSWORD], check=True, capture_output=True)
    own = parties.broker
    settings = f"password_file {passwords}\ncertfile {own.certificate}\nkeyfile {own.key}"
    with running_mosquitto(folder, settings) as port:
        yield Guarded(port, own.authorities, parties.wary.authorities)


def program(name: str) -> str:
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if found is None:
        pytest.skip("needs mosquitto: apt-get install mosquitto")
    return found


@contextmanager
def running_mosquitto(folder: Path, more: str) -> Iterator[int]:
    """Its port. ``more``: further settings."""
    port, settings = free_port(), folder / "settings"
    settings.write_text(
        f"listener {port} 127.0.0.1\nuser root\nmax_inflight_messages 0\nmax_queued_messages 0\n{more}\n"
    )
    server = subprocess.Popen([program("mosquitto"), "-c", str(settings)], stderr=subprocess.DEVNULL)
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
