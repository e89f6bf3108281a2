"""Rows that are posted to a server: each counts once there, in order, whatever fails."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from clonos_py import GraphError, Job, Record
from clonos_py.connectors import CommitId, MemorySource, Secret, WebhookSink, webhook_sink
from clonos_py.connectors.row_committer import RowCommitter
from clonos_py.model.errors import SinkError
from clonos_py.settings.definitions import Runtime
from clonos_py.testing import check_sink
from tests.posted_rows import Posts, posts_taken


class Row(Record):
    number: int
    text: str | None


@pytest.fixture
def posts() -> Iterator[Posts]:
    with posts_taken() as taken:
        yield taken


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The times for which the sink has slept; it does not sleep. Threads of other tests still do."""
    slept: list[float] = []
    clock = SimpleNamespace(sleep=slept.append, monotonic=time.monotonic, time=time.time)
    monkeypatch.setattr(webhook_sink, "time", clock)
    return slept


def table(*numbers: int) -> pa.Table:
    return pa.table({"number": numbers, "text": [f"row {n}" for n in numbers]})


def committer(posts: Posts, **options: Any) -> RowCommitter:
    return WebhookSink(posts.url, **options).open(Row.schema())


def numbers(posts: Posts) -> list[int]:
    return [row["number"] for row in posts.rows]


@pytest.mark.parametrize("batch", [2, pytest.param(None, marks=pytest.mark.thorough)])
def test_the_sink_keeps_the_contract(posts: Posts, batch: int | None) -> None:
    def seen() -> list[dict[str, Any]]:
        return [{name: value for name, value in row.items() if name != "_change"} for row in posts.rows]

    check_sink(WebhookSink(posts.url, batch=batch), seen, row=lambda n: Row(n, None if n % 2 else 'a"\n'), deaths=8)


def test_rows_are_posted_in_order_as_arrays_or_one_by_one(posts: Posts) -> None:
    committer(posts, batch=2).commit(CommitId("job/out/0", 1), table(1, 2, 3))
    assert [len(rows) for rows in posts.by_key.values()] == [2, 1]
    committer(posts, batch=None).commit(CommitId("job/out/0", 2), table(4, 5))
    assert numbers(posts) == [1, 2, 3, 4, 5]


def test_a_repeated_request_has_the_same_key_and_no_other_has(posts: Posts) -> None:
    for owner in ("job/out/0", "job/out/1", "other/öut/0"):
        for checkpoint in (1, 2):
            for _ in range(2):
                committer(posts, batch=1).commit(CommitId(owner, checkpoint), table(1, 2))
    assert len(posts.requests) == 24
    assert len(posts.by_key) == 12
    assert all(len(key) == 32 and key.isalnum() for key in posts.by_key)


def test_a_commit_that_failed_goes_on_behind_the_last_answer(posts: Posts) -> None:
    posts.ordered = [(200, {}), (400, {})]
    writer = committer(posts, batch=1)
    posts.ordered = []
    posts.refused = frozenset({2})
    with pytest.raises(SinkError):
        writer.commit(CommitId("job/out/0", 1), table(1, 2, 3))
    posts.refused = frozenset()
    writer.commit(CommitId("job/out/0", 1), table(1, 2, 3))
    assert numbers(posts) == [1, 2, 3]
    assert len(posts.requests) == 4, "the first row was posted once, the second twice"


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504])
def test_a_failure_that_passes_is_tried_again_after_growing_times(
    posts: Posts, pauses: list[float], status: int
) -> None:
    posts.ordered = [(status, {})] * 4
    committer(posts).commit(CommitId("job/out/0", 1), table(1))
    assert pauses == [0.1, 0.2, 0.4, 0.8]
    assert numbers(posts) == [1]


def test_the_server_says_how_long_to_wait(posts: Posts, pauses: list[float]) -> None:
    later = {"Retry-After": formatdate(time.time() + 100, usegmt=True)}
    posts.ordered = [(429, {"Retry-After": "7"}), (503, later), (503, {"Retry-After": "soon"})]
    committer(posts).commit(CommitId("job/out/0", 1), table(1))
    assert pauses[0] == 7
    assert 1 < pauses[1] <= 100
    assert pauses[2] == 0.4


