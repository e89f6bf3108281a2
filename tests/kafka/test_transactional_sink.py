"""Rows that are visible when their checkpoint is complete: once, whichever process commits them, and however often."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from clonos_py.connectors import KafkaSink
from clonos_py.connectors.kafka import transactional_sink
from clonos_py.connectors.kafka.client import Client, TransactionalWriter
from clonos_py.connectors.kafka.transactional_sink import KafkaTransactionalWriter
from clonos_py.model.errors import SinkError, UnreadableCheckpointError
from clonos_py.model.record_codec import encode
from clonos_py.model.state import OperatorState
from tests.connectors.contexts import opened
from tests.kafka.test_causal_sink import Line, journal_start, lose_an_answer, visible


def sink(topic: str, at: dict[str, Any], **place: Any) -> KafkaTransactionalWriter:
    definition = KafkaSink(topic, delivery="transactional", **at)
    return cast("KafkaTransactionalWriter", opened(definition.create(Line.schema()), **place))


def restarted(topic: str, at: dict[str, Any], *parts: OperatorState, **place: Any) -> KafkaTransactionalWriter:
    """A sink that starts from the snapshots of former instances."""
    made = sink(topic, at, **place)
    made.loaded(parts)
    made.restore(parts)
    return made


def write(writer: KafkaTransactionalWriter, *numbers: int) -> None:
    writer.on_rows(encode([Line(n) for n in numbers], Line.schema()), 0)


def prepared(writer: KafkaTransactionalWriter, checkpoint: int, *numbers: int) -> bytes:
    write(writer, *numbers)
    named = writer.prepare(checkpoint)
    assert named is not None
    return named


def id_of(writer: KafkaTransactionalWriter, index: int = 0) -> TransactionalWriter:
    return writer._acquired[index].writer


def test_rows_are_visible_after_their_commit(client: Client, topic: str, at: dict[str, Any]) -> None:
    writer = sink(topic, at)
    first = prepared(writer, 1, 1, 2)
    second = prepared(writer, 2, 3)
    assert visible(client, topic, 0) == []
    writer.commit(first)
    assert visible(client, topic, 2) == [1, 2]
    writer.commit_all([first, second])
    writer.commit_all([second])
    assert visible(client, topic, 3) == [1, 2, 3]
    assert writer.prepare(3) is None, "nothing is committed"
    assert writer.snapshot() == OperatorState(), "committed rows are not kept"
    writer.close()


def test_a_replacement_commits_the_rows_of_the_checkpoint(client: Client, topic: str, at: dict[str, Any]) -> None:
    """Whether it is the first to commit them or not."""
    writer = sink(topic, at)
    first, second = prepared(writer, 1, 1, 2), prepared(writer, 2, 3)
    state = writer.snapshot()
    write(writer, 99)
    writer.commit(first)
    writer.close()
    others = [restarted(topic, at, state) for _ in range(2)]
    for other in others:
        other.commit_all([first, second])
        assert visible(client, topic, 3) == [1, 2, 3]
    third = prepared(others[1], 3, 4)
    last = restarted(topic, at, others[1].snapshot())
    last.commit(third)
    assert visible(client, topic, 4) == [1, 2, 3, 4]
    for used in (*others, last):
        used.close()


def test_rows_can_be_committed_before_the_task_has_restored_them(
    client: Client, topic: str, at: dict[str, Any]
) -> None:
    writer = sink(topic, at)
    first = prepared(writer, 1, 1)
    other = sink(topic, at)
    other.loaded([writer.snapshot()])
    other.commit(first)
    assert visible(client, topic, 1) == [1]
    writer.close()
    other.close()


def test_a_commit_without_an_answer_is_neither_lost_nor_repeated(
    client: Client, topic: str, at: dict[str, Any]
) -> None:
    """The answer is lost, once after the commit and once before it."""
    writer = sink(topic, at)
    writer.commit(prepared(writer, 1, 1))
    for checkpoint, committed in ((2, True), (3, False)):
        named = prepared(writer, checkpoint, checkpoint)
        lose_an_answer(id_of(writer), committed)
        writer.commit(named)
    assert visible(client, topic, 3) == [1, 2, 3]
    writer.close()


def test_two_processes_that_commit_the_same_rows_write_them_once(
    client: Client, topic: str, at: dict[str, Any]
) -> None:
    """As a process that was stopped for a while, and its replacement."""
    writer = sink(topic, at)
    writer.commit(prepared(writer, 1, 1))
    second = prepared(writer, 2, 2)
    other = restarted(topic, at, writer.snapshot())
    other.commit(second)
    writer.commit(second)
    third = prepared(other, 3, 3)
    other.commit(third)
    assert visible(client, topic, 3) == [1, 2, 3]
    writer.close()
    other.close()


def test_a_task_can_commit_for_another_before_any_commit(client: Client, topic: str, at: dict[str, Any]) -> None:
    """The journal has no partition of that other task then."""
    writer = sink(topic, at, index=2, parallelism=3)
    named = prepared(writer, 1, 1)
    heir = restarted(topic, at, writer.snapshot(), index=0, parallelism=1)
    heir.commit(prepared(heir, 2, 2))
    heir.commit(named)
    assert visible(client, topic, 2) == [1, 2]
    writer.close()
    heir.close()


def test_a_task_commits_for_former_tasks(client: Client, topic: str, at: dict[str, Any]) -> None:
    """After a change of parallelism, when one of them has committed already."""
    writers = [sink(topic, at, index=index, parallelism=3) for index in range(3)]
    named = [prepared(writer, 1, index) for index, writer in enumerate(writers)]
    states = [writer.snapshot() for writer in writers]
    writers[2].commit(named[2])
    first, second = (restarted(topic, at, *states, index=index, parallelism=2) for index in range(2))
    second.commit(prepared(second, 2, 9))
    first.commit_all(named)
    second.commit(prepared(second, 3, 10))
    assert visible(client, topic, 5) == [0, 1, 2, 9, 10]
    for writer in (*writers, first, second):
        writer.close()


def test_many_rows_are_divided_into_parts(
    client: Client, topic: str, at: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some are committed when the process dies."""
    monkeypatch.setattr(transactional_sink, "PART_ROWS", 10)
    writer = sink(topic, at)
    writer.commit(prepared(writer, 1, 1_000))
    named = prepared(writer, 2, *range(25))
    state = writer.snapshot()
    used, done = id_of(writer), 0
    commit = used.commit

    def dies() -> None:
        nonlocal done
        done += 1
        if done > 1:
            raise SinkError("killed")
        commit()

    used.commit = dies  # type: ignore[method-assign]
    with pytest.raises(SinkError, match="killed"):
        writer.commit(named)
    assert len(visible(client, topic, 11)) == 11
    other = restarted(topic, at, state)
    other.commit(named)
    assert visible(client, topic, 26) == [*range(25), 1_000]
    writer.close()
    other.close()


