"""Physical plans: which vertices, which edges and which columns travel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from clonos_py import (
    Context,
    Instant,
    Job,
    Money,
    Record,
    SettingError,
    Stream,
    between,
    col,
    count,
    forever,
    session,
    tumbling,
)  # fmt: skip
from clonos_py.plan.physical import plan
from clonos_py.settings.protocols import ALIGNED
from clonos_py.settings.resolution import resolve
from tests.unit.dsl.connectors import Bid, Nowhere, Rows, bids
from tests.unit.plan.shapes import Label, Watch, nexmark, quick, shape


class Word(Record):
    word: str


def words(row: Label) -> Iterator[Word]:
    for word in row.label.split():
        yield Word(word)


def test_a_word_count_has_two_vertices_and_a_shuffle() -> None:
    job = Job("word-count")
    lines = job.source(Rows(Label))
    lines.flat_map(words).key_by("word").aggregate(n=count()).changes().sink(Nowhere("counts"))
    assert shape(plan(job, parallelism=3)) == [
        "source-rows x3: source-rows, flat_map, aggregate.combine",
        "aggregate x3: aggregate, sink-counts",
        "source-rows -> aggregate hash(word): word, ~rows",
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
        "source-nexmark x2: source-nexmark, counts.late, counts.combine",
        "counts x2: counts, with_columns, most.combine",
        "most x1: most, with_columns-2",
        "hot x2: hot, sink-out",
        "source-nexmark -> counts hash(auction): auction, ~pane, ~rows",
        "counts -> most rebalance: ~pane, ~rows, ~maxn:max",
        "counts -> hot hash(num): auction, num, ~event_time",
        "most -> hot side 1 hash(maxn): maxn, ~event_time",
    ],
    "q8": [
        "source-nexmark x2: source-nexmark, sellers.late, sellers.combine, join.late",
        "sellers x2: sellers, with_columns",
        "join x2: join, sink-out",
        "source-nexmark -> sellers hash(seller): seller, ~pane, ~rows",
        "source-nexmark -> join hash(id): id, name, date_time",
        "sellers -> join side 1 hash(seller): seller, ~event_time",
    ],
    "q12": [
        "source-nexmark x2: source-nexmark",
        "counts x2: counts, sink-out",
        "source-nexmark -> counts hash(bidder): bidder",
    ],
    "q17": [
        "source-nexmark x2: source-nexmark, with_columns, with_columns-2, report.combine",
        "report x2: report, sink-out",
        "source-nexmark -> report hash(auction, day): auction, day, ~rows, ~rank1_bids:count, ~rank2_bids:count, "
        "~rank3_bids:count, ~min_price:min, ~max_price:max, ~avg_price:sum, ~avg_price:count, ~sum_price:sum",
    ],
    "q19": [
        "source-nexmark x2: source-nexmark, top.combine",
        "top x2: top, sink-out",
        "source-nexmark -> top hash(auction): auction, bidder, price, channel, url, date_time, extra",
    ],
}


@pytest.mark.parametrize("query", NEXMARK)
def test_nexmark_queries_have_the_expected_plans(query: str) -> None:
    assert shape(nexmark(query)) == NEXMARK[query]


def test_without_chaining_each_operator_has_tasks_of_its_own() -> None:
    """Only operators that reduce the data to send stay with the operator before them."""
    assert shape(nexmark("q8", chaining="off")) == [
        "source-nexmark x2: source-nexmark, sellers.late, sellers.combine, join.late",
        "sellers x2: sellers, with_columns.columns",
        "with_columns x2: with_columns",
        "join x2: join",
        "sink-out x2: sink-out",
        "source-nexmark -> sellers hash(seller): seller, ~pane, ~rows",
        "sellers -> with_columns forward: seller, window_end",
        "source-nexmark -> join hash(id): id, name, date_time",
        "with_columns -> join side 1 hash(seller): seller, ~event_time",
        "join -> sink-out forward: id, name, window_start",
    ]


def test_without_chaining_rows_are_shuffled_again_for_the_same_key() -> None:
    job = Job("apart")
    joined_by_auction(job).key_by("auction").aggregate(n=count()).at_end().sink(Nowhere())
    shown = shape(plan(job, resolve({"parallelism": 2, "chaining": "off"})))
    assert "join -> aggregate hash(auction): auction" in shown


@pytest.mark.parametrize(
    ("settings", "rollback"),
    [({}, False), ({"sharing_depth": 0}, False), ({"guarantee": "exactly-once", "sharing_depth": 0}, True)],
)
def test_the_plan_names_protocol_and_recovery(settings: dict[str, Any], rollback: bool) -> None:
    job = Job("named")
    bids(job).sink(Nowhere())
    planned = plan(job, resolve({"protocol": "aligned", **settings}))
    assert (planned.protocol, planned.rollback) == (ALIGNED, rollback)


@pytest.mark.parametrize(
    ("settings", "delivery", "notes"),
    [
        (
            {},
            "causal",
            [
                "a failure restarts the failed task only, which replays its log from the last completed checkpoint",
                "causal sinks show rows at once, and never withdraw them",
            ],
        ),
        (
            {"guarantee": "exactly-once", "sharing_depth": 0},
            "transactional",
            [
                "a failure restarts all tasks, from the last completed checkpoint",
                "transactional sinks commit when a checkpoint is complete",
            ],
        ),
        (
            {"protocol": "uncoordinated"},
            "transactional",
            [
                "a failure restarts the failed task only, which replays its log from its own last snapshot",
                "transactional sinks commit when the snapshot of their own task counts",
            ],
        ),
        (
            {"protocol": "communication-induced", "guarantee": "exactly-once", "sharing_depth": 0},
            "transactional",
            [
                "a failure restarts the failed task and all tasks behind it, from their newest snapshots that fit "
                "together",
                "transactional sinks commit when the recovery line has passed their snapshot",
            ],
        ),
        (
            {"sharing_depth": 0},
            "idempotent",
            [
                "a failure restarts the failed task only, from the last completed checkpoint: what it sent since then "
                "counts twice",
                "idempotent sinks show rows at once, and write them again after a failure",
            ],
        ),
        (
            {"guarantee": "at-most-once"},
            "transactional",
            [
                "a failure restarts the failed task only, which continues with new rows; those that it had not sent on "
                "are lost",
                "transactional sinks commit when a checkpoint is complete",
            ],
        ),
    ],
)
def test_the_plan_says_which_tasks_a_failure_restarts_and_when_sinks_commit(
    settings: dict[str, Any], delivery: str, notes: list[str]
) -> None:
    job = Job("told")
    bids(job).sink(Nowhere(delivery=delivery))
    assert list(plan(job, resolve(settings)).notes[-len(notes) :]) == notes


def joined_by_auction(job: Job) -> Stream[Any]:
    offers = bids(job).select("auction", "price", "at")
    return bids(job).named("others").select("bidder", number=col("auction")).join(
        offers, on=("number", "auction"), within=forever()
    )  # fmt: skip


@pytest.mark.parametrize("key", ["number", "auction"])
def test_rows_of_a_join_are_not_shuffled_again_for_the_same_key(key: str) -> None:
    job = Job("together")
    pairs = joined_by_auction(job).filter(col("price") > col("bidder")).select("price", "auction", "number")
    pairs.key_by(key).top(1, by="price").at_end().sink(Nowhere())
    assert shape(plan(job, parallelism=2))[2] == "join x2: join, filter, select-3, top, sink-nowhere"


@pytest.mark.parametrize("keys", [("bidder",), ("number", "auction"), ("auction", "price")])
def test_rows_of_a_join_are_shuffled_for_other_keys(keys: tuple[str, ...]) -> None:
    job = Job("apart")
    joined_by_auction(job).key_by(*keys).aggregate(n=count()).at_end().sink(Nowhere())
    assert shape(plan(job, parallelism=2))[2:4] == [
        "join x2: join, aggregate.combine",
        "aggregate x2: aggregate, sink-nowhere",
    ]


def test_an_aggregate_with_its_own_parallelism_gets_uncombined_rows() -> None:
    job = Job("own-tasks")
    joined_by_auction(job).key_by("auction").aggregate(n=count()).parallelism(3).at_end().sink(Nowhere())
    assert shape(plan(job, parallelism=2))[-1] == "join -> aggregate hash(auction): auction"


def test_a_source_delivers_only_columns_that_are_read() -> None:
    planned = nexmark("q3")
    source = planned.vertices[0].source
    assert source is not None
    assert [schema.names for schema in source.schemas] == [
        ["id", "name", "city", "state"],
        ["id", "seller", "category"],
        [],
    ]
    assert "source-nexmark port 1: 3 of 10 columns read: id, seller, category" in planned.notes


def test_event_time_is_read_only_if_an_operator_depends_on_it() -> None:
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


def test_columns_that_only_a_filter_reads_are_not_sent() -> None:
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
        "source-rows -> aggregate hash(auction): auction, bidder, price, at, note, ~watermark",
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
    assert plan(job).edges[0].schema.names == ["bidder", "~start", "~end", "~rows", "~watermark"]


def test_a_join_with_time_bounds_receives_both_times() -> None:
    job = Job("apart")
    notes = job.source(Rows(Bid), event_time="at").named("notes").select("bidder", "note", time="at")
    pairs = (
        bids(job).select("auction", "at", "price").join(notes, on=("auction", "bidder"), within=between("-5m", "0s"))
    )
    pairs.select("price", "note").sink(Nowhere())
    assert shape(plan(job, parallelism=2)) == [
        "notes x2: notes, select, join.late-2",
        "source-rows x2: source-rows, select-2, join.late",
        "join x2: join, select-3, sink-nowhere",
        "source-rows -> join hash(auction): auction, at, price",
        "notes -> join side 1 hash(bidder): bidder, note, time",
    ]


def test_dead_letters_of_a_process_have_the_port_after_its_results() -> None:
    job = Job("caught")
    watched, failed = bids(job).key_by("auction").process(Watch).catch()
    watched.sink(Nowhere("watched"))
    failed.sink(Nowhere("failed"))
    (vertex,) = (vertex for vertex in plan(job).vertices if vertex.name == "process")
    assert [(wire.port, vertex.operators[wire.consumer].name) for wire in vertex.wires] == [
        (0, "sink-watched"),
        (1, "sink-failed"),
    ]


def drawn(bid: Bid, ctx: Context) -> Label:
    return Label(str(ctx.random.random()))


def label(bid: Bid) -> Label:
    return Label(bid.note or "")


@pytest.mark.parametrize(
    ("rows", "decides"),
    [
        (lambda bids: bids.distinct("auction"), True),
        (lambda bids: bids.key_by("auction").aggregate(n=count()).changes(), True),
        (lambda bids: bids.map(drawn), True),
        (lambda bids: bids.map(drawn).filter(col("label") != ""), True),
        (lambda bids: bids.filter(col("auction") > 1).map(label), False),
    ],
)
def test_an_idempotent_sink_has_its_own_tasks_after_a_nondeterministic_operator(rows: Any, decides: bool) -> None:
    """Else the log of its decisions would be lost with the task that has written the rows."""
    for delivery, apart in (("idempotent", decides), ("transactional", False)):
        job = Job("test")
        rows(bids(job)).sink(Nowhere("out", upserts=True, delivery=delivery))
        assert ("sink-out" in {vertex.name for vertex in plan(job, parallelism=2).vertices}) is apart


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


def test_operators_with_their_own_parallelism_run_in_their_own_tasks() -> None:
    job = Job("own")
    stream = bids(job).parallelism(1).filter(col("price") > 1).map(quick).parallelism(4)
    stream.key_by("label").aggregate(n=count()).parallelism(3).changes().sink(Nowhere()).parallelism(1)
    assert shape(plan(job, parallelism=2)) == [
        "source-rows x1: source-rows, filter",
        "map x4: map, aggregate.combine",
        "aggregate x3: aggregate",
        "sink-nowhere x1: sink-nowhere",
        "source-rows -> map rebalance: auction, bidder, price, at, note",
        "map -> aggregate hash(label): label, ~rows",
        "aggregate -> sink-nowhere rebalance: label, n",
    ]


def test_an_operator_with_the_same_parallelism_is_chained() -> None:
    job = Job("same")
    bids(job).select("auction").parallelism(2).filter(col("auction") > 1).parallelism(2).sink(Nowhere())
    assert [vertex.parallelism for vertex in plan(job, parallelism=2).vertices] == [2]
    assert [vertex.parallelism for vertex in plan(job, parallelism=3).vertices] == [3, 2]


def test_a_filter_with_its_own_parallelism_is_not_moved() -> None:
    job = Job("stays")
    bids(job).select("auction").rebalance().filter(col("auction") > 1).parallelism(4).sink(Nowhere())
    assert shape(plan(job, parallelism=2))[:2] == [
        "source-rows x2: source-rows, select",
        "sink-nowhere x4: filter, sink-nowhere",
    ]


def test_more_tasks_of_an_operator_than_key_groups_are_refused() -> None:
    job = Job("many", key_groups=16)
    bids(job).sink(Nowhere()).parallelism(17)
    with pytest.raises(
        SettingError, match=r"test_physical.py:\d+: 'sink-nowhere' has parallelism 17: it must be .* the 16 key groups"
    ):
        plan(job)


def test_operators_without_a_sink_behind_them_are_left_out() -> None:
    job = Job("dead")
    stream = bids(job)
    stream.map(quick)
    stream.sink(Nowhere())
    planned = plan(job)
    assert shape(planned) == ["source-rows x1: source-rows, sink-nowhere"]
    assert "left out, as no sink is behind it: map" in planned.notes


def test_operators_have_the_same_names_under_any_chaining() -> None:
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


class Total(Record):
    auction: int
    window_end: Instant
    total: Money


def test_a_sum_of_money_may_be_declared_as_money() -> None:
    job = Job("money")
    bids(job).key_by("auction").window(tumbling("1s")).aggregate(Total, total=col("price").sum()).sink(Nowhere())
    assert plan(job).vertices[1].operators[0].schemas[0] == Total.schema()


def test_a_sharing_depth_below_full_is_explained_in_a_note() -> None:
    job = Job("word-count", sharing_depth=1)
    job.source(Rows(Label)).flat_map(words).key_by("word").aggregate(n=count()).changes().rebalance().sink(Nowhere("c"))
    assert "sharing depth 1 of 2 covers that many consecutive failures; with more at once the job rolls back" in (
        plan(job).notes
    )
    available = resolve({"sharing_depth": 1, "beyond_sharing_depth": "availability"})
    assert plan(job, available).notes[-1].endswith("with more at once the job continues at-least-once")
    assert not any("sharing depth" in note for note in plan(job, resolve({})).notes)


def test_at_most_once_logs_only_the_reads_of_sources() -> None:
    job = Job("word-count", guarantee="at-most-once")
    job.source(Rows(Label)).flat_map(words).key_by("word").aggregate(n=count()).changes().rebalance().sink(Nowhere("c"))
    planned = plan(job)
    assert [task.vertex for task in planned.tasks if planned.logged(task)] == [planned.vertices[0].name]


def test_only_outputs_of_filters_and_projections_may_be_compared_by_samples() -> None:
    """Frames after a function of the user's, or after state, are compared as a whole (D12)."""
    sampled = {query: [vertex.sampled for vertex in nexmark(query).vertices] for query in ("rebalanced", "q3", "q8")}
    assert sampled == {"rebalanced": [True, False], "q3": [True, False], "q8": [True, False, False]}
    job = Job("word-count")
    job.source(Rows(Label)).flat_map(words).rebalance().sink(Nowhere("c"))
    assert not plan(job).vertices[0].sampled
