"""Rows that are visible at once: the next attempt finds those of an earlier one, and no other can add to them."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any, cast

import msgspec
import pytest

from clonos_py import Record
from clonos_py.connectors import KafkaSink
from clonos_py.connectors.kafka.causal_sink import KafkaCausalWriter
from clonos_py.connectors.kafka.client import (
    Client,
    Failure,
    Fields,
    KafkaFailure,
    Message,
    Place,
    TopicPartition,
    TransactionalWriter,
)
from clonos_py.connectors.kafka.journaled_topic import JournaledTopic
from clonos_py.model.errors import GraphError, SinkError
from clonos_py.model.ids import Attempt, LogId
from clonos_py.model.operators import OutputSegment, PublishedOutput
from clonos_py.model.record_codec import encode
from clonos_py.model.segments import LogSegment
from tests.connectors.contexts import opened
from tests.kafka.test_client import reading, taken, write

SHAPE = "out=1"


class Line(Record):
    number: int


def piece(seq: int, *numbers: int) -> OutputSegment:
    return OutputSegment(seq, 1_000 + seq, encode([Line(n) for n in numbers], Line.schema()))


def log(*starts: int, epoch: int = 0, size: int = 1) -> list[LogSegment]:
    return [LogSegment(LogId(0), epoch, 0, start, 1, b"%d" % start * size) for start in starts]


def sink(topic: str, at: dict[str, Any], **place: Any) -> KafkaCausalWriter:
    more = {name: place.pop(name) for name in ("journal", "away") if name in place}
    return cast("KafkaCausalWriter", opened(KafkaSink(topic, **at, **more).create(Line.schema()), **place))


def acquired(
    topic: str, at: dict[str, Any], counter: int, checkpoint: int = 0, lineage: str = "line", shape: str = SHAPE
) -> tuple[KafkaCausalWriter, PublishedOutput]:
    made = sink(topic, at)
    return made, made.acquire(Attempt(1, counter), checkpoint, shape, lineage)


def visible(client: Client, topic: str, count: int) -> list[int]:
    """The visible numbers, sorted; more than ``count`` are an error."""
    with reading(client, {TopicPartition(topic, n): 0 for n in range(2)}, Fields()) as reader:
        return sorted(json.loads(value or b"")["number"] for m in taken(reader, count) for value in m.values)


def journal_start(client: Client, topic: str) -> int:
    admin = client.admin()
    partition = TopicPartition(f"{topic}.out.journal", 0)
    found = admin.offsets([partition], Place.EARLIEST)[partition]
    admin.close()
    return found


def test_rows_are_visible_at_once_and_the_next_attempt_finds_them(
    client: Client, topic: str, at: dict[str, Any]
) -> None:
    first, shown = acquired(topic, at, 1)
    assert shown == PublishedOutput([], {})
    first.append(0, log(0), [piece(0, 1, 2), piece(1, 3)])
    first.append(0, log(1), [piece(2, 4)])
    first.append(1, log(2, epoch=1), [piece(3, 5)])
    assert visible(client, topic, 5) == [1, 2, 3, 4, 5]
    second, shown = acquired(topic, at, 2)
    assert shown == PublishedOutput([*log(0, 1), *log(2, epoch=1)], {n: 1_000 + n for n in range(4)})
    _, shown = acquired(topic, at, 3, checkpoint=1)
    assert shown == PublishedOutput(log(2, epoch=1), {3: 1_003}), "the other entries are from before the checkpoint"
    first.close()
    second.close()


def test_determinants_without_rows_are_kept(topic: str, at: dict[str, Any]) -> None:
    first, _ = acquired(topic, at, 1)
    first.append(0, log(0), [piece(0, 1)])
    first.append(0, log(1), [])
    first.close()
    second, shown = acquired(topic, at, 2)
    assert shown == PublishedOutput(log(0, 1), {0: 1_000}), "later rows may depend on them"
    second.close()


def test_a_replaced_attempt_writes_no_more_rows(client: Client, topic: str, at: dict[str, Any]) -> None:
    first, _ = acquired(topic, at, 1)
    first.append(0, log(0), [piece(0, 1)])
    second, shown = acquired(topic, at, 2)
    assert shown.checksums == {0: 1_000}
    with pytest.raises(SinkError, match=r"attempt 1\.1 of out\[0\] has been replaced"):
        first.append(0, log(1), [piece(1, 99)])
    second.append(0, log(1), [piece(1, 2)])
    assert visible(client, topic, 2) == [1, 2]
    with pytest.raises(SinkError, match=r"attempt 1\.1 of out\[0\] has been replaced"):
        acquired(topic, at, 1)
    second.append(0, log(2), [piece(2, 3)])
    assert visible(client, topic, 3) == [1, 2, 3], "although it was fenced in between"
    first.close()
    second.close()


def test_a_standby_connects_ahead_and_takes_nothing_from_the_task(
    client: Client, topic: str, at: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = acquired(topic, at, 1)
    first.append(0, log(0), [piece(0, 1)])
    standby = sink(topic, at)
    standby.warm_up()
    first.append(0, log(1), [piece(1, 2)])
    monkeypatch.setattr(
        JournaledTopic, "_new_writer", lambda self, client, index: pytest.fail("it has a writer already")
    )
    assert standby.acquire(Attempt(1, 2), 0, SHAPE, "line").checksums == {0: 1_000, 1: 1_001}
    standby.append(0, log(2), [piece(2, 3)])
    assert visible(client, topic, 3) == [1, 2, 3]
    monkeypatch.undo()
    with pytest.raises(SinkError, match="has been replaced"):
        first.append(0, log(2), [piece(2, 99)])
    first.close()
    standby.close()


def test_a_standby_that_cannot_connect_ahead_says_nothing(at: dict[str, Any]) -> None:
    standby = sink("out", {**at, "bootstrap": "127.0.0.1:1"})
    standby.warm_up()
    assert standby._medium._writers == [], "its client does not go on trying"
    standby.close()


def test_a_commit_without_an_answer_is_neither_lost_nor_repeated(
    client: Client, topic: str, at: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is lost, once after the commit and once before it."""
    writer, _ = acquired(topic, at, 1)
    for seq, committed in enumerate((True, False, True)):
        lose_an_answer(writer._writer, committed)
        writer.append(0, log(seq), [piece(seq, seq)])
    writer.append(0, log(9), [piece(3, 3)])
    assert visible(client, topic, 4) == [0, 1, 2, 3]
    writer.close()
    second, shown = acquired(topic, at, 2)
    assert shown == PublishedOutput(log(0, 1, 2, 9), {n: 1_000 + n for n in range(4)})
    second.close()


