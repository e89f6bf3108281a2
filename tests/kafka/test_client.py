"""The behaviour that the connectors rely on, on a real broker with each client library."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from clonos_py.connectors.kafka import fast_client
from clonos_py.connectors.kafka.client import (
    Client,
    ClusterConnection,
    Failure,
    Fields,
    KafkaFailure,
    Message,
    Messages,
    Place,
    TopicPartition,
    TransactionalWriter,
)
from tests.kafka.conftest import CLIENTS
from tests.waiting import attempts, wait_until

ALL = Fields(keys=True, timestamps=True, headers=True)
QUIET_S = 0.05
"""A reader at the end of its partitions gets a message within this time if there is one."""


@pytest.fixture(params=list(CLIENTS))
def client(request: pytest.FixtureRequest, bootstrap: str) -> Client:
    """Each of the client libraries."""
    return CLIENTS[request.param](ClusterConnection(bootstrap))


class Reading:
    """A reader, with the offsets that the cluster lists."""

    def __init__(self, client: Client, fields: Fields, offsets: Mapping[TopicPartition, int]) -> None:
        self._admin = client.admin()
        self._reader = client.reader(fields)
        self._partitions = list(offsets)
        self._reader.assign(offsets)

    def at_end(self) -> bool:
        """Whether all committed messages of the partitions that are not paused have been returned."""
        ends = self._admin.offsets(self._partitions, Place.LATEST)
        return all(self.position(partition) >= end for partition, end in ends.items())

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        self._partitions = [each for each in self._partitions if each not in partitions]
        self._reader.pause(partitions)

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        self._partitions += partitions
        self._reader.resume(partitions)

    def close(self) -> None:
        self._reader.close()
        self._admin.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)


@contextmanager
def reading(client: Client, offsets: Mapping[TopicPartition, int], fields: Fields = ALL) -> Iterator[Reading]:
    reader = Reading(client, fields, offsets)
    try:
        yield reader
    finally:
        reader.close()


def taken(reader: Reading, count: int) -> list[Messages]:
    """Reads so many messages, and asserts that there are no more."""
    found: list[Messages] = []

    def enough() -> bool:
        if sum(len(m.offsets) for m in found) < count:
            found.extend(reader.fetch(0.2))
        return sum(len(m.offsets) for m in found) >= count

    wait_until(enough, lambda: found, every_s=0)
    for _ in attempts(lambda: found, every_s=0):
        assert not reader.fetch(QUIET_S)
        if reader.at_end():
            break
    return found


def values(found: Sequence[Messages], partition: int = 0) -> list[bytes | None]:
    return [value for messages in found if messages.partition.partition == partition for value in messages.values]


def write(client: Client, *messages: Message) -> None:
    writer = client.writer()
    writer.write(messages)
    writer.flush()
    writer.close()


def transact(client: Client, id: str, *messages: Message) -> None:
    writer = client.transactional_writer(id)
    writer.acquire()
    complete(writer, *messages)
    writer.close()


def complete(writer: TransactionalWriter, *messages: Message) -> None:
    writer.begin()
    writer.write(messages)
    writer.commit()


def test_messages_are_read_in_order_with_all_their_attributes(client: Client, topic: str) -> None:
    write(
        client,
        Message(topic, b"first", b"k", 0, 1_000, [("a", b"1"), ("a", b"2")]),
        Message(topic, None, b"k", 0, 2_000),
        Message(topic, b"other", None, 1, 3_000),
        Message(topic, b"", b"", 0, 4_000),
    )
    first, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with reading(client, {first: 0, other: 0}) as reader:
        found = taken(reader, 4)
        assert (reader.position(first), reader.position(other)) == (3, 1)
    assert values(found, 1) == [b"other"]
    run = [m for m in found if m.partition == first]
    assert [offset for m in run for offset in m.offsets] == [0, 1, 2]
    assert values(found) == [b"first", None, b""]
    assert [key for m in run for key in m.keys] == [b"k", b"k", b""]
    assert [at for m in run for at in m.timestamps_ms] == [1_000, 2_000, 4_000]
    assert [list(headers) for m in run for headers in m.headers] == [[("a", b"1"), ("a", b"2")], [], []]


def test_one_write_keeps_the_order_of_each_partition_although_the_queue_has_no_room_for_all(
    client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some of the messages have times or headers, which librdkafka does not take together with others."""
    monkeypatch.setattr(fast_client, "_QUEUED_MAX", 300)
    monkeypatch.setattr(fast_client, "_TOGETHER", 200)

    def message(number: int) -> Message:
        at_ms, headers = (number if number % 700 == 0 else None), ([("a", b"1")] if number % 900 == 0 else ())
        return Message(topic, b"%d" % number, None, number // 250 % 2, at_ms, headers)

    written = [message(number) for number in range(3_000)]
    write(client, *written)
    places = [TopicPartition(topic, partition) for partition in range(2)]
    with reading(client, dict.fromkeys(places, 0)) as reader:
        found = taken(reader, len(written))
    for place in places:
        assert values(found, place.partition) == [m.value for m in written if m.partition == place.partition]


def test_a_reader_returns_only_the_requested_fields(client: Client, topic: str) -> None:
    write(client, Message(topic, b"v", b"k", 0))
    with reading(client, {TopicPartition(topic, 0): 0}, Fields()) as reader:
        (found,) = taken(reader, 1)
    assert found == (TopicPartition(topic, 0), [0], (), (), [b"v"], ())


def test_reading_begins_at_the_given_offset(client: Client, topic: str) -> None:
    write(client, *(Message(topic, b"%d" % n, partition=0) for n in range(5)))
    with reading(client, {TopicPartition(topic, 0): 3}) as reader:
        assert values(taken(reader, 2)) == [b"3", b"4"]
        reader.assign({TopicPartition(topic, 0): 1})
        assert values(taken(reader, 4)) == [b"1", b"2", b"3", b"4"]


def test_a_transaction_is_visible_after_its_commit(client: Client, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    writer = client.transactional_writer(topic)
    writer.acquire()
    with reading(client, {partition: 0}) as reader:
        writer.begin()
        writer.write([Message(topic, b"kept", partition=0)])
        writer.flush()
        assert taken(reader, 0) == []
        writer.commit()
        assert values(taken(reader, 1)) == [b"kept"]
        writer.begin()
        writer.write([Message(topic, b"dropped", partition=0)])
        writer.flush()
        writer.abort()
        writer.begin()
        writer.write([Message(topic, b"last", partition=0)])
        writer.commit()
        (last,) = taken(reader, 1)
        assert (last.values, last.offsets) == ([b"last"], [4]), "behind markers of three transactions"
        assert reader.position(partition) == 6, "and before the last of them"
    writer.close()


def test_an_id_with_an_open_transaction_is_acquired_soon(client: Client, topic: str) -> None:
    """Within less than the half second after which librdkafka asks again."""

    def seconds(number: int) -> float:
        before, writer = [client.transactional_writer(f"{topic}.{number}") for _ in range(2)]
        before.acquire()
        before.begin()
        before.write([Message(topic, b"open", partition=0)])
        before.flush()
        started = time.monotonic()
        writer.acquire()
        took = time.monotonic() - started
        writer.close()
        before.close()
        return took

    assert any(seconds(number) < 0.45 for number in range(10)), "at least once on a busy machine"


def test_an_acquisition_of_an_id_fences_the_earlier_writer(client: Client, topic: str) -> None:
    zombie, heir = client.transactional_writer(topic), client.transactional_writer(topic)
    zombie.acquire()
    zombie.begin()
    zombie.write([Message(topic, b"zombie", partition=0)])
    zombie.flush()
    heir.acquire()
    with pytest.raises(KafkaFailure) as raised:
        zombie.commit()
    assert raised.value.kind is Failure.FENCED
    with pytest.raises(KafkaFailure) as raised:
        zombie.write([Message(topic, b"zombie", partition=0)])
    assert raised.value.kind is Failure.FENCED, "again"
    heir.begin()
    heir.write([Message(topic, b"heir", partition=0)])
    heir.commit()
    with reading(client, {TopicPartition(topic, 0): 0}) as reader:
        assert values(taken(reader, 1)) == [b"heir"]
    zombie.close()
    heir.close()


@pytest.mark.parametrize("earlier", list(CLIENTS))
def test_writers_of_both_libraries_fence_each_other(client: Client, earlier: str, bootstrap: str, topic: str) -> None:
    zombie = CLIENTS[earlier](ClusterConnection(bootstrap)).transactional_writer(topic)
    zombie.acquire()
    transact(client, topic, Message(topic, b"heir", partition=0))
    with pytest.raises(KafkaFailure) as raised:
        complete(zombie, Message(topic, b"zombie", partition=0))
    assert raised.value.kind is Failure.FENCED
    zombie.close()


JAVA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
}
"""Keys and their murmur2, from the tests of Kafka's own client."""


def test_a_key_goes_to_the_same_partition_as_in_java(client: Client, topic: str) -> None:
    write(client, *(Message(topic, key, key) for key in JAVA))
    with reading(client, {TopicPartition(topic, n): 0 for n in range(2)}) as reader:
        found = taken(reader, len(JAVA))
    for number in range(2):
        assert values(found, number) == [key for key, hash in JAVA.items() if (hash & 0x7FFFFFFF) % 2 == number]


def test_messages_without_a_key_are_spread_over_partitions(client: Client, topic: str) -> None:
    """A client may send many in a row to one partition."""
    partitions, admin, written = [TopicPartition(topic, n) for n in range(2)], client.admin(), 0
    found: Mapping[TopicPartition, int] = {}
    while written < 200_000 and not (found and all(found.values())):
        write(client, *(Message(topic, b"%d" % n) for n in range(5_000)))
        written += 5_000
        found = admin.offsets(partitions, Place.LATEST)
    assert all(found.values()), f"of {written}: {found}"
    assert sum(found.values()) == written
    admin.close()


def test_offsets_are_found_by_place_and_time(client: Client, topic: str) -> None:
    write(client, *(Message(topic, b"v", partition=0, timestamp_ms=1_000 * n) for n in range(1, 4)))
    first, empty = TopicPartition(topic, 0), TopicPartition(topic, 1)
    admin = client.admin()
    assert admin.offsets([first, empty], Place.EARLIEST) == {first: 0, empty: 0}
    assert admin.offsets([first, empty], Place.LATEST) == {first: 3, empty: 0}
    assert admin.offsets([first, empty], 1_500) == {first: 1, empty: 0}
    assert admin.offsets([first], 9_000) == {first: 3}
    admin.close()


def test_the_latest_offset_is_that_of_committed_messages(client: Client, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    write(client, Message(topic, b"v", partition=0))
    writer, admin = client.transactional_writer(topic), client.admin()
    writer.acquire()
    writer.begin()
    writer.write([Message(topic, b"open", partition=0)])
    writer.flush()
    assert admin.offsets([partition], Place.LATEST) == {partition: 1}
    writer.commit()
    wait_until(lambda: admin.offsets([partition], Place.LATEST) == {partition: 3})  # the marker comes after the answer
    writer.close()
    admin.close()


def test_a_group_stores_offsets(client: Client, topic: str) -> None:
    first, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    admin = client.admin()
    assert admin.committed(topic, [first, other]) == {}
    admin.commit(topic, {first: 7})
    assert admin.committed(topic, [first, other]) == {first: 7}
    admin.commit(topic, {first: 8, other: 1})
    assert admin.committed(topic, [first, other]) == {first: 8, other: 1}
    admin.close()


def test_reading_at_deleted_records_is_an_error(client: Client, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    write(client, *(Message(topic, b"%d" % n, partition=0) for n in range(5)))
    admin = client.admin()
    admin.delete_before({partition: 3})
    assert admin.offsets([partition], Place.EARLIEST) == {partition: 3}
    with reading(client, {partition: 3}) as reader:
        assert values(taken(reader, 2)) == [b"3", b"4"]
    with reading(client, {partition: 2}) as reader, pytest.raises(KafkaFailure) as raised:
        taken(reader, 3)
    assert raised.value.kind is Failure.EXPIRED
    admin.close()


def test_topics_are_described(client: Client, topic: str) -> None:
    admin = client.admin()
    (found,) = admin.topics([topic, f"{topic}-missing"]).items()
    assert (found[0], found[1].partitions) == (topic, 2)
    assert admin.topics([topic])[topic].id == found[1].id
    admin.create(topic, 3, {})
    for number in (5, 5, 4):
        admin.add_partitions(topic, number)
    wait_until(lambda: admin.topics([topic])[topic] == found[1]._replace(partitions=5))
    admin.create(f"{topic}-compacted", 1, {"cleanup.policy": "compact", "retention.ms": "-1"})
    settings = admin.settings(f"{topic}-compacted")
    assert (settings["cleanup.policy"], settings["retention.ms"]) == ("compact", "-1")
    assert admin.settings(topic)["cleanup.policy"] == "delete"
    admin.close()


def test_offsets_are_listed_once_a_new_partition_has_a_leader(
    bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker answers so for a moment only, too short to be met for sure: the first two answers are made here."""
    admin = CLIENTS["confluent-kafka"](ClusterConnection(bootstrap)).admin()
    library: Any = admin._client  # type: ignore[attr-defined]
    codes = [KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE]

    class Answers:
        def list_offsets(self, asked: Any, **more: Any) -> Any:
            if not codes:
                return library.list_offsets(asked, **more)
            answer: Future[Any] = Future()
            answer.set_exception(KafkaException(KafkaError(codes.pop())))
            return dict.fromkeys(asked, answer)

        def __getattr__(self, name: str) -> Any:
            return getattr(library, name)

    monkeypatch.setattr(admin, "_client", Answers())
    partition = TopicPartition(topic, 0)
    assert admin.offsets([partition], Place.LATEST) == {partition: 0}
    monkeypatch.undo()
    admin.close()


def test_a_client_of_librdkafka_that_failed_is_no_garbage(bootstrap: str, topic: str) -> None:
    """Its collection may come late, and a process can have no more than a thousand of them."""
    admin = CLIENTS["confluent-kafka"](ClusterConnection(bootstrap)).admin()
    try:
        admin.offsets([TopicPartition(topic, 7)], Place.LATEST)
    except KafkaFailure:
        pass
    else:
        pytest.fail("the partition is missing")
    library = weakref.ref(admin._client)  # type: ignore[attr-defined]
    admin.close()
    gc.disable()
    try:
        del admin
        assert library() is None
    finally:
        gc.enable()


def test_paused_partitions_return_no_messages(client: Client, topic: str) -> None:
    first, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with reading(client, {first: 0, other: 0}) as reader:
        reader.pause([first])
        write(client, Message(topic, b"first", partition=0), Message(topic, b"other", partition=1))
        assert values(taken(reader, 1), 1) == [b"other"]
        reader.resume([first])
        assert values(taken(reader, 1)) == [b"first"]


@pytest.mark.parametrize("transactional", [False, True])
def test_a_message_that_is_too_large_is_refused(client: Client, topic: str, transactional: bool) -> None:
    message = Message(topic, bytes(2 << 20), partition=0)
    with pytest.raises(KafkaFailure) as raised:
        transact(client, topic, message) if transactional else write(client, message)
    assert raised.value.kind is Failure.REFUSED
    assert "too large" in str(raised.value).lower() or "size" in str(raised.value)
