"""A join that waits for its table names the sources that have to end, or to be idle."""

from __future__ import annotations

from typing import Any

import pytest

from clonos_py import Job, count
from clonos_py.plan.physical import plan
from tests.unit.dsl.connectors import Bid, Nowhere, Rows


@pytest.mark.parametrize(
    ("of_table", "load_first", "noted"),
    [
        ({}, True, True),
        ({"event_time": "at"}, True, True),
        ({"event_time": "at", "idle": "5s"}, True, False),
        ({"idle": "5s"}, True, False),
        ({}, False, False),
    ],
)
def test_a_source_that_has_to_end_is_named(of_table: dict[str, Any], load_first: bool, noted: bool) -> None:
    job = Job("loading")
    table = job.source(Rows(Bid), **of_table).named("limits").key_by("auction").aggregate(n=count()).named("counts")
    bids = job.source(Rows(Bid)).named("bids")
    bids.join(table, on="auction", load_first=load_first).named("joined").sink(Nowhere())
    note = "joined holds rows back until limits has ended: a source that does not end needs an idle='5s'"
    assert (note in plan(job).notes) == noted


def test_an_idle_time_may_come_with_the_event_time() -> None:
    job = Job("loading")
    limits = job.source(Rows(Bid)).named("limits").with_event_time("at", idle="5s")
    table = limits.key_by("auction").aggregate(n=count()).named("counts")
    bids = job.source(Rows(Bid)).named("bids")
    bids.join(table, on="auction", load_first=True).named("joined").sink(Nowhere())
    assert not [note for note in plan(job).notes if "holds rows back" in note]
