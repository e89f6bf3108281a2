"""The Ray cluster that a job runs on: an existing one that the run joins, or a local one that it starts.

Settings that must be the same in all processes of a job are environment variables: the hash seed (D12), one thread per
library, and an allocator that keeps its memory. A local cluster inherits them. So do raylets that
``deploy/start_raylets.py`` starts, which show it by a resource. On any other cluster each actor is started with a
runtime environment, which takes Ray about twice as long.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from types import ModuleType
from typing import Any, NamedTuple

from clonos_py.model.allocation import ALLOCATOR_ENVIRONMENT
from clonos_py.model.errors import ClusterError, ClusterLostError, SettingError, Terminated
from clonos_py.model.ids import DEFAULT_NAMESPACE
from clonos_py.model.resources import NO_RESOURCES, Resources
from clonos_py.runtime.ray.disconnect import await_disconnected, disconnect, patience_with_local_ray
from clonos_py.runtime.ray.process_table import cluster_addresses

WORKER_ENVIRONMENT: Mapping[str, str] = {
    "PYTHONHASHSEED": "0",
    "OMP_NUM_THREADS": "1",
    "POLARS_MAX_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
    **ALLOCATOR_ENVIRONMENT,
}
PREPARED_RESOURCE = "clonos_environment"
"""A node with this resource starts its workers with WORKER_ENVIRONMENT."""
_OBJECT_STORE_BYTES = 80 << 20
"""About Ray's minimum: no data passes through its object store."""
_RAY_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": "A worker died or was killed|worker processes have been started|Raylet is terminated"
    "|has been marked dead",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
}
"""Ray reads these when it is imported. They suppress messages that would mix with printed rows on standard output: the
coordinator reports deaths itself, and one process for each task is intended."""


_CONNECT_S_MAX, _ANSWER_S_MAX = 2.0, 1.0
_DISCONNECT_S_MAX = 1.0
"""Without a head Ray takes seconds to end its connection."""
_HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HTTP2_HEADER_BYTES = 9
_HTTP2_SETTINGS = b"\0\0\0\4\0\0\0\0\0"
"""A frame of no content: length, type, flags, stream (RFC 9113, section 4.1)."""
_DATA, _HEADERS, _END_STREAM, _END_HEADERS = 0, 1, 1, 4
_FRAMES_MAX, _FRAME_BYTES_MAX = 16, 1 << 14
_OK = 0x88
"""The field ``:status: 200``, from the static table (RFC 7541, appendix A). Every call of gRPC is answered with it."""
_SIZE_UPDATE = range(0x20, 0x40)
_LENGTH_MASK = 127
_UNAUTHENTICATED = b"\x0bgrpc-status\x0216"
"""The field of an answer that refuses the token; servers of gRPC send it without compression."""
_TOKEN_REMEDY = "set RAY_AUTH_MODE=token and have its token in RAY_AUTH_TOKEN or ~/.ray/auth_token"
_VERSIONS = {name: re.compile(rf"^\s*{name}: (\S+)$", re.MULTILINE) for name in ("Ray", "Python")}


class JobName(NamedTuple):
    """What identifies a job on a cluster. ``namespace``: of its tenant, and in Ray of the coordinators."""

    job: str
    namespace: str


@dataclass(frozen=True)
class Cluster:
    """The cluster that this process is connected to."""

    prepared: bool
    """Whether workers inherit WORKER_ENVIRONMENT."""
    namespace: str
    """Of the tenant whose jobs are meant."""

    def named(self, job: str) -> JobName:
        """What identifies a job of the tenant here."""
        return JobName(job, self.namespace)

    def actor_options(self, demand: Resources = NO_RESOURCES) -> dict[str, Any]:
        """Options for every actor of a job. They reserve what is demanded and nothing else, so that a cluster without a
        free CPU runs the job, too. Ray neither restarts an actor nor repeats a call: the coordinator handles
        failures."""
        environment = {} if self.prepared else {"runtime_env": {"env_vars": dict(WORKER_ENVIRONMENT)}}
        memory = {"memory": demand.memory_bytes} if demand.memory_bytes else {}
        gpus = {"num_gpus": demand.gpus} if demand.gpus else {}
        return {"num_cpus": demand.cpus, "max_restarts": 0, "max_task_retries": 0, **memory, **gpus, **environment}


