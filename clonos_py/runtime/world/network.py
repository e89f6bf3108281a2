"""The connections of a world. Messages arrive in order; the loss of a connection is noticed after earlier messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from clonos_py.link.instructions import (
    Acknowledged,
    Arrived,
    Connect,
    Connected,
    FeedReceived,
    LinkEvent,
    Lost,
    SendAck,
    SendFrame,
    Subscribed,
)
from clonos_py.runtime.executors.link import LinkInput
from clonos_py.runtime.world.actions import Actions
from clonos_py.runtime.world.dispatcher import Dispatcher
from clonos_py.runtime.world.processes import LocalProcess, WorldConnection


class Network:
    """All connections, by number. Addresses of processes are their numbers."""

    def __init__(self, processes: Mapping[int, LocalProcess], actions: Actions, dispatcher: Dispatcher) -> None:
        self._processes, self._actions, self._dispatcher = processes, actions, dispatcher
        self.connections: dict[int, WorldConnection] = {}

    def establish(self, process: LocalProcess, request: Connect) -> None:
        """Connects ``process`` now with the process that it requests, or refuses the connection."""
        if not process.alive:
            return
        sender = self._processes.get(int(request.address))
        if sender is None:
            self.refuse(process, request, "refused")
            return
        connection = self._actions.new_number()
        self.connections[connection] = WorldConnection(process, sender)
        process.connections.add(connection)
        sender.connections.add(connection)
        self.transmit(process, connection, Subscribed(connection, request.hello))
        self._dispatcher.link(process.number, Connected(request.input, connection, request.hello))

    def refuse(self, process: LocalProcess, request: Connect, reason: str) -> None:
        """Refuses a connection. ``process`` gets ``Lost`` after a while."""
        lost = Lost(-1, request.input, request.hello, reason)
        self._later("retry", (process.number, "connect", request.input), process.number, lost)

    def transmit(self, process: LocalProcess, connection: int, event: LinkEvent) -> None:
        """Sends ``event`` from ``process`` to the other end."""
        link = self.connections.get(connection)
        if link is None:
            return
        other = link.other(process)

        def deliver() -> None:
            if not link.closed or not (process.alive or link.lossy):
                self._dispatcher.link(other.number, event)

        self._actions.after("network", (connection, process.number), deliver, event)

    def close(self, connection: int, by: LocalProcess) -> None:
        """One end has closed a connection. The other end gets ``Lost`` after earlier messages."""
        link = self.connections.pop(connection, None)
        if link is None:
            return
        link.closed = True
        other = link.other(by)
        other.connections.discard(connection)
        by.connections.discard(connection)
        self._later("network", (connection, by.number), other.number, Lost(connection))

    def cut(self, connection: int, ends: Iterable[LocalProcess]) -> None:
        """Cuts a connection. Both ends lose it, and messages in transit are lost."""
        link = self.connections.pop(connection)
        link.closed = link.lossy = True
        for end in ends:
            end.connections.discard(connection)
            self._later("network", (connection, "cut", end.number), end.number, Lost(connection))

    def _later(self, kind: str, queue: tuple[int | str, ...], number: int, event: LinkInput) -> None:
        self._actions.after(kind, queue, partial(self._dispatcher.link, number, event))


class LocalConnections:
    """The ``DataConnections`` of one process, for its link's executor."""

    def __init__(self, network: Network, actions: Actions, process: LocalProcess) -> None:
        self._network, self._actions, self._process = network, actions, process

    def connect(self, request: Connect) -> None:
        establish = partial(self._network.establish, self._process, request)
        self._actions.after("network", (self._process.number, "connect", request.input), establish)

    def disconnect(self, connection: int) -> None:
        self._network.close(connection, self._process)

    def send_frame(self, request: SendFrame) -> None:
        connection, header, body = request.connection, request.header, request.body
        of_feed = header.kind.of_feed
        arrived = FeedReceived(connection, header, body) if of_feed else Arrived(connection, header, header.frame(body))
        self._network.transmit(self._process, connection, arrived)

    def send_ack(self, request: SendAck) -> None:
        acknowledged = Acknowledged(request.connection, request.acknowledgement)
        self._network.transmit(self._process, request.connection, acknowledged)
