"""Starts real Kafka clusters on this machine: one node or three, with or without proxies, passwords or TLS."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from clonos_py.bench.kafka import jars
from clonos_py.bench.kafka.proxy import CuttingProxy, proxied
from clonos_py.bench.ports import free_ports

_CLUSTER_ID = "clonosclonosclonosclon"
_START_S = 120.0
_COMMON = """
process.roles=broker,controller
node.id={node}
controller.quorum.voters={voters}
listeners={listeners},CONTROLLER://127.0.0.1:{controller}
advertised.listeners={advertised}
inter.broker.listener.name={first}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,{protocols}
controller.listener.names=CONTROLLER
log.dirs={folder}/logs
log.retention.ms=-1
auto.create.topics.enable=false
num.network.threads=2
num.io.threads=2
log.cleaner.dedupe.buffer.size=2097152
offsets.topic.num.partitions=3
transaction.state.log.num.partitions=3
offsets.topic.replication.factor={replicas}
transaction.state.log.replication.factor={replicas}
transaction.state.log.min.isr={in_sync}
min.insync.replicas={in_sync}
default.replication.factor={replicas}
"""
ADMIN = "admin"
_SASL = """
sasl.enabled.mechanisms=PLAIN
sasl.mechanism.inter.broker.protocol=PLAIN
listener.name.sasl_plaintext.plain.sasl.jaas.config=\\
  org.apache.kafka.common.security.plain.PlainLoginModule required \\
  username="{admin}" password="{password}" {users};
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:{admin};User:ANONYMOUS
ssl.principal.mapping.rules=RULE:^.*$/{admin}/
"""


class Listener(Enum):
    """A way for clients to reach a broker."""

    PLAINTEXT = "PLAINTEXT"
    PROXIED = "PROXIED"
    """Plain text through a proxy in front of the broker."""
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SSL = "SSL"

    @property
    def protocol(self) -> str:
        return "PLAINTEXT" if self is Listener.PROXIED else self.value


@dataclass
class BrokerNode:
    """One broker, which is also a controller. ``ports``: by listener; the brokers use the first one among each other.
    ``proxy``: the proxy whose address the broker advertises on the listener PROXIED."""

    folder: Path
    ports: Mapping[Listener, int]
    proxy: CuttingProxy | None
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def address(self) -> str:
        """The address for clients, on the first listener."""
        return self.at(next(iter(self.ports)))

    def at(self, listener: Listener) -> str:
        """The address for clients on this listener."""
        if listener is Listener.PROXIED:
            assert self.proxy is not None
            return self.proxy.address
        return f"127.0.0.1:{self.ports[listener]}"

    @property
    def settings(self) -> Path:
        return self.folder / "server.properties"

    def format(self) -> None:
        made = subprocess.run(
            _command("kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(self.settings)),
            capture_output=True,
            text=True,
            check=False,
        )
        assert made.returncode == 0, made.stdout + made.stderr

    def start(self) -> None:
        with (self.folder / "broker.log").open("ab") as log:
            self._process = subprocess.Popen(
                _command("kafka.Kafka", str(self.settings)), stdout=log, stderr=log, start_new_session=True
            )

    def wait(self) -> None:
        """Waits until the broker accepts connections. Raises AssertionError if it ends, or does not in time."""
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline:
            assert self._process is not None
            assert self._process.poll() is None, f"the broker ended: see {self.folder / 'broker.log'}"
            try:
                for port in self.ports.values():
                    socket.create_connection(("127.0.0.1", port), 1).close()
                return
            except OSError:
                time.sleep(0.1)
        raise AssertionError(f"the broker does not answer: see {self.folder / 'broker.log'}")

    def send(self, number: signal.Signals) -> None:
        """Sends a signal to the broker, unless it has ended."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, number)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stops the broker (SIGSTOP) within the block."""
        self.send(signal.SIGSTOP)
        try:
            yield
        finally:
            self.send(signal.SIGCONT)

    def kill(self) -> None:
        """Kills the broker, unless it has ended, and waits for its end."""
        self.send(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()


@dataclass
class BrokerCluster:
    """A running cluster. ``bootstrap``: Kafka's ``bootstrap.servers`` for clients on the first listener."""

    nodes: Sequence[BrokerNode]

    @property
    def bootstrap(self) -> str:
        return ",".join(node.address for node in self.nodes)

    def at(self, listener: Listener) -> str:
        """``bootstrap.servers`` for clients on this listener."""
        return ",".join(node.at(listener) for node in self.nodes)


@contextmanager
def cluster(
    folder: Path,
    nodes: int = 1,
    listeners: Sequence[Listener] = (Listener.PLAINTEXT,),
    users: Mapping[str, str] | None = None,
    **settings: object,
) -> Iterator[BrokerCluster]:
    """Runs brokers within the block. With three nodes each topic has three replicas, two of which must be in sync.

    ``listeners``: the ways to reach them; brokers use the first among each other. For SASL there must be users, for SSL
    ``settings`` must name the certificates. ``users``: names and passwords. Users may do only what ACLs allow. The user
    ``admin`` must be among them and may do everything, and so may clients on the other listeners. ``settings``: further
    settings of the brokers, with underscores instead of dots.
    """
    with ExitStack() as stack:
        ports = free_ports((len(listeners) + 1) * nodes)
        controllers = ports[:nodes]
        of_nodes = [
            dict(zip(listeners, ports[start : start + len(listeners)], strict=True))
            for start in range(nodes, len(ports), len(listeners))
        ]
        proxies = [
            stack.enter_context(proxied(of_node[Listener.PROXIED])) if Listener.PROXIED in of_node else None
            for of_node in of_nodes
        ]
        made = [
            BrokerNode(folder / f"node-{number + 1}", of_node, proxy)
            for number, (of_node, proxy) in enumerate(zip(of_nodes, proxies, strict=True))
        ]
        _format(made, controllers, users, settings)
        for node in made:
            stack.callback(node.kill)
            node.start()
        for node in made:
            node.wait()
        yield BrokerCluster(made)


def _format(
    nodes: Sequence[BrokerNode],
    controllers: Sequence[int],
    users: Mapping[str, str] | None,
    settings: Mapping[str, object],
) -> None:
    """Writes the settings of all nodes and formats their storage. ``controllers``: the ports of the controllers."""
    voters = ",".join(f"{number}@127.0.0.1:{port}" for number, port in enumerate(controllers, 1))
    for number, (node, controller) in enumerate(zip(nodes, controllers, strict=True), 1):
        node.folder.mkdir(parents=True)
        text = _COMMON.format(
            node=number,
            voters=voters,
            listeners=",".join(f"{listener.name}://127.0.0.1:{port}" for listener, port in node.ports.items()),
            advertised=",".join(f"{listener.name}://{node.at(listener)}" for listener in node.ports),
            first=next(iter(node.ports)).name,
            protocols=",".join(f"{listener.name}:{listener.protocol}" for listener in node.ports),
            controller=controller,
            folder=node.folder,
            replicas=min(len(nodes), 3),
            in_sync=min(len(nodes), 2),
        )
        if users is not None:
            known = " ".join(f'user_{name}="{password}"' for name, password in users.items())
            text += _SASL.format(admin=ADMIN, password=users[ADMIN], users=known)
        given = {"group_initial_rebalance_delay_ms": 0, **settings}
        text += "".join(f"{name.replace('_', '.')}={value}\n" for name, value in given.items())
        node.settings.write_text(text)
        node.format()


def _command(main: str, *arguments: str) -> list[str]:
    options = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
    return [jars.java(), *options, "-cp", jars.classpath(), main, *arguments]