def lose_an_answer(used: TransactionalWriter | None, committed: bool) -> None:
    """The next commit is executed, or is not, and then fails as if it were not answered."""
    assert used is not None
    commit = used.commit

    def unanswered() -> None:
        if committed:
            commit()
        raise KafkaFailure(Failure.UNKNOWN_OUTCOME, "no answer")

    used.commit = unanswered  # type: ignore[method-assign]


def test_a_completed_checkpoint_deletes_the_journal_before_it(client: Client, topic: str, at: dict[str, Any]) -> None:
    writer, _ = acquired(topic, at, 1)
    writer.append(0, log(0), [piece(0, 1)])
    writer.append(1, log(1, epoch=1), [piece(1, 2)])
    assert journal_start(client, topic) == 0
    writer.commit(writer.prepare(1) or b"")
    start = journal_start(client, topic)
    assert start > 0
    writer.append(1, log(2, epoch=1), [piece(2, 3)])
    writer.append(2, log(3, epoch=2), [piece(3, 4)])
    writer.close()
    second, shown = acquired(topic, at, 2, checkpoint=1)
    assert shown == PublishedOutput([*log(1, 2, epoch=1), *log(3, epoch=2)], {1: 1_001, 2: 1_002, 3: 1_003})
    second.commit(b"2")
    assert journal_start(client, topic) == start, "the start of its epoch is unknown"
    second.append(3, log(4, epoch=3), [piece(4, 5)])
    second.commit(b"3")
    assert journal_start(client, topic) > start
    assert visible(client, topic, 5) == [1, 2, 3, 4, 5]
    second.close()


