"""Which joins make only the first of their pairs."""

from __future__ import annotations

from typing import Any

from clonos_py import Job, col
from clonos_py.plan.physical import plan
from clonos_py.plan.rewrite import rewritten
from tests.unit.dsl.connectors import Nowhere
from tests.unit.plan.shapes import joined

NOTE = "'join' makes only pairs that may be among the first of 'top'"


def notes(job: Job) -> tuple[str, ...]:
    return plan(job).notes


def top(pairs: Any) -> None:
    pairs.key_by("id").top(1, by=[col("auction").desc(), "note"]).at_end().sink(Nowhere())


def test_a_join_that_only_a_top_n_reads_makes_only_its_first_pairs() -> None:
    job = Job("told")
    top(joined(job))
    assert NOTE in notes(job)
    (join,) = [node.work for node in rewritten(job.graph()).nodes if node.verb == "join"]
    assert join.first.keys == ("id",)  # type: ignore[union-attr]


def test_a_join_with_another_reader_makes_all_pairs() -> None:
    job = Job("shared")
    pairs = joined(job)
    top(pairs)
    pairs.sink(Nowhere("all"))
    assert NOTE not in notes(job)


def test_a_join_whose_rows_are_changed_before_the_top_n_makes_all_pairs() -> None:
    job = Job("between")
    top(joined(job).map_batches(lambda rows: rows, joined(Job("shape")).schema))
    assert NOTE not in notes(job)
