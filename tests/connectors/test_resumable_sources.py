"""Sources that go on behind a cursor: server-sent events, and a function that is called again and again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py import GraphError, Job, col
from clonos_py.connectors import EventStreamSource, FileSink, MemorySink, PolledSource, Secret
from clonos_py.connectors.event_stream_source import EventParser, ServerEvent
from clonos_py.model.errors import SourceError
from clonos_py.settings.definitions import Runtime
from clonos_py.testing import check_source
from tests.connectors.resumable import Row, contents, numbers, opened, read_all, read_until, rows
from tests.event_server import event_server
from tests.visible_rows import visible_rows
from tests.waiting import wait_until

# ---- server-sent events


def test_the_source_of_events_keeps_the_contract() -> None:
    with event_server(contents(*range(1, 8)), each=3) as server:
        check_source(EventStreamSource(server.url, Row), rows(*range(1, 8)))


def test_a_connection_that_ends_is_opened_again_behind_the_last_event() -> None:
    with event_server(contents(*range(1, 8)), each=3) as server:
        assert read_all(EventStreamSource(server.url, Row)) == [1, 2, 3, 4, 5, 6, 7]
        assert server.asked == [None, "3", "6", "7"]


def test_a_run_goes_on_behind_the_event_of_its_checkpoint() -> None:
    """A replacement, too, behind the last read that the log has."""
    with event_server(contents(*range(1, 8))) as server:
        reader = opened(EventStreamSource(server.url, Row))
        reader.limit(3)
        (first,) = read_until(reader, bool)
        assert first.note == str(len(numbers([first])))
        saved = reader.snapshot()
        reader.close()
        assert read_all(EventStreamSource(server.url, Row), saved["cursor"]) == list(range(1 + int(first.note), 8))
        replacement = opened(EventStreamSource(server.url, Row))
        replacement.passed(first)
        replacement.seek({0: first.stop})
        lost = replacement.reread(0, first.stop, first.stop + 2)
        assert (numbers([lost]), lost.note) == ([], first.note), "they are received again"
        rest = read_until(replacement, lambda _: False)
        assert numbers(rest) == list(range(1 + int(first.note), 8))
        replacement.close()


def test_a_failure_of_the_server_that_passes_is_waited_for() -> None:
    with event_server(contents(1, 2), statuses=[503, 429]) as server:
        assert read_all(EventStreamSource(server.url, Row)) == [1, 2]


def test_a_server_that_refuses_or_is_away_for_too_long_ends_the_job() -> None:
    with event_server([], statuses=[401]) as server, pytest.raises(SourceError, match="it answered 401"):
        read_all(EventStreamSource(server.url, Row))
    with event_server([], statuses=[500] * 9) as server, pytest.raises(SourceError, match=r"500; it was tried again"):
        read_all(EventStreamSource(server.url, Row, away="0s"))
    with pytest.raises(SourceError, match=r"http://127.0.0.1:1/: ConnectError.*it was tried again for 0 s"):
        read_all(EventStreamSource("http://127.0.0.1:1/", Row, away="0s"))


def test_a_malformed_event_is_named_or_a_dead_letter() -> None:
    with event_server([*contents(1), '{"number": "x"}', *contents(3)]) as server:
        with pytest.raises(SourceError, match="event '2': malformed event"):
            read_all(EventStreamSource(server.url, Row))
        assert read_all(EventStreamSource(server.url, Row, on_error="skip")) == [1, 3]
        reader = opened(EventStreamSource(server.url, Row).catch())
        reads = read_until(reader, lambda _: False)
        letters = [letter for read in reads if read.rows[1] is not None for letter in read.rows[1].to_pylist()]
        assert [(letter["id"], letter["value"]) for letter in letters] == [("2", b'{"number": "x"}')]
        reader.close()


def test_a_job_reads_each_event_once_although_its_tasks_are_killed(tmp_path: Path) -> None:
    """Those that were in flight come again, as the server keeps them."""
    out, count = tmp_path / "out", 1_500
    with event_server(contents(*range(count)), each=5, over=False) as server:
        job = Job("events", checkpoint_interval="200ms")
        found = job.source(EventStreamSource(server.url, Row)).named("events").parallelism(1)
        found.rebalance().filter(col("number") >= 0).sink(FileSink(str(out), delivery="causal")).named("out")
        kills = ["events[0]@300ms", "out[1]@600ms", "events[0]@900ms"]
        run = job.start(runtime="local", parallelism=2, kills=kills, checkpoints=str(tmp_path / "checkpoints"))
        wait_until(lambda: len(visible_rows(out)) >= count and run.running)
        run.stop()
    assert sorted(row["number"] for row in visible_rows(out)) == list(range(count))


@given(
    st.lists(st.tuples(st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0")), st.integers(1, 3))),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.integers(1, 9),
)
def test_events_are_cut_out_wherever_the_pieces_are(given: list[tuple[str, int]], end: str, size: int) -> None:
    text = f"\ufeff: comment{end}"
    for number, (line, count) in enumerate(given):
        text += f"event: k{end}" + f"data: {line}{end}" * count + f"id:{number}{end}unknown{end}{end}"
    whole = (text + ":end" + end).encode()
    pieces = [whole[start : start + size] for start in range(0, len(whole), size)]
    expected = [
        ServerEvent("k", "\n".join([line] * count).encode(), str(number)) for number, (line, count) in enumerate(given)
    ]
    assert list(EventParser(None).events(pieces)) == expected


# ---- a function


DATA = list(range(1, 21))


def page(cursor: int | None) -> tuple[list[Row], int] | None:
    """Pages of three rows of an API that keeps them."""
    start = cursor or 0
    return None if start == len(DATA) else (rows(*DATA[start : start + 3]), min(start + 3, len(DATA)))


def test_the_polled_source_keeps_the_contract() -> None:
    check_source(PolledSource(page, Row), rows(*DATA))


def test_a_poll_goes_on_behind_the_cursor_of_its_checkpoint() -> None:
    assert read_all(PolledSource(page, Row), 15) == [16, 17, 18, 19, 20]
    assert read_all(PolledSource(page, Row, start=18)) == [19, 20]


def test_a_poll_without_rows_is_repeated_and_one_that_fails_is_tried_again() -> None:
    answers: list[Any] = [([], 0), OSError("away"), (rows(1), 1), httpx.ConnectError("away"), ([], 5), (rows(2), 6)]
    asked: list[Any] = []

    def fetch(cursor: Any) -> Any:
        asked.append(cursor)
        answer = answers.pop(0) if answers else None
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert read_all(PolledSource(fetch, Row, start=0, every="1ms")) == [1, 2]
    assert asked == [0, 0, 0, 1, 1, 5, 6]


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (ValueError("mine"), r"PolledSource of fetch: fetch raised ValueError: mine; at .*test_resumable_sources.py"),
        (OSError("away"), r"PolledSource of fetch: OSError: away; it was tried again for 0 s \(away=\)"),
        (([{"number": "x", "text": None}], 1), "field 'number' is 'x'"),
        (5, "fetch raised TypeError"),
    ],
)
def test_a_poll_that_fails_ends_the_job(answer: Any, complaint: str) -> None:
    def fetch(cursor: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    with pytest.raises(SourceError, match=complaint):
        read_all(PolledSource(fetch, Row, away="0s"))


def api_rows(url: str) -> Job:
    def page(cursor: int | None) -> tuple[list[Row], int] | None:
        answer = httpx.get(url, headers={"Last-Event-ID": str(cursor or 0)}).raise_for_status()
        found = [json.loads(line.removeprefix("data: ")) for line in answer.text.splitlines() if "data: " in line]
        return ([Row(**row) for row in found], (cursor or 0) + len(found)) if found else None

    job = Job("api", checkpoint_interval="1s")
    job.source(PolledSource(page, Row, every="10s")).sink(MemorySink("polled"))
    return job


def test_a_job_reads_pages_of_a_server() -> None:
    with event_server(contents(*range(1, 8)), each=3) as server:
        job = api_rows(server.url)
        job.run(runtime=Runtime.LOCAL)
        sink: Any = next(iter(job.sinks.values()))
        assert sorted(row.number for row in sink.rows(Row)) == list(range(1, 8))


def test_a_definition_that_cannot_work_is_refused_where_it_is_written() -> None:
    with pytest.raises(GraphError, match="is no address"):
        EventStreamSource("there", Row)
    with pytest.raises(GraphError, match="token would be plain text"):
        EventStreamSource("http://there", Row, token="word")  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="is no function of a cursor"):
        PolledSource("http://there", Row)  # type: ignore[arg-type]


def test_a_token_is_read_where_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORD", "open sesame")
    seen: list[str] = []
    original = httpx.Client.stream

    def stream(self: httpx.Client, method: str, url: str, headers: dict[str, str]) -> Any:
        seen.append(headers["Authorization"])
        return original(self, method, url, headers=headers)

    monkeypatch.setattr(httpx.Client, "stream", stream)
    with event_server(contents(1)) as server:
        assert read_all(EventStreamSource(server.url, Row, token=Secret(env="WORD"))) == [1]
    assert set(seen) == {"Bearer open sesame"}
