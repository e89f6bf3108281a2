"""The Kafka topics of Nexmark events, one per kind."""

from __future__ import annotations

import re
from dataclasses import dataclass

from clonos_py.connectors.kafka.client import KafkaFailure
from clonos_py.connectors.kafka.clients import ClusterAddress
from clonos_py.evaluation.nexmark.generator import KINDS
from clonos_py.model.errors import SettingError, SparkError

SCHEME = "kafka://"
_TARGET = re.compile(rf"{SCHEME}(?P<servers>[^/,\s]+:\d+(?:,[^/,\s]+:\d+)*)/(?P<prefix>[A-Za-z0-9._-]{{1,200}})")


@dataclass(frozen=True)
class KafkaTopics:
    """The topics ``PREFIX.person``, ``PREFIX.auction`` and ``PREFIX.bid`` of a cluster."""

    servers: str
    prefix: str

    @classmethod
    def parse(cls, out: str) -> KafkaTopics:
        """Parses ``kafka://HOST:PORT[,HOST:PORT...]/PREFIX``. Raises SettingError."""
        found = _TARGET.fullmatch(out)
        if found is None:
            raise SettingError(f"{out} names no topics: write kafka://HOST:PORT/PREFIX, several brokers with commas")
        return cls(**found.groupdict())

    def __str__(self) -> str:
        return f"{SCHEME}{self.servers}/{self.prefix}"

    def topic(self, kind: str) -> str:
        """The topic of one kind of event."""
        return f"{self.prefix}.{kind}"


def create(topics: KafkaTopics, partitions: int) -> None:
    """Creates the topics with the cluster's default replication. Raises SettingError if no client is installed,
    SparkError if a topic exists already or the cluster does not answer."""
    names = [topics.topic(kind) for kind in KINDS]
    try:
        admin = ClusterAddress(topics.servers).connect().admin()
        for name in admin.topics(names):
            raise SparkError(f"{topics}: the topic {name!r} already exists: name another prefix, or delete it")
        for name in names:
            admin.create(name, partitions, {})
    except KafkaFailure as failure:
        raise SparkError(f"{topics}: the topics cannot be created: {failure}") from failure
    admin.close()