@contextmanager
def connected(address: str | None, namespace: str = DEFAULT_NAMESPACE) -> Iterator[Cluster]:
    """Joins the cluster at ``address``, or starts a local one. Leaves or stops it at the end.
    ``namespace``: see ``Cluster``.

    If this process is connected to Ray already, the run uses that connection and keeps it. Raises ClusterError.
    """
    ray = import_ray()
    if address is not None:
        _check_reachable(address)
    await_disconnected()
    if ray.is_initialized():
        yield Cluster(_prepared(ray), namespace)
        return
    if address is None:
        _start(ray)
    else:
        _join(ray, address)
    patience_s = None if address is not None else patience_with_local_ray()
    try:
        yield Cluster(_prepared(ray), namespace)
    except ClusterLostError:
        patience_s = _DISCONNECT_S_MAX
        raise
    except KeyboardInterrupt:
        patience_s = 0.0
        raise
    finally:
        disconnect(ray, patience_s)


@contextmanager
def termination_kept() -> Iterator[None]:
    """Keeps the handler of SIGTERM while Ray connects: it sets one of its own, which exits without an orderly end.

    A process without a handler keeps that of Ray. Raises Terminated for a SIGTERM that comes in the block."""
    handler = signal.getsignal(signal.SIGTERM)
    if threading.current_thread() is not threading.main_thread() or handler in (None, signal.SIG_DFL):
        yield
        return
    try:
        yield
    except SystemExit as ended:
        if ended.code != signal.SIGTERM:
            raise
        raise Terminated from None
    finally:
        signal.signal(signal.SIGTERM, handler)


def address_here() -> str:
    """The address in RAY_ADDRESS, else "auto", by which Ray finds the cluster on this machine together with its token.

    Raises SettingError unless exactly one runs here: Ray also keeps the address of the last one in a file, and would
    try for a minute to reach one that was killed.
    """
    given = os.environ.get("RAY_ADDRESS")
    if given:
        return given
    found = cluster_addresses()
    if len(found) != 1:
        running = f"several run here: {', '.join(sorted(found))}" if found else "no Ray runs on this machine"
        raise SettingError(f"{running}; name the cluster with --address")
    return "auto"


def machines() -> set[str]:
    """The host names of the machines that take part in a job: those of the cluster's nodes, and this one."""
    return {socket.gethostname(), *(node["NodeManagerHostname"] for node in _alive(import_ray()))}


def node_ids() -> list[str]:
    """The ids of the cluster's nodes."""
    return [node["NodeID"] for node in _alive(import_ray())]


@dataclass(frozen=True)
class NodeResources:
    """What a node has, and what of it no actor has reserved."""

    host: str
    total: Resources
    free: Resources


def node_resources() -> dict[str, NodeResources]:
    """By id, what the nodes of the cluster have. That an actor has started or ended shows a moment later."""
    ray = import_ray()
    free = ray._private.state.available_resources_per_node()
    return {
        node["NodeID"]: NodeResources(
            node["NodeManagerHostname"], _resources(node["Resources"]), _resources(free.get(node["NodeID"], {}))
        )
        for node in _alive(ray)
    }


def _resources(found: Mapping[str, float]) -> Resources:
    return Resources(found.get("CPU", 0.0), int(found.get("memory", 0)), found.get("GPU", 0.0))


def import_ray() -> ModuleType:
    """Imports Ray with its messages suppressed. Raises ClusterError if it is not installed."""
    for name, value in _RAY_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    logging.getLogger("ray._private.authentication").setLevel(logging.ERROR)
    try:
        import ray
    except ImportError as error:
        raise ClusterError("Ray is not installed: install clonos-py again, or use --runtime local") from error
    return ray


def _start(ray: ModuleType) -> None:
    options = {
        "include_dashboard": False,
        "object_store_memory": _OBJECT_STORE_BYTES,
        "resources": {PREPARED_RESOURCE: 1},
    }
    with _environment(WORKER_ENVIRONMENT), termination_kept():
        try:
            ray.init(address="local", logging_level="ERROR", log_to_driver=False, **options)
        except Exception as error:
            raise ClusterError(f"a local Ray cannot be started: {_line(error)}; or use --runtime local") from error


def _join(ray: ModuleType, address: str) -> None:
    try:
        with termination_kept():
            ray.init(address=address, logging_level="ERROR", log_to_driver=False)
    except Exception as error:
        raise ClusterError(f"no Ray cluster can be joined at {address}: {_why_not_joined(error)}") from error


def _why_not_joined(error: BaseException) -> str:
    """Why Ray refused, with the remedy. Ray names the versions of cluster and client on lines of their own."""
    versions = [_VERSIONS[name].findall(str(error)) for name in ("Ray", "Python")]
    if [len(found) for found in versions] == [2, 2]:
        (theirs, ours), (their_python, our_python) = versions
        return (
            f"it runs Ray {theirs} and Python {their_python}, and this process Ray {ours} and Python {our_python}: "
            "start this command from an environment with the versions of the cluster, or the cluster with these"
        )
    return f"{_line(error)}; if it asks for a token, {_TOKEN_REMEDY}"


