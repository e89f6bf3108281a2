"""Lines of a TCP server: each is a row once, over connections that end, servers that are away and tasks that die."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from clonos_py import Job, Record, col
from clonos_py.connectors import FileSink, MemorySink, SocketDeadLetter, SocketSource, line_feed
from clonos_py.model.errors import GraphError, SourceError
from clonos_py.model.operators import End, Read, Source, Wait
from clonos_py.runtime.check.samples import sampled
from tests.line_servers import Counting, LineServer, free_port, line, serving
from tests.visible_rows import visible_rows
from tests.waiting import WAIT_S_MAX, attempts, wait_until


class Item(Record):
    id: int
    name: str | None = None


def says(*pieces: bytes) -> Callable[[socket.socket, int], None]:
    """The n-th connection gets the n-th piece; all later ones get the last."""

    def talk(connection: socket.socket, number: int) -> None:
        if number < len(pieces):
            connection.sendall(pieces[number])
        if number >= len(pieces) - 1:
            time.sleep(WAIT_S_MAX)

    return talk


_opened: list[Source] = []


@pytest.fixture(autouse=True)
def _closes() -> Iterator[None]:
    yield
    while _opened:
        _opened.pop().close()


class Polling:
    """Polls as a task does: when it is woken, and at the time that the source gave."""

    def __init__(self, definition: Any, index: int = 0) -> None:
        self.woken = threading.Event()
        self.source: Source = definition.create((None,) * len(definition.schemas))
        _opened.append(self.source)
        self.source.open(index, 2)
        self.source.notify(self.woken.set)
        self.source.seek({})
        self.reads: list[Read] = []
        self.polls = 0

    def until(self, enough: Callable[[], bool]) -> None:
        for _ in attempts(self.rows, every_s=0):
            if enough():
                return
            self.woken.clear()
            self.polls += 1
            given = self.source.poll(time.monotonic_ns() // 1_000)
            if isinstance(given, Read):
                self.reads.append(given)
            elif isinstance(given, Wait):
                self.woken.wait(1)
            else:
                assert isinstance(given, End)
                return

    def rows(self, port: int = 0) -> list[dict[str, Any]]:
        return [row for read in self.reads if (batch := read.rows[port]) is not None for row in batch.to_pylist()]

    @property
    def ids(self) -> list[int]:
        return [row["id"] for row in self.rows()]

    def counted(self, name: str) -> int:
        return sum(read.counts.get(name, 0) for read in self.reads)


def test_lines_come_as_soon_as_they_are_complete_in_any_pieces() -> None:
    go_on = threading.Event()

    def talk(connection: socket.socket, number: int) -> None:
        connection.sendall(line(1) + line(2)[:5])
        go_on.wait()
        connection.sendall(line(2)[5:] + line(3))
        time.sleep(WAIT_S_MAX)

    with serving(talk) as server:
        polling = Polling(SocketSource("127.0.0.1", server.port, Item))
        polling.until(lambda: polling.ids == [1])
        go_on.set()
        polling.until(lambda: polling.ids == [1, 2, 3])
        assert [(read.start, read.stop) for read in polling.reads] in ([(0, 1), (1, 3)], [(0, 1), (1, 2), (2, 3)])
        assert polling.polls < 12, "it is woken, and does not poll all the time"


@pytest.mark.parametrize(
    ("format", "schema", "sent", "rows"),
    [
        ("json", Item, b'{"id": 1}\r\n\n{"name": "b", "id": 2, "x": 3}\n', [(1, None), (2, "b")]),
        ("csv", Item, b'1,a\n2,"b,c"\n', [(1, "a"), (2, "b,c")]),
        ("text", None, b"one\r\n\ntwo\n", [("one",), ("",), ("two",)]),
    ],
)
def test_every_format_is_read_from_a_socket(
    format: Any, schema: type[Record] | None, sent: bytes, rows: list[tuple[Any, ...]]
) -> None:
    with serving(says(sent)) as server:
        polling = Polling(SocketSource("127.0.0.1", server.port, schema, format))
        polling.until(lambda: len(polling.rows()) == len(rows))
        assert [tuple(row.values()) for row in polling.rows()] == rows


def test_after_a_lost_connection_it_reconnects_and_drops_an_incomplete_line() -> None:
    with serving(says(line(1) + b'{"id": 7', line(2), line(3))) as server:
        polling = Polling(SocketSource("127.0.0.1", server.port, Item))
        polling.until(lambda: polling.ids == [1, 2, 3])
        assert server.connections == 3
        assert polling.counted("unfinished_lines") == 1


def test_without_reconnect_it_ends_when_the_server_closes_the_connection() -> None:
    def talk(connection: socket.socket, number: int) -> None:
        connection.sendall(line(1) + line(2)[:-1])

    with serving(talk) as server:
        polling = Polling(SocketSource("127.0.0.1", server.port, Item, reconnect=False))
        polling.until(lambda: False)
        assert polling.ids == [1, 2]
        assert polling.reads[-1].last
        assert polling.source.snapshot() == {"over": True}


def test_an_unreachable_server_is_waited_for_and_then_named() -> None:
    port = free_port()
    polling = Polling(SocketSource("127.0.0.1", port, Item, away="30s"))
    assert isinstance(polling.source.poll(0), Wait)
    time.sleep(0.3)
    server = LineServer(says(line(1)), port)
    polling.until(lambda: polling.ids == [1])
    server.close()
    gone = Polling(SocketSource("127.0.0.1", free_port(), Item, away="300ms"))
    named = r"the server 127\.0\.0\.1:\d+ has taken no connection for 0\.3 s .*: start it, correct host and port"
    with pytest.raises(SourceError, match=named):
        gone.until(lambda: False)


def test_a_server_faster_than_the_task_is_slowed_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """It sends 60 MB: the buffers of the operating system may take 32 and more."""
    total = 6_000
    monkeypatch.setattr(line_feed, "BUFFERED_BYTES", 1 << 18)
    sent = 0

    def talk(connection: socket.socket, number: int) -> None:
        nonlocal sent
        for at in range(0, total, 10):
            connection.sendall(b"".join(line(id_)[:-1].ljust(10_000) + b"\n" for id_ in range(at, at + 10)))
            sent = at + 10
        time.sleep(WAIT_S_MAX)

    with serving(talk) as server:
        polling = Polling(SocketSource("127.0.0.1", server.port, Item))
        polling.until(lambda: len(polling.reads) == 1)
        time.sleep(0.5)
        assert sent < total
        polling.until(lambda: sum(read.event_count for read in polling.reads) == total)
        assert polling.ids == list(range(total))


def test_malformed_lines_fail_are_skipped_or_caught() -> None:
    sent = line(1) + b"junk\n" + line(3) + b'{"id": "x"}\n'
    with serving(says(sent)) as server, serving(says(sent)) as other, serving(says(sent)) as third:
        caught = Polling(SocketSource("127.0.0.1", server.port, Item).catch())
        caught.until(lambda: len(caught.rows(1)) == 2)
        assert caught.ids == [1, 3]
        letters = [SocketDeadLetter(**row) for row in caught.rows(1)]
        assert [(letter.line, letter.value) for letter in letters] == [(2, b"junk"), (4, b'{"id": "x"}')]
        assert letters[0].server == f"127.0.0.1:{server.port}"
        skipping = Polling(SocketSource("127.0.0.1", other.port, Item, on_error="skip"))
        skipping.until(lambda: skipping.counted("rows_skipped") == 2)
        assert skipping.ids == [1, 3]
        with pytest.raises(SourceError, match=r"line 2 since the job began: malformed record: .*on_error='skip'"):
            Polling(SocketSource("127.0.0.1", third.port, Item)).until(lambda: False)


def test_one_task_reads_and_the_others_end_at_once() -> None:
    polling = Polling(SocketSource("127.0.0.1", free_port(), Item), index=1)
    assert isinstance(polling.source.poll(0), End)


def test_a_check_of_the_job_does_not_read_the_socket() -> None:
    with serving(says(line(1))) as server:
        job = Job("checked")
        job.source(SocketSource("127.0.0.1", server.port, Item)).sink(MemorySink())
        (node,) = [node for node in job.graph().nodes if node.verb == "source"]
        assert sampled(node, 5).made_up
        assert server.connections == 0


def test_impossible_settings_of_a_socket_source_are_refused() -> None:
    with pytest.raises(GraphError, match="json needs schema="):
        SocketSource("h", 1)
    with pytest.raises(GraphError, match="text has the one column 'line'"):
        SocketSource("h", 1, pa.schema([("a", pa.int64())]), "text")
    with pytest.raises(GraphError, match="0 is not a port"):
        SocketSource("h", 0, Item)
    with pytest.raises(GraphError, match="'80' is not a port"):
        SocketSource("h", "80", Item)  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="unknown format 'xml'"):
        SocketSource("h", 1, Item, "xml")  # type: ignore[arg-type]


def visible(out: Path) -> list[int]:
    return [row["id"] for row in visible_rows(out)]


def test_a_job_reads_no_line_twice_although_its_tasks_are_killed(tmp_path: Path) -> None:
    """All lines before the kill of the reading task are read again from the log; those in flight are lost, and they are
    neighbours."""
    out = tmp_path / "out"
    with serving(Counting(2_000)) as server:
        job = Job("lines", checkpoint_interval="200ms")
        items = job.source(SocketSource("127.0.0.1", server.port, Item)).named("lines").parallelism(1)
        items.rebalance().filter(col("id") >= 0).sink(FileSink(str(out), delivery="causal")).named("out")
        kills = ["lines[0]@1s", "out[1]@1500ms"]
        run = job.start(runtime="local", parallelism=2, kills=kills, checkpoints=str(tmp_path / "checkpoints"))
        wait_until(lambda: 1_999 in visible(out))
        time.sleep(0.3)
        run.stop()
        found = sorted(visible(out))
        assert server.connections == 2
    assert len(set(found)) == len(found)
    lost = sorted(set(range(2_000)) - set(found))
    assert not lost or lost == list(range(lost[0], lost[-1] + 1)), "lines in flight on one connection"
    assert len(lost) < 500
    with serving(Counting(2_100, begin=2_000)) as server:
        job = Job("lines", checkpoint_interval="200ms")
        items = job.source(SocketSource("127.0.0.1", server.port, Item)).named("lines").parallelism(1)
        items.rebalance().filter(col("id") >= 0).sink(FileSink(str(out), delivery="causal")).named("out")
        run = job.start(runtime="local", parallelism=2, checkpoints=str(tmp_path / "checkpoints"))
        wait_until(lambda: 2_099 in visible(out))
        run.stop()
    assert sorted(visible(out)) == [*found, *range(2_000, 2_100)]


def test_a_job_ends_with_its_closed_connection() -> None:
    with serving(lambda connection, number: connection.sendall(b"".join(map(line, range(5_000))))) as server:
        job = Job("bounded")
        found = MemorySink()
        job.source(SocketSource("127.0.0.1", server.port, Item, reconnect=False)).rebalance().sink(found)
        job.run(runtime="local", parallelism=2)
        assert sorted(row.id for row in found.rows(Item)) == list(range(5_000))
        assert server.connections == 1
