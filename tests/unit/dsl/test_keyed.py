"""Aggregates, windows, tables, joins and processes: output schemas, and refused arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from clonos_py import (
    Context,
    CoProcess,
    DeadLetter,
    GraphError,
    Instant,
    Job,
    KeyedStream,
    Money,
    Process,
    Record,
    Stream,
    UserAggregate,
    aggregate_by,
    as_of,
    between,
    col,
    count,
    counted,
    cumulative,
    forever,
    hopping,
    last,
    session,
    state,
    tumbling,
)  # fmt: skip
from clonos_py.connectors import MemorySource
from clonos_py.dsl.timing import EVENT_TIME_COLUMN
from clonos_py.dsl.windows import Between
from clonos_py.plan.logical import AggregateWindows, ProjectColumns, RunProcess
from clonos_py.plan.physical import plan
from tests.unit.dsl.connectors import Bid, Nowhere, Rows, bids


class Hot(Record):
    auction: int
    window_end: Instant
    bids: int
    top: Money


def keyed() -> KeyedStream[Any]:
    return bids().key_by("auction")


def test_aggregate_fills_a_class_from_key_window_and_aggregates() -> None:
    stream = keyed().window(tumbling("10s")).aggregate(Hot, bids=count(), top=col("price").max())
    assert stream.record is Hot
    assert stream.schema == Hot.schema()


def test_aggregate_without_a_class_has_every_column() -> None:
    made = keyed().window(session("10s")).aggregate(
        n=count(), notes=col("note").count(), total=col("price").sum(), average=col("bidder").mean(),
        last=col("note").max()
    )  # fmt: skip
    assert [(field.name, str(field.type), field.nullable) for field in made.schema] == [
        ("auction", "int64", False),
        ("window_start", "int64", False),
        ("window_end", "int64", False),
        ("n", "int64", False),
        ("notes", "int64", False),
        ("total", "decimal128(38, 2)", False),
        ("average", "double", False),
        ("last", "string", True),
    ]


def test_an_aggregate_of_an_expression_computes_the_expression_first() -> None:
    job = Job("computed")
    bids(job).key_by("auction").window(tumbling("1s")).aggregate(top=(col("price") * 2).max()).sink(Nowhere())
    window = job.graph().nodes[2]
    assert [node.verb for node in job.graph().nodes] == ["source", "with_columns", "aggregate", "sink"]
    assert window.work.aggregates[0].column == "~input:top"  # type: ignore[union-attr]


def test_a_computed_key_is_a_column() -> None:
    table = bids().key_by(bucket=col("bidder") % 8).aggregate(n=count())
    assert table.changes().schema.names == ["bucket", "n"]


def shortest(values: list[str]) -> str:
    return min(values, key=len)


FOLD = UserAggregate(create=list, add=lambda found, value: [*found, value], merge=lambda a, b: a + b, result=shortest)


def test_a_fold_has_the_type_of_its_result() -> None:
    made = keyed().window(tumbling("1s")).aggregate(a=aggregate_by(FOLD, "note"), b=aggregate_by(FOLD, returns=float))
    assert made.schema.field("a").type == pa.string()
    assert made.schema.field("b").type == pa.float64()


def test_late_rows_have_the_schema_of_the_input() -> None:
    hot, late = (
        keyed().window(tumbling("10s"), lateness="1m").aggregate(Hot, bids=count(), top=col("price").max()).with_late()
    )
    assert hot.schema == Hot.schema()
    assert late.schema == Bid.schema()
    bought = count().where(col("price") > 5)
    _, late = keyed().window(tumbling("10s")).aggregate(bought=bought, twice=(col("price") * 2).sum()).with_late()
    assert late.schema == Bid.schema()


def test_results_of_one_window_fall_into_the_same_later_window() -> None:
    counts = keyed().window(hopping("10s", "2s")).aggregate(n=count()).named("counts")
    nodes = counts.window(tumbling("2s")).aggregate(most=col("n").max())._output.draft.nodes
    computed, window = nodes[-2].work, nodes[-1].work
    assert isinstance(computed, ProjectColumns)
    assert isinstance(window, AggregateWindows)
    assert window.time_column == EVENT_TIME_COLUMN
    assert str(computed.columns[-1][1]) == "(window_end + -1)"


class Short(Record):
    auction: int
    bids: int
    extra: str


class Texted(Record):
    auction: int
    bids: str


class Highest(Record):
    auction: int
    high: Money
    first: str | None = None


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda w: w.aggregate(), "at least one aggregate, such as n=count()"),
        (lambda w: w.aggregate(n=col("price")), "n=price is not an aggregate: write count()"),
        (lambda w: w.aggregate(auction=count()), "'auction' is a key or a bound of the window already"),
        (lambda w: w.aggregate(n=col("prize").max()), "no column 'prize'"),
        (lambda w: w.aggregate(n=col("note").sum()), "note.sum(): note is string, which sum does not take"),
        (lambda w: w.aggregate(Hot, bids=count()), "Hot.top: nothing of that name; there are auction, window_start"),
        (lambda w: w.aggregate(Hot, n=count()), "Hot has no field 'n'; its fields are auction, window_end, bids, top"),
        (lambda w: w.aggregate(Texted, bids=count()), "Texted.bids is string, but what fills it is int64"),
        (lambda w: w.aggregate(Short, bids=count()), "Short.extra: nothing of that name"),
        (
            lambda w: w.aggregate(Highest, high=col("price").max().where(col("price") > 5), first=col("note").first()),
            "Highest.high is decimal128(18, 2), but ",
        ),
    ],
)
def test_an_impossible_aggregate_is_refused(write: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(GraphError) as caught:
        write(keyed().window(tumbling("1s")))
    assert message in str(caught.value)
    assert f"test_keyed.py:{write.__code__.co_firstlineno}: aggregate: " in str(caught.value)


def test_an_aggregate_by_a_nested_key_is_refused() -> None:
    class Tagged(Record):
        tags: list[str]

    tagged = Job("test").source(Rows(Tagged)).key_by("tags")
    with pytest.raises(GraphError, match="aggregate: key 'tags' is a list or struct, which cannot be compared"):
        tagged.aggregate(n=count())


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda: hopping("10s", "3s"), "the size .10s. must be a multiple of the slide .3s."),
        (lambda: cumulative("10s", "3s"), "the size .10s. must be a multiple of the step .3s."),
        (
            lambda: keyed().window(cumulative("10s", "2s")).top(1, by="price"),
            "it takes tumbling or hopping windows in event time, and no lateness",
        ),
        (lambda: tumbling("0s"), "size is '0s', it must be more than 0"),
        (lambda: tumbling("ten seconds"), "is not a duration"),
        (lambda: tumbling(10), "10 has no unit: write one of us, .*, such as '10s'"),  # type: ignore[arg-type]
        (lambda: tumbling(timedelta()), "it must be more than 0"),
        (
            lambda: keyed().window("10s"),  # type: ignore[call-overload]
            "'10s' is not a window: use tumbling",
        ),
        (lambda: counted(0), "size is 0: it must be a number of rows, at least 1"),
        (lambda: counted("10"), "size is '10': it must be a number of rows"),  # type: ignore[arg-type]
        (lambda: counted(10, every=0), "every is 0: it must be a number of rows"),
        (lambda: counted(10, every=3), "the size .10 rows. must be a multiple of every .3."),
        (lambda: counted(10, incomplete=1), "incomplete is 1, it must be True or False"),  # type: ignore[arg-type]
        (
            lambda: keyed().window(counted(10), lateness="1s"),  # type: ignore[call-overload]
            "lateness is '1s': rows of count windows are never late, leave it out",
        ),
        (lambda: keyed().window(counted(10)).aggregate(auction=count()), "'auction' is a key or a bound"),
        (lambda: keyed().window(counted(10)).top(2, by="prize"), "no column 'prize'"),
        (
            lambda: keyed().window(counted(10)).aggregate(n=count()).window(tumbling("1s")).aggregate(n=count()),
            "this stream has no event time",
        ),
        (last, "it takes a duration, last..1h.., or a number of rows, last.rows=10."),
        (lambda: last("1h", rows=3), "it takes a duration, last..1h.., or a number of rows, last.rows=10."),
        (lambda: last("0s"), "span is '0s', it must be more than 0"),
        (lambda: last(rows=0), "rows is 0: it must be a number of rows, at least 1"),
        (lambda: keyed().over("1h"), "'1h' does not say which rows: use last"),  # type: ignore[arg-type]
        (lambda: keyed().over(last("1h")).aggregate(), "at least one aggregate"),
        (lambda: keyed().over(last("1h")).aggregate(price=count()), "'price' is a column of the rows already"),
        (
            lambda: keyed().window(counted(10)).aggregate(n=count()).over(last("1h")).aggregate(rows=count()),
            "this stream has no event time",
        ),
        (
            lambda: keyed().aggregate(n=count()).changes().over(last("1h")).aggregate(rows=count()),
            "these rows are changes of the table",
        ),
        (lambda: keyed().window(tumbling("1s"), lateness="-1s"), "lateness is '-1s'"),
        (lambda: keyed().window(tumbling("1s", processing_time=True), lateness="1s"), "0 in processing time"),
        (
            lambda: keyed().window(tumbling("1s", processing_time=True)).aggregate(n=count()).with_late(),
            "in processing time no row is late",
        ),
    ],
)
def test_an_impossible_window_is_refused(write: Callable[[], Any], message: str) -> None:
    with pytest.raises(GraphError, match=message) as caught:
        write()
    assert str(caught.value).startswith("tests/unit/dsl/test_keyed.py:")


def test_a_timedelta_stands_wherever_a_duration_does() -> None:
    second = timedelta(seconds=1)
    assert tumbling(second) == tumbling("1s")
    assert hopping(10 * second, 5 * second) == hopping("10s", "5s")
    assert session(second, processing_time=True) == session("1s", processing_time=True)
    assert between(-5 * second, second) == between("-5s", "1s")
    assert as_of(oldest=second) == as_of(oldest="1s")
    assert forever(ttl=second) == forever(ttl="1s")
    bids = Job("test").source(Rows(Bid), event_time="at", out_of_order=second, idle=second)
    bids.distinct("auction", ttl=second)
    bids.with_event_time("at", delay=second, idle=second)
    bids.key_by("auction").window(tumbling(second), lateness=second)


def test_a_table_becomes_a_stream_in_only_one_way() -> None:
    table = keyed().aggregate(n=count())
    assert table.changes().schema.names == ["auction", "n"]
    with pytest.raises(GraphError, match=r"used as .changes\(\) already"):
        table.at_end()


def test_a_table_needs_a_sink_that_takes_updates() -> None:
    with pytest.raises(GraphError, match=r"Nowhere only appends, .* .changes\(\) or .at_end\(\)"):
        keyed().aggregate(n=count()).sink(Nowhere())
    keyed().aggregate(n=count()).sink(Nowhere(upserts=True))


class Person(Record):
    id: int
    name: str
    at: Instant


class Pair(Record):
    name: str
    auction: int
    window_start: Instant


def people_and_bids() -> tuple[Stream[Any], Stream[Any]]:
    job = Job("join")
    return job.source(Rows(Person), event_time="at").named("people"), bids(job)


def test_a_window_join_fills_a_class_from_both_sides_and_the_window() -> None:
    people, offers = people_and_bids()
    pairs = people.join(offers, on=("id", "bidder"), within=tumbling("10s"), into=Pair)
    assert pairs.schema == Pair.schema()
    assert pairs.record is Pair


def test_a_join_without_a_class_has_all_columns() -> None:
    people, offers = people_and_bids()
    pairs = people.select("id", "name").join(offers, on=("id", "bidder"), within=forever())
    assert pairs.schema.names == ["id", "name", *Bid.schema().names]


def test_the_bounds_of_a_join_must_contain_some_time() -> None:
    assert between("-5m", "0s") == Between(-300_000_000, 0)
    with pytest.raises(GraphError, match=r"test_keyed.py:\d+: between: '0s' is after '-5m'"):
        between("0s", "-5m")


class Both(Record):
    at: Instant


class Windowless(Record):
    name: str
    window_end: Instant


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda p, b: p.join(b, on="id", within=forever()), "on: no column 'id' on the right; there are auction"),
        (lambda p, b: p.join(b, on=("name", "bidder"), within=forever()), "'name' is string on the left, 'bidder' is"),
        (lambda p, b: p.join(b, on=[], within=forever()), "it takes a name, a pair of names"),
        (lambda p, b: p.join(b, on=("id", "bidder"), within=forever()), "both sides have a column 'at'"),
        (lambda p, b: p.join(b, on=("id", "bidder"), within=forever(), into=Both), "both sides have a column 'at'"),
        (lambda p, b: p.join(b, on=("id", "bidder"), within=counted(3)), "a match may take tumbling"),
        (
            lambda p, b: p.join(b, on=("id", "bidder"), within=session("1s", processing_time=True)),
            "sessions in event time only",
        ),
        (
            lambda p, b: p.join(b.with_columns(n=col("bidder").cast(pa.int32())), on=("id", "n"), within=session("1s")),
            "a session needs the same type on both sides",
        ),
        (lambda p, b: p.join(b, on=("id", "bidder"), within=forever(), into=Windowless), "Windowless.window_end"),
        (
            lambda p, b: p.select("id").join(b, on=("id", "bidder"), within=tumbling("1s")),
            "the left stream has no event time",
        ),
        (lambda p, b: p.join(bids(Job("other")), on=("id", "bidder"), within=forever()), "belongs to job 'other'"),
        (lambda p, b: p.join("bids", on="id", within=forever()), "'bids' is not a stream"),
        (
            lambda p, b: p.join(b.select("bidder"), on=("id", "bidder"), within=between("-5m", "0s")),
            "the right stream has no event time",
        ),
    ],
)  # fmt: skip
def test_an_impossible_join_is_refused(write: Callable[[Any, Any], Any], message: str) -> None:
    with pytest.raises(GraphError) as caught:
        write(*people_and_bids())
    assert message in str(caught.value)
    assert ": join: " in str(caught.value)


@pytest.mark.parametrize("key", [[1], {"a": 1}])
def test_a_key_that_cannot_be_compared_is_refused(key: Any) -> None:
    job, rows = Job("nested"), pa.table({"k": [key], "n": [1]})
    left, right = (job.source(MemorySource(rows)).named(side) for side in ("left", "right"))
    with pytest.raises(GraphError, match=r"the key 'k' is (list|struct).*, which cannot be compared: use numbers"):
        left.join(right, on="k", within=forever(), into=pa.schema([("k", pa.int64())]))


class Alert(Record):
    auction: int


class Audit(Record):
    bidder: int


class Watch(Process[Bid, Alert]):
    seen: int = state(0)

    def on_row(self, bid: Bid, ctx: Context) -> Iterator[Alert]:
        yield Alert(bid.auction)


class Two(Process[Bid, Alert | Audit]):
    def on_row(self, bid: Bid, ctx: Context) -> Iterator[Alert | Audit]:
        yield Audit(bid.bidder)


class Untyped(Process):  # type: ignore[type-arg]
    def on_row(self, bid: Bid, ctx: Context) -> Iterator[Alert]:
        yield Alert(bid.auction)


class Strange(Process[Person, Alert]):
    def on_row(self, row: Person, ctx: Context) -> Iterator[Alert]:
        yield Alert(row.id)


def test_a_process_gives_the_class_that_it_yields() -> None:
    assert keyed().process(Watch, in_order=True).record is Alert


def test_split_takes_classes_in_any_order() -> None:
    audits, alerts = keyed().process(Two).split(Audit, Alert)
    assert (audits.record, alerts.record) == (Audit, Alert)


def test_catch_on_a_process_gives_its_results_and_dead_letters() -> None:
    good, failed = keyed().process(Two).catch()
    assert [stream.record for stream in (*good.split(Audit, Alert), failed)] == [Audit, Alert, DeadLetter]
    job = Job("caught")
    good, failed = bids(job).key_by("auction").process(Two).catch()
    failed.sink(Nowhere("failed"))
    with pytest.raises(GraphError, match="its Alert rows have no consumer"):
        job.graph()


def test_unused_rows_of_a_process_are_an_error() -> None:
    job = Job("lost")
    bids(job).key_by("auction").process(Two).sink(Nowhere())
    with pytest.raises(GraphError, match=r"its Audit rows have no consumer; take all by .split\(Alert, Audit\)"):
        job.graph()


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda: keyed().process(Untyped), "Untyped: say what it takes and yields, as Process[In, Out]"),
        (lambda: keyed().process(Bid), "is not a process: give a class derived from Process[In, Out]"),  # type: ignore[arg-type]
        (lambda: keyed().process(Strange), "Person asks for column 'id'"),
        (lambda: keyed().process(Two).split(Alert, Bid), "Two yields Alert, Audit, split asks for Alert, Bid"),
        (
            lambda: Job("untimed").source(Rows(Bid)).key_by("auction").process(Watch, in_order=True),
            "in_order=True needs event time",
        ),
    ],
)
def test_an_impossible_process_is_refused(write: Callable[[], Any], message: str) -> None:
    with pytest.raises(GraphError) as caught:
        write()
    assert message in str(caught.value)


class Limit(Record):
    who: int
    limit: int
    since: Instant


class Wider(Record):
    auction: int
    bidder: int


class Limited(CoProcess[Wider, Limit, Alert | Audit]):
    def on_left(self, bid: Wider, ctx: Context) -> Alert:
        return Alert(bid.auction)

    def on_right(self, limit: Limit, ctx: Context) -> Alert:
        return Alert(limit.who)


class Threshold(Process[Bid, Alert]):
    def __init__(self, least: int) -> None:
        self.least = least

    def on_row(self, bid: Bid, ctx: Context) -> Alert:
        return Alert(bid.auction)


def limits(job: Job, *, timed: bool = True) -> Stream[Any]:
    if timed:
        return job.source(Rows(Limit), event_time="since").named("limits")
    return job.source(Rows(Limit)).named("limits")


def test_two_inputs_give_the_rows_of_their_process() -> None:
    job = Job("two")
    both = bids(job).key_by("bidder").connect(limits(job).key_by("who")).process(Limited, in_order=True)
    assert [stream.record for stream in both.split(Audit, Alert)] == [Audit, Alert]
    work = both._output.node.work
    assert isinstance(work, RunProcess)
    assert [(taken.keys, taken.time_column) for taken in work.inputs] == [(("bidder",), "at"), (("who",), "since")]


def test_a_configured_process_is_given_as_an_object() -> None:
    assert keyed().process(Threshold(3)).record is Alert
    with pytest.raises(GraphError, match=r"Threshold has missing a required argument: 'least': give an object"):
        keyed().process(Threshold)


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda b, li: b.key_by("bidder").connect(li), "is not a keyed stream: write key_by before it"),
        (lambda b, li: b.key_by("bidder", "at").connect(li.key_by("who")), "one is keyed by 2 columns, the other by 1"),
        (
            lambda b, li: b.key_by("price").connect(li.key_by("who")),
            "the key 'price' is decimal128(18, 2) on the left, 'who' is int64 on the right",
        ),
        (
            lambda b, li: b.key_by("bidder").connect(limits(Job("else")).key_by("who")),
            "the other stream belongs to job 'else', this one to 'two'",
        ),
        (
            lambda b, li: b.key_by("bidder").connect(li.key_by("who")).process(Watch),
            "is not a process of two inputs: give a class derived from CoProcess[Left, Right, Out]",
        ),
        (
            lambda b, li: b.key_by("bidder").process(Limited),
            "is not a process: give a class derived from Process[In, Out]",
        ),
        (
            lambda b, li: b.select("bidder").key_by("bidder").connect(li.key_by("who")).process(Limited),
            "Wider asks for column 'auction'",
        ),
    ],
)
def test_impossible_pairs_of_inputs_are_refused(write: Callable[[Any, Any], Any], message: str) -> None:
    job = Job("two")
    with pytest.raises(GraphError) as caught:
        write(bids(job), limits(job))
    assert message in str(caught.value)
    assert "test_keyed.py:" in str(caught.value)


def test_in_order_requires_event_time_of_both_inputs() -> None:
    job = Job("two")
    both = bids(job).key_by("bidder").connect(limits(job, timed=False).key_by("who"))
    with pytest.raises(GraphError, match="in_order=True needs event time"):
        both.process(Limited, in_order=True)


def test_first_last_and_collect_have_the_type_of_their_column() -> None:
    made = keyed().window(tumbling("10s")).aggregate(
        first=col("price").first(), note=col("note").last(), notes=col("note").collect(),
        bidders=col("bidder").collect(),
    )  # fmt: skip
    assert [(field.name, str(field.type), field.nullable) for field in made.schema][3:] == [
        ("first", "decimal128(18, 2)", False),
        ("note", "string", True),
        ("notes", "list<item: string not null>", False),
        ("bidders", "list<item: int64 not null>", False),
    ]
    with pytest.raises(GraphError, match="rows of a table change, and have no order of arrival"):
        keyed().aggregate(n=count()).key_by("n").aggregate(a=col("auction").first())


def test_distinct_keeps_the_schema_and_is_combined_before_the_shuffle() -> None:
    assert bids().distinct("auction", "bidder", ttl="1h").schema == Bid.schema()
    job = Job("distinct")
    bids(job).distinct("auction").key_by("auction").aggregate(n=count()).at_end().sink(Nowhere())
    physical = plan(job, parallelism=2)
    assert [vertex.name for vertex in physical.vertices] == ["source-rows", "distinct"], "no second shuffle"
    assert "distinct.combine" in [operator.name for operator in physical.vertices[0].operators]


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda s: s.distinct(col("auction")), "auction is not a column name; compute it first"),
        (lambda s: s.distinct("seller"), "no column 'seller'; there are auction"),
        (lambda s: s.distinct("auction", ttl=0), "ttl is 0: it must be more than 0"),
        (lambda s: s.select("auction").distinct(ttl="1h"), "this stream has no event time"),
        (
            lambda s: s.key_by("auction").aggregate(n=count()).changes().distinct(),
            "these rows are changes of the table",
        ),
        (
            lambda s: s.key_by("auction").window(tumbling("1s")).aggregate(all=col("bidder").collect()).distinct(),
            "column 'all' is a list or struct, which cannot be compared",
        ),
    ],
)
def test_an_impossible_distinct_is_refused(write: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(GraphError) as caught:
        write(bids())
    assert message in str(caught.value)


def of_dicts(rows: dict[str, list[int]]) -> pa.RecordBatch:
    raise NotImplementedError


def test_a_function_of_batches_must_name_its_kind_of_frame() -> None:
    with pytest.raises(
        GraphError, match=r"of_dicts takes dict; a function of batches takes one of pyarrow\.RecordBatch"
    ):
        bids().map_batches(of_dicts, returns=Bid)


def test_a_class_of_rows_in_the_place_of_a_number_is_named() -> None:
    with pytest.raises(GraphError, match=r"partitions is <class .*Bid'>, a number; the class of rows is schema="):
        MemorySource([], Bid)  # type: ignore[call-overload]