def test_the_journal_keeps_entries_that_may_be_committed_again(client: Client, topic: str, at: dict[str, Any]) -> None:
    writer = sink(topic, at)
    named = [prepared(writer, 1, 1), prepared(writer, 2, 2)]
    state = writer.snapshot()
    writer.commit_all(named)
    assert journal_start(client, topic) == 0
    restarted(topic, at, state).commit_all(named)
    writer.commit_all([prepared(writer, 3, 3)])
    assert journal_start(client, topic) > 0
    assert visible(client, topic, 3) == [1, 2, 3]
    writer.close()


def test_rows_of_another_lineage_do_not_count(client: Client, topic: str, at: dict[str, Any]) -> None:
    """As after ``--fresh``: checkpoints begin from 1 again."""
    writer = sink(topic, at)
    writer.commit(prepared(writer, 1, 1))
    fresh = sink(topic, at)
    cast("Any", fresh.ctx).numbering = "fresh-0"
    fresh.commit(prepared(fresh, 1, 2))
    assert visible(client, topic, 2) == [1, 2]
    writer.close()
    fresh.close()


def test_other_rows_of_a_committed_checkpoint_are_refused(topic: str, at: dict[str, Any]) -> None:
    writer, other = sink(topic, at), sink(topic, at)
    writer.commit(prepared(writer, 1, 1))
    with pytest.raises(SinkError, match=rf"topic '{topic}': rows of checkpoint 1, part 1, are already visible with"):
        other.commit(prepared(other, 1, 2))
    writer.close()
    other.close()


@pytest.mark.parametrize(
    ("named", "states", "said"),
    [
        (b"7", (), "operator 'out': the checkpoint names no rows for Kafka .* resume with that one"),
        (b"\x94\xa1a\x00\x01\x91\x01", (), "rows of checkpoint 1, part 1, are not in the checkpoint that names them"),
    ],
)
def test_a_committable_that_the_checkpoint_lacks_is_named(
    topic: str, at: dict[str, Any], named: bytes, states: Sequence[OperatorState], said: str
) -> None:
    writer = restarted(topic, at, *states)
    with pytest.raises((SinkError, UnreadableCheckpointError), match=said):
        writer.commit(named)
    writer.close()


def test_the_tests_find_an_acquisition_that_does_not_read_the_journal(
    client: Client, topic: str, at: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The assumption of the tests above: without the journal a row is written twice."""
    acquire = KafkaTransactionalWriter._acquire
    monkeypatch.setattr(
        KafkaTransactionalWriter, "_acquire", lambda self, index: acquire(self, index)._replace(parts={})
    )
    writer = sink(topic, at)
    named = prepared(writer, 1, 1)
    writer.commit(named)
    restarted(topic, at, writer.snapshot()).commit(named)
    assert visible(client, topic, 2) == [1, 1]
    writer.close()
