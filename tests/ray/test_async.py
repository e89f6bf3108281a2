"""Asynchronous functions on real actors: a task dies by SIGKILL while many of its requests are pending."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import ray

from clonos_py import AsyncContext, Job, Record, col
from clonos_py.bench.witnesses import AnswerServer, Enriched, Number, PacedNumbers, Rank, answer_server
from clonos_py.connectors import FileSink, read_results
from clonos_py.model.coordinator_events import CheckpointCompleted, RolledBack, StandbyActivated
from clonos_py.observe.events import Event, TaskFailed
from clonos_py.runtime.launch import run_job
from clonos_py.runtime.ray.actors import ProcessPlace
from clonos_py.runtime.ray.cluster import Cluster
from clonos_py.services.http import IDEMPOTENCY_KEY
from clonos_py.settings.resolution import resolve
from tests.waiting import wait_until

pytestmark = pytest.mark.ray

TOTAL, RATE = 2_000, 100.0
NAME = "async-witnesses"
PENDING = 5
"""Requests that nobody has answered yet when a task dies: as many at least."""


class _Slow(AnswerServer):
    """Answers after a while."""

    pending: set[int]
    keys: dict[str, set[str]]
    requests = 0

    def answer(self) -> int:
        number = super().answer()
        type(self).requests += 1
        self.keys.setdefault(self.path, set()).add(str(self.headers[IDEMPOTENCY_KEY]))
        self.pending.add(number)
        time.sleep(random.uniform(0.05, 0.25))
        self.pending.discard(number)
        return number


@pytest.fixture
def slow() -> Iterator[tuple[str, type[_Slow]]]:
    handler = type("Handler", (_Slow,), {"pending": set(), "keys": {}})
    with answer_server(handler) as server:
        yield server, handler


def witnesses(server: str, folder: str) -> Job:
    async def enrich(number: Number, ctx: AsyncContext) -> Enriched:
        answer = int((await ctx.http.get(f"{server}/{number.id}", timeout="5s", retries=3)).text)
        return Enriched.extend(number, random=ctx.random.random(), time=ctx.time.now(), answer=answer)

    job = Job(NAME)
    numbers = job.source(PacedNumbers(TOTAL, RATE)).named("numbers")
    enriched = numbers.rebalance().map(enrich, concurrency=40, ordered=False, timeout="20s").named("enrich")
    enriched.rebalance().sink(FileSink(f"{folder}/left", format="jsonl")).named("left")
    enriched.key_by("key").process(Rank).named("rank").sink(FileSink(f"{folder}/right", format="jsonl")).named("right")
    return job


class Killer:
    """Kills tasks of a job, one after the other, each some while after a checkpoint and amid requests."""

    def __init__(self, job: str, pending: set[int], tasks: Sequence[str]) -> None:
        self.events: list[Event] = []
        self.pending_then: list[int] = []
        self._job, self._pending, self._left = job, pending, list(tasks)

    def __call__(self, at_us: int, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, CheckpointCompleted) and self._left:
            threading.Timer(0.6, self._kill, [self._left.pop(0)]).start()

    def _kill(self, task: str) -> None:
        places: list[ProcessPlace] = ray.get(ray.get_actor(self._job, namespace="clonos").processes.remote())
        pid = next(place.pid for place in places if str(place.task) == task and place.active)
        wait_until(lambda: len(self._pending) >= PENDING, every_s=0.005)
        self.pending_then.append(len(self._pending))
        os.kill(pid, signal.SIGKILL)


@pytest.mark.thorough
def test_both_witnesses_have_the_same_answers_to_requests_pending_at_a_kill(
    cluster: Cluster, slow: tuple[str, type[_Slow]], tmp_path: Path
) -> None:
    server, handler = slow
    killer = Killer(NAME, handler.pending, ["enrich[0]", "enrich[1]"])
    settings = resolve(command_line={"checkpoint_interval": "1s", "parallelism": 2})
    run_job(witnesses(server, str(tmp_path)), settings, killer)

    assert [event for event in killer.events if isinstance(event, RolledBack)] == []
    failed = Counter(str(event.task) for event in killer.events if isinstance(event, TaskFailed))
    assert {"enrich[0]", "enrich[1]"} <= set(failed)  # others may share a process with them, or move apart
    assert failed == Counter(str(event.task) for event in killer.events if isinstance(event, StandbyActivated))
    assert len(killer.pending_then) == 2
    assert min(killer.pending_then) >= PENDING, f"too few requests were pending: {killer.pending_then}"

    left = {row["id"]: row for row in read_results(str(tmp_path / "left"))}
    right = list(read_results(str(tmp_path / "right")))
    assert len(list(read_results(str(tmp_path / "left")))) == len(right) == TOTAL
    assert sorted(row["id"] for row in right) == sorted(left) == list(range(TOTAL))
    assert [row["id"] for row in right if left[row["id"]] != {k: v for k, v in row.items() if k != "rank"}] == []
    assert max(len(keys) for keys in handler.keys.values()) == 1, "a request was made again under another key"


LOOKUPS = "lookup-witnesses"
LOOKED_UP, BLOCK, QUESTIONS_OF_BLOCK = 500, 100, 40
"""New questions come as long as the job lasts, and each is repeated a moment later."""
QUESTIONS = LOOKED_UP // BLOCK * QUESTIONS_OF_BLOCK
CONCURRENCY = 5
UNLOGGED_MAX = 2 * CONCURRENCY
"""Open questions of a task, and as many whose answer has not left with a frame yet."""


class Price(Record):
    answer: int


def lookups(server: str, folder: str) -> Job:
    async def price(question: int, ctx: AsyncContext) -> Price:
        return Price(int((await ctx.http.get(f"{server}/{question}", timeout="5s", retries=3)).text))

    job = Job(LOOKUPS)
    question = col("id") // BLOCK * QUESTIONS_OF_BLOCK + col("id") % QUESTIONS_OF_BLOCK
    numbers = job.source(PacedNumbers(LOOKED_UP, 100.0)).named("numbers").with_columns(question=question)
    priced = numbers.lookup(price, "question", cache="1h", concurrency=CONCURRENCY, ordered=False).named("lookup")
    priced.rebalance().sink(FileSink(f"{folder}/left", format="jsonl")).named("left")
    priced.sink(FileSink(f"{folder}/right", format="jsonl")).named("right")
    return job


@pytest.mark.thorough
def test_a_killed_lookup_asks_again_only_what_had_no_logged_answer(
    cluster: Cluster, slow: tuple[str, type[_Slow]], tmp_path: Path
) -> None:
    server, handler = slow
    killer = Killer(LOOKUPS, handler.pending, ["lookup[0]"])
    settings = resolve(command_line={"checkpoint_interval": "1s", "parallelism": 2})
    run_job(lookups(server, str(tmp_path)), settings, killer)

    assert [event for event in killer.events if isinstance(event, RolledBack)] == []
    assert [event.task for event in killer.events if isinstance(event, TaskFailed)]
    assert len(handler.keys) == QUESTIONS
    assert QUESTIONS <= handler.requests <= QUESTIONS + UNLOGGED_MAX, "answered questions were asked again"

    left, right = (list(read_results(str(tmp_path / name))) for name in ("left", "right"))
    assert sorted(row["id"] for row in left) == list(range(LOOKED_UP))
    assert sorted(map(str, left)) == sorted(map(str, right))
    assert len({(row["question"], row["answer"]) for row in left}) == QUESTIONS
    assert max(len(keys) for keys in handler.keys.values()) == 1, "a request was made again under another key"
