"""Queries with no task killed and with a task killed, against Spark: ``clonos nexmark prove`` as one types it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from clonos_py.cli.main import invoke
from clonos_py.evaluation.nexmark import running
from clonos_py.evaluation.nexmark.jobs import QUERIES
from clonos_py.evaluation.nexmark.running import QueryRun
from clonos_py.settings.definitions import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROVE = ("nexmark", "prove", "--runtime", "local", "--event-rate", "150", "--seeds", "7", "--out-of-order-group", "50")


SOME = ("q10",)
"""Files in folders by day and minute. ``test_answers.py`` has Spark's answers to all queries, and
``tests/unit/evaluation/nexmark`` those of the engine, while tasks are killed."""


@pytest.mark.parametrize("queries", [SOME, pytest.param(tuple(QUERIES), marks=pytest.mark.thorough)], ids=len)
def test_queries_have_the_answers_of_spark(
    queries: tuple[str, ...], spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    events = ("--events", "6400", "--rate", "8k", "--checkpoint-interval", "200ms")
    assert invoke([*PROVE, *queries, *events, "--parallelisms", "2"]) == 0
    *runs, sum_ = capsys.readouterr().out.splitlines()
    assert len(runs) == 2 * len(queries)
    assert all("identical" in run and "all 0 rows" not in run for run in runs), runs
    assert sum_ == f"{len(runs)} of {len(runs)} runs are right"


def test_a_run_that_fails_or_has_another_answer_is_reported_and_the_others_go_on(
    spark: SparkSession, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_query(order: QueryRun, settings: Settings) -> dict[str, Any]:
        if order.query == "q2":
            raise OSError("no space left\non the disk")
        return running.run_query(replace(order, query="q1", rate=None), replace(settings, kills=()))

    monkeypatch.setattr("clonos_py.evaluation.spark.proof.run_query", run_query)
    assert invoke([*PROVE, "q2", "q0", "q1", "--events", "2k", "--parallelisms", "1"]) == 1
    printed = [line for line in capsys.readouterr().out.splitlines() if not line.startswith(("first", "  "))]
    assert printed[0].endswith("q2: failed: OSError: no space left on the disk")
    assert "killed q2: failed" in printed[1]
    assert "q0: DIFFERENT" in printed[2]
    assert "q1: identical" in printed[4]
    assert printed[5].endswith("no task could be killed: inconclusive")
    assert printed[6] == "1 of 6 runs are right"