def test_large_logs_are_divided_into_several_messages(topic: str, at: dict[str, Any]) -> None:
    writer, _ = acquired(topic, at, 1)
    large = log(1, size=2_000_000)
    writer.append(0, [*log(0), *large], [piece(0, 1)])
    writer.append(0, log(2), [piece(1, 2)])
    writer.close()
    second, shown = acquired(topic, at, 2)
    assert shown == PublishedOutput([*log(0), *large, *log(2)], {0: 1_000, 1: 1_001})
    second.close()


def test_rows_of_another_lineage_do_not_count(client: Client, topic: str, at: dict[str, Any]) -> None:
    """As after ``--fresh``: attempts begin from 1 again."""
    old, _ = acquired(topic, at, 7)
    old.append(0, log(0), [piece(0, 1)])
    new, shown = acquired(topic, at, 1, lineage="fresh")
    assert shown == PublishedOutput([], {})
    new.append(0, log(5), [piece(0, 2)])
    with pytest.raises(SinkError, match="or another job writes to Kafka topic"):
        old.append(0, log(1), [piece(1, 99)])
    new.append(0, log(6), [piece(1, 3)])
    assert visible(client, topic, 3) == [1, 2, 3]
    old.close()
    new.close()


def test_rows_of_another_parallelism_cannot_be_repeated(topic: str, at: dict[str, Any]) -> None:
    writer, _ = acquired(topic, at, 1)
    writer.append(0, log(0), [piece(0, 1)])
    writer.close()
    with pytest.raises(SinkError, match="which only tasks of the operators and the parallelism that wrote them can"):
        acquired(topic, at, 2, shape="out=2")
    other, shown = acquired(topic, at, 3, checkpoint=1, shape="out=2")
    assert shown == PublishedOutput([], {})
    other.close()


def test_tasks_have_their_own_partitions_of_one_journal(client: Client, topic: str, at: dict[str, Any]) -> None:
    made = [sink(topic, at, index=index, parallelism=3) for index in range(3)]
    for index, writer in enumerate(made):
        writer.acquire(Attempt(1, 1), 0, SHAPE, "line")
        writer.append(0, log(index), [piece(0, index)])
        writer.close()
    more = sink(topic, at, index=4, parallelism=5)
    assert more.acquire(Attempt(1, 2), 0, SHAPE, "line") == PublishedOutput([], {})
    more.close()
    last = sink(topic, at, index=2, parallelism=3)
    assert last.acquire(Attempt(1, 2), 0, SHAPE, "line") == PublishedOutput(log(2), {0: 1_000})
    last.close()


def test_a_journal_of_two_sinks_is_refused(topic: str, at: dict[str, Any]) -> None:
    writer = sink(topic, at, journal=f"{topic}.both")
    writer.acquire(Attempt(1, 1), 0, SHAPE, "line")
    other = sink(topic, at, journal=f"{topic}.both", operator="other")
    with pytest.raises(SinkError, match=f"the journal '{topic}.both' is that of operator 'out', too: give each sink"):
        other.acquire(Attempt(1, 1), 0, SHAPE, "line")
    writer.close()


def test_a_journal_of_an_earlier_version_is_refused(client: Client, topic: str, at: dict[str, Any]) -> None:
    """It named logs by the order of tasks in the plan."""
    former = msgspec.msgpack.encode(["causal", "", 1, "out", "line", SHAPE, [1, 1], 0, [[0, 0, 0, 0, 1, b"x", 0]], []])
    write(client, Message(topic, former, struct.pack(">II", 0, 1), partition=0))
    writer = sink(topic, at, journal=topic)
    with pytest.raises(SinkError, match=r"Invalid value 'causal'.* is not a journal entry: .*or another version"):
        writer.acquire(Attempt(1, 1), 0, SHAPE, "line")
    writer.close()


def test_a_topic_that_is_no_journal_is_named(client: Client, topic: str, at: dict[str, Any]) -> None:
    write(client, Message(topic, b"junk", partition=0))
    writer = sink(topic, at, journal=topic)
    with pytest.raises(SinkError, match=rf"Kafka message {topic}\[0\] offset 0 is not a journal entry"):
        writer.acquire(Attempt(1, 1), 0, SHAPE, "line")
    writer.close()


