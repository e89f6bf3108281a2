"""An MQTT broker: each message once, whatever dies, and what the sink promises."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.reasoncodes import ReasonCode

from clonos_py import Job, Record
from clonos_py.connectors import BlackholeSink, FileSink, MemorySource, MqttSink, MqttSource, Secret, read_results
from clonos_py.connectors.mqtt import sink as mqtt_sink
from clonos_py.connectors.mqtt.broker import MqttBroker, MqttMessage, MqttSession
from clonos_py.connectors.mqtt.source import _Unacknowledged
from clonos_py.model.errors import ClonosError, GraphError, SinkError, SourceError
from clonos_py.model.operators import Read, Source, Wait
from clonos_py.observe.events import Event, TaskFailed
from clonos_py.runtime.launch import run_job
from clonos_py.settings.resolution import resolve
from tests.brokers.conftest import PASSWORD, USER, Guarded, free_port
from tests.connectors.killed_jobs import ITEMS, Item, slowly
from tests.waiting import wait_until

HOST = "127.0.0.1"


@contextmanager
def subscribed(port: int, topic: str, client_id: str) -> Iterator[MqttSession]:
    """A session that takes messages, and keeps those that it does not acknowledge."""
    session = MqttSession(MqttBroker(HOST, port), client_id, [topic], 3_600, lambda: None)
    try:
        wait_until(lambda: session.connected)
        yield session
    finally:
        session.close()


def publish(port: int, topic: str, values: Sequence[bytes]) -> None:
    writer = MqttBroker(HOST, port).client("", manual_ack=False)
    writer.max_inflight_messages_set(1_000)
    writer.connect(HOST, port)
    writer.loop_start()
    for sent in [writer.publish(topic, value, 1) for value in values]:
        sent.wait_for_publish(60)
        assert sent.is_published()
    writer.disconnect()
    writer.loop_stop()


def taken(session: MqttSession, count: int) -> list[MqttMessage]:
    found: list[MqttMessage] = []

    def enough() -> bool:
        found.extend(message for message, _ in session.take(count))
        return len(found) >= count

    wait_until(enough)
    return found


def lines(items: Sequence[Item]) -> list[bytes]:
    return list(map(msgspec.json.encode, items))


@pytest.mark.parametrize("goes_on", [False, True])
def test_each_message_counts_once_although_tasks_are_killed(
    goes_on: bool, mosquitto: int, name: str, tmp_path: Path
) -> None:
    """Also in a run that goes on from the last checkpoint of one that was interrupted."""
    with subscribed(mosquitto, f"{name}/+", name):
        pass
    publish(mosquitto, f"{name}/a", lines(ITEMS))
    job = Job("messages")
    source = MqttSource(HOST, f"{name}/+", Item, client_id=name, port=mosquitto)
    limited = job.source(source).named("rows").map(slowly).limit(len(ITEMS))
    limited.sink(FileSink(tmp_path / "out")).named("out")
    events: list[Event] = []

    def run(**settings: Any) -> None:
        def listen(at_us: int, event: Event) -> None:
            events.append(event)
            if goes_on and len(read_results(tmp_path / "out") if (tmp_path / "out").exists() else ()) > 200:
                raise KeyboardInterrupt

        values = {"runtime": "local", "checkpoints": str(tmp_path / "c"), "checkpoint_interval": "50ms"}
        run_job(job, resolve(command_line=values | settings), listen)

    if goes_on:
        with pytest.raises(KeyboardInterrupt):
            run()
        goes_on = False
        run()
    else:
        run(kills=("rows[0]@150ms", "rows[0]@500ms"))
        assert sum(isinstance(event, TaskFailed) for event in events) == 2
    assert Counter(row["number"] for row in read_results(tmp_path / "out")) == Counter(range(len(ITEMS)))


class Told(Record):
    topic: str
    number: int


def opened(definition: Any) -> Source:
    source: Source = definition.create((None,) * len(definition.schemas))
    source.open(0, 1)
    source.seek({})
    return source


def test_the_topic_is_a_column_and_malformed_messages_are_dead_letters(mosquitto: int, name: str) -> None:
    with subscribed(mosquitto, f"{name}/#", name):
        pass
    publish(mosquitto, f"{name}/a", [b'{"number": 1}', b"no json", b""])
    publish(mosquitto, f"{name}/b", [b'{\n"number": 2}'])
    definition = MqttSource(HOST, f"{name}/#", Told, client_id=name, port=mosquitto, topic="topic").catch()
    source = opened(definition)
    rows: list[dict[str, Any]] = []
    letters: list[dict[str, Any]] = []

    def all_there() -> bool:
        if not isinstance(read := source.poll(0), Wait):
            assert isinstance(read, Read)
            for found, port in zip((rows, letters), read.rows, strict=True):
                found.extend(() if port is None else port.to_pylist())
        return len(rows) + len(letters) == 4

    wait_until(all_there)
    source.close()
    assert rows == [{"topic": f"{name}/a", "number": 1}, {"topic": f"{name}/b", "number": 2}]
    assert [(letter["topic"], letter["value"]) for letter in letters] == [(f"{name}/a", b"no json"), (f"{name}/a", b"")]


def test_packets_are_known_until_their_identifiers_are_used_again() -> None:
    kept = _Unacknowledged()
    kept.add(1, 11, 101)
    kept.add(2, 12, 102)
    kept.add(3, 13, 103)
    kept.withdraw_after(2)
    assert [kept.has(packet, digest) for packet, digest in ((11, 101), (12, 999), (13, 103))] == [True, False, False]
    assert kept.settle(1) == [11]
    assert (kept.has(11, 101), kept.has_settled(11, 101), kept.has_settled(11, 999)) == (False, True, False)
    restored = _Unacknowledged()
    restored.load(kept.entries())
    assert (restored.has(12, 102), restored.has(11, 101)) == (True, False)
    kept.add(4, 11, 104)
    assert not kept.has_settled(11, 101)


def test_a_broker_that_is_away_ends_the_job(name: str) -> None:
    source = opened(MqttSource(HOST, "a", Item, client_id=name, port=free_port(), away="1s"))
    assert isinstance(source.poll(0), Wait)
    with pytest.raises(SourceError, match="the broker is away for longer than 1 s: start it, and run the job again"):
        source.poll(2_000_000)
    source.close()


@pytest.mark.parametrize("said", ["Session taken over", "Unspecified error"])
def test_a_session_that_another_client_takes_ends_the_job(said: str, name: str) -> None:
    """Some brokers close the connection without a reason, again and again."""
    source = opened(MqttSource(HOST, name, Item, client_id=name, port=free_port()))
    source.poll(0)
    session: MqttSession = source._session  # type: ignore[attr-defined]
    for _ in range(1 if said.startswith("Session") else 10):
        assert session.problem is None
        session._on_subscribe(session._client, None, 1, [ReasonCode(PacketTypes.SUBACK, "Granted QoS 1")], None)
        session._on_disconnect(session._client, None, None, ReasonCode(PacketTypes.DISCONNECT, said), None)
    with pytest.raises(SourceError, match="another client takes the session over: give each job a client_id of its"):
        source.poll(0)
    source.close()


def test_rows_are_published_before_the_checkpoint_is_complete(mosquitto: int, name: str, tmp_path: Path) -> None:
    job = Job("published")
    source = MemorySource(ITEMS[:50], schema=Item, batch_rows=7)
    sink = MqttSink(HOST, f"{name}/{{number}}", port=mosquitto)
    job.source(source).named("rows").sink(sink).named("out")
    with subscribed(mosquitto, f"{name}/+", f"{name}-reader") as session:
        run_job(job, resolve(command_line={"runtime": "local"}))
        found = taken(session, 50)
    assert sorted(json.loads(message.payload)["number"] for message in found) == list(range(50))
    assert {message.topic for message in found} == {f"{name}/{number}" for number in range(50)}


def test_a_broker_that_answers_nothing_ends_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mqtt_sink, "_ANSWER_S", 0.0)
    writer = MqttSink(HOST, "x", port=free_port()).open(Item.schema())
    writer.flush()
    writer.write(pa.RecordBatch.from_pylist([{"number": 1, "text": "a"}], schema=Item.schema()))
    with pytest.raises(SinkError, match="the broker acknowledges no message within 0 s: start it, allow the user"):
        writer.flush()
    writer.close()


def test_a_topic_that_cannot_be_published_to_is_one_line(mosquitto: int) -> None:
    writer = MqttSink(HOST, "x/{text}", port=mosquitto).open(Item.schema())
    with pytest.raises(SinkError, match=r"'x/a\+b' is no topic to publish to: change its columns before the sink"):
        writer.write(pa.RecordBatch.from_pylist([{"number": 1, "text": "a+b"}], schema=Item.schema()))
    writer.close()


MISTAKES: dict[str, tuple[Any, str]] = {
    "session": (lambda: MqttSource(HOST, "a", Item, client_id=""), "name a client_id"),
    "topic column": (lambda: MqttSource(HOST, "a", Item, client_id="x", topic="number"), "is no text column"),
    "password": (lambda: MqttSource(HOST, "a", Item, client_id="x", password="b"), "would be plain text"),  # type: ignore[arg-type]
    "topic": (lambda: MqttSink(HOST, "a/#"), "'a/#' is no topic to publish to"),
    "column": (lambda: MqttSink(HOST, "a/{x}").create(Item.schema()), "topic: no column 'x'; there are number, text"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found_when_the_job_is_defined(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    define, line = MISTAKES[mistake]
    with pytest.raises(GraphError, match=line):
        define()
    monkeypatch.setitem(sys.modules, "paho", None)
    with pytest.raises(GraphError, match=r"MqttSink needs paho: pip install 'clonos-py\[mqtt\]'"):
        MqttSink(HOST, "a")


class Measured(Record):
    topic: str
    celsius: float


def alerts(broker: str) -> Job:
    job = Job("alerts", checkpoint_interval="500ms")
    password = Secret(env="MQTT_PASSWORD")
    source = MqttSource(
        broker, "sensors/+", Measured, client_id="alerts", topic="topic", user="clonos", password=password
    )
    hot = job.source(source).filter(lambda row: row.celsius > 30)
    hot.sink(MqttSink(broker, "alerts/{topic}", user="clonos", password=password)).named("alerts")
    return job


def test_the_example_is_a_job() -> None:
    assert alerts("localhost").name == "alerts"


def copying(broker: Guarded, name: str, source: dict[str, Any], sink: dict[str, Any]) -> Job:
    """A job that ends after three rows, whose source and sink log in."""
    job = Job("copying", checkpoint_interval="50ms")
    rows = job.source(
        MqttSource(HOST, f"{name}/in", Item, client_id=f"{name}-job", port=broker.port, away="2s", **source)
    )
    rows.limit(3).sink(MqttSink(HOST, f"{name}/out", port=broker.port, **sink))
    return job


@pytest.fixture
def login(guarded_mosquitto: Guarded, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setenv("MQTT_PASSWORD", PASSWORD)
    monkeypatch.setenv("MQTT_WRONG", "open barley")
    return {"user": USER, "password": Secret(env="MQTT_PASSWORD"), "tls": guarded_mosquitto.trusted}


def test_rows_go_to_and_come_from_a_broker_that_wants_a_login_and_encrypts(
    guarded_mosquitto: Guarded, login: dict[str, Any], name: str
) -> None:
    broker = MqttBroker(HOST, guarded_mosquitto.port, **login)
    session = MqttSession(broker, name, [f"{name}/out"], 60, lambda: None)
    known = MqttSession(broker, f"{name}-job", [f"{name}/in"], 60, lambda: None)
    wait_until(lambda: session.connected and known.connected)
    known.close()
    writer = broker.client("", manual_ack=False)
    writer.connect(HOST, guarded_mosquitto.port)
    writer.loop_start()
    for sent in [writer.publish(f"{name}/in", value, 1) for value in lines(ITEMS[:3])]:
        sent.wait_for_publish(60)
    writer.loop_stop()
    copying(guarded_mosquitto, name, login, login).run(runtime="local")
    assert sorted(json.loads(message.payload)["number"] for message in taken(session, 3)) == [0, 1, 2]
    session.close()


@pytest.mark.parametrize("side", ["source", "sink"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"password": Secret(env="MQTT_WRONG")}, "the broker refuses the login .*: correct user and password"),
        ({"tls": "strange"}, "its certificate is not trusted .*: tls= takes a file of certificates"),
        ({"tls": "no-such-file.pem"}, "tls='no-such-file.pem': FileNotFoundError.*: name a file of certificates"),
    ],
    ids=["password", "certificate", "missing"],
)
def test_a_broker_that_does_not_let_in_or_is_not_trusted_is_one_line(
    change: dict[str, Any], message: str, side: str, guarded_mosquitto: Guarded, login: dict[str, Any], name: str
) -> None:
    if change.get("tls") == "strange":
        change = {"tls": guarded_mosquitto.strange}
    wrong = login | change
    job = Job("refused", checkpoint_interval="50ms")
    if side == "source":
        source = MqttSource(HOST, name, Item, client_id=name, port=guarded_mosquitto.port, **wrong)
        job.source(source).sink(BlackholeSink())
    else:
        rows = job.source(MemorySource(ITEMS[:3]))
        rows.sink(MqttSink(HOST, name, port=guarded_mosquitto.port, **wrong))
    with pytest.raises(ClonosError, match=message):
        job.run(runtime="local")
