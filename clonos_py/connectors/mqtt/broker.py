"""A session at an MQTT broker: how to reach it, and the messages that it delivers.

The session outlives connections and processes: the broker keeps what comes, and delivers again what was not
acknowledged, with the same packet identifier. By that the reader knows which messages it has taken already.
"""

from __future__ import annotations

import ssl
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import paho.mqtt.client as paho
import xxhash
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from clonos_py.connectors.secrets import Secret, secret_value
from clonos_py.model.errors import SettingError, type_and_text

QOS = 1
_RECEIVE_MAX = 65_535
_TAKEN_OVER = "Session taken over"
_RETRY_S_MAX = 5
_SHORT_S, _SHORT_MAX = 10.0, 10
"""So many connections in a row, none of which lasted longer, are a quarrel about a session."""


@dataclass(frozen=True)
class MqttBroker:
    """Where a broker is, and how to log in. ``tls``: whether to encrypt; or a file with the certificates of those who
    may vouch for the broker, in place of those that the system trusts."""

    host: str
    port: int = 1883
    user: str | None = None
    password: Secret | None = None
    tls: bool | str = False

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    def client(self, client_id: str, manual_ack: bool) -> paho.Client:
        """A client that connects again by itself, and is not connected yet. Raises SettingError for a file of
        certificates that cannot be read."""
        made = paho.Client(
            CallbackAPIVersion.VERSION2, client_id, protocol=MQTTProtocolVersion.MQTTv5, manual_ack=manual_ack
        )
        if self.user is not None:
            made.username_pw_set(self.user, secret_value(self.password))
        if self.tls:
            try:
                made.tls_set(self.tls if isinstance(self.tls, str) else None)
            except OSError as problem:
                raise SettingError(
                    f"tls={self.tls!r}: {type_and_text(problem)}: name a file of certificates"
                ) from problem
        made.reconnect_delay_set(1, _RETRY_S_MAX)
        return made


def refused_login(code: Any) -> str | None:
    """What the answer to a connection says that will not pass by itself; None if there is nothing."""
    text = str(code)
    known = code.is_failure and ("authori" in text.lower() or "Bad user" in text)
    return f"the broker refuses the login ({text}): correct user and password" if known else None


def distrusted() -> str | None:
    """Called where a connection has failed: whether the broker is not trusted; None if it failed otherwise."""
    problem = sys.exc_info()[1]
    if not isinstance(problem, ssl.SSLCertVerificationError):
        return None
    why = problem.verify_message
    return f"its certificate is not trusted ({why}): tls= takes a file of certificates that vouch for it"


class MqttMessage(NamedTuple):
    """A message. ``packet``: its identifier, until it is acknowledged; 0 of one that needs no acknowledgement."""

    packet: int
    topic: str
    payload: bytes

    @property
    def digest(self) -> int:
        return xxhash.xxh3_64_intdigest(self.payload, xxhash.xxh3_64_intdigest(self.topic.encode()) >> 1) >> 1


class MqttSession:
    """A connection of a session, in a thread of its own. ``wake`` is called when there are messages."""

    def __init__(
        self, broker: MqttBroker, client_id: str, topics: Sequence[str], session_s: int, wake: Callable[[], None]
    ) -> None:
        self._topics, self._wake = list(topics), wake
        self._lock = threading.Lock()
        self._waiting: deque[tuple[MqttMessage, bool]] = deque()
        self.problem: str | None = None
        """What will not pass by itself."""
        self.connected = False
        """Whether there is a connection, and the topics are subscribed to."""
        self._connected_s, self._short = 0.0, 0
        """When the connection began, and how many before it were short."""
        self._client = broker.client(client_id, manual_ack=True)
        self._client.on_connect = self._on_connect
        self._client.on_connect_fail = self._on_connect_fail
        self._client.on_subscribe = self._on_subscribe
        self._client.on_disconnect = self._on_disconnect
        self._client.on_message = self._on_message
        kept: Any = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        kept.SessionExpiryInterval = session_s
        kept.ReceiveMaximum = _RECEIVE_MAX
        self._client.connect_async(broker.host, broker.port, clean_start=False, properties=kept)
        self._client.loop_start()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def take(self, count: int) -> list[tuple[MqttMessage, bool]]:
        """The next messages, each with whether it was delivered before."""
        with self._lock:
            return [self._waiting.popleft() for _ in range(min(count, len(self._waiting)))]

    def acknowledge(self, packets: Sequence[int]) -> None:
        for packet in packets:
            self._client.ack(packet, QOS)

    def close(self) -> None:
        """The broker keeps the session."""
        self._client.disconnect()
        self._client.loop_stop()

    def _on_connect(self, client: paho.Client, userdata: Any, flags: Any, code: Any, properties: Any) -> None:
        if code.is_failure:
            self.problem = refused_login(code)
            return
        client.subscribe([(topic, QOS) for topic in self._topics])

    def _on_connect_fail(self, client: paho.Client, userdata: Any) -> None:
        self.problem = distrusted() or self.problem

    def _on_subscribe(self, client: paho.Client, userdata: Any, packet: int, codes: Any, properties: Any) -> None:
        refused = [topic for topic, code in zip(self._topics, codes, strict=False) if code.is_failure]
        if refused:
            self.problem = f"the broker refuses the subscription to {refused[0]!r}: allow it there"
        self.connected, self._connected_s = True, time.monotonic()

    def _on_disconnect(self, client: paho.Client, userdata: Any, flags: Any, code: Any, properties: Any) -> None:
        """Not all brokers say that another client has taken the session over: both connect again and again then."""
        was_short = self.connected and time.monotonic() - self._connected_s < _SHORT_S
        self.connected = False
        self._short = self._short + 1 if was_short else 0
        if str(code) == _TAKEN_OVER or self._short >= _SHORT_MAX:
            self.problem = "another client takes the session over: give each job a client_id of its own"
            client.disconnect()

    def _on_message(self, client: paho.Client, userdata: Any, message: paho.MQTTMessage) -> None:
        found = MqttMessage(message.mid if message.qos else 0, message.topic, bytes(message.payload))
        with self._lock:
            self._waiting.append((found, message.dup))
        self._wake()