def test_a_lost_answer_is_asked_for_again(posts: Posts, pauses: list[float]) -> None:
    posts.lost = 2
    committer(posts).commit(CommitId("job/out/0", 1), table(1, 2))
    assert numbers(posts) == [1, 2]
    assert len(posts.requests) == 3


def test_a_server_that_is_away_for_too_long_ends_the_job(posts: Posts) -> None:
    posts.ordered = [(503, {"Retry-After": "60"})]
    with pytest.raises(SinkError, match=r"POST http://.* was answered 503: told; it was tried again for 5 s \(away=\)"):
        committer(posts, away="5s").commit(CommitId("job/out/0", 1), table(1))
    with pytest.raises(SinkError, match=r"ConnectError.*it was tried again for 0 s"):
        WebhookSink("http://127.0.0.1:1/", away="0s").open(Row.schema()).commit(CommitId("o", 1), table(1))


@pytest.mark.parametrize("status", [301, 400, 401, 404, 422])
def test_another_answer_ends_the_job(posts: Posts, status: int) -> None:
    posts.ordered = [(status, {})]
    with pytest.raises(SinkError, match=rf"was answered {status}: told; correct the rows or the request"):
        committer(posts).commit(CommitId("job/out/0", 1), table(1))


def test_refused_requests_are_kept_as_dead_letters(posts: Posts, tmp_path: Path) -> None:
    posts.refused = frozenset({2, 4})
    for _ in range(2):
        writer = committer(posts, batch=None, dead_letters=str(tmp_path / "refused"))
        writer.commit(CommitId("job/out/0", 1), table(1, 2, 3, 4))
    assert numbers(posts) == [1, 3]
    letters = [json.loads(path.read_text()) for path in (tmp_path / "refused").iterdir()]
    assert sorted(letter["rows"]["number"] for letter in letters) == [2, 4]
    assert {letter["status"] for letter in letters} == {422}
    assert {letter["answer"] for letter in letters} == {"told"}


def test_requests_keep_the_rate(posts: Posts, pauses: list[float]) -> None:
    committer(posts, batch=1, rate=10.0).commit(CommitId("job/out/0", 1), table(1, 2, 3))
    assert pauses[0] == 0
    assert pauses[2] == pytest.approx(0.2, abs=0.1)


def test_tokens_and_headers_are_read_where_they_are_used(posts: Posts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORD", "open sesame")
    headers = {"X-Key": Secret(env="WORD"), "X-Plain": "plain"}
    committer(posts, token=Secret(env="WORD"), headers=headers).commit(CommitId("job/out/0", 1), table(1))
    (sent,) = posts.requests
    assert sent["authorization"] == "Bearer open sesame"
    assert (sent["x-key"], sent["x-plain"]) == ("open sesame", "plain")
    assert sent["content-type"] == "application/json"


def test_a_definition_that_cannot_work_is_refused_where_it_is_written() -> None:
    for options, complaint in (
        ({"url": "ftp://there"}, "is no address"),
        ({"url": "http://there", "batch": 0}, "batch=0"),
        ({"url": "http://there", "rate": 0}, "rate=0"),
        ({"url": "http://there", "token": "word"}, "token would be plain text"),
    ):
        with pytest.raises(GraphError, match=complaint):
            WebhookSink(**options)
    with pytest.raises(GraphError, match="cannot hold column 'x'"):
        WebhookSink("http://there").create(pa.schema([("x", pa.binary())]))


def alerts(url: str) -> Job:
    job = Job("alerts", checkpoint_interval="500ms")
    rows = job.source(MemorySource([Row(number, None) for number in range(50)])).named("rows")
    rows.sink(WebhookSink(url, batch=20, token=Secret(env="TOKEN"), rate=50)).named("alerts")
    return job


def test_a_job_posts_its_rows(posts: Posts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "word")
    alerts(posts.url).run(runtime=Runtime.LOCAL)
    assert sorted(numbers(posts)) == list(range(50))