def test_a_missing_topic_is_named(topic: str, at: dict[str, Any]) -> None:
    writer = sink(f"{topic}-missing", at)
    with pytest.raises(SinkError, match=f"Kafka topic '{topic}-missing' does not exist"):
        writer.acquire(Attempt(1, 1), 0, SHAPE, "line")


def test_a_row_that_is_too_large_is_named(topic: str, at: dict[str, Any]) -> None:
    class Wide(Record):
        text: str

    writer = cast("KafkaCausalWriter", opened(KafkaSink(topic, **at).create(Wide.schema())))
    writer.acquire(Attempt(1, 1), 0, SHAPE, "line")
    wide = OutputSegment(0, 1, encode([Wide("x" * (2 << 20))], Wide.schema()))
    with pytest.raises(SinkError, match=rf"topic '{topic}': the broker refuses: "):
        writer.append(0, [], [wide])
    writer.close()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"delivery": "maybe"}, "unknown delivery 'maybe'"),
        ({"delivery": "idempotent"}, "delivery='idempotent' needs key="),
        ({"delivery": "idempotent", "key": "number", "journal": "j"}, "omit journal="),
        ({"key": "other"}, "there is no column 'other' among number"),
        ({"format": "arrow", "key": "number"}, "many rows are one message: it has no key"),
        ({"format": "text"}, "needs one column of text"),
        ({"timestamp": "when"}, "there is no column 'when'"),
    ],
)
def test_impossible_settings_of_a_causal_sink_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(GraphError, match=said):
        KafkaSink("t", bootstrap="nowhere:1", **given).create(Line.schema())


def test_the_tests_find_an_acquisition_that_does_not_read_the_journal(
    client: Client, topic: str, at: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The assumption of the tests above: without the journal a row is written twice."""
    writer, _ = acquired(topic, at, 1)
    lose_an_answer(writer._writer, committed=True)
    monkeypatch.setattr(KafkaCausalWriter, "_missing", lambda self, pieces: self._take_over() and list(pieces))
    writer.append(0, log(0), [piece(0, 0)])
    assert visible(client, topic, 2) == [0, 0]
    writer.close()


def test_the_tests_find_a_journal_outside_the_transaction(
    client: Client, topic: str, at: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are committed, and their entry is lost with its commit: they are written again."""
    writer, _ = acquired(topic, at, 1)
    transact = JournaledTopic.transact

    def apart(self: JournaledTopic, used: TransactionalWriter, messages: Sequence[Message]) -> None:
        rows = [message for message in messages if message.topic == topic]
        transact(self, used, rows)
        if rows:
            monkeypatch.setattr(JournaledTopic, "transact", transact)
            lose_an_answer(used, committed=False)
        transact(self, used, [message for message in messages if message.topic != topic])

    monkeypatch.setattr(JournaledTopic, "transact", apart)
    writer.append(0, log(0), [piece(0, 0)])
    assert visible(client, topic, 2) == [0, 0]
    writer.close()


def test_the_tests_find_an_unknown_commit_that_is_written_again(
    client: Client, topic: str, at: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sink keeps its writer after a commit without an answer, and acquires nothing."""
    writer, _ = acquired(topic, at, 1)
    lose_an_answer(writer._writer, committed=True)
    monkeypatch.setattr(KafkaCausalWriter, "_drop", lambda self: restore_commit(self._writer))
    writer.append(0, log(0), [piece(0, 0)])
    assert visible(client, topic, 2) == [0, 0]


def restore_commit(used: TransactionalWriter) -> None:
    """Removes the replacement that ``lose_an_answer`` has made."""
    del used.commit


def test_the_tests_find_a_zombie_that_is_not_refused(
    client: Client, topic: str, at: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = acquired(topic, at, 1)
    first.append(0, log(0), [piece(0, 1)])
    second, _ = acquired(topic, at, 2)
    second.append(0, log(1), [piece(1, 2)])
    monkeypatch.setattr(KafkaCausalWriter, "_raise_replaced", lambda self: None)
    first.append(0, log(2), [piece(2, 99)])
    assert visible(client, topic, 3) == [1, 2, 99]
    first.close()
    second.close()
