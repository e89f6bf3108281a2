"""Loops in physical plans: where they begin, which edges are feedback edges, and that no other edge closes a cycle."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest

from clonos_py import Job, Record, Stream, col, forever
from clonos_py.cli.drawing import draw
from clonos_py.model.ids import TaskId
from clonos_py.model.plan import Loop, Partitioning, PhysicalPlan
from clonos_py.plan.physical import plan
from clonos_py.settings.resolution import resolve
from tests.unit.dsl.connectors import Bid, Nowhere, bids

Rows = Stream[Any]


def counted_down(rows: Rows) -> tuple[Rows, Rows]:
    less = rows.with_columns(auction=col("auction") - 1)
    return less.filter(col("auction") > 0), less.filter(col("auction") <= 0).select("auction")


class Pair(Record):
    auction: int
    bidder: int


def planned(parallelism: int = 1, chaining: bool = True) -> PhysicalPlan:
    job = Job("loop")
    bids(job).iterate(counted_down).sink(Nowhere())
    return plan(job, resolve({"parallelism": parallelism, "chaining": chaining}))


def joined() -> PhysicalPlan:
    """Pairs are joined with pairs by key: two vertices, and rows that enter beside the head."""
    job = Job("join")
    pairs = bids(job).select(Pair)
    others = bids(job).named("others").select(auction=col("auction"), other=col("bidder"))

    def step(rows: Stream[Pair]) -> tuple[Stream[Pair], Stream[Pair]]:
        found = rows.join(others, on="auction", within=forever()).select(Pair, bidder=col("other"))
        return found, found.filter(col("bidder") > 1)

    pairs.iterate(step).sink(Nowhere())
    return plan(job, parallelism=2)


def test_a_loop_of_one_vertex_feeds_back_to_itself() -> None:
    made = planned()
    back = next(edge for edge in made.edges if edge.feedback)
    assert back.source == back.target == made.loops[0].head
    assert made.loops == (Loop(back.target, frozenset([back.target])),)
    assert back.partitioning is Partitioning.FORWARD


def test_the_feedback_edge_keeps_all_columns() -> None:
    back = next(edge for edge in planned().edges if edge.feedback)
    assert back.schema.names == Bid.schema().names


def test_without_chains_each_operator_of_the_loop_is_a_member_except_the_filter_at_its_exit() -> None:
    made = planned(chaining=False)
    assert made.loops == (Loop("iterate", frozenset(["iterate", "with_columns", "filter"])),)
    assert [edge.source for edge in made.edges if edge.feedback] == ["filter"]


def test_the_head_begins_a_vertex_and_other_inputs_may_enter_the_loop() -> None:
    made = joined()
    assert made.loops == (Loop("iterate", frozenset(["iterate", "join"])),)
    assert [(edge.source, edge.target) for edge in made.edges if edge.feedback] == [("join", "iterate")]
    assert {edge.source for edge in made.edges if edge.target == "join"} == {"iterate", "others"}


def test_no_task_of_a_loop_is_downstream_of_itself_or_gets_its_own_log() -> None:
    made = joined()
    tasks = [TaskId(name, index) for name in ("iterate", "join") for index in range(2)]
    for task in tasks:
        assert task not in made.hops[task]
        assert not made.shares(task, task)
        assert made.hops[task].keys() >= set(tasks) - {task, *(t for t in tasks if t.vertex == task.vertex)}


def test_the_plan_of_a_job_without_loops_has_none() -> None:
    job = Job("line")
    bids(job).sink(Nowhere())
    assert plan(job).loops == ()


def test_a_union_at_the_tail_has_a_feedback_edge_for_each_branch() -> None:
    job = Job("union")
    rows = bids(job)
    rows.iterate(lambda given: (given.rebalance().union(given.filter(col("auction") > 1)), given)).sink(Nowhere())
    assert sum(edge.feedback for edge in plan(job).edges) == 2


def test_a_filter_at_the_tail_moves_like_others() -> None:
    job = Job("moved")

    def step(rows: Rows) -> tuple[Rows, Rows]:
        again = rows.select("auction", "bidder", "price", "at", "note").filter(col("auction") > 0)
        return again, rows

    bids(job).iterate(step).sink(Nowhere())
    made = plan(job, resolve({"chaining": False}))
    assert [edge.source for edge in made.edges if edge.feedback] == ["select"]
    assert "filter 'filter' moved before 'select'" in made.notes


def test_rows_that_a_function_gets_over_the_feedback_edge_come_in_small_frames() -> None:
    def slow(row: Bid) -> Bid:
        return row

    job = Job("slow")
    bids(job).iterate(lambda rows: (rows.map(slow), rows)).sink(Nowhere())
    assert all(edge.adaptive for edge in plan(job, resolve({"chaining": False})).edges if edge.target != "sink-nowhere")


@pytest.mark.parametrize("format", ["text", "mermaid", "svg"])
def test_a_drawing_shows_the_loop(format: str) -> None:
    drawn = draw(joined(), format)
    shown = {"text": "  => back to iterate: forward", "mermaid": '-. "forward', "svg": "fed back: forward"}
    assert shown[format] in drawn
    if format == "svg":
        ElementTree.fromstring(drawn)
    if format == "text":
        assert "note: loop at 'iterate': rows circulate in iterate, join; it ends when" in drawn
