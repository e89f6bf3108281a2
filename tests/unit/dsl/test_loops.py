"""Loops: which can be written, and the errors of those that cannot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from clonos_py import GraphError, Job, Stream, between, col, count, forever, tumbling
from clonos_py.plan.logical import LoopHead
from tests.unit.dsl.connectors import Nowhere, bids

Rows = Stream[Any]


def more(rows: Rows) -> Rows:
    return rows.with_columns(auction=col("auction") - 1)


def test_the_second_result_of_the_step_is_the_output_of_the_loop() -> None:
    job = Job("loop")
    rows = bids(job)
    seen: list[Rows] = []

    def step(given: Rows) -> tuple[Rows, str]:
        seen.append(given)
        return more(given), "anything"

    assert rows.iterate(step) == "anything"
    assert seen[0].schema == rows.schema
    assert seen[0].record is rows.record


def test_the_head_of_a_loop_names_its_tail_and_has_one_input() -> None:
    job = Job("loop")
    bids(job).iterate(lambda rows: (more(rows).named("again"), rows)).sink(Nowhere())
    graph = job.graph()
    head = next(node for node in graph.nodes if isinstance(node.work, LoopHead))
    assert head.tail is not None
    assert graph.by_id[head.tail.node].name == "again"
    assert [graph.by_id[port.node].verb for port in head.inputs] == ["source"]
    assert (head, 1) in graph.consumers()[head.tail]


def test_loops_may_follow_each_other() -> None:
    job = Job("two")
    bids(job).iterate(lambda rows: (more(rows), rows)).iterate(lambda rows: (more(rows), rows)).sink(Nowhere())
    assert sum(isinstance(node.work, LoopHead) for node in job.graph().nodes) == 2


def test_a_loop_without_a_sink_behind_it_is_left_out() -> None:
    job = Job("idle")
    rows = bids(job)
    rows.iterate(lambda given: (more(given), given))
    rows.sink(Nowhere())
    assert [node.verb for node in job.graph().without_dead_ends().nodes] == ["source", "sink"]


def crossing(rows: Rows) -> tuple[Rows, Rows]:
    inner = more(rows).iterate(lambda given: (more(given), given))
    return inner, inner


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (lambda rows: rows, "it must return the stream that goes back and the output of the loop"),
        (lambda rows: (1, rows), "it must return the stream that goes back"),
        (
            lambda rows: (rows.select("auction"), rows),
            r"rows that return to the loop have other columns than those that enter it: one has .*select\(\)",
        ),
        (
            lambda rows: (rows.with_columns(auction=col("auction") * 1.5), rows),
            "column 'auction' is int64 in one, double in the other",
        ),
        (lambda rows: (bids(), rows), "the other stream belongs to job 'test'"),
        (crossing, "this loop is inside the loop at .*test_loops.py.*rows may go round one loop at a time"),
        (
            lambda rows: (rows, rows.window(tumbling("1s")).aggregate(n=count())),
            "this stream comes out of the loop at .*test_loops.py.*write what needs event time before it",
        ),
        (
            lambda rows: (rows, rows.join(rows.select("auction"), on="auction", within=between("-1s", "1s"))),
            "the left stream comes out of the loop",
        ),
        (
            lambda rows: (rows.key_by("auction", "bidder", "price", "at", "note").aggregate(n=count()).at_end(), rows),
            "rows that return to the loop have other columns",
        ),
        (
            lambda rows: (rows.key_by("bidder").top(1, by="at").at_end(), rows),
            "the top at .*test_loops.py.* is in the loop and gives rows when its input ends",
        ),
    ],
)
def test_an_impossible_loop_is_refused(step: Callable[[Rows], Any], message: str) -> None:
    job = Job("loop")
    rows = bids(job)
    with pytest.raises(GraphError, match=message):
        rows.iterate(step)


def test_verbs_that_need_event_time_are_refused_after_a_loop() -> None:
    out = bids(Job("behind")).iterate(lambda rows: (more(rows), rows))
    with pytest.raises(GraphError, match=r"comes out of the loop at .*test_loops.py.*before the loop ends"):
        out.key_by("auction").window(tumbling("1s")).aggregate(n=count())
    out.key_by("auction").window(tumbling("1s", processing_time=True)).aggregate(n=count())
    out.key_by("auction").aggregate(n=count()).at_end()


def test_a_step_that_does_not_use_its_rows_is_no_loop() -> None:
    job = Job("side")
    rows = bids(job)
    with pytest.raises(GraphError, match="does not depend on the stream that it takes, so this is not a loop"):
        rows.iterate(lambda given: (more(rows), given))
    rows.iterate(lambda given: (more(given.union(more(rows))), given))
    others = rows.select(auction=col("auction"), other=col("bidder"))
    rows.iterate(lambda given: (given.join(others, on="auction", within=forever(), into=rows.record), given))


def test_an_error_in_a_loop_names_the_line_of_iterate() -> None:
    with pytest.raises(GraphError, match=r"test_loops.py:\d+: iterate: rows that return to the loop"):
        bids().iterate(lambda rows: (rows.select("at"), rows))
