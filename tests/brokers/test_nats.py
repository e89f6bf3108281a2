"""Streams of NATS JetStream with a real server: the contracts, what is gone, and jobs with kills."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from nats.js.api import StreamConfig

from clonos_py import Job
from clonos_py.connectors import CommitId, NatsSecurity, NatsSink, NatsSource, Secret
from clonos_py.connectors.nats import link as nats_link
from clonos_py.connectors.nats.link import NatsLink, NatsPlace
from clonos_py.connectors.nats.sink import BUCKET
from clonos_py.model.errors import GraphError, SinkError, SourceError
from clonos_py.testing import check_sink, check_source
from tests.brokers.conftest import free_port
from tests.connectors.killed_jobs import ITEMS, Item, copy_with_kills
from tests.waiting import wait_until


@pytest.fixture
def link(nats_server: str) -> Iterator[NatsLink]:
    made = NatsLink(NatsPlace([nats_server], NatsSecurity()))
    yield made
    made.close()


@pytest.fixture
def stream(link: NatsLink, name: str) -> str:
    """A stream that takes the subjects NAME.a and so on."""
    config = StreamConfig(name=name, subjects=[f"{name}.*"])
    link.call(lambda client: client.jetstream().add_stream(config))
    return name


def publish(link: NatsLink, subject: str, values: Sequence[bytes]) -> None:
    async def all_of(client: Any) -> None:
        for value in values:
            await client.jetstream().publish(subject, value)

    link.call(all_of)


def lines(items: Sequence[Item]) -> list[bytes]:
    return list(map(msgspec.json.encode, items))


def values_of(server: str, stream: str) -> list[Any]:
    """All messages of a stream, with the client of the source."""
    link = NatsLink(NatsPlace([server], NatsSecurity()))

    async def all_of(client: Any) -> list[Any]:
        jetstream = client.jetstream()
        state = (await jetstream.stream_info(stream)).state
        found = [await jetstream.get_msg(stream, seq) for seq in range(max(1, state.first_seq), state.last_seq + 1)]
        return [json.loads(message.data) for message in found]

    try:
        return link.call(all_of)
    finally:
        link.close()


def test_the_source_keeps_the_contract(nats_server: str, link: NatsLink, stream: str) -> None:
    publish(link, f"{stream}.a", lines(ITEMS[:20]))
    publish(link, f"{stream}.b", lines(ITEMS[20:40]))
    both = NatsSource(nats_server, stream, Item, subjects=[f"{stream}.a", f"{stream}.b"], stop="latest")
    check_source(both, ITEMS[:40])


def test_a_source_begins_at_a_message_and_follows(nats_server: str, link: NatsLink, stream: str) -> None:
    publish(link, f"{stream}.a", lines(ITEMS[:5]))
    definition = NatsSource(nats_server, stream, Item, start=4)
    reader = definition.open(*definition.partitions())
    found: list[int] = []
    at = 0

    def reads(count: int) -> bool:
        nonlocal at
        read = reader.read(at, 100)
        assert read is not None
        rows, at = read
        assert isinstance(rows, pa.RecordBatch)
        found.extend(row["number"] for row in rows.to_pylist())
        return len(found) >= count

    wait_until(lambda: reads(2))
    publish(link, f"{stream}.b", lines(ITEMS[5:6]))
    wait_until(lambda: reads(3))
    reader.close()
    assert found == [3, 4, 5]


def fails(server: str, stream: str, start: int, said: str) -> None:
    """Waits until a read from this position on ends with an error that says so."""
    definition = NatsSource(server, stream, Item)
    reader = definition.open(*definition.partitions())

    def failed() -> bool:
        try:
            reader.read(start, 100)
        except SourceError as problem:
            return said in str(problem)
        return False

    wait_until(failed)
    reader.close()


def test_messages_that_are_gone_end_the_job(nats_server: str, link: NatsLink, stream: str) -> None:
    publish(link, f"{stream}.a", lines(ITEMS[:9]))
    link.call(lambda client: client.jetstream().purge_stream(stream, seq=7))
    fails(nats_server, stream, 3, "the messages after 3 are gone, the first one is 7: keep them for longer")


def test_a_malformed_message_is_named(nats_server: str, link: NatsLink, stream: str) -> None:
    publish(link, f"{stream}.a", [b'{"number": 1, "text": "x"}', b"no json"])
    fails(nats_server, stream, 0, "message 2 is malformed")


def test_the_sink_keeps_the_contract(nats_server: str, stream: str) -> None:
    check_sink(NatsSink(nats_server, f"{stream}.a"), lambda: values_of(nats_server, stream), deaths=2)


def test_a_commit_that_was_interrupted_has_no_duplicates(nats_server: str, link: NatsLink, stream: str) -> None:
    """It is repeated as a whole, as its mark was not written, and the stream drops what it has."""
    committer = NatsSink(nats_server, f"{stream}.a").open(Item.schema())
    rows = pa.Table.from_pylist([{"number": 1, "text": "x"}, {"number": 2, "text": "y"}], Item.schema())
    committer.commit(CommitId("line/out/0", 3), rows)
    link.call(lambda client: client.jetstream().delete_key_value(BUCKET))
    committer.commit(CommitId("line/out/0", 3), rows)
    committer.close()
    assert [row["number"] for row in values_of(nats_server, stream)] == [1, 2]


def test_what_is_not_there_is_one_line(nats_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SourceError, match=r"no stream 'none' can be read \(.*stream not found"):
        NatsSource(nats_server, "none", Item).partitions()
    committer = NatsSink(nats_server, "no.stream.has.it").open(Item.schema())
    rows = pa.Table.from_pylist([{"number": 1, "text": "x"}], Item.schema())
    with pytest.raises(SinkError, match="is there a stream that takes this subject"):
        committer.commit(CommitId("another/out/0", 1), rows)
    committer.close()
    monkeypatch.setattr(nats_link, "PATIENCE_S", 0.0)
    with pytest.raises(SourceError, match="cannot be reached"):
        NatsSource(f"nats://127.0.0.1:{free_port()}", "none", Item).partitions()


def test_mistakes_are_found_when_the_job_is_defined(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(GraphError, match="unknown format 'xml'; choose one of json, msgpack, text, bytes"):
        NatsSource("nats://x", "s", Item, format="xml")  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="sequence numbers begin with 1"):
        NatsSource("nats://x", "s", Item, start=0)
    with pytest.raises(GraphError, match="password would be plain text in the plan"):
        NatsSecurity(user="a", password="b")  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "nats", None)
    with pytest.raises(GraphError, match=r"NatsSink needs nats: pip install 'clonos-py\[nats\]'"):
        NatsSink("nats://x", "s")


def copied(servers: str) -> Job:
    job = Job("copied", checkpoint_interval="1s")
    security = NatsSecurity(user="clonos", password=Secret(env="NATS_PASSWORD"))
    orders = job.source(NatsSource(servers, "ORDERS", Item, subjects=["orders.eu", "orders.us"], security=security))
    orders.sink(NatsSink(servers, "copied.orders", security=security)).named("copied")
    return job


def test_the_example_is_a_job() -> None:
    assert copied("nats://127.0.0.1:4222").name == "copied"


def test_each_message_is_copied_once_although_tasks_are_killed(
    nats_server: str, link: NatsLink, stream: str, tmp_path: Path
) -> None:
    out = StreamConfig(name=f"{stream}out", subjects=[f"out.{stream}"])
    link.call(lambda client: client.jetstream().add_stream(out))
    publish(link, f"{stream}.a", lines(ITEMS))
    source = NatsSource(nats_server, stream, Item, stop="latest")
    copy_with_kills(source, NatsSink(nats_server, f"out.{stream}"), tmp_path / "checkpoints")
    assert Counter(row["number"] for row in values_of(nats_server, f"{stream}out")) == Counter(range(len(ITEMS)))
