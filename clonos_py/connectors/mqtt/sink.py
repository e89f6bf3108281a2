"""Rows as messages of an MQTT broker, at least once."""

from __future__ import annotations

import re
import secrets
import threading
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from clonos_py.connectors.extras import need
from clonos_py.connectors.pushed_rows import check_port
from clonos_py.connectors.row_files import json_lines
from clonos_py.connectors.row_writer import IdempotentSink, RowWriter
from clonos_py.connectors.secrets import Secret, refuse_plain_secrets
from clonos_py.model.errors import GraphError, SinkError
from clonos_py.model.operators import Sink

if TYPE_CHECKING:
    import paho.mqtt.client as paho

    from clonos_py.connectors.mqtt.broker import MqttBroker

_COLUMN = re.compile(r"\{([^{}]*)\}")
QOS = 1
_ON_THE_WAY_MAX = 10_000
_ANSWER_S = 60.0


class MqttSink(IdempotentSink):
    """Publishes rows as JSON objects to an MQTT broker (version 5), with QoS 1, as they come. It needs the extra
    ``mqtt``.

    ``topic`` may name columns, as in "alerts/{sensor}"; a value must not have ``+``, ``#``, or be empty. With
    ``retain`` the broker keeps the last message of each topic for later subscribers. ``tls``: see ``MqttSource``.

    MQTT has neither transactions nor ids of messages, so delivery is at least once: after a failure, rows since the
    last checkpoint may be published again. Before a checkpoint the sink waits until the broker has acknowledged all of
    them, so none is lost.
    """

    delivery = None  # type: ignore[assignment]
    upserts = True

    def __init__(
        self,
        host: str,
        topic: str,
        *,
        port: int = 1883,
        retain: bool = False,
        user: str | None = None,
        password: Secret | None = None,
        tls: bool | str = False,
    ) -> None:
        need("MqttSink", "paho", "mqtt")
        check_port("MqttSink", port)
        refuse_plain_secrets("MqttSink", password=password)
        self._broker = host, port, user, password, tls
        self._topic, self._retain = topic, retain
        if not topic or "#" in topic or "+" in topic:
            raise GraphError(f"MqttSink: {topic!r} is no topic to publish to: name one without + and #")

    def create(self, schema: pa.Schema) -> Sink:
        if unknown := [name for name in _COLUMN.findall(self._topic) if name not in schema.names]:
            raise GraphError(f"MqttSink: topic: no column {unknown[0]!r}; there are {', '.join(schema.names)}")
        return super().create(schema)

    def open(self, schema: pa.Schema) -> RowWriter:
        from clonos_py.connectors.mqtt.broker import MqttBroker

        return _MqttWriter(MqttBroker(*self._broker), self._topic, self._retain)


class _MqttWriter(RowWriter):
    def __init__(self, broker: MqttBroker, topic: str, retain: bool) -> None:
        self._broker, self._topic, self._retain = broker, topic, retain
        self._columns = _COLUMN.findall(topic)
        self._client = broker.client(f"clonos-{secrets.token_hex(8)}", manual_ack=False)
        self._client.max_inflight_messages_set(1_000)
        self._client.on_publish = self._on_publish
        self._client.on_connect = self._on_connect
        self._client.on_connect_fail = self._on_connect_fail
        self._on_the_way: set[int] = set()
        """Packet identifiers."""
        self._answered = threading.Condition()
        self._acknowledged: set[int] = set()
        """Those with an answer; guarded by the condition, as is the next one. It is not held while publishing: the
        client answers with a lock that publishing needs."""
        self._refused: str | None = None
        self._client.connect_async(broker.host, broker.port)
        self._client.loop_start()

    def write(self, rows: pa.RecordBatch) -> None:
        values = bytes(json_lines(rows)).split(b"\n")[:-1]
        names = rows.select(self._columns).to_pylist() if self._columns else [{}] * rows.num_rows
        for value, named in zip(values, names, strict=True):
            topic = _COLUMN.sub(lambda found, named=named: str(named[found[1]]), self._topic)  # type: ignore[misc]
            if not topic or "+" in topic or "#" in topic or any(part in (None, "") for part in named.values()):
                raise SinkError(
                    f"{self._broker}: {topic!r} is no topic to publish to: change its columns before the sink"
                )
            self._on_the_way.add(self._client.publish(topic, value, QOS, self._retain).mid)
        if len(self._on_the_way) > _ON_THE_WAY_MAX:
            self.flush()

    def flush(self) -> None:
        with self._answered:
            done = self._answered.wait_for(lambda: self._refused or self._on_the_way <= self._acknowledged, _ANSWER_S)
            if self._refused is not None:
                raise SinkError(f"{self._broker}: {self._refused}")
        if not done:
            raise SinkError(
                f"{self._broker}: the broker acknowledges no message within {_ANSWER_S:g} s: start it, allow the user "
                "to publish there, and run the job again, which goes on from its last checkpoint"
            )
        self._on_the_way, self._acknowledged = set(), set()

    def _on_publish(self, client: paho.Client, userdata: Any, packet: int, code: Any, properties: Any) -> None:
        with self._answered:
            self._acknowledged.add(packet)
            if code.is_failure:
                self._refused = f"the broker refuses a message ({code}): allow it there"
            self._answered.notify_all()

    def _on_connect(self, client: paho.Client, userdata: Any, flags: Any, code: Any, properties: Any) -> None:
        from clonos_py.connectors.mqtt.broker import refused_login

        self._refuse(refused_login(code))

    def _on_connect_fail(self, client: paho.Client, userdata: Any) -> None:
        from clonos_py.connectors.mqtt.broker import distrusted

        self._refuse(distrusted())

    def _refuse(self, reason: str | None) -> None:
        with self._answered:
            self._refused = self._refused or reason
            self._answered.notify_all()

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()
