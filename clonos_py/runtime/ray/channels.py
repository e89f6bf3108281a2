"""The channels of one process over its endpoint: translates the link's instructions into socket operations, and socket
events into link events.

A connection that this process opened carries an input channel: it receives frames and sends acknowledgements. A
connection that it accepted carries an output channel: it sends frames and receives acknowledgements.
"""

from __future__ import annotations

import heapq
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from clonos_py.link.instructions import (
    Acknowledged,
    Arrived,
    Connect,
    Connected,
    FeedReceived,
    Hello,
    LinkEvent,
    Lost,
    SendAck,
    SendFrame,
    Subscribed,
    decode_hello,
    encode_hello,
)
from clonos_py.model.errors import CodecError
from clonos_py.model.ids import TaskId
from clonos_py.model.plan import Edge, PhysicalPlan
from clonos_py.runtime.ray.wire_codec import decode_ack, decode_feed, decode_frame, encode_ack, encode_header
from clonos_py.runtime.transport import events as transport
from clonos_py.runtime.transport.address import Address
from clonos_py.runtime.transport.endpoint import Endpoint

_LOG = logging.getLogger("clonos_py.transport")
RETRY_S = 0.05
"""The delay before a failed connection attempt is reported as lost: the link then tries again at once."""


@dataclass
class _Inbound:
    """A connection that carries input ``input``. ``open``: both sides have proven the secret."""

    input: int
    hello: Hello
    edge: Edge | None
    """None: it carries the feed of a standby."""
    remote: bool
    sampled: bool
    open: bool = False


class Channels:
    """The ``Connections`` of a link's executor. ``poll`` yields link events."""

    def __init__(
        self, endpoint: Endpoint, plan: PhysicalPlan, task: TaskId, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._endpoint = endpoint
        self._clock = clock
        self._node = Address.parse(endpoint.address).node
        self._edges = [plan.edges[channel.edge] for channel in plan.inputs[task]]
        self._sampled = [plan.by_name[edge.source].sampled for edge in self._edges]
        self._inbound: dict[int, _Inbound] = {}
        self._outbound: set[int] = set()
        self._retries: list[tuple[float, int, Lost]] = []
        self._failures = 0

    @property
    def address(self) -> str:
        return self._endpoint.address

    def wake(self) -> None:
        """Ends a waiting ``poll``; may be called by any thread."""
        self._endpoint.wake()

    def close(self) -> None:
        self._endpoint.close()

    def send_frame(self, request: SendFrame) -> None:
        body = request.body
        self._endpoint.send(request.connection, encode_header(request.header), (body,) if body is not None else ())

    def send_ack(self, request: SendAck) -> None:
        self._endpoint.send(request.connection, encode_ack(request.acknowledgement))

    def disconnect(self, connection: int) -> None:
        self._drop_connection(connection)
        self._endpoint.close_connection(connection)

    def connect(self, request: Connect) -> None:
        """Opens a connection. Cancels an earlier connection or attempt for the same input."""
        for connection, inbound in list(self._inbound.items()):
            if inbound.input == request.input:
                self.disconnect(connection)
        self._retries = [retry for retry in self._retries if retry[2].input != request.input]
        heapq.heapify(self._retries)
        remote = Address.parse(request.address).node != self._node
        connection = self._endpoint.connect(request.address, encode_hello(request.hello))
        of_feed = request.input == len(self._edges)
        edge, sampled = (None, False) if of_feed else (self._edges[request.input], self._sampled[request.input])
        self._inbound[connection] = _Inbound(request.input, request.hello, edge, remote, sampled)

    def _drop_connection(self, connection: int) -> None:
        self._inbound.pop(connection, None)
        self._outbound.discard(connection)

    def poll(self, timeout_s: float | None) -> Iterator[LinkEvent]:
        """Yields events, one at a time while the caller handles them: an instruction to disconnect affects the events
        that follow."""
        if self._retries:
            until = max(0.0, self._retries[0][0] - self._clock())
            timeout_s = until if timeout_s is None else min(until, timeout_s)
        for event in self._endpoint.poll(timeout_s):
            try:
                translated = self._translate(event)
            except CodecError as problem:
                translated = self._refuse(event.connection, str(problem))
            if translated is not None:
                yield translated
        while self._retries and self._retries[0][0] <= self._clock():
            yield heapq.heappop(self._retries)[2]

    def _translate(self, event: transport.TransportEvent) -> LinkEvent | None:
        connection = event.connection
        match event:
            case transport.Received(_, header, body):
                if inbound := self._inbound.get(connection):
                    edge = inbound.edge
                    if edge is None:
                        return FeedReceived(connection, *decode_feed(header, body))
                    frame = decode_frame(header, body, edge.schema, edge.frame_rows, inbound.remote, inbound.sampled)
                    return Arrived(connection, *frame)
                return Acknowledged(connection, decode_ack(header)) if connection in self._outbound else None
            case transport.Accepted(_, hello):
                subscription = decode_hello(hello)
                self._outbound.add(connection)
                return Subscribed(connection, subscription)
            case transport.PeerConnected():
                inbound = self._inbound[connection]
                inbound.open = True
                return Connected(inbound.input, connection, inbound.hello)
            case transport.Closed(_, reason):
                return self._lost(connection, reason)
            case _:
                return None

    def _refuse(self, connection: int, reason: str) -> LinkEvent | None:
        """Closes the connection of a peer that breaks the format."""
        _LOG.warning("closed a connection of a peer that has proven the secret: %s", reason)
        self._endpoint.close_connection(connection)
        return self._lost(connection, reason)

    def _lost(self, connection: int, reason: str) -> Lost | None:
        inbound = self._inbound.get(connection)
        known = inbound is not None or connection in self._outbound
        self._drop_connection(connection)
        if inbound is None or inbound.open:
            return Lost(connection, reason=reason) if known else None
        self._failures += 1
        lost = Lost(-1, inbound.input, inbound.hello, reason)
        heapq.heappush(self._retries, (self._clock() + RETRY_S, self._failures, lost))
        return None
