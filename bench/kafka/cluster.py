"""Starts real Kafka clusters on this machine: one node or three, with or without passwords or TLS."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from clonos_py.bench.kafka import jars
from clonos_py.bench.kafka.proxy import CuttingProxy, proxied
from clonos_py.runtime.transport.ports import free_ports

_CLUSTER_ID = "clonosclonosclonosclon"
_START_S = 120.0
_COMMON = """
process.roles=broker,controller
node.id={node}
controller.quorum.voters={voters}
listeners={listener}://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners={listener}://{advertised}
inter.broker.listener.name={listener}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,SSL:SSL
controller.listener.names=CONTROLLER
log.dirs={folder}/logs
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
"""


@dataclass
class BrokerNode:
    """One broker, which is also a controller. ``proxy``: the proxy whose address the broker advertises, if any."""

    folder: Path
    port: int
    proxy: CuttingProxy | None
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def address(self) -> str:
        """The address for clients: that of the proxy, if there is one."""
        return f"127.0.0.1:{self.port}" if self.proxy is None else self.proxy.address

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
                socket.create_connection(("127.0.0.1", self.port), 1).close()
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
    """A running cluster. ``bootstrap``: the value of Kafka's ``bootstrap.servers`` for clients."""

    nodes: Sequence[BrokerNode]

    @property
    def bootstrap(self) -> str:
        return ",".join(node.address for node in self.nodes)


@contextmanager
def cluster(
    folder: Path,
    nodes: int = 1,
    users: Mapping[str, str] | None = None,
    with_proxies: bool = False,
    with_tls: bool = False,
    **settings: object,
) -> Iterator[BrokerCluster]:
    """Runs brokers within the block. With three nodes each topic has three replicas, two of which must be in sync.

    ``users``: names and passwords. Users may do only what ACLs allow. The user ``admin`` must be among them and may do
    everything. ``with_proxies``: clients and other brokers connect through a proxy in front of each broker.
    ``with_tls``: brokers use TLS with clients and with each other; ``settings`` must name the certificates.
    ``settings``: further settings of the brokers, with underscores instead of dots.
    """
    with ExitStack() as stack:
        ports = free_ports(2 * nodes)
        proxies = [stack.enter_context(proxied(port)) if with_proxies else None for port in ports[:nodes]]
        listener = "SSL" if with_tls else "PLAINTEXT" if users is None else "SASL_PLAINTEXT"
        made = _formatted(folder, ports, proxies, listener, users, settings)
        for node in made:
            stack.callback(node.kill)
            node.start()
        for node in made:
            node.wait()
        yield BrokerCluster(made)


def _formatted(
    folder: Path,
    ports: Sequence[int],
    proxies: Sequence[CuttingProxy | None],
    listener: str,
    users: Mapping[str, str] | None,
    settings: Mapping[str, object],
) -> list[BrokerNode]:
    """Writes the settings of all nodes and formats their storage. ``ports``: first of brokers, then of controllers."""
    nodes = len(proxies)
    voters = ",".join(f"{number + 1}@127.0.0.1:{ports[nodes + number]}" for number in range(nodes))
    made = []
    for number in range(nodes):
        own = folder / f"node-{number + 1}"
        own.mkdir(parents=True)
        node = BrokerNode(own, ports[number], proxies[number])
        text = _COMMON.format(
            node=number + 1,
            voters=voters,
            listener=listener,
            port=node.port,
            controller=ports[nodes + number],
            advertised=node.address,
            folder=own,
            replicas=min(nodes, 3),
            in_sync=min(nodes, 2),
        )
        if users is not None:
            known = " ".join(f'user_{name}="{password}"' for name, password in users.items())
            text += _SASL.format(admin=ADMIN, password=users[ADMIN], users=known)
        given = {"group_initial_rebalance_delay_ms": 0, **settings}
        text += "".join(f"{name.replace('_', '.')}={value}\n" for name, value in given.items())
        node.settings.write_text(text)
        node.format()
        made.append(node)
    return made


def _command(main: str, *arguments: str) -> list[str]:
    options = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
    return [jars.java(), *options, "-cp", jars.classpath(), main, *arguments]
