"""Runs of this machine can be stopped from another terminal, whichever runtime they have.

The process that drives a run listens on a socket of the file system in a folder that only its user can enter. A request
is one line, ``stop``; the answer is one line of JSON, when the run has ended. Nothing else is accepted. A process that
was killed leaves its socket behind, which the next search removes.
"""

from __future__ import annotations

import os
import secrets
import socket
import stat
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import msgspec

from clonos_py.model.errors import ClusterError
from clonos_py.model.ids import DEFAULT_NAMESPACE
from clonos_py.runtime.ray.process_table import cluster_addresses
from clonos_py.runtime.stop_switch import StopSwitch

_REQUEST = b"stop\n"
_ANSWER_BYTES_MAX = 1 << 16
_REQUEST_S_MAX = 5.0
_TRIES = 3
_WAITING_MAX = 8
_ASK_AGAIN_S = 0.1


class Ended(msgspec.Struct, frozen=True):
    """How a run has ended. ``stopped``: with a last checkpoint, because it was asked to. ``error``: why it failed, or
    that it was interrupted."""

    stopped: bool = False
    error: str | None = None


class Described(msgspec.Struct, frozen=True):
    """What the folder says of a run. ``address``: of the cluster that it has joined; None for one of its own.
    ``namespace``: that of its tenant there."""

    job: str
    pid: int
    address: str | None = None
    namespace: str = DEFAULT_NAMESPACE


class LocalRun(msgspec.Struct, frozen=True):
    """A run of this machine."""

    described: Described
    path: Path

    @property
    def job(self) -> str:
        return self.described.job

    def is_at(self, address: str | None, namespace: str | None = None) -> bool:
        """Whether the run is on the cluster at ``address``, and in the namespace; all are where none is given."""
        own = self.described.address
        if namespace not in (None, self.described.namespace):
            return False
        return address in (None, own) or (own is None and address in cluster_addresses(self.described.pid))

    def stop(self, timeout_s: float) -> Ended | None:
        """Stops the run and waits for its end. None if it is gone without an answer. Raises ClusterError if it has not
        ended in time; it goes on to stop then.

        The run may end the connection of a process that is slow to ask, so this asks again as long as the run listens.
        """
        until_s = time.monotonic() + timeout_s
        try:
            while not (answer := self._ask(until_s - time.monotonic())).endswith(b"\n"):
                if not _listens(self.path):
                    return None
                time.sleep(_ASK_AGAIN_S)
        except TimeoutError as error:
            raise ClusterError(not_ended(self.job, timeout_s)) from error
        return msgspec.json.decode(answer, type=Ended)

    def _ask(self, timeout_s: float) -> bytes:
        """The answer of the run, or less if the connection ends early. Raises TimeoutError."""
        if timeout_s <= 0:
            raise TimeoutError
        with closing(socket.socket(socket.AF_UNIX)) as connection:
            connection.settimeout(timeout_s)
            try:
                connection.connect(str(self.path))
                connection.sendall(_REQUEST)
                return connection.makefile("rb").readline(_ANSWER_BYTES_MAX)
            except TimeoutError:
                raise
            except OSError:
                return b""


def not_ended(job: str, timeout_s: float) -> str:
    """The message for who has stopped a run and waits for its end no longer."""
    return (
        f"the job {job!r} has not ended within {timeout_s:g} s: it goes on to stop, and Ctrl-C in its own terminal "
        "ends it at once"
    )


class Control:
    """The socket of a run, and those that wait for its end."""

    def __init__(self, server: socket.socket | None, stop: StopSwitch) -> None:
        self._server, self._stop = server, stop
        self._waiting: list[socket.socket] = []
        self._lock = threading.Lock()
        self.ended = Ended(error="it has ended without a last checkpoint")
        """How the run ends, for those that wait."""

    def accept(self) -> None:
        """Takes requests until the socket is closed."""
        assert self._server is not None
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            with self._lock:
                asks = len(self._waiting) < _WAITING_MAX and _asks(connection)
                if asks:
                    self._waiting.append(connection)
            if asks:
                self._stop.request()
            else:
                connection.close()

    def answer(self) -> None:
        with self._lock:
            for connection in self._waiting:
                with closing(connection), suppress(OSError):
                    connection.sendall(msgspec.json.encode(self.ended) + b"\n")


@contextmanager
def controlled(
    job: str, address: str | None, stop: StopSwitch, namespace: str = DEFAULT_NAMESPACE
) -> Iterator[Control]:
    """Within the block other processes of this user can stop the run; after it they get its ``ended``. Where no socket
    can be made, nobody can, and the run goes on without."""
    try:
        path = _described(Described(job, os.getpid(), address, namespace))
    except OSError:
        yield Control(None, stop)
        return
    with closing(socket.socket(socket.AF_UNIX)) as server:
        control = Control(server, stop)
        try:
            server.bind(str(path))
            server.listen(_WAITING_MAX)
        except OSError:  # the path is too long, or the file system has no sockets
            _remove(path)
            yield control
            return
        thread = threading.Thread(target=control.accept, name=f"control {job}", daemon=True)
        thread.start()
        try:
            yield control
        finally:
            _remove(path)
            with suppress(OSError):  # other runs are there
                path.parent.rmdir()
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
            control.answer()


def local_runs() -> list[LocalRun]:
    """The runs of this user on this machine, by the names of their jobs."""
    found = []
    for path in _folder().glob("*.sock") if _is_private(_folder()) else ():
        with suppress(OSError, msgspec.DecodeError):
            described = msgspec.json.decode(path.with_suffix(".json").read_bytes(), type=Described)
            if _listens(path):
                found.append(LocalRun(described, path))
                continue
        _remove(path)
    return sorted(found, key=lambda run: (run.job, run.described.pid))


def _folder() -> Path:
    return Path(tempfile.gettempdir(), f"clonos-runs-{os.getuid()}")


def _is_private(folder: Path) -> bool:
    """Whether only this user can write there: others may have made a folder of that name."""
    with suppress(OSError):
        found = folder.lstat()
        return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
    return False


def _described(run: Described) -> Path:
    """Writes what the folder says of the run, and returns the path of its socket. Raises OSError."""
    folder = _folder()
    path = folder / f"{run.pid}-{secrets.token_hex(4)}.sock"
    for _ in range(_TRIES):
        folder.mkdir(mode=0o700, exist_ok=True)
        if not _is_private(folder):
            raise PermissionError(f"{folder} belongs to another user")
        with suppress(FileNotFoundError):  # a run that ended has removed the empty folder
            path.with_suffix(".json").write_bytes(msgspec.json.encode(run))
            break
    return path


def _remove(path: Path) -> None:
    for file in (path, path.with_suffix(".json")):
        with suppress(OSError):
            file.unlink()


def _listens(path: Path) -> bool:
    with closing(socket.socket(socket.AF_UNIX)) as connection:
        connection.settimeout(_REQUEST_S_MAX)
        try:
            connection.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:  # it listens, and too many wait for their turn
            return True
    return True


def _asks(connection: socket.socket) -> bool:
    """Whether the connection has sent a request."""
    connection.settimeout(_REQUEST_S_MAX)
    try:
        return connection.recv(len(_REQUEST), socket.MSG_WAITALL) == _REQUEST
    except OSError:
        return False
