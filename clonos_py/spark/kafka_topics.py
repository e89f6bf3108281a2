"""The topics of Kafka that Nexmark events go to: one of each kind."""

from __future__ import annotations

import re
from dataclasses import dataclass

from clonos_py.model.errors import SettingError, SparkError
from clonos_py.nexmark.generator import KINDS

SCHEME = "kafka://"
_TARGET = re.compile(rf"{SCHEME}(?P<servers>[^/,\s]+:\d+(?:,[^/,\s]+:\d+)*)/(?P<prefix>[A-Za-z0-9._-]{{1,200}})")
ANSWER_S = 10
"""For a request to a cluster."""


@dataclass(frozen=True)
class KafkaTopics:
    """Where events go: ``PREFIX.person``, ``PREFIX.auction`` and ``PREFIX.bid`` of a cluster."""

    servers: str
    prefix: str

    @classmethod
    def parse(cls, out: str) -> KafkaTopics:
        """``kafka://HOST:PORT[,HOST:PORT...]/PREFIX``. Raises SettingError."""
        found = _TARGET.fullmatch(out)
        if found is None:
            raise SettingError(f"{out} names no topics: write kafka://HOST:PORT/PREFIX, several brokers with commas")
        return cls(**found.groupdict())

    def __str__(self) -> str:
        return f"{SCHEME}{self.servers}/{self.prefix}"

    def topic(self, kind: str) -> str:
        """Of one kind of event."""
        return f"{self.prefix}.{kind}"


def create(topics: KafkaTopics, partitions: int) -> None:
    """Makes the topics, with as many replicas as the cluster has by default."""
    try:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic
    except ImportError as error:
        raise SparkError("this needs a client of Kafka: pip install 'clonos-py[kafka]'") from error
    client = AdminClient({"bootstrap.servers": topics.servers, "log_level": 0})
    wanted = [NewTopic(topics.topic(kind), num_partitions=partitions) for kind in KINDS]
    try:
        for made in client.create_topics(wanted, request_timeout=ANSWER_S).values():
            made.result()
    except KafkaException as error:
        raise SparkError(f"{topics}: the topics cannot be made: {error.args[0].str()}") from error
