"""Physical plans: which vertices, which edges, which columns and how many rows travel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from clonos_py import (
    Context,
    GraphError,
    Instant,
    Job,
    Money,
    Process,
    Record,
    SettingError,
    Stream,
    UserAggregate,
    aggregate_by,
    between,
    col,
    count,
    forever,
    session,
    tumbling,
)  # fmt: skip
from clonos_py.bench.nexmark.jobs import build
from clonos_py.bench.nexmark.source import NexmarkSource
from clonos_py.dsl.settings import resolve
from clonos_py.model.plan import PhysicalPlan
from clonos_py.plan.physical import plan
from tests.unit.dsl.connectors import Bid, Nowhere, Rows, bids


def shape(planned: PhysicalPlan) -> list[str]:
    """Vertices with what is chained in them, edges with keys and columns."""
    lines = []
    for vertex in planned.vertices:
        members = [vertex.source.name] if vertex.source else []
        members += [operator.name for operator in vertex.operators]
        lines.append(f"{vertex.name} x{vertex.parallelism}: {', '.join(members)}")
    for edge in planned.edges:
        how = f"{edge.partitioning.value}({', '.join(edge.keys)})" if edge.keys else edge.partitioning.value
        side = f" side {edge.side}" if edge.side else ""
        lines.append(f"{edge.source} -> {edge.target}{side} {how}: {', '.join(edge.schema.names)}")
    return lines


def nexmark(query: str, parallelism: int = 2) -> PhysicalPlan:
    return plan(build(query, NexmarkSource(1_000), Nowhere("out")), parallelism=parallelism)


class Word(Record):
    word: str


class Label(Record):
    label: str


def words(row: Label) -> Iterator[Word]:
    for word in row.label.split():
        yield Word(word)


def test_word_count() -> None:
    job = Job("word-count")
    lines = job.source(Rows(Label))
    lines.flat_map(words).key_by("word").aggregate(n=count()).changes().sink(Nowhere("counts"))
    assert shape(plan(job, parallelism=3)) == [
        "source-rows x3: source-rows, flat_map",
        "aggregate x3: aggregate, sink-counts",
        "source-rows -> aggregate hash(word): word",
    ]


NEXMARK = {
    "q1": ["source-nexmark x2: source-nexmark, select, sink-out"],
    "q3": [
        "source-nexmark x2: source-nexmark, filter, filter-2, select",
        "join x2: join, sink-out",
        "source-nexmark -> join hash(id): id, name, city, state",
        "source-nexmark -> join side 1 hash(seller): seller, auction",
    ],
    "q5": [
        "source-nexmark x2: source-nexmark, counts.combine",
        "counts x2: counts, with_columns, most.combine",
        "most x1: most, with_columns-2",
        "hot x2: hot, sink-out",
        "source-nexmark -> counts hash(auction): auction, _pane, _rows",
        "counts -> most rebalance: _pane, _rows, maxn:max",
        "counts -> hot hash(num): auction, num, _event_time",
        "most -> hot side 1 hash(maxn): maxn, _event_time",
    ],
    "q8": [
        "source-nexmark x2: source-nexmark, sellers.combine",
        "sellers x2: sellers, with_columns",
        "join x2: join, sink-out",
        "source-nexmark -> sellers hash(seller): seller, _pane, _rows",
        "source-nexmark -> join hash(id): id, name, date_time",
        "sellers -> join side 1 hash(seller): seller, _event_time",
    ],
    "q12": [
        "source-nexmark x2: source-nexmark",
        "counts x2: counts, sink-out",
        "source-nexmark -> counts hash(bidder): bidder",
    ],
}


@pytest.mark.parametrize("query", NEXMARK)
def test_nexmark(query: str) -> None:
    assert shape(nexmark(query)) == NEXMARK[query]


def test_a_source_delivers_only_what_somebody_reads() -> None:
    planned = nexmark("q3")
    source = planned.vertices[0].source
    assert source is not None
    assert [schema.names for schema in source.schemas] == [
        ["id", "name", "city", "state"],
        ["id", "seller", "category"],
        [],
    ]
    assert "source-nexmark port 1: 3 of 10 columns read: id, seller, category" in planned.notes


def test_event_time_is_read_only_where_something_depends_on_it() -> None:
    sources = [nexmark(query).vertices[0].source for query in ("q3", "q8")]
    assert [source and source.event_time.columns for source in sources] == [
        (None, None, None),
        ("date_time", "date_time", None),
    ]


def test_counting_rows_keeps_the_narrowest_column() -> None:
    job = Job("count")
    bids(job).window(tumbling("1s", processing_time=True)).aggregate(n=count()).sink(Nowhere())
    planned = plan(job, parallelism=2)
    assert planned.edges[0].schema.names == ["auction"]
    assert planned.by_name["aggregate"].parallelism == 1


def test_columns_that_only_a_filter_reads_do_not_travel() -> None:
    job = Job("narrow")
    bids(job).filter(col("price") > 1).rebalance().select("auction").sink(Nowhere())
    assert shape(plan(job)) == [
        "source-rows x1: source-rows, filter, select.columns",
        "sink-nowhere x1: select, sink-nowhere",
        "source-rows -> sink-nowhere rebalance: auction",
    ]


def test_late_rows_need_all_columns_and_no_early_combining() -> None:
    job = Job("late")
    hot, late = bids(job).key_by("auction").window(tumbling("1s")).aggregate(n=count()).with_late()
    hot.sink(Nowhere("hot"))
    late.sink(Nowhere("late"))
    planned = plan(job)
    assert shape(planned) == [
        "source-rows x1: source-rows",
        "aggregate x1: aggregate, sink-hot, sink-late",
        "source-rows -> aggregate hash(auction): auction, bidder, price, at, note",
    ]


def test_float_sums_are_not_combined_before_the_shuffle() -> None:
    job = Job("floats")
    bids(job).with_columns(f=col("price").cast(float)).key_by("auction").window(tumbling("1s")).aggregate(
        total=col("f").sum()
    ).sink(Nowhere())
    assert plan(job).edges[0].schema.names == ["auction", "at", "f"]


def test_sessions_are_combined_before_the_shuffle() -> None:
    job = Job("sessions")
    bids(job).key_by("bidder").window(session("1s")).aggregate(n=count()).sink(Nowhere())
    assert plan(job).edges[0].schema.names == ["bidder", "_start", "_end", "_rows"]


class Person(Record):
    id: int
    name: str
    city: str


def joined(job: Job) -> Stream[Any]:
    people = job.source(Rows(Person)).named("people")
    return people.join(bids(job).select("auction", "bidder", "note"), on=("id", "bidder"), within=forever())


def test_a_filter_behind_a_join_moves_to_the_sides_it_reads() -> None:
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


def test_a_join_by_distance_in_time_brings_both_times_to_it() -> None:
    job = Job("apart")
    notes = job.source(Rows(Bid), event_time="at").named("notes").select("bidder", "note", time="at")
    pairs = (
        bids(job).select("auction", "at", "price").join(notes, on=("auction", "bidder"), within=between("-5m", "0s"))
    )
    pairs.select("price", "note").sink(Nowhere())
    assert shape(plan(job, parallelism=2)) == [
        "notes x2: notes, select",
        "source-rows x2: source-rows, select-2",
        "join x2: join, select-3, sink-nowhere",
        "source-rows -> join hash(auction): auction, at, price",
        "notes -> join side 1 hash(bidder): bidder, note, time",
    ]


def test_a_filter_that_may_fail_stays_behind_a_join() -> None:
    job = Job("fallible")
    joined(job).filter(col("auction") // col("bidder") > 1).sink(Nowhere())
    by_name = {operator.name: vertex.name for vertex in plan(job).vertices for operator in vertex.operators}
    assert by_name["filter"] == "join"


def test_a_filter_on_the_key_moves_before_a_window() -> None:
    job = Job("keys")
    windows = bids(job).key_by("auction").window(tumbling("1s")).aggregate(n=count())
    windows.filter((col("auction") > 5) & (col("n") > 1)).sink(Nowhere())
    planned = plan(job)
    assert [operator.name for operator in planned.vertices[0].operators] == ["filter.1", "aggregate.combine"]
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


def test_a_filter_is_not_moved_where_somebody_else_reads() -> None:
    job = Job("shared")
    spread = bids(job).rebalance()
    spread.filter(col("auction") > 5).sink(Nowhere("some"))
    spread.sink(Nowhere("all"))
    assert plan(job).vertices[0].operators == ()


def slow(row: Bid, ctx: Context) -> Label:
    return Label(str(ctx.time.now()))


def quick(row: Bid) -> Label:
    return Label("x")


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


def test_a_source_in_front_of_a_function_reads_little() -> None:
    job = Job("reads")
    bids(job).filter(col("auction") > 1).map(slow).sink(Nowhere())
    source = plan(job).vertices[0].source
    assert source is not None
    assert source.factory.keywords == {"read_rows": 64}  # type: ignore[attr-defined]


def test_functions_behind_a_window_do_not_shrink_its_frames() -> None:
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


def test_dead_letters_of_a_process_have_the_port_behind_its_results() -> None:
    job = Job("caught")
    watched, failed = bids(job).key_by("auction").process(Watch).catch()
    watched.sink(Nowhere("watched"))
    failed.sink(Nowhere("failed"))
    (vertex,) = (vertex for vertex in plan(job).vertices if vertex.name == "process")
    assert [(wire.port, vertex.operators[wire.consumer].name) for wire in vertex.wires] == [
        (0, "sink-watched"),
        (1, "sink-failed"),
    ]


class Watch(Process[Bid, Label]):
    def on_row(self, bid: Bid, ctx: Context) -> Iterator[Label]:
        yield Label(bid.note or "")


def test_a_union_within_a_task_needs_no_edge() -> None:
    job = Job("diamond")
    stream = bids(job)
    stream.filter(col("auction") > 5).union(stream.filter(col("bidder") > 5)).select("auction").sink(Nowhere())
    planned = plan(job)
    assert planned.edges == ()
    assert len(planned.vertices) == 1


def test_a_diamond_over_a_shuffle_is_no_cycle_of_tasks() -> None:
    job = Job("diamond")
    stream = bids(job).select("auction")
    stream.union(stream.rebalance().select(auction=col("auction") + 1)).sink(Nowhere())
    assert [(edge.source, edge.target, edge.partitioning.value) for edge in plan(job, parallelism=2).edges] == [
        ("source-rows", "select-2", "rebalance"),
        ("source-rows", "sink-nowhere", "forward"),
        ("select-2", "sink-nowhere", "forward"),
    ]


def test_what_leads_to_no_sink_is_left_out() -> None:
    job = Job("dead")
    stream = bids(job)
    stream.map(quick)
    stream.sink(Nowhere())
    planned = plan(job)
    assert shape(planned) == ["source-rows x1: source-rows, sink-nowhere"]
    assert "left out, as no sink is behind it: map" in planned.notes


def test_operators_keep_their_names_however_they_are_chained() -> None:
    names = [
        {o.name for v in nexmark("q5", parallelism).vertices for o in v.operators if o.stateful}
        for parallelism in (1, 4)
    ]
    assert names == [{"counts", "most", "hot"}] * 2


def test_settings_reach_the_plan() -> None:
    job = Job("settings", standbys=2, guarantee="at-least-once", key_groups=16, frame_rows=500)
    bids(job).rebalance().sink(Nowhere())
    planned = plan(job, parallelism=4)
    assert planned.vertices[0].standbys == 2
    assert (planned.sharing_depth, planned.key_groups, planned.edges[0].frame_rows) == (0, 16, 500)
    assert planned.settings["parallelism"] == 4


def test_a_causal_sink_needs_the_full_depth() -> None:
    job = Job("causal")
    bids(job).sink(Nowhere("hot", delivery="causal"))
    assert plan(job).sharing_depth == -1
    with pytest.raises(
        SettingError, match="sink 'sink-hot' has delivery='causal', which needs sharing_depth = full; it is 0"
    ):
        plan(job, resolve({"sharing_depth": 0}))


def test_more_tasks_than_key_groups_are_refused() -> None:
    with pytest.raises(SettingError, match="parallelism is 200: it must be from 1 to the 128 key groups"):
        plan(build("q0", NexmarkSource(1_000), Nowhere()), parallelism=200)


class Unportable:
    def __reduce__(self) -> Any:
        raise TypeError("cannot pickle a connection")


connection = Unportable()


def test_a_function_that_cannot_travel_is_refused_naming_what_holds_it_back() -> None:
    local = Unportable()

    def enrich(row: Bid) -> Label:
        return Label(str(local))

    job = Job("portable")
    bids(job).map(enrich).sink(Nowhere())
    with pytest.raises(GraphError) as caught:
        plan(job)
    assert "test_physical.py" in str(caught.value)
    assert "map: it cannot be sent to a task because of local (Unportable): cannot pickle a connection" in str(
        caught.value
    )
    assert "@service" in str(caught.value)


def test_what_an_operator_refuses_names_the_line() -> None:
    job = Job("ttl")
    people = job.source(Rows(Person)).named("people")
    with pytest.raises(GraphError, match="the left stream has no event time"):
        people.join(bids(job), on=("id", "bidder"), within=forever(ttl="1d"))


class Total(Record):
    auction: int
    window_end: Instant
    total: Money


def test_a_total_of_money_may_be_money() -> None:
    job = Job("money")
    bids(job).key_by("auction").window(tumbling("1s")).aggregate(Total, total=col("price").sum()).sink(Nowhere())
    assert plan(job).vertices[1].operators[0].schemas[0] == Total.schema()
