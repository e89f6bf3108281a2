"""Kafka topics as sinks of jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import pyarrow as pa

from clonos_py.connectors.kafka.avro import Avro
from clonos_py.connectors.kafka.clients import ClusterAddress, KafkaSecurity
from clonos_py.connectors.kafka.journaled_topic import JournaledTopic
from clonos_py.connectors.kafka.outgoing import MessageLayout, MessageMaker
from clonos_py.connectors.kafka.protobuf import Protobuf
from clonos_py.connectors.names import names_of
from clonos_py.model.connectors import Delivery, SinkDefinition
from clonos_py.model.errors import GraphError
from clonos_py.model.operators import Sink
from clonos_py.model.times import Duration, micros

_DELIVERIES = (Delivery.CAUSAL, Delivery.TRANSACTIONAL, Delivery.IDEMPOTENT)


class KafkaSink(SinkDefinition):
    """Writes rows to a topic of a Kafka cluster, exactly once for consumers with ``isolation.level=read_committed``.

    ``format`` is json, msgpack, text, bytes (both of one column), ``Avro(...)``, ``Protobuf(...)`` or arrow (many rows
    are one message, of about 500 KB at most). ``key`` names the columns of the message key: one column of text or bytes
    is used unchanged, another type as JSON, several columns as a JSON object. The key selects the partition as in
    Java's producer. ``timestamp`` names a column of times for the message's timestamp.

    ``delivery``: with "causal" rows are visible within milliseconds. The determinants that they depend on are written
    in the same transaction to the topic ``journal``, which no other sink may use; by default its name is made from
    those of the topic and the operator. This needs the full sharing depth. With "transactional" rows are kept in the
    checkpoint that ends their epoch, and become visible when it is complete; the ``journal`` then records what is
    visible. With "idempotent" rows are written at once and may be written again after a failure, under the same key,
    which is required. This is also the delivery of a ``Table``, whose deletions become tombstones.

    If the cluster is unreachable for longer than ``away``, the job stops. ``client`` is confluent-kafka or
    kafka-python; by default it is the one that is installed, confluent-kafka first.
    """

    def __init__(
        self,
        topic: str,
        *,
        bootstrap: str,
        format: Literal["json", "msgpack", "arrow", "text", "bytes"] | Avro | Protobuf = "json",
        key: str | Sequence[str] = (),
        timestamp: str | None = None,
        delivery: Literal["causal", "transactional", "idempotent"] = "causal",
        journal: str | None = None,
        security: KafkaSecurity | None = None,
        client: Literal["confluent-kafka", "kafka-python"] | None = None,
        away: Duration = "5m",
    ) -> None:
        if delivery not in _DELIVERIES:
            raise GraphError(f"KafkaSink: unknown delivery {delivery!r}; choose one of {', '.join(_DELIVERIES)}")
        self.delivery = Delivery(delivery)
        keys = names_of(key)
        if self.delivery is Delivery.IDEMPOTENT:
            if not keys:
                raise GraphError("KafkaSink: delivery='idempotent' needs key=: rows are replaced by their key")
            if journal is not None:
                raise GraphError("KafkaSink: delivery='idempotent' has no journal; omit journal=")
        self._address = ClusterAddress(bootstrap, security or KafkaSecurity(), client)
        self._layout = MessageLayout(topic, format, keys, timestamp)
        self.place = f"topic {topic}"
        self._journal = journal
        self._away_s = micros(away) / 1e6
        self.upserts = self.deletes = self.delivery is Delivery.IDEMPOTENT
        self.identifies = keys

    def create(self, schema: pa.Schema) -> Sink:
        self._layout.check(schema)
        if self.delivery is Delivery.IDEMPOTENT:
            from clonos_py.connectors.kafka.idempotent_sink import KafkaIdempotentWriter

            return KafkaIdempotentWriter(self._address, self._layout, schema, self._away_s)
        medium = JournaledTopic(self._address, self._layout.topic, self._journal, self._away_s)
        maker = MessageMaker(self._layout, schema)
        if self.delivery is Delivery.CAUSAL:
            from clonos_py.connectors.kafka.causal_sink import KafkaCausalWriter

            return KafkaCausalWriter(medium, maker)
        from clonos_py.connectors.kafka.transactional_sink import KafkaTransactionalWriter

        return KafkaTransactionalWriter(medium, maker)
