"""Jobs from topic to topic: readers of committed messages see every result once, whichever process dies."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest

from clonos_py import Job, Record, count
from clonos_py.connectors import FileSink, KafkaSink, KafkaSource
from clonos_py.connectors.kafka.client import Client, Fields, Message, TopicPartition
from clonos_py.dsl.runs import JobHandle
from clonos_py.model.coordinator_events import CheckpointCompleted
from clonos_py.observe.events import Event, Progress, TaskFailed
from clonos_py.runtime.launch import run_job
from clonos_py.settings.resolution import resolve
from tests.kafka.test_client import complete, reading, taken, write
from tests.kafka.words import Counted, Total, Word
from tests.visible_rows import visible_rows
from tests.waiting import wait_until, wait_while_running

ROWS = 2_000


def job(topic: str, at: dict[str, Any], delivery: Literal["causal", "transactional"]) -> Job:
    """Each word with how often it has come."""
    made = Job("kafka-words")
    words = made.source(KafkaSource(topic, Word, stop="latest", group=f"{topic}.readers", **at))
    counted = words.key_by("word").process(Counted).named("counted")
    counted.sink(KafkaSink(f"{topic}.out", key="word", delivery=delivery, **at)).named("written")
    return made


def table(topic: str, at: dict[str, Any]) -> Job:
    """How often each word has come, as a table."""
    made = Job("kafka-table")
    words = made.source(KafkaSource(topic, Word, stop="latest", **at))
    totals = words.key_by("word").aggregate(Total, words=count()).named("totals")
    totals.sink(KafkaSink(f"{topic}.out", key="word", delivery="idempotent", **at))
    return made


@pytest.fixture
def words(client: Client, topic: str) -> str:
    return with_words(client, topic)


def with_words(client: Client, topic: str) -> str:
    """A topic with words, and one for results."""
    rows = [b'{"word": "w%d", "number": %d}' % (n % 10, n) for n in range(ROWS)]
    write(client, *(Message(topic, row, partition=n % 2) for n, row in enumerate(rows)))
    admin = client.admin()
    admin.create(f"{topic}.out", 2, {})
    admin.close()
    return topic


def run(
    job: Job, folder: Path, *kills: str, heard: Callable[[Event], None] = lambda event: None, **more: Any
) -> list[Event]:
    settings = resolve(
        {"parallelism": 2, "checkpoint_interval": "200ms", "checkpoints": str(folder), "kills": kills, **more}
    )
    events: list[Event] = []

    def listener(at_us: int, event: Event) -> None:
        events.append(event)
        heard(event)

    run_job(job, settings, listener)
    return events


def results(client: Client, topic: str, rows: int) -> list[dict[str, Any]]:
    with reading(client, {TopicPartition(f"{topic}.out", n): 0 for n in range(2)}, Fields(keys=True)) as reader:
        return [json.loads(value or b"null") for m in taken(reader, rows) for value in m.values]


def check_words(found: list[dict[str, Any]]) -> None:
    assert Counter((row["word"], row["words"]) for row in found) == Counter(
        (f"w{w}", n) for w in range(10) for n in range(1, ROWS // 10 + 1)
    )


KILLS = ("source-kafka[0]@100ms", "counted[0]@200ms", "source-kafka[1]@400ms", "counted[1]@450ms")


def with_libraries(
    names: str, *often: tuple[object, ...], seldom: Sequence[tuple[object, ...]] = ()
) -> pytest.MarkDecorator:
    """Cases with the client library in front. Each library and each delivery is among those that run ``often``:
    ``test_port.py`` and the tests of the sinks have every pair of them."""
    cases = [*often, *(pytest.param(*case, marks=pytest.mark.thorough) for case in seldom)]
    return pytest.mark.parametrize(f"client,{names}", cases, indirect=["client"])


@with_libraries(
    "delivery",
    ("confluent-kafka", "causal"),
    ("kafka-python", "transactional"),
    seldom=[("confluent-kafka", "transactional"), ("kafka-python", "causal")],
)
def test_every_row_is_written_once_although_tasks_die(
    client: Client, words: str, at: dict[str, Any], delivery: Literal["causal", "transactional"], tmp_path: Path
) -> None:
    events = run(job(words, at, delivery), tmp_path, *KILLS, runtime="local")
    assert len([event for event in events if isinstance(event, TaskFailed)]) == len(KILLS)
    check_words(results(client, words, ROWS))
    admin = client.admin()
    partitions = [TopicPartition(words, number) for number in range(2)]
    assert admin.committed(f"{words}.readers", partitions) == dict.fromkeys(partitions, ROWS // 2)
    admin.close()
    assert any(p.vertices[0].rows_waiting is not None for p in events if isinstance(p, Progress)), "lag is reported"


@with_libraries(
    "delivery,parallelism",
    ("confluent-kafka", "transactional", 3),
    ("kafka-python", "causal", 2),
    seldom=[
        ("confluent-kafka", "causal", 2),
        ("confluent-kafka", "transactional", 1),
        ("kafka-python", "transactional", 3),
        ("kafka-python", "transactional", 1),
    ],
)
def test_every_row_is_written_once_although_the_job_is_interrupted(
    client: Client,
    words: str,
    at: dict[str, Any],
    delivery: Literal["causal", "transactional"],
    parallelism: int,
    tmp_path: Path,
) -> None:
    """And resumes, at another parallelism where that is allowed."""

    def interrupt(event: Event) -> None:
        if isinstance(event, CheckpointCompleted) and event.checkpoint == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(job(words, at, delivery), tmp_path, heard=interrupt, runtime="local", checkpoint_interval="30ms")
    events = run(job(words, at, delivery), tmp_path, runtime="local", parallelism=parallelism)
    assert min(event.checkpoint for event in events if isinstance(event, CheckpointCompleted)) > 2
    check_words(results(client, words, ROWS))


def test_a_table_is_kept_up_to_date(client: Client, words: str, at: dict[str, Any], tmp_path: Path) -> None:
    run(table(words, at), tmp_path, "totals[0]@100ms", runtime="local")
    with reading(client, {TopicPartition(f"{words}.out", n): 0 for n in range(2)}, Fields(keys=True)) as reader:
        latest: dict[bytes | None, Any] = {}
        fetched = [m for _ in range(20) for m in reader.fetch(0.1)]
        for m in fetched:
            latest |= dict(zip(m.keys, map(json.loads, filter(None, m.values)), strict=True))
    assert latest == {b"w%d" % w: {"word": f"w{w}", "words": ROWS // 10} for w in range(10)}


class Named(Record):
    word: str
    number: int
    name: str


class Name(Record):
    word: str
    name: str


def test_a_topic_up_to_its_end_can_be_a_side_input(
    client: Client, words: str, at: dict[str, Any], tmp_path: Path
) -> None:
    admin = client.admin()
    admin.create(f"{words}.names", 2, {})
    admin.close()
    names = [b'{"word": "w%d", "name": "n%d"}' % (n, n) for n in range(10)]
    write(client, *(Message(f"{words}.names", row, partition=n % 2) for n, row in enumerate(names)))
    made = Job("kafka-names")
    rows = made.source(KafkaSource(words, Word, stop="latest", **at))
    side = KafkaSource(f"{words}.names", Name, stop="latest", **at)
    rows.enrich(side, on="word", into=Named).sink(KafkaSink(f"{words}.out", **at))
    run(made, tmp_path, runtime="local")
    found = results(client, words, ROWS)
    assert Counter(row["name"] for row in found) == {f"n{n}": ROWS // 10 for n in range(10)}


def test_messages_of_added_partitions_are_read_once_although_tasks_die_and_the_job_is_down(
    client: Client, topic: str, at: dict[str, Any], tmp_path: Path
) -> None:
    """From their first message on, although the source starts at the latest one. Transactions leave gaps in offsets."""

    def started(parallelism: int, *kills: str) -> JobHandle:
        made = Job("kafka-growing")
        rows = made.source(KafkaSource(topic, Word, start="latest", discover="100ms", **at)).named("rows")
        rows.sink(FileSink(str(tmp_path / "out"))).named("out")
        settings = {"checkpoint_interval": "150ms", "checkpoints": str(tmp_path / "checkpoints"), "kills": kills}
        return made.start(runtime="local", parallelism=parallelism, **settings)

    def found() -> list[int]:
        return [row["number"] for row in visible_rows(tmp_path / "out")]

    def put(partition: int) -> None:
        """Ten rows in a partition, in transactions, every other one aborted; waits for none."""
        writer = client.transactional_writer(f"{topic}.{partition}")
        writer.acquire()
        for _ in range(10):
            row = b'{"word": "w", "number": %d}' % len(written)
            complete(writer, Message(topic, row, partition=partition))
            written.append(len(written))
            writer.begin()
            writer.write([Message(topic, b'{"word": "aborted", "number": -1}', partition=partition)])
            writer.flush()
            writer.abort()
        writer.close()

    def grown(partitions: int) -> None:
        admin.add_partitions(topic, partitions)
        wait_until(lambda: admin.topics([topic])[topic].partitions == partitions)
        put(partitions - 1)

    written: list[int] = []
    admin = client.admin()
    run = started(2, "rows[0]@600ms", "rows[1]@900ms", "rows[0]@1500ms")
    wait_until(lambda: bool(run.counters))
    put(0)
    wait_while_running(run, lambda: len(found()) >= len(written), found)
    grown(3)
    put(1)
    grown(4)
    wait_while_running(run, lambda: len(found()) >= len(written), found)
    run.stop()
    grown(5)
    put(3)
    run = started(3, "rows[1]@300ms")
    wait_while_running(run, lambda: len(found()) >= len(written), found)
    grown(6)
    wait_while_running(run, lambda: len(found()) >= len(written), found)
    run.stop()
    admin.close()
    assert sorted(found()) == written


def test_a_job_that_is_stopped_before_it_reads_goes_on_with_the_messages_since(
    client: Client, topic: str, at: dict[str, Any], tmp_path: Path
) -> None:
    """It starts at the latest message of its first submission, wherever its checkpoint is taken."""

    def started() -> JobHandle:
        made = Job("kafka-stopped")
        rows = made.source(KafkaSource(topic, Word, start="latest", **at)).named("rows")
        rows.sink(FileSink(str(tmp_path / "out"))).named("out")
        return made.start(runtime="local", checkpoints=str(tmp_path / "checkpoints"))

    def found() -> list[int]:
        return [row["number"] for row in visible_rows(tmp_path / "out")]

    def put(number: int) -> None:
        write(client, Message(topic, b'{"word": "w", "number": %d}' % number, partition=number % 2))

    put(-1)
    for number in range(3):
        started().stop()
        put(number)
    run = started()
    wait_while_running(run, lambda: len(found()) >= 3, found)
    run.stop()
    assert sorted(found()) == [0, 1, 2]
