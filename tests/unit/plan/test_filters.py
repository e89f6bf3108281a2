"""Where a filter is moved to, and where it stays."""

from __future__ import annotations

from clonos_py import Job, as_of, col, count, tumbling
from clonos_py.plan.physical import plan
from tests.unit.dsl.connectors import Bid, Nowhere, Rows, bids
from tests.unit.plan.shapes import joined, shape


def test_a_filter_after_a_join_moves_to_the_sides_it_reads() -> None:
    job = Job("sides")
    condition = (col("city") == "Oslo") & (col("note") == "x") & (col("name") != col("note"))
    joined(job).filter(condition).select("name", "auction").sink(Nowhere())
    assert shape(plan(job)) == [
        "people x1: people, filter.1, join.columns",
        "source-rows x1: source-rows, filter.2, select",
        "join x1: join, filter, select-2, sink-nowhere",
        "people -> join hash(id): id, name",
        "source-rows -> join side 1 hash(bidder): auction, bidder, note",
    ]


def test_a_filter_on_versions_stays_after_their_join() -> None:
    """If the filter left a version out, an earlier one would count."""
    job = Job("versions")
    versions = job.source(Rows(Bid), event_time="at").named("more").select("auction", since="at", then="bidder")
    held = bids(job).join(versions, on="auction", within=as_of())
    held.filter((col("then") > 5) & (col("bidder") > 5)).sink(Nowhere())
    by_name = {operator.name: vertex.name for vertex in plan(job).vertices for operator in vertex.operators}
    assert (by_name["filter"], by_name["filter.1"]) == ("join", "source-rows")


def test_a_filter_that_may_fail_stays_after_a_join() -> None:
    job = Job("fallible")
    joined(job).filter(col("auction") // col("bidder") > 1).sink(Nowhere())
    by_name = {operator.name: vertex.name for vertex in plan(job).vertices for operator in vertex.operators}
    assert by_name["filter"] == "join"


def test_a_filter_on_the_key_moves_before_a_window() -> None:
    job = Job("keys")
    windows = bids(job).key_by("auction").window(tumbling("1s")).aggregate(n=count())
    windows.filter((col("auction") > 5) & (col("n") > 1)).sink(Nowhere())
    planned = plan(job)
    assert [operator.name for operator in planned.vertices[0].operators] == [
        "filter.1",
        "aggregate.late",
        "aggregate.combine",
    ]
    assert [operator.name for operator in planned.vertices[1].operators] == ["aggregate", "filter", "sink-nowhere"]
    assert "filter 'filter' moved before 'aggregate'" in planned.notes


def test_a_filter_moves_through_unions_projections_and_rebalances() -> None:
    job = Job("through")
    first, second = bids(job), job.source(Rows(Bid)).named("more")
    united = first.union(second).rebalance().select("auction", cost="price")
    united.filter(col("cost") > 5).sink(Nowhere())
    assert shape(plan(job, parallelism=2)) == [
        "source-rows x2: source-rows, filter.1",
        "more x2: more, filter.2",
        "sink-nowhere x2: select, sink-nowhere",
        "source-rows -> sink-nowhere rebalance: auction, price",
        "more -> sink-nowhere rebalance: auction, price",
    ]


def test_a_filter_is_not_moved_past_a_stream_with_another_reader() -> None:
    job = Job("shared")
    spread = bids(job).rebalance()
    spread.filter(col("auction") > 5).sink(Nowhere("some"))
    spread.sink(Nowhere("all"))
    assert plan(job).vertices[0].operators == ()
