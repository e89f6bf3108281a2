"""Comparing the answers of queries in all runs: which answers are equal, and which kills prove something."""

from __future__ import annotations

from collections.abc import Sequence

import click
import pytest
from click.testing import CliRunner

from clonos_py.bench import digests
from clonos_py.bench.digests import (
    PARALLELISMS,
    UNPACED,
    DigestCase,
    DigestFinding,
    cases,
    verdict,
    wrong_answers,
    wrong_failures,
)
from clonos_py.bench.oracle import expected
from clonos_py.connectors import BlackholeSink
from clonos_py.evaluation.nexmark.jobs import QUERIES, build
from clonos_py.model.coordinator_events import Replayed, RolledBack
from clonos_py.model.ids import TaskId
from clonos_py.observe.events import Event, Progress, TaskFailed, VertexProgress
from clonos_py.plan.physical import plan
from clonos_py.runtime.run_settings import kills
from clonos_py.settings.definitions import Runtime
from clonos_py.settings.resolution import resolve

JOIN = TaskId("join", 0)
KILLED, CALM = DigestCase("q3", 1, Runtime.LOCAL, killed=True), DigestCase("q3", 1, Runtime.LOCAL)


def with_progress(*events: Event, events_read: int = UNPACED.events) -> Sequence[Event]:
    read = VertexProgress(vertex="source-nexmark", parallelism=1, rows_in=events_read, rows_out=0)
    return *events, Progress(vertices=(read,), in_flight_bytes=0)


def failed(frames_at_stake: int = 0) -> TaskFailed:
    return TaskFailed(task=JOIN, how="killed by --kill", frames_at_stake=frames_at_stake)


@pytest.mark.parametrize(
    "events",
    [
        with_progress(failed(frames_at_stake=1)),
        with_progress(failed(), Replayed(task=JOIN, rows=1)),
        with_progress(failed(), events_read=UNPACED.events + 1),
    ],
    ids=["frames at stake", "rows replayed", "events read twice"],
)
def test_a_kill_that_lost_something_is_right(events: Sequence[Event]) -> None:
    assert wrong_failures(KILLED, events) is None


@pytest.mark.parametrize(
    ("case", "events", "wrong"),
    [
        (KILLED, with_progress(failed()), "the kill had no effect, so the run proves nothing"),
        (KILLED, with_progress(), "failed: [], ordered: ['join[0]']"),
        (KILLED, with_progress(failed(1), failed(1)), "failed: ['join[0]', 'join[0]'], ordered: ['join[0]']"),
        (CALM, with_progress(failed(1)), "failed: ['join[0]'], ordered: []"),
        (KILLED, with_progress(failed(1), RolledBack(checkpoint=1, reason="lost")), "the job rolled back"),
    ],
    ids=["nothing lost", "nobody died", "died twice", "died without an order", "rolled back"],
)
def test_failures_without_an_order_or_a_loss_are_wrong(case: DigestCase, events: Sequence[Event], wrong: str) -> None:
    assert wrong_failures(case, events) == wrong


def test_answers_are_compared_with_those_of_the_oracle() -> None:
    rows = expected("q3", UNPACED)
    assert wrong_answers("q3", rows) is None
    assert "1 missing" in str(wrong_answers("q3", rows[1:]))
    assert str(wrong_answers("q12", [(7, 3)])).startswith("3 bids were counted, there are ")


def test_a_run_is_identical_if_it_is_right_and_has_the_same_digest() -> None:
    first = DigestFinding(3, "aa", None)
    assert verdict(first, first) == "identical"
    assert verdict(DigestFinding(3, "bb", None), first) == "DIFFERENT from the first run, aa"
    assert verdict(DigestFinding(3, "aa", "the job rolled back"), first) == "WRONG: the job rolled back"


@pytest.mark.parametrize("parallelism", PARALLELISMS)
@pytest.mark.parametrize("query", QUERIES)
def test_every_query_has_a_task_to_kill(query: str, parallelism: int) -> None:
    planned = plan(build(query, UNPACED, BlackholeSink()), parallelism=parallelism)
    assert kills(planned, resolve({"kills": [f"{DigestCase(query, parallelism, Runtime.RAY, True).task_to_kill}@1s"]}))


def test_each_query_runs_on_each_driver_at_each_parallelism_with_and_without_a_kill() -> None:
    assert len(set(cases(QUERIES, list(Runtime)))) == 23 * 3 * 2 * 2


@pytest.mark.parametrize(
    "query", ["q2", "q12", *(pytest.param(query, marks=pytest.mark.thorough) for query in ("q6", "q8", "q10", "q19"))]
)
def test_the_command_prints_a_line_for_each_run(query: str) -> None:
    result = CliRunner().invoke(digests.command, [query, "--runtime", "sim"])
    assert (result.exit_code, result.output.count("identical\n")) == (0, 4), result.output
    assert [line.split()[:3] for line in result.output.splitlines()] == [[query, p, "sim"] for p in "1122"]


def test_the_command_fails_if_any_run_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "find", lambda case: DigestFinding(1, str(case.killed), None))
    result = CliRunner().invoke(digests.command, ["q0", "--runtime", "local"])
    assert result.exit_code == 1
    assert result.output.count("DIFFERENT") == 2


def test_an_unknown_query_is_refused() -> None:
    result = CliRunner().invoke(digests.command, ["q23"])
    assert result.exit_code == click.UsageError.exit_code
