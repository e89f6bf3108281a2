"""The source of the messages of a WebSocket server, by real servers."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from websockets.protocol import State
from websockets.server import ServerProtocol

from clonos_py import GraphError, Job, col
from clonos_py.connectors import FileSink, MemorySink, Secret, WebSocketSource
from clonos_py.model.errors import SourceError
from clonos_py.settings.definitions import Runtime
from clonos_py.testing import check_source
from tests.connectors.resumable import Row, contents, numbers, opened, read_all, read_until, rows
from tests.message_server import message_server
from tests.visible_rows import visible_rows
from tests.waiting import wait_until


def after(cursor: Any) -> list[Any]:
    return [{"after": cursor}]


def trades(url: str) -> Job:
    job = Job("trades", checkpoint_interval="1s")
    source = WebSocketSource(
        url,
        Row,
        subscribe=[{"type": "subscribe", "channel": "trades"}],
        select=lambda message: message["rows"] if message["type"] == "rows" else [],
        reconnect=False,
    )
    job.source(source).sink(MemorySink("trades"))
    return job


def test_the_source_keeps_the_contract() -> None:
    with message_server(contents(*range(1, 8))) as server:
        check_source(WebSocketSource(server.url, Row, reconnect=False), rows(*range(1, 8)))
    with message_server(contents(*range(1, 8)), asks=True) as server:
        source = WebSocketSource(server.url, Row, subscribe=after, cursor="number", reconnect=False)
        check_source(source, rows(*range(1, 8)))
        assert read_all(source, 5) == [6, 7]


def test_a_connection_that_ends_is_opened_again_behind_the_last_object() -> None:
    with message_server(contents(*range(1, 8)), asks=True, each=4, code=1011) as server:
        reader = opened(WebSocketSource(server.url, Row, subscribe=after, cursor="number"))
        reads = read_until(reader, lambda found: len(numbers(found)) == 7)
        reader.close()
        assert numbers(reads) == [1, 2, 3, 4, 5, 6, 7]
        assert server.asked[:2] == [{"after": None}, {"after": 4}]
        assert reads[-1].note == 7


def test_without_a_cursor_it_goes_on_with_what_the_server_sends() -> None:
    with message_server(contents(*range(1, 6)), each=3, keeps=False) as server:
        reader = opened(WebSocketSource(server.url, Row))
        assert numbers(read_until(reader, lambda found: len(numbers(found)) == 5)) == [1, 2, 3, 4, 5]
        reader.close()


def test_a_message_may_hold_several_objects_or_none() -> None:
    both = ", ".join(contents(1, 2))
    sent = ['{"type": "subscribed"}', f'{{"type": "rows", "rows": [{both}]}}', '{"type": "rows", "rows": []}']
    with message_server(sent, asks=True) as server:
        job = trades(server.url)
        job.run(runtime=Runtime.LOCAL)
        sink: Any = next(iter(job.sinks.values()))
        assert sink.rows(Row) == rows(1, 2)
        assert server.asked[0] == {"type": "subscribe", "channel": "trades"}
    with message_server([f"[{both}]", b" [ ]", contents(3)[0].encode()]) as server:
        assert read_all(WebSocketSource(server.url, Row, reconnect=False)) == [1, 2, 3]


def test_what_is_subscribed_is_sent_as_text_or_json() -> None:
    with message_server(contents(1), asks=True) as server:
        for message in ({"after": 0}, '{"after":   0}'):
            assert read_all(WebSocketSource(server.url, Row, subscribe=[message], reconnect=False)) == [1]
        assert server.asked == [{"after": 0}] * 2


@pytest.mark.parametrize("text", ['{"number": "x"}', "{", "[1, 2", "5", "null", b"\xff\xfe"])
@pytest.mark.parametrize("options", [{}, {"select": lambda message: [message]}], ids=["", "select"])
def test_a_malformed_message_is_named_or_a_dead_letter(text: str | bytes, options: dict[str, Any]) -> None:
    """A blank message before it counts as one."""
    with message_server([*contents(1), " ", text, *contents(3)]) as server:
        with pytest.raises(SourceError, match="message 3 since the job began: malformed message"):
            read_all(WebSocketSource(server.url, Row, reconnect=False, **options))
        assert read_all(WebSocketSource(server.url, Row, reconnect=False, on_error="skip", **options)) == [1, 3]
        reader = opened(WebSocketSource(server.url, Row, reconnect=False, **options).catch())
        reads = read_until(reader, lambda _: False)
        letters = [letter for read in reads if read.rows[1] is not None for letter in read.rows[1].to_pylist()]
        content = text.encode() if isinstance(text, str) else text
        assert [(letter["number"], letter["value"].replace(b" ", b"")) for letter in letters] == [
            (3, content.replace(b" ", b""))
        ]
        reader.close()


def test_a_failure_of_the_server_that_passes_is_waited_for() -> None:
    with message_server(contents(1, 2), statuses=[503, 429]) as server:
        assert read_all(WebSocketSource(server.url, Row, reconnect=False)) == [1, 2]


def test_a_server_that_refuses_or_is_away_for_too_long_ends_the_job() -> None:
    with message_server([], statuses=[401]) as server, pytest.raises(SourceError, match="it answered 401: correct"):
        read_all(WebSocketSource(server.url, Row))
    with message_server([], statuses=[500] * 9) as server, pytest.raises(SourceError, match=r"500; it was tried again"):
        read_all(WebSocketSource(server.url, Row, away="0s"))
    with pytest.raises(SourceError, match=r"ws://127.0.0.1:1/: ConnectionRefusedError.*it was tried again for 0 s"):
        read_all(WebSocketSource("ws://127.0.0.1:1/", Row, away="0s"))
    with message_server([], code=1008) as server, pytest.raises(SourceError, match=r"before its first message.*1008"):
        read_all(WebSocketSource(server.url, Row, away="0s"))
    with message_server(["x" * (17 << 20)]) as server, pytest.raises(SourceError, match="more than 16 MiB"):
        read_all(WebSocketSource(server.url, Row))


def test_an_error_of_a_function_names_it() -> None:
    def wrong(_: Any) -> Any:
        raise OSError("mine")

    with message_server(contents(1)) as server:
        for name in ("select", "subscribe"):
            options: dict[str, Any] = {name: wrong}
            with pytest.raises(SourceError, match=rf"{name} raised OSError: mine; at .*test_websocket_source.py"):
                read_all(WebSocketSource(server.url, Row, **options))


def test_a_server_that_answers_no_ping_is_asked_again() -> None:
    """The first connection is accepted and then read no more."""
    listener = socket.create_server(("127.0.0.1", 0))
    accepted: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            accepted.append(connection)
            protocol = ServerProtocol()
            while protocol.state is State.CONNECTING:
                protocol.receive_data(connection.recv(65_536))
                for request in protocol.events_received():
                    protocol.send_response(protocol.accept(request))  # type: ignore[arg-type]
            if len(accepted) > 1:
                protocol.send_text(contents(1)[0].encode())
                protocol.send_close(1000)
            connection.sendall(b"".join(protocol.data_to_send()))

    threading.Thread(target=serve, daemon=True).start()
    with listener:
        url = f"ws://127.0.0.1:{listener.getsockname()[1]}"
        assert read_all(WebSocketSource(url, Row, silent="100ms", reconnect=False)) == [1]
        listener.shutdown(socket.SHUT_RDWR)
    for connection in accepted:
        connection.close()
    assert len(accepted) == 2


def test_a_job_reads_each_message_once_although_its_tasks_are_killed(tmp_path: Path) -> None:
    """Those that were in flight come again, as the server keeps them."""
    out, count = tmp_path / "out", 1_500
    with message_server(contents(*range(1, count + 1)), asks=True, each=800) as server:
        job = Job("messages", checkpoint_interval="200ms")
        source = WebSocketSource(server.url, Row, subscribe=after, cursor="number")
        found = job.source(source).named("messages").parallelism(1)
        found.rebalance().filter(col("number") >= 0).sink(FileSink(str(out), delivery="causal")).named("out")
        kills = ["messages[0]@300ms", "out[1]@600ms", "messages[0]@900ms"]
        run = job.start(runtime="local", parallelism=2, kills=kills, checkpoints=str(tmp_path / "checkpoints"))
        wait_until(lambda: len(visible_rows(out)) >= count and run.running)
        run.stop()
    assert sorted(row["number"] for row in visible_rows(out)) == list(range(1, count + 1))


def test_a_definition_that_cannot_work_is_refused_where_it_is_written() -> None:
    with pytest.raises(GraphError, match="'http://there' is no address: write wss://host/path"):
        WebSocketSource("http://there", Row)
    with pytest.raises(GraphError, match="token would be plain text"):
        WebSocketSource("wss://there", Row, token="word")  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="subscribe is 'all'; write a list of messages"):
        WebSocketSource("wss://there", Row, subscribe="all")
    with pytest.raises(GraphError, match="write a function of the cursor, as there is one"):
        WebSocketSource("wss://there", Row, cursor="number")


def test_a_token_is_read_where_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORD", "open sesame")
    with message_server(contents(1)) as server:
        source = WebSocketSource(server.url, Row, token=Secret(env="WORD"), reconnect=False)
        assert read_all(source) == [1]
        assert server.headers == ["Bearer open sesame"]
