"""The number of rows in a frame."""

from __future__ import annotations

from clonos_py import Context, Job, Record, UserAggregate, aggregate_by, col, count, tumbling
from clonos_py.plan.physical import plan
from tests.unit.dsl.connectors import Bid, Nowhere, Rows, bids
from tests.unit.plan.shapes import Label, Watch, quick


def slow(row: Bid, ctx: Context) -> Label:
    return Label(str(ctx.time.now()))


def test_rows_for_python_functions_come_in_small_frames() -> None:
    job = Job("frames")
    stream = bids(job).rebalance()
    stream.map(quick).sink(Nowhere("quick"))
    stream.map(slow).sink(Nowhere("slow"))
    stream.filter(col("auction") > 1).sink(Nowhere("columns"))
    assert {edge.target: edge.frame_rows for edge in plan(job).edges} == {
        "sink-quick": 1_024,
        "sink-slow": 64,
        "sink-columns": 65_536,
    }


def test_a_source_before_a_function_reads_few_rows_at_once() -> None:
    job = Job("reads")
    bids(job).filter(col("auction") > 1).map(slow).sink(Nowhere())
    source = plan(job).vertices[0].source
    assert source is not None
    assert source.factory.keywords == {"read_rows": 64}  # type: ignore[attr-defined]


def test_functions_after_a_window_do_not_shrink_its_frames() -> None:
    class Counted(Record):
        auction: int

    def plain(row: Counted) -> Label:
        return Label("x")

    def asking(row: Counted, ctx: Context) -> Label:
        return Label("x")

    job = Job("behind")
    windows = bids(job).key_by("auction").window(tumbling("1s")).aggregate(n=count())
    windows.map(plain).sink(Nowhere("plain"))
    windows.map(asking).sink(Nowhere("asking"))
    planned = plan(job)
    assert [(edge.target, edge.partitioning.value, edge.frame_rows) for edge in planned.edges] == [
        ("aggregate", "hash", 65_536),
        ("sink-asking", "forward", 64),
    ]


def test_folds_and_processes_get_small_frames() -> None:
    fold = UserAggregate(create=int, add=max, merge=max, result=int)
    job = Job("folds")
    stream = bids(job).key_by("auction")
    stream.window(tumbling("1s")).aggregate(n=aggregate_by(fold, "bidder", returns=int)).sink(Nowhere("fold"))
    stream.process(Watch).sink(Nowhere("watch"))
    assert {edge.target: edge.frame_rows for edge in plan(job).edges} == {"aggregate": 1_024, "process": 1_024}


class Quote(Record):
    auction: int
    worth: int


def adaptive(job: Job) -> dict[str, bool]:
    """By operator: whether the frames and reads before it follow the cost of rows."""
    planned = plan(job)
    sources = {v.source.name: v.source.adaptive for v in planned.vertices if v.source is not None}
    return sources | {edge.target: edge.adaptive for edge in planned.edges}


def test_frames_and_reads_follow_the_cost_of_rows_up_to_a_python_function() -> None:
    job = Job("before")
    stream = bids(job).enrich(Rows(Quote), on="auction").parallelism(2).named("enriched")
    stream.sink(Nowhere("plain"))
    assert not any(adaptive(job).values())
    stream.key_by("auction").process(Watch).sink(Nowhere("watch"))
    assert adaptive(job) == {"source-rows": True, "sink-plain": True, "process": True}


def test_frames_into_windows_before_a_function_do_not_follow_its_cost() -> None:
    class Counted(Record):
        auction: int

    def plain(row: Counted) -> Label:
        return Label("x")

    job = Job("gathered")
    windows = bids(job).key_by("auction").window(tumbling("1s")).aggregate(n=count())
    windows.rebalance().map(plain).named("function").sink(Nowhere("plain"))
    assert adaptive(job) == {"source-rows": False, "aggregate": False, "sink-plain": True}
