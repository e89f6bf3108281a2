"""Asynchronous functions on real actors: a task dies by SIGKILL while many of its requests are pending."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray

from clonos_py import AsyncContext, Job
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

    def answer(self) -> int:
        number = super().answer()
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
    """Kills both tasks of the function, one after the other, each some while after a checkpoint and amid requests."""

    def __init__(self, pending: set[int]) -> None:
        self.events: list[Event] = []
        self.pending_then: list[int] = []
        self._pending = pending
        self._left = ["enrich[0]", "enrich[1]"]

    def __call__(self, at_us: int, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, CheckpointCompleted) and self._left:
            threading.Timer(0.6, self._kill, [self._left.pop(0)]).start()

    def _kill(self, task: str) -> None:
        places: list[ProcessPlace] = ray.get(ray.get_actor(NAME, namespace="clonos").processes.remote())
        pid = next(place.pid for place in places if str(place.task) == task and place.active)
        wait_until(lambda: len(self._pending) >= PENDING, every_s=0.005)
        self.pending_then.append(len(self._pending))
        os.kill(pid, signal.SIGKILL)


@pytest.mark.thorough
def test_both_witnesses_have_the_same_answers_to_requests_pending_at_a_kill(
    cluster: Cluster, slow: tuple[str, type[_Slow]], tmp_path: Path
) -> None:
    server, handler = slow
    killer = Killer(handler.pending)
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
