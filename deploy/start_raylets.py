"""Runs a Ray cluster of several nodes on this machine, as if they were separate machines, until interrupted.

    python deploy/start_raylets.py --nodes 3      prints the address to give to --address, then waits

Workers inherit the environment that a job's processes need (``clonos_py.runtime.ray.cluster``), so they start
without a runtime environment. Processes on different nodes use TCP, as they would across machines. Ray's token
authentication is on. A token is created if there is none. A program that joins must set RAY_AUTH_MODE=token.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from clonos_py.bench.ports import free_ports
from clonos_py.runtime.ray.cluster import PREPARED_RESOURCE, WORKER_ENVIRONMENT

_RAY = str(Path(sys.executable).parent / "ray")
_HOST = "127.0.0.1"
_HEAD = ("--head", "--no-monitor")
"""There is no autoscaler to serve, and the run itself forwards what its functions print."""
_OBJECT_STORE_BYTES = 80 << 20
_START_S_MAX = 60.0
_STOP_S_MAX = 2.0


class RayletError(Exception):
    """A raylet did not start. The message is that of Ray."""


class Raylets:
    """The nodes of a running cluster. The first one is the head, without which the cluster cannot run."""

    def __init__(self, port: int, folder: Path, dashboard: int | None = None) -> None:
        self.address = f"{_HOST}:{port}"
        self.dashboard = f"http://{_HOST}:{dashboard}" if dashboard is not None else ""
        """The address of Ray's dashboard, which takes jobs; empty if there is none."""
        self._folder = folder
        self._head = [*_HEAD, f"--port={port}", "--include-dashboard=false"]
        if dashboard is not None:
            self._head[-1:] = [
                "--include-dashboard=true", f"--dashboard-host={_HOST}", f"--dashboard-port={dashboard}"
            ]  # fmt: skip
        self._nodes: list[subprocess.Popen[bytes]] = []

    @property
    def head_pid(self) -> int:
        """The id of the process that has started Ray's processes on the head."""
        return self._nodes[0].pid

    def add(self, *options: str) -> None:
        """Starts one more node. ``options``: further ones of ``ray start``, such as "--num-gpus=1"."""
        number = len(self._nodes)
        where = [f"--address={self.address}"] if number else self._head
        self._nodes.append(_start([*where, *options], self._folder / f"{number}.log"))

    def lose(self) -> None:
        """Kills all processes of the newest node at once, as in a power cut."""
        node = self._nodes[-1]
        os.killpg(node.pid, signal.SIGKILL)
        node.wait()

    def stop(self) -> None:
        _stop(self._nodes)


@contextmanager
def raylets(
    nodes: int, port: int | None = None, dashboard: bool = False, head: Sequence[str] = ()
) -> Iterator[Raylets]:
    """Runs a cluster of ``nodes`` raylets within the block. ``dashboard``: with that of Ray, which ``ray[default]``
    has. ``head``: further options of the first node."""
    if port is not None:
        _check_port(port)
    _make_token()
    with TemporaryDirectory(prefix="raylets-") as folder:
        cluster = _head(Path(folder), port, dashboard, head)
        try:
            for _ in range(nodes - 1):
                cluster.add()
            yield cluster
        finally:
            cluster.stop()


def _head(folder: Path, port: int | None, dashboard: bool, options: Sequence[str]) -> Raylets:
    """Starts a cluster with its head only. Without ``port`` up to three free ports are tried, since another program may
    take one before Ray listens there."""
    for last in (False, False, True):
        free = free_ports(2)
        cluster = Raylets(free[0] if port is None else port, folder, free[1] if dashboard else None)
        try:
            cluster.add(*options)
        except RayletError:
            if last or port is not None:
                raise
        else:
            return cluster
    raise AssertionError("the last attempt returns or raises")


def _start(arguments: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """Starts one node and waits until it has joined, since two nodes that start at once may choose the same sockets.
    The node gets its own process group, so that stopping it ends all its processes and no others."""
    options = [
        "--block",
        "--disable-usage-stats",
        "--include-log-monitor=false",
        f"--node-ip-address={_HOST}",
        f"--object-store-memory={_OBJECT_STORE_BYTES}",
        f"--resources={json.dumps({PREPARED_RESOURCE: 1})}",
    ]
    command = [_RAY, "start", *arguments, *options]
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, env=_environment(), start_new_session=True, stdout=out, stderr=subprocess.STDOUT
        )
    deadline = time.monotonic() + _START_S_MAX
    while "Ray runtime started" not in log.read_text():
        if process.poll() is not None or time.monotonic() > deadline:
            _stop([process])
            raise RayletError(f"{' '.join(command)} failed: {log.read_text().strip()}")
        time.sleep(0.1)
    return process


def _stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Ends all these nodes at once, with all processes that they have started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
        deadline = time.monotonic() + _STOP_S_MAX
        for process in processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))


def _make_token() -> None:
    """Creates the token of this user, which Ray stores once per user, if there is none. The token is not printed."""
    subprocess.run([_RAY, "get-auth-token", "--generate"], env=_environment(), capture_output=True, check=True)


def _environment() -> dict[str, str]:
    return {**os.environ, **WORKER_ENVIRONMENT, "RAY_AUTH_MODE": "token"}


def _check_port(port: int) -> None:
    """Raises RayletError if the port cannot be used. Ray itself would report this late and in many lines."""
    try:
        with socket.create_server((_HOST, port)):
            pass
    except (OSError, OverflowError) as error:
        raise RayletError(
            f"port {port} of {_HOST} is taken or cannot be used ({error}): give another --port, or none for a free one"
        ) from error


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=2, help="how many nodes (default 2)")
    parser.add_argument("--port", type=int, default=None, help="port of the head node (default: a free one)")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        with raylets(options.nodes, options.port) as cluster:
            sys.stdout.write(f"{cluster.address}\n")
            sys.stdout.flush()
            signal.pause()
    except KeyboardInterrupt:
        pass
    except RayletError as error:
        raise SystemExit(f"error: {' '.join(str(error).split())}") from error


if __name__ == "__main__":
    main()
