"""Topics as a source: what a task reads, reads again after a failure, and discovers while it runs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from importlib import import_module
from typing import Any

import pyarrow as pa
import pytest

from clonos_py import Job, Record
from clonos_py.causal.determinants import SourceRead
from clonos_py.connectors import KafkaSource, PrintSink
from clonos_py.connectors.kafka.client import Client, Message, Place, TopicPartition
from clonos_py.model.errors import GraphError, SourceError
from clonos_py.model.operators import Discovered, End, EventTime, Read, Source, Wait
from clonos_py.model.plan import SourcePlan
from clonos_py.plan.physical import plan
from clonos_py.runtime.launch import run_job
from clonos_py.settings.resolution import resolve
from clonos_py.task.reader import Reader, determinants_of
from tests.kafka.conftest import CLIENTS
from tests.kafka.test_client import complete, write
from tests.waiting import attempts, wait_until

kafka: Any = import_module("kafka")  # its published types are of an older version


class Line(Record):
    number: int


class Told(Record):
    """All attributes of a message."""

    number: int | None
    word: str | None
    at: int
    topic: str
    part: int
    place: int
    gone: bool


def lines(topic: str, numbers: Sequence[int], partition: int = 0) -> list[Message]:
    return [Message(topic, b'{"number": %d}' % number, partition=partition) for number in numbers]


_opened: list[Source] = []


@pytest.fixture(autouse=True)
def closing_readers() -> Iterator[None]:
    yield
    while _opened:
        _opened.pop().close()


def opened(source: KafkaSource, index: int = 0, parallelism: int = 1) -> Source:
    """Closed after the test."""
    reader = source.create((None,))
    reader.open(index, parallelism)
    reader.seek({})
    _opened.append(reader)
    return reader


def polled(reader: Source, rows: int) -> list[Read]:
    """Polls for so many rows, and discovered partitions; or until the end (-1)."""
    found: list[Read] = []
    for _ in attempts(lambda: found, every_s=0):
        if 0 <= rows <= sum(read.row_count for read in found):
            break
        match reader.poll(0):
            case Discovered(starts):
                reader.discovered(starts)
            case Read() as read:
                found.append(read)
            case Wait():
                time.sleep(0.01)
            case End():
                assert rows < 0
                break
    return found


def rows_of(reads: Sequence[Read]) -> list[dict[str, Any]]:
    return [row for read in reads for batch in read.rows if batch is not None for row in batch.to_pylist()]


def numbers(reads: Sequence[Read]) -> list[int]:
    return [row["number"] for row in rows_of(reads)]


@pytest.fixture
def at(at: dict[str, Any]) -> dict[str, Any]:
    """A source that looks for new partitions often."""
    return {**at, "discover": "100ms"}


def test_a_source_reports_how_many_messages_wait(client: Client, topic: str, at: dict[str, Any]) -> None:
    write(client, *lines(topic, range(5)), *lines(topic, range(5, 12), partition=1))
    reader = opened(KafkaSource(topic, Line, **at))
    reader.limit(2)
    taken = len(numbers(polled(reader, 3)))
    wait_until(lambda: reader.rows_waiting() == 12 - taken)
    rest = polled(reader, 12 - taken)
    assert reader.rows_waiting() == 0
    write(client, *lines(topic, range(12, 15)))
    wait_until(lambda: reader.rows_waiting() == 3)
    assert numbers(rest + polled(reader, 3))[-3:] == [12, 13, 14]
    bounded = opened(KafkaSource(topic, Line, stop={(topic, 0): 3, (topic, 1): 1}, **at))
    bounded.limit(1)
    first = numbers(polled(bounded, 1))
    assert bounded.rows_waiting() == 4 - len(first)


def test_markers_of_transactions_are_no_messages_that_wait(client: Client, topic: str, at: dict[str, Any]) -> None:
    """They have offsets, and so have the messages of an aborted transaction."""
    writer = client.transactional_writer(topic)
    writer.acquire()
    complete(writer, *lines(topic, [0]))
    complete(writer, *lines(topic, [1], partition=1))
    reader = opened(KafkaSource(topic, Line, **at))
    assert sorted(numbers(polled(reader, 2))) == [0, 1]
    writer.begin()
    writer.write(lines(topic, [9]))
    writer.flush()
    writer.abort()
    writer.close()
    admin = client.admin()
    partitions = [TopicPartition(topic, number) for number in range(2)]
    ends = {partitions[0]: 4, partitions[1]: 2}
    wait_until(lambda: admin.offsets(partitions, Place.LATEST) == ends)  # a marker comes after the answer
    admin.close()

    def read_on() -> bool:
        assert not isinstance(reader.poll(0), Read)
        known: dict[int, int] = reader._ends_known  # type: ignore[attr-defined]
        return sum(known.values()) == sum(ends.values()) and reader.rows_waiting() == 0

    wait_until(read_on, reader.rows_waiting)


def test_offsets_are_committed_to_a_group(client: Client, topic: str, at: dict[str, Any]) -> None:
    admin = client.admin()
    partitions = [TopicPartition(topic, number) for number in range(2)]
    reader = opened(KafkaSource(topic, Line, group=f"{topic}.readers", **at))
    reader.commit({0: 3, 1: 4})
    reader.commit({})
    assert admin.committed(f"{topic}.readers", partitions) == dict(zip(partitions, (3, 4), strict=True))
    admin.close()
    silent = opened(KafkaSource(topic, Line, **at))
    silent.commit({0: 3})


def test_a_group_with_members_is_refused(client: Client, topic: str, at: dict[str, Any], bootstrap: str) -> None:
    member = kafka.KafkaConsumer(bootstrap_servers=bootstrap, group_id=f"{topic}.readers", metadata_max_age_ms=200)
    wait_until(lambda: bool(member.partitions_for_topic(topic)))  # a member without their metadata gets none
    member.subscribe([topic])
    wait_until(lambda: bool(member.poll(100)) or bool(member.assignment()))
    reader = opened(KafkaSource(topic, Line, group=f"{topic}.readers", **at))
    with pytest.raises(SourceError, match=f"cannot be committed to group '{topic}.readers': .*; name a group without"):
        reader.commit({0: 3})
    member.close()


def test_a_source_with_an_end_reads_all_before_it(client: Client, topic: str, at: dict[str, Any]) -> None:
    write(client, *lines(topic, range(5)), *lines(topic, range(10, 13), partition=1))
    source = KafkaSource(topic, Line, stop="latest", **at)
    reader = opened(source)
    write(client, *lines(topic, [99]))
    found = polled(reader, -1)
    assert sorted(numbers(found)) == [0, 1, 2, 3, 4, 10, 11, 12]
    assert {read.partition for read in found if read.last} == {0, 1}
    reader.close()


def test_partitions_are_divided_and_a_task_without_any_ends(client: Client, topic: str, at: dict[str, Any]) -> None:
    write(client, *lines(topic, range(5)), *lines(topic, range(10, 13), partition=1))
    source = KafkaSource(topic, Line, stop="latest", **at)
    shared = [numbers(polled(opened(source, index, 3), -1)) for index in range(3)]
    assert shared == [[0, 1, 2, 3, 4], [10, 11, 12], []]


def test_messages_are_read_again_although_aborted_ones_lie_between_them(
    client: Client, topic: str, at: dict[str, Any]
) -> None:
    writer = client.transactional_writer(topic)
    writer.acquire()
    for number in range(0, 12, 3):
        complete(writer, *lines(topic, [number, number + 1]))
        writer.begin()
        writer.write(lines(topic, [number + 2]))
        writer.flush()
        writer.abort()
    writer.close()
    reader = opened(KafkaSource(topic, Line, stop="latest", **at))
    reader.limit(3)
    first = polled(reader, -1)
    wanted = [n for n in range(12) if n % 3 < 2]
    assert numbers(first) == wanted
    again = opened(KafkaSource(topic, Line, stop="latest", **at))
    again.seek({0: 0, 1: 0})
    replayed = [again.reread(read.partition, read.start, read.stop) for read in first]
    assert [(r.start, r.stop, r.checksum, r.last) for r in replayed] == [
        (r.start, r.stop, r.checksum, r.last) for r in first
    ]
    assert numbers(replayed) == wanted
    assert isinstance(again.poll(0), End)


def test_reading_continues_after_a_replay(client: Client, topic: str, at: dict[str, Any]) -> None:
    write(client, *lines(topic, range(1_000)))
    reader = opened(KafkaSource(topic, Line, **at))
    reader.limit(10)
    first = polled(reader, 500)
    heir = opened(KafkaSource(topic, Line, **at))
    heir.seek({0: 0, 1: 0})
    replayed = [heir.reread(read.partition, read.start, read.stop) for read in first]
    rest = polled(heir, 1_000 - len(numbers(replayed)))
    assert numbers([*replayed, *rest]) == list(range(1_000))


@pytest.mark.parametrize("library", list(CLIENTS))
def test_planning_does_not_connect_to_a_cluster(library: Any, nothing_listens: str) -> None:
    job = Job("planned")
    job.source(KafkaSource("t", Line, bootstrap=nothing_listens, stop="latest", client=library)).sink(PrintSink())
    assert len(plan(job, resolve({"parallelism": 2})).vertices) == 1
    with pytest.raises(SourceError, match=r"Kafka at 127\.0\.0\.1:1: the broker does not answer: "):
        run_job(job, resolve({"runtime": "local"}))


def test_the_start_position_is_resolved_once(client: Client, topic: str, at: dict[str, Any]) -> None:
    write(client, *lines(topic, range(5)))
    source = KafkaSource(topic, Line, start="latest", **at)
    source.resolve()
    write(client, *lines(topic, [5, 6]))
    assert numbers(polled(opened(source), 2)) == [5, 6]
    assert numbers(polled(opened(source), 2)) == [5, 6]


@pytest.mark.parametrize("stop", [None, "latest"])
@pytest.mark.parametrize("before", [1, 2])
def test_a_checkpoint_before_the_first_read_holds_the_start_position(
    client: Client, topic: str, at: dict[str, Any], stop: str | None, before: int
) -> None:
    """The job then goes on with the messages that came meanwhile, and none from before it was submitted; also at
    another parallelism, after another such checkpoint, and with a partition that was added meanwhile."""
    write(client, *lines(topic, range(5)), *lines(topic, [5], partition=1))
    source = KafkaSource(topic, Line, start="latest", stop="latest", **at)
    saved = [opened(source, index, before).snapshot() for index in range(before)]
    write(client, *lines(topic, [6, 7]), *lines(topic, [8], partition=1))
    for _ in range(2):
        resumed = opened(KafkaSource(topic, Line, start="latest", stop=stop, **at))
        for part in saved:
            resumed.restore(part)
        resumed.seek({})
        saved = [resumed.snapshot()]
    admin = client.admin()
    admin.add_partitions(topic, 3)
    wait_until(lambda: admin.topics([topic])[topic].partitions == 3)
    admin.close()
    write(client, *lines(topic, [9], partition=2))
    last = opened(KafkaSource(topic, Line, start="latest", stop=stop, **at))
    last.restore(saved[0])
    last.seek({})
    assert sorted(numbers(polled(last, 4))) == [6, 7, 8, 9]
    assert last.snapshot()["starts"] == {}, "partitions that are read have positions"


def test_a_source_starts_at_a_time_at_offsets_or_at_those_of_a_group(
    client: Client, topic: str, at: dict[str, Any]
) -> None:
    write(client, *(m._replace(timestamp_ms=1_000 * n) for n, m in enumerate(lines(topic, range(5)), 1)))
    when = datetime.fromtimestamp(3, UTC)
    assert numbers(polled(opened(KafkaSource(topic, Line, start=when, stop="latest", **at)), -1)) == [2, 3, 4]
    bounded = KafkaSource(topic, Line, start={(topic, 0): 1}, stop={(topic, 0): 3}, **at)
    assert numbers(polled(opened(bounded), -1)) == [1, 2]
    admin = client.admin()
    admin.commit(topic, {KafkaSource(topic, Line, **at).layout.partition(0): 4})
    committed = KafkaSource(topic, Line, start="committed", group=topic, stop="latest", **at)
    assert numbers(polled(opened(committed), -1)) == [4]
    admin.close()


def test_messages_that_cannot_be_read_are_dead_letters(client: Client, topic: str, at: dict[str, Any]) -> None:
    """They have their place among the others, and are the same when they are read again."""
    junk = [Message(topic, value, b"k", partition=0) for value in (b"junk", b'{"number": "x"}', b"\xff\x00")]
    good = lines(topic, range(100))
    write(client, *good[:40], junk[0], *good[40:41], *junk[1:], *good[41:], Message(topic, None, b"k", partition=0))
    source = KafkaSource(topic, Line, stop="latest", **at).catch()
    reader = source.create((None, ("offset", "reason", "value", "key")))
    reader.open(0, 1)
    reader.seek({})
    _opened.append(reader)
    found = polled(reader, -1)
    letters = [row for read in found if (batch := read.rows[1]) is not None for row in batch.to_pylist()]
    good_rows = [read._replace(rows=read.rows[:1]) for read in found]
    assert numbers(good_rows) == list(range(100))
    assert [(letter["offset"], letter["value"], letter["key"]) for letter in letters] == [
        (at, m.value, b"k") for at, m in zip((40, 42, 43), junk, strict=True)
    ]
    assert all(letter["reason"] for letter in letters)
    assert sum(read.counts.get("dead_letters", 0) for read in found) == 3
    skipping = polled(opened(KafkaSource(topic, Line, stop="latest", on_error="skip", **at)), -1)
    assert numbers(skipping) == list(range(100))
    assert sum(read.counts.get("rows_skipped", 0) for read in skipping) == 3
    reader.seek({0: 0, 1: 0})
    again = [reader.reread(read.partition, read.start, read.stop) for read in found]
    assert [r.rows for r in again if r.stop > r.start] == [r.rows for r in found if r.stop > r.start]


def test_added_partitions_are_read_from_their_first_message(client: Client, topic: str, at: dict[str, Any]) -> None:
    write(client, *lines(topic, [0]))
    reader = opened(KafkaSource(topic, Line, start="latest", **at))
    write(client, *lines(topic, [1]))
    assert numbers(polled(reader, 1)) == [1]
    admin = client.admin()
    admin.add_partitions(topic, 4)
    admin.close()
    time.sleep(0.5)
    write(client, *lines(topic, [2], partition=2), *lines(topic, [3], partition=3))
    found = polled(reader, 2)
    assert sorted(numbers(found)) == [2, 3]
    assert {read.partition for read in found} == {2, 3}
    reader.close()


def test_columns_may_have_the_attributes_of_messages(client: Client, topic: str, at: dict[str, Any]) -> None:
    write(
        client,
        Message(topic, b'{"number": 7}', b"word", 0, 1_234),
        Message(topic, None, b"other", 0, 2_000),
        Message(topic, b'{"number": 8}', None, 0, 3_000),
    )
    columns = {
        "word": "key", "at": "timestamp", "topic": "topic", "part": "partition", "place": "offset", "gone": "tombstone",
    }  # fmt: skip
    told = polled(opened(KafkaSource(topic, Told, columns=columns, stop="latest", **at)), -1)
    assert [tuple(row.values()) for row in rows_of(told)] == [
        (7, "word", 1_234_000, topic, 0, 0, False),
        (None, "other", 2_000_000, topic, 0, 1, True),
        (8, None, 3_000_000, topic, 0, 2, False),
    ]
    without = polled(opened(KafkaSource(topic, Line, stop="latest", **at)), -1)
    assert numbers(without) == [7, 8], "no tombstone"
    assert sum((Counter(read.counts) for read in without), Counter()) == {"tombstones_skipped": 1}
    assert all(not read.counts for read in told)


@pytest.mark.parametrize("bad", [b"nonsense", b"", b'{"number": 1}{"number": 2}', b'{"word": 1}', b'{"number": "x"}'])
def test_a_message_that_cannot_be_read_is_named(client: Client, topic: str, at: dict[str, Any], bad: bytes) -> None:
    write(client, *lines(topic, range(3)), Message(topic, bad, partition=0), *lines(topic, [4]))
    with pytest.raises(SourceError, match=rf"Kafka message {topic}\[0\] offset 3 is not json of this schema: "):
        polled(opened(KafkaSource(topic, Line, stop="latest", **at)), -1)


def test_deleted_messages_are_named(client: Client, topic: str, at: dict[str, Any]) -> None:
    write(client, *lines(topic, range(5)))
    source = KafkaSource(topic, Line, **at)
    reader = opened(source)
    admin = client.admin()
    admin.delete_before({source.layout.partition(0): 3})
    admin.close()
    with pytest.raises(SourceError, match=rf"{topic}\[0\]: offset 0 no longer exists"):
        polled(reader, 5)


def test_a_topic_that_was_deleted_and_created_again_is_refused(client: Client, topic: str, at: dict[str, Any]) -> None:
    reader = opened(KafkaSource(topic, Line, **at))
    saved = reader.snapshot()
    reader.restore(saved)
    reader.restore(saved["topics"])  # as earlier versions stored them
    with pytest.raises(SourceError, match=f"Kafka topic '{topic}' was deleted and created again"):
        reader.restore({**saved, "topics": [(name, "another") for name, _ in saved["topics"]]})
    with pytest.raises(SourceError, match="the checkpoint is of the topics other"):
        reader.restore({**saved, "topics": [("other", "x")]})


def test_a_topic_that_is_compacted_soon_is_refused(client: Client, topic: str, at: dict[str, Any]) -> None:
    admin = client.admin()
    admin.create(f"{topic}-soon", 1, {"cleanup.policy": "compact"})
    admin.create(f"{topic}-late", 1, {"cleanup.policy": "compact,delete", "min.compaction.lag.ms": "3600000"})
    admin.close()
    with pytest.raises(SourceError, match=f"Kafka topic '{topic}-soon' is compacted after 0 ms.* to at least 3600000"):
        _ = KafkaSource(f"{topic}-soon", Line, **at).layout
    assert len(KafkaSource(f"{topic}-soon", Line, replay="logged", **at).layout.starts) == 1
    assert len(KafkaSource(f"{topic}-late", Line, **at).layout.starts) == 1


def test_rows_in_the_log_are_not_read_again_from_the_topic(client: Client, topic: str, at: dict[str, Any]) -> None:
    write(client, *lines(topic, range(5)))
    source = KafkaSource(topic, Line, replay="logged", **at)
    before, again = logging_reader(source), logging_reader(source)
    log: list[Any] = []

    def noted(kind: str, live: Callable[[], Any]) -> Any:
        log.append(live())
        return log[-1]

    def logged(kind: str, live: Callable[[], Any]) -> Any:
        return log.pop(0)

    reads = read_on(before, 5)
    before.log_rows(reads, noted)
    admin = client.admin()
    admin.delete_before({source.layout.partition(0): 5})
    admin.close()
    replayed = again.reread([d for d in determinants_of(reads) if isinstance(d, SourceRead)], logged)
    assert numbers(replayed) == [*range(5)]
    assert [read.event_count for read in replayed] == [read.event_count for read in reads]
    for read in replayed:
        again.accept(read, 0)
    write(client, *lines(topic, [5, 6]))
    assert numbers(read_on(again, 2)) == [5, 6]


def logging_reader(source: KafkaSource) -> Reader:
    """A reader with its partitions. Closed after the test."""
    made: list[Source] = []

    def create() -> Source:
        made.append(source.create((None,)))
        return made[-1]

    reader = Reader(SourcePlan("lines", create, source.schemas, EventTime((None,))), 0, 1)
    reader.restore([], None)
    _opened.extend(made)
    found = reader.poll(0)
    assert isinstance(found, Discovered)
    reader.discover(found.starts)
    return reader


def read_on(reader: Reader, rows: int) -> list[Read]:
    found: list[Read] = []
    for _ in attempts(lambda: found):
        if len(numbers(found)) >= rows:
            break
        for read in reader.poll(0) or []:
            assert isinstance(read, Read)
            reader.accept(read, 0)
            found.append(read)
    return found


def test_missing_topics_and_partitions_are_named(topic: str, at: dict[str, Any]) -> None:
    with pytest.raises(SourceError, match=f"Kafka topic '{topic}-missing' does not exist"):
        _ = KafkaSource([topic, f"{topic}-missing"], Line, **at).layout
    with pytest.raises(SourceError, match=rf"offsets are given for {topic}\[7\], which does not exist"):
        _ = KafkaSource(topic, Line, start={(topic, 7): 1}, **at).layout


@pytest.mark.parametrize(
    "bootstrap", ["h", "h:9092", "10.0.0.1:9092", "[::1]:9092", "[fe80::1%eth0]", "a_b-c.d:1, e:2,"]
)
def test_brokers_are_named_by_host_and_port(bootstrap: str) -> None:
    assert KafkaSource("t", Line, bootstrap=bootstrap).schemas


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"format": "xml"}, "unknown format 'xml': choose one of json"),
        ({"schema": None}, "json needs schema="),
        ({"columns": {"number": "color"}}, "messages have no 'color'"),
        ({"columns": {"other": "key"}}, "there is no column 'other'"),
        ({"columns": {"number": "topic"}}, "column 'number' is int64, but the topic of messages string"),
        ({"start": "yesterday"}, "unknown place 'yesterday'"),
        ({"start": "committed"}, "start='committed' needs group="),
        ({"stop": "committed"}, "stop='committed' moves with the job"),
        ({"start": datetime(2026, 1, 1)}, "has no time zone"),
        ({"topics": []}, "name one topic, or several different ones"),
        ({"client": "pykafka"}, "unknown Kafka client 'pykafka'"),
        *(
            ({"bootstrap": bootstrap}, "names no brokers: write host:port, with commas between several")
            for bootstrap in (
                "",
                " ",
                None,
                "http://h:9092",
                "h:99999",
                "h:0",
                "h:port",
                "h:",
                "a:1,,b:2",
                "::1",
                ["h:1"],
            )
        ),
        ({"format": "text", "schema": pa.schema([("a", pa.int64())])}, "needs one column of text"),
    ],
)
def test_impossible_settings_of_a_source_are_refused_before_a_connection(given: dict[str, Any], said: str) -> None:
    chosen = {"topics": "t", "schema": Line, "bootstrap": "nowhere:1", **given}
    with pytest.raises(GraphError, match=said):
        KafkaSource(**chosen)
