"""Runs a Ray cluster of several nodes on this machine, as if they were machines of their own, until interrupted.

    python deploy/start_raylets.py --nodes 3      prints the address to give to --address, then waits

Workers inherit the environment that a job's processes need (``clonos_py.runtime.ray.cluster``), so they start
without a runtime environment. Processes on different nodes talk TCP, as they would across machines. Ray's token
authentication is on; a token is made if there is none, and whoever joins sets RAY_AUTH_MODE=token.
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

from clonos_py.runtime.ray.cluster import PREPARED_RESOURCE, WORKER_ENVIRONMENT
from clonos_py.runtime.transport.ports import free_ports

_RAY = str(Path(sys.executable).parent / "ray")
_HOST = "127.0.0.1"
_NO_DASHBOARD = "--include-dashboard=false"
_OBJECT_STORE_BYTES = 80 << 20
_START_S_MAX = 60.0
_STOP_S_MAX = 2.0


class RayletError(Exception):
    """A raylet did not start; the message is Ray's own."""


class Raylets:
    """Nodes of a cluster. The first is its head, which Ray cannot do without."""

    def __init__(self, port: int, folder: Path) -> None:
        self.address = f"{_HOST}:{port}"
        self._port, self._folder = port, folder
        self._nodes: list[subprocess.Popen[bytes]] = []

    @property
    def head_pid(self) -> int:
        """The process that has started Ray's own on the head."""
        return self._nodes[0].pid

    def add(self) -> None:
        """Starts one more node."""
        number = len(self._nodes)
        where = [f"--address={self.address}"] if number else ["--head", f"--port={self._port}", _NO_DASHBOARD]
        self._nodes.append(_start(where, self._folder / f"{number}.log"))

    def lose(self) -> None:
        """The node that came last dies with all its processes at once, as by a power cut."""
        node = self._nodes[-1]
        os.killpg(node.pid, signal.SIGKILL)
        node.wait()

    def stop(self) -> None:
        _stop(self._nodes)


@contextmanager
def raylets(nodes: int, port: int | None = None) -> Iterator[Raylets]:
    """A cluster of ``nodes`` raylets for as long as the context lasts."""
    if port is not None:
        _check_port(port)
    _make_token()
    with TemporaryDirectory(prefix="raylets-") as folder:
        cluster = _head(Path(folder), port)
        try:
            for _ in range(nodes - 1):
                cluster.add()
            yield cluster
        finally:
            cluster.stop()


def _head(folder: Path, port: int | None) -> Raylets:
    """A cluster of its head. A free port may be taken by another program before Ray listens there: then the next one is
    tried."""
    for last in (False, False, True):
        cluster = Raylets(free_ports(1)[0] if port is None else port, folder)
        try:
            cluster.add()
        except RayletError:
            if last or port is not None:
                raise
        else:
            return cluster
    raise AssertionError("the last attempt returns or raises")


def _start(arguments: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """Starts one node and waits until it has joined: two that start at once may choose the same sockets. It gets a
    process group of its own, so that stopping it leaves nothing and hurts nobody else."""
    options = [
        "--block",
        "--disable-usage-stats",
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
    """All at once, and all that they started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
        deadline = time.monotonic() + _STOP_S_MAX
        for process in processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))


def _make_token() -> None:
    """Ray keeps one token per user; this makes it if there is none, and shows it to nobody."""
    subprocess.run([_RAY, "get-auth-token", "--generate"], env=_environment(), capture_output=True, check=True)


def _environment() -> dict[str, str]:
    return {**os.environ, **WORKER_ENVIRONMENT, "RAY_AUTH_MODE": "token"}


def _check_port(port: int) -> None:
    """Ray itself would say this in many lines, after a while. Raises RayletError if nobody can listen there."""
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