def _check_reachable(address: str) -> None:
    """Raises ClusterError if no Ray answers at the address. Ray itself would try for a minute, or wait for ever if
    another program has the port."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        return
    try:
        with socket.create_connection((host.removeprefix("ray://"), int(port)), _CONNECT_S_MAX) as connection:
            connection.settimeout(_ANSWER_S_MAX)
            sent = _credentials()
            answer = _answer(connection, sent)
    except OSError as error:
        raise ClusterError(
            f"no Ray cluster answers at {address}: {_line(error)}; start one, or leave it out"
        ) from error
    if answer is _Answer.OTHER_PROGRAM:
        raise ClusterError(
            f"the port of {address} is taken by a program that is not Ray: give the address that `ray start --head` "
            "has printed, or leave it out"
        )
    if answer is _Answer.UNAUTHENTICATED:
        given = "the one that was sent is another one" if sent else "none was sent"
        raise ClusterError(f"the Ray cluster at {address} asks for a token, and {given}: {_TOKEN_REMEDY}")


class _Answer(Enum):
    RAY = auto()
    UNAUTHENTICATED = auto()
    OTHER_PROGRAM = auto()


def _credentials() -> dict[str, str]:
    """The header with the token that Ray would send; empty if it would send none, or if that fails: then Ray itself
    says why."""
    from ray._private.authentication.http_token_authentication import get_auth_headers_if_auth_enabled

    try:
        return {name.lower(): value for name, value in get_auth_headers_if_auth_enabled({}).items()}
    except Exception:  # noqa: BLE001 - Ray has no common base of these errors
        return {}


def _answer(connection: socket.socket, credentials: Mapping[str, str]) -> _Answer:
    """Whether the server answers a call of gRPC, as Ray does: other servers of HTTP/2 do not know its path. With TLS it
    is not checked here: Ray itself finds out."""
    if os.environ.get("RAY_USE_TLS") == "1":
        return _Answer.RAY
    call = _grpc_call("/ray.rpc.NodeInfoGcsService/GetClusterId", credentials)
    try:
        connection.sendall(_HTTP2_PREFACE + _HTTP2_SETTINGS + call)
        for _ in range(_FRAMES_MAX):
            header = connection.recv(_HTTP2_HEADER_BYTES, socket.MSG_WAITALL)
            length, kind = int.from_bytes(header[:3], "big"), header[3]
            if length > _FRAME_BYTES_MAX:
                return _Answer.OTHER_PROGRAM
            content = connection.recv(length, socket.MSG_WAITALL) if length else b""
            if kind == _HEADERS:
                fields = content[1:] if content[0] in _SIZE_UPDATE else content
                if fields[0] != _OK:
                    break
                return _Answer.UNAUTHENTICATED if _UNAUTHENTICATED in fields else _Answer.RAY
    except (OSError, IndexError):
        pass
    return _Answer.OTHER_PROGRAM


def _grpc_call(path: str, more: Mapping[str, str]) -> bytes:
    """A call without a message, as two frames (RFC 9113, section 6). ``more``: header fields."""
    fields = {":path": path, ":authority": "ray", "content-type": "application/grpc", "te": "trailers", **more}
    block = b"\x83\x86"  # POST, http
    for name, value in fields.items():
        block += b"\0" + _text(name) + _text(value)
    return _frame(_HEADERS, _END_HEADERS, block) + _frame(_DATA, _END_STREAM, bytes(5))


def _text(text: str) -> bytes:
    """A string literal with its length (RFC 7541, sections 5.1 and 5.2)."""
    content = text.encode("latin-1", "replace")
    length, head = len(content), bytearray()
    if length < _LENGTH_MASK:
        return bytes([length]) + content
    head.append(_LENGTH_MASK)
    length -= _LENGTH_MASK
    while length >= 128:
        head.append(length % 128 + 128)
        length //= 128
    return bytes([*head, length]) + content


def _frame(kind: int, flags: int, content: bytes) -> bytes:
    return len(content).to_bytes(3, "big") + bytes([kind, flags]) + (1).to_bytes(4, "big") + content


def _prepared(ray: ModuleType) -> bool:
    return all(PREPARED_RESOURCE in node["Resources"] for node in _alive(ray))


def _alive(ray: ModuleType) -> list[dict[str, Any]]:
    return [node for node in ray.nodes() if node["Alive"]]


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Sets environment variables for a while, for child processes to inherit."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _line(error: BaseException) -> str:
    """The first line of an error's message."""
    return str(error).strip().split("\n")[0]
