"""The partitions to read, with start and end offsets: resolved once, when the job is submitted.

If a replacement resolved "the latest offset" again, it would lose the messages that arrived in between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from clonos_py.connectors.kafka.client import Admin, Failure, KafkaFailure, Place, TopicPartition
from clonos_py.model.errors import SourceError

Where = Place | int | str | Mapping[tuple[str, int], int]
"""A place, a time in milliseconds, the name of a group for its committed offsets, or offsets by partition."""


KEPT_MS = 3_600_000
"""The minimum time before a topic may be compacted: a checkpoint interval and a recovery fit into it."""


@dataclass(frozen=True)
class TopicLayout:
    """A topic at submission. ``id`` changes if the topic is deleted and created again."""

    name: str
    id: str
    partitions: int


@dataclass(frozen=True)
class SourceLayout:
    """The partitions of a source, with their first offsets. ``ends`` is None for an endless source. Partition p of the
    t-th of n topics has the number p * n + t, so that a new partition does not change the numbers of others."""

    topics: tuple[TopicLayout, ...]
    starts: Mapping[int, int]
    ends: Mapping[int, int] | None

    def number(self, partition: TopicPartition) -> int:
        names = [topic.name for topic in self.topics]
        return partition.partition * len(names) + names.index(partition.topic)

    def partition(self, number: int) -> TopicPartition:
        index, topic = divmod(number, len(self.topics))
        return TopicPartition(self.topics[topic].name, index)


def resolve(admin: Admin, names: Sequence[str], start: Where, stop: Where | None, kept: bool = True) -> SourceLayout:
    """Resolves the topics and offsets of a source. ``kept``: whether topics must keep messages for a replay. Raises
    SourceError for a missing topic or partition, and for a topic that is compacted too soon; KafkaFailure."""
    topics = _described(admin, names)
    for name in names if kept else ():
        _check_kept(admin, name)
    partitions = [TopicPartition(topic.name, number) for topic in topics for number in range(topic.partitions)]
    starts = _offsets(admin, partitions, start, Place.EARLIEST)
    layout = SourceLayout(topics, {}, None)
    ends = None if stop is None else _offsets(admin, partitions, stop, Place.LATEST)
    return SourceLayout(
        topics,
        {layout.number(partition): offset for partition, offset in starts.items()},
        None if ends is None else {layout.number(partition): offset for partition, offset in ends.items()},
    )


def _described(admin: Admin, names: Sequence[str]) -> tuple[TopicLayout, ...]:
    """The topics in the order of the names. Raises SourceError for a missing topic."""
    found = admin.topics(names)
    missing = [name for name in names if name not in found]
    if missing:
        raise SourceError(f"Kafka topic {missing[0]!r} does not exist: create it, or correct its name")
    return tuple(TopicLayout(name, *found[name]) for name in names)


def _check_kept(admin: Admin, name: str) -> None:
    """Raises SourceError if the broker might compact messages away before a replay reads them again. If the user may
    not read the topic's settings, they are assumed to be right."""
    try:
        settings = admin.settings(name)
    except KafkaFailure as failure:
        if failure.kind is Failure.REFUSED:
            return
        raise
    lag_ms = int(settings.get("min.compaction.lag.ms", "0"))
    if "compact" in settings.get("cleanup.policy", "") and lag_ms < KEPT_MS:
        raise SourceError(
            f"Kafka topic {name!r} is compacted after {lag_ms} ms, so that a recovery might not find what it has to "
            f"read again: set the topic's min.compaction.lag.ms to at least {KEPT_MS}, or keep what is read in the "
            "causal log with KafkaSource(replay='logged')"
        )


def _offsets(
    admin: Admin, partitions: Sequence[TopicPartition], where: Where, otherwise: Place
) -> Mapping[TopicPartition, int]:
    if isinstance(where, Place | int):
        return admin.offsets(partitions, where)
    if isinstance(where, str):
        known: Mapping[TopicPartition, int] = admin.committed(where, partitions)
    else:
        known = {TopicPartition(*partition): offset for partition, offset in where.items()}
        wrong = [partition for partition in known if partition not in partitions]
        if wrong:
            raise SourceError(f"offsets are given for {wrong[0]}, which does not exist: correct topic and partition")
    rest = [partition for partition in partitions if partition not in known]
    return {**known, **(admin.offsets(rest, otherwise) if rest else {})}
