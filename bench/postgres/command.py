"""Whether a job that copies a table by change data capture keeps up with pgbench on the same machine.

pgbench updates random rows of ``pgbench_accounts``, each in a transaction of its own with three other tables, as fast
as it can. The job follows that table and writes each change to a copy of it. Then the rest is counted: how long the
copy takes to become equal, once pgbench has ended. The second line is a backlog: the source alone reads changes that
were made before."""

from __future__ import annotations

import re
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import psycopg

from clonos_py import Job, Record
from clonos_py.bench.postgres.server import MISSING, PostgresServer, installed, postgres_server
from clonos_py.cli.tables import show
from clonos_py.connectors import PostgresSink, PostgresSource
from clonos_py.model.errors import ClusterError
from clonos_py.model.operators import End, Read
from clonos_py.settings.definitions import Runtime

_COPIED = "CREATE TABLE copied (aid int PRIMARY KEY, bid int, abalance int)"
_DIFFERENT = "(SELECT aid, bid, abalance FROM pgbench_accounts EXCEPT TABLE copied) LIMIT 1"
_BEHIND = "SELECT pg_current_wal_lsn() - confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = 'bench'"


class Account(Record):
    aid: int
    bid: int | None
    abalance: int | None


def copying(server: PostgresServer) -> Job:
    job = Job("copying", checkpoint_interval="1s")
    changes = job.source(PostgresSource(server.dsn(), "pgbench_accounts", Account, slot="bench")).named("changes")
    changes.sink(PostgresSink(server.dsn(), "copied", key="aid")).named("copied")
    return job


def pgbench(server: PostgresServer, *arguments: str) -> str:
    command = [server.program("pgbench"), "-h", str(server.folder), "-U", "postgres", *arguments, "postgres"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def transactions_per_s(server: PostgresServer, seconds: int, clients: int) -> float:
    found = re.search(r"tps = ([\d.]+)", pgbench(server, "-n", "-T", str(seconds), "-c", str(clients), "-j", "1"))
    assert found is not None
    return float(found[1])


class LogWatch:
    """Looks every quarter of a second how many bytes of the log no checkpoint covers, and keeps the most."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self.most = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> LogWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        with self._server.connect() as connection:
            while not self._over.wait(0.25):
                found = connection.execute(_BEHIND).fetchone()
                self.most = max(self.most, 0 if found is None else int(found[0]))


def kept_up(server: PostgresServer, seconds: int, clients: int) -> Iterator[tuple[str, ...]]:
    alone = transactions_per_s(server, seconds, clients)
    with server.connect() as connection, TemporaryDirectory() as folder:
        connection.execute(_COPIED)
        run = copying(server).start(runtime=Runtime.LOCAL, checkpoints=str(Path(folder) / "checkpoints"))

        def until_equal() -> float:
            began = time.monotonic()
            while connection.execute(_DIFFERENT).fetchone() is not None:
                if run.wait(timeout_s=0.05):
                    raise ClusterError("the job has ended before the table was copied")
            return time.monotonic() - began

        loading = until_equal()
        with LogWatch(server) as watch:
            beside = transactions_per_s(server, seconds, clients)
        rest = until_equal()
        run.stop()
    yield (
        f"{loading:.1f} s",
        f"{alone:,.0f}",
        f"{beside:,.0f}",
        f"{watch.most / 1e6:.1f} MB",
        f"{rest:.1f} s",
    )


def backlog(server: PostgresServer, rows: int) -> Iterator[tuple[str, ...]]:
    """Reads changes that are there already, of one transaction and of many, without a job."""
    with server.connect() as connection:
        for kind, each in (("one", rows), ("of 10 changes", 10)):
            _following(server).resolve()
            for first in range(0, rows, each):
                statement = "UPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid > %s AND aid <= %s"
                connection.execute(statement, [first, first + each])
            reader = _following(server).create((None,))
            reader.open(0, 1)
            reader.seek({})
            began, found = time.monotonic(), 0
            while not isinstance(given := reader.poll(0), End):
                if isinstance(given, Read):
                    found += given.row_count
                else:
                    reader.wait_for_rows()
            took = time.monotonic() - began
            reader.close()
            _drop(connection, "backlog")
            yield kind, f"{found:,}", f"{took:.2f} s", f"{found / took / 1e3:.0f}"


def _drop(connection: psycopg.Connection[tuple[Any, ...]], slot: str) -> None:
    """The server may need a moment to notice that nobody follows it any more."""
    while True:
        try:
            connection.execute("SELECT pg_drop_replication_slot(%s)", [slot])
        except psycopg.errors.ObjectInUse:
            time.sleep(0.01)
        else:
            return


def _following(server: PostgresServer) -> PostgresSource:
    return PostgresSource(server.dsn(), "pgbench_accounts", Account, slot="backlog", snapshot=False, stop="latest")


def run(seconds: int, clients: int, scale: int) -> None:
    """Measures and prints."""
    programs = installed()
    if programs is None:
        raise ClusterError(MISSING)
    with postgres_server(programs) as server:
        pgbench(server, "-i", "-q", "-s", str(scale))
        headings = ("copy of the table", "transactions/s alone", "beside", "most not covered", "rest")
        title = f"pgbench with {clients} clients for {seconds} s beside a job"
        show(title, headings, kept_up(server, seconds, clients))
        show("a backlog", ("transactions", "changes", "time", "thousand/s"), backlog(server, 100_000))


command = click.Command(
    "postgres",
    callback=run,
    params=[
        click.Option(["--seconds"], type=click.IntRange(min=1), default=30, show_default=True),
        click.Option(["--clients"], type=click.IntRange(min=1), default=4, show_default=True),
        click.Option(["--scale"], type=click.IntRange(min=1), default=1, show_default=True, help="100,000 rows each"),
    ],
    help="Whether change data capture keeps up with pgbench, and how fast it reads a backlog.",
)
