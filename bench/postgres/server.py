"""A private server of PostgreSQL: data and socket in a folder of its own, at no port."""

from __future__ import annotations

import glob
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

MISSING = "PostgreSQL's server is missing: apt-get install postgresql"
PASSWORD = "of the locked role"
"""That of the role ``locked``; others need none."""
_SETTINGS = """
wal_level = logical
fsync = off
full_page_writes = off
listen_addresses = ''
max_connections = 60
max_wal_senders = 20
max_replication_slots = 20
autovacuum_naptime = 1h
log_min_messages = fatal
"""
_ACCESS = """
local all locked scram-sha-256
local all all trust
local replication all trust
"""
_START_S = 60.0


def installed() -> Path | None:
    """The folder of the newest server that is installed; None if there is none."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"), key=lambda path: int(path.split("/")[4]))
    path = found[-1] if found else shutil.which("initdb")
    return None if path is None else Path(path).resolve().parent


class PostgresServer:
    """A server; ``kill`` and ``start`` it as often as needed. It runs as the user ``postgres`` if this process is root,
    which it refuses."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self._programs, self.folder = programs, folder
        self._user: dict[str, Any] = {"user": "postgres", "group": "postgres"} if os.geteuid() == 0 else {}
        self._process: subprocess.Popen[bytes] | None = None

    def create(self) -> None:
        if self._user:
            shutil.chown(self.folder, **self._user)
        command = [self.program("initdb"), "-D", str(self._data), "-U", "postgres", "-E", "UTF8", "--locale=C"]
        subprocess.run(
            [*command, "-A", "trust", "--no-sync"], check=True, stdout=subprocess.DEVNULL, cwd="/", **self._user
        )
        with (self._data / "postgresql.conf").open("a") as settings:
            settings.write(_SETTINGS + f"unix_socket_directories = '{self.folder}'\n")
        (self._data / "pg_hba.conf").write_text(_ACCESS)
        self.start()
        with self.connect() as connection:
            connection.execute(f"CREATE ROLE locked LOGIN PASSWORD '{PASSWORD}'")

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def dsn(self, database: str = "postgres", user: str = "postgres") -> str:
        return f"host={self.folder} user={user} dbname={database}"

    def connect(self, database: str = "postgres", user: str = "postgres") -> psycopg.Connection[tuple[Any, ...]]:
        return psycopg.connect(self.dsn(database, user), autocommit=True)

    def program(self, name: str) -> str:
        """The path of one of its programs, such as pgbench."""
        return str(self._programs / name)

    def start(self) -> None:
        """Starts the server, and returns when it accepts connections. After a kill it does not start until the last of
        its former processes has noticed that."""
        until_s = time.monotonic() + _START_S
        while True:
            if self._process is None or self._process.poll() is not None:
                self._process = self._started()
            try:
                self.connect().close()
            except psycopg.OperationalError:
                if time.monotonic() > until_s:
                    raise
                time.sleep(0.02)
            else:
                return

    def _started(self) -> subprocess.Popen[bytes]:
        arguments = [self.program("postgres"), "-D", str(self._data)]
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(arguments, stdout=log, stderr=log, cwd="/", **self._user)

    def kill(self) -> None:
        """Kills it as a failure of its machine would: it closes no file."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Ends it at once, and all its connections."""
        self._end(signal.SIGQUIT)

    def _end(self, how: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(how)
        self._process.wait()
        self._process = None


@contextmanager
def postgres_server(programs: Path) -> Iterator[PostgresServer]:
    """A new server, which ends with the block. Its folder has a short path, as that of a socket must have, and is open
    to its user, as those of tests are not."""
    folder = Path(tempfile.mkdtemp(prefix="clonos-postgres-"))
    server = PostgresServer(programs, folder)
    try:
        server.create()
        yield server
    finally:
        if server._process is not None:
            server.stop()
        shutil.rmtree(folder, ignore_errors=True)
