"""Streams: the columns and classes of verbs, and their error messages."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from clonos_py import (
    AsyncContext,
    Context,
    DeadLetter,
    GraphError,
    Instant,
    Job,
    Money,
    Record,
    Stream,
    col,
    count,
    lit,
    tumbling,
    when,
)
from clonos_py.connectors import MemorySource
from clonos_py.model.calls import Waiting
from clonos_py.plan.logical import CallPerRow
from tests.unit.dsl.connectors import Bid, Nowhere, Ports, Rows, bids


class Priced(Record):
    auction: int
    price: Money


class Named(Record):
    auction: int
    label: str


def label(bid: Priced) -> Named:
    return Named(bid.auction, str(bid.price))


def words(bid: Bid) -> Iterator[Named]:
    yield Named(bid.auction, bid.note or "")


def with_ctx(bid: Bid, ctx: Context) -> Named:
    return Named(bid.auction, str(ctx.time.now()))


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda: bids().parallelism(0), "0 is not a number of tasks: it must be at least 1"),
        (lambda: bids().parallelism("two"), "'two' is not a number of tasks"),  # type: ignore[arg-type]
        (lambda: bids().rebalance().parallelism(2), "a rebalance has no tasks of its own"),
        (lambda: bids().aggregate(n=count()).parallelism(2), "all rows meet in one task here, not in 2"),
    ],
)  # fmt: skip
def test_an_impossible_parallelism_is_refused(write: Callable[[], Any], message: str) -> None:
    with pytest.raises(GraphError) as caught:
        write()
    assert message in str(caught.value)
    assert ": parallelism: " in str(caught.value)


def test_select_gives_the_requested_columns_under_their_names() -> None:
    stream = bids().select("auction", col("price").alias("cost"), twice=col("bidder") * 2, seen="at")
    assert stream.schema.names == ["auction", "cost", "twice", "seen"]
    assert stream.schema.field("cost").type == pa.decimal128(18, 2)


def test_select_into_a_class_fills_its_fields_by_name() -> None:
    stream = bids().select(Named, label=col("note").fill_null("none"))
    assert stream.record is Named
    assert stream.schema == Named.schema()


def test_with_columns_replaces_and_adds_columns() -> None:
    stream = bids().with_columns(price=col("price") * 2, late=lit(False))
    assert stream.schema.names == [*Bid.schema().names, "late"]


def test_map_gives_the_class_that_the_function_returns() -> None:
    stream = bids().map(label)
    assert stream.record is Named
    assert bids().flat_map(words).record is Named
    assert bids().map(lambda bid: bid, returns=Bid).record is Bid
    assert bids().map(lambda bid: bid, returns=Bid.schema()).schema == Bid.schema()


def test_annotations_of_local_classes_are_resolved() -> None:
    class Local(Record):
        auction: int

    def strip(bid: Bid) -> Local:
        return Local(bid.auction)

    assert bids().map(strip).record is Local


def test_catch_gives_results_and_dead_letters() -> None:
    good, bad = bids().map(label).catch()
    assert good.record is Named
    assert bad.record is DeadLetter
    assert bad.schema == DeadLetter.schema()


def test_a_source_of_several_ports_gives_a_tuple() -> None:
    first, second = Job("two").source(Ports(Bid, Named), event_time="at")
    assert first.schema == Bid.schema()
    assert second.schema == Named.schema()


def test_a_schema_can_replace_a_class_of_rows() -> None:
    stream: Stream[Any] = Job("plain").source(Rows(pa.schema([("x", pa.int32())])))
    assert stream.record(7).x == 7  # type: ignore[attr-defined]


class OtherPrice(Record):
    price: str


class Missing(Record):
    seller: int


class Wrong(Record):
    auction: int
    price: int


def takes_other(row: OtherPrice) -> Named:
    raise NotImplementedError


def takes_missing(row: Missing) -> Named:
    raise NotImplementedError


def unannotated(row): ...  # type: ignore[no-untyped-def]
def gives_int(row: Bid) -> int:
    raise NotImplementedError


def takes_two(row: Bid, other: int) -> Named:
    raise NotImplementedError


async def waits(row: Bid) -> Named:
    raise NotImplementedError


async def waits_for_many(row: Bid, ctx: AsyncContext) -> AsyncIterator[Named]:
    yield Named(row.auction, (await ctx.http.get("http://x/")).text)


def test_async_functions_have_a_concurrency_an_order_and_a_timeout() -> None:
    named = bids().map(waits, concurrency=7, ordered=False, timeout="2s")
    assert named.record is Named
    assert isinstance(named._output.node.work, CallPerRow)
    assert named._output.node.work.waiting == Waiting(7, False, 2_000_000)
    many = bids().flat_map(waits_for_many)
    assert many.record is Named
    assert isinstance(many._output.node.work, CallPerRow)
    assert many._output.node.work.waiting == Waiting(100, True, None)


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda s: s.filter(col("prize") > 1), "filter: no column 'prize'; there are auction, bidder, price, at, note"),
        (lambda s: s.filter(col("price") + 1), "filter: (price + 1) is decimal128"),
        (lambda s: s.filter(col("note") > 1), "note is string and 1 is int64"),
        (lambda s: s.select("auction", "auction"), "the result has two columns 'auction'"),
        (lambda s: s.select(col("price") + 1), "(price + 1) has no name: write name=(price + 1)"),
        (lambda s: s.select(7), "7 is neither the name of a column nor an expression"),
        (lambda s: s.select(Named), "Named.label: no column of that name"),
        (lambda s: s.select(Named, text="note"), "Named has no field 'text'; its fields are auction, label"),
        (lambda s: s.select(Wrong), "Wrong.price is int64, but price is decimal128(18, 2); cast() changes types"),
        (lambda s: s.select(Priced, "auction"), "write everything else as name=expression"),
        (lambda s: s.select(x=col("price").max()), "price.max() is an aggregate"),
        (lambda s: s.map(unannotated), "unannotated does not say what it returns: annotate"),
        (lambda s: s.map(lambda bid: bid), "does not say what it returns"),
        (lambda s: s.map(gives_int), "gives_int returns int, which is not a Record class"),
        (lambda s: s.map(words), "any number of rows: use flat_map, not map"),
        (lambda s: s.flat_map(label), "label returns Named: annotate Iterator[R], or give returns=R"),
        (lambda s: s.map(takes_missing), "Missing asks for column 'seller'; there are auction"),
        (lambda s: s.map(takes_other), "OtherPrice.price is string, the stream's column is decimal128(18, 2)"),
        (lambda s: s.map(takes_two), "it takes a row and, if it wants, `ctx`; it has 2 parameters"),
        (lambda s: s.map("price"), "'price' is not a function of a row: give one, such as a def or a lambda"),
        (lambda s: s.filter("price > 1"), "filter: 'price > 1' is not a function of a row"),
        (lambda s: s.map_batches(None, returns=Named), "None is not a function of a row"),
        (lambda s: s.map(Bid), "Bid: it takes a row and, if it wants, `ctx`; it has 5 parameters"),
        (lambda s: s.filter(col(7) > 1), "col(7): it takes the name of a column; a plain value is lit(7)"),  # type: ignore[arg-type]
        (lambda s: s.select(x=when(col("price") > 1).then(1)), "when(...) lacks its end: write .otherwise(...)"),
        (lambda s: s.select(x=when("note").then(1).otherwise(2)), "the condition 'note' is string, not bool"),  # type: ignore[arg-type]
        (lambda s: s.map_batches(waits, returns=Named), "`async def` is for map, flat_map, filter and lookup"),
        (lambda s: s.map(label, concurrency=5), "concurrency= is for `async def` functions, and label is not one"),
        (lambda s: s.filter(col("price") > 1, ordered=False), "ordered= is for `async def` functions"),
        (lambda s: s.map(waits, concurrency=0), "concurrency=0: it must be a number of rows from 1 to 1,000"),
        (lambda s: s.map(waits, timeout="0s"), "timeout='0s': it must be more than 0"),
        (lambda s: s.map(waits, timeout="soon"), "'soon' is not a duration"),
        (lambda s: s.map(waits, retries=1), "retries= is not an option of it; the options are concurrency"),
        (lambda s: s.map_batches(lambda rows: rows, returns=int), "returns=<class 'int'>, which is not a Record class"),
        (lambda s: s.key_by(), "at least one column"),
        (lambda s: s.key_by("seller"), "no column 'seller'"),
        (lambda s: s.union(s), "a stream cannot be united with itself: every row would count twice"),
        (lambda s: s.union(s.select("at")), "one has the columns auction, bidder, price, at, note, the other at"),
        (lambda s: s.union(bids(Job("other"))), "the other stream belongs to job 'other', this one to 'test'"),
        (lambda s: s.sink("nowhere"), "'nowhere' is not a sink"),
        (lambda s: s.named("two words"), "'two words' is not a valid name"),
        (lambda s: s.named("n" + "é" * 100), "has 201 bytes: files are named after it, so a name has 200 at most"),
    ],
)  # fmt: skip
def test_impossible_verbs_are_refused_with_their_line(write: Callable[[Stream[Any]], Any], message: str) -> None:
    stream = bids()
    with pytest.raises(GraphError) as caught:
        write(stream)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"tests/unit/dsl/test_stream.py:{write.__code__.co_firstlineno}: ")


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda job: job.source(7), "source: 7 is not a source"),
        (lambda job: job.source(Rows(Bid), event_time="when"), "event_time: no column 'when'; there are auction"),
        (lambda job: job.source(Rows(Bid), event_time="note"), "'note' is string; declare it datetime"),
        (lambda job: job.source(Rows(Bid), event_time=("at", "at")), "the source has 1 ports"),
        (lambda job: job.source(Rows(Bid), event_time="at", out_of_order="-1s"), "neither can be negative"),
    ],
)
def test_an_impossible_source_is_refused(write: Callable[[Job], Any], message: str) -> None:
    with pytest.raises(GraphError) as caught:
        write(Job("test"))
    assert message in str(caught.value)


@functools.cache
def cached_words(bid: Bid) -> Named:
    return Named(bid.auction, bid.note or "")


class Labels:
    def __init__(self) -> None:
        self.of = functools.lru_cache(self.labelled)

    def labelled(self, bid: Bid) -> Named:
        return Named(bid.auction, "")


@pytest.mark.parametrize("function", [cached_words, functools.partial(cached_words), Labels().of, Labels().labelled])
def test_the_class_of_rows_is_found_in_wrapped_functions(function: Any) -> None:
    assert bids().map(function).schema.names == ["auction", "label"]


def test_event_time_follows_its_column() -> None:
    stream = bids().select("auction", when="at")
    assert stream.window(tumbling("1s")).aggregate(n=count()).schema.names == ["window_start", "window_end", "n"]
    with pytest.raises(GraphError, match="this stream has no event time; say which column it is"):
        stream.select("auction").window(tumbling("1s")).aggregate(n=count())


def test_a_job_name_that_is_no_path_component_is_refused() -> None:
    with pytest.raises(GraphError, match="'a/b' is not a valid job name"):
        Job("a/b")
    with pytest.raises(
        GraphError, match=r"'long(long)+'\.\.\. has 400 bytes: files are named after it, so a name has 200"
    ):
        Job("long" * 100)
    assert Job("x" * 200).name


def names(job: Job) -> list[str]:
    return [node.name for node in job.graph().nodes]


def test_default_names_are_those_of_verbs_and_connectors() -> None:
    job = Job("names")
    stream = bids(job)
    stream.filter(col("auction") > 1).filter(col("auction") > 2).map(label).sink(Nowhere("hot auctions"))
    assert names(job) == ["source-rows", "filter", "filter-2", "map", "sink-hot-auctions"]


def test_named_sets_the_stable_name() -> None:
    job = Job("names")
    job.source(Rows(Bid)).named("bids").map(label).named("label").sink(Nowhere()).named("out")
    assert names(job) == ["bids", "label", "out"]


def test_a_duplicate_name_is_refused() -> None:
    stream = bids().named("x")
    with pytest.raises(GraphError, match=r"'x' is the name of the source at .*; names are unique"):
        stream.map(label).named("x")


def test_a_second_unnamed_stateful_operator_is_refused() -> None:
    job = Job("names")
    hot = bids(job).key_by("auction").window(tumbling("1s")).aggregate(n=count())
    hot.window(tumbling("2s")).aggregate(n=col("n").max()).sink(Nowhere())
    with pytest.raises(GraphError, match=r"a second 'aggregate', the first is at .*; add .named\('...'\)"):
        job.graph()


def test_a_sink_with_the_default_name_of_an_operator_is_refused() -> None:
    job = Job("names")
    bids(job).distinct("auction").sink(Nowhere()).named("distinct")
    with pytest.raises(
        GraphError, match=r"the distinct is named 'distinct' by default, and the sink at .* has that name"
    ):
        job.graph()


def test_two_unnamed_sinks_of_one_kind_are_refused() -> None:
    job = Job("names")
    stream = bids(job)
    stream.sink(Nowhere())
    stream.sink(Nowhere())
    with pytest.raises(GraphError, match="a second 'sink-nowhere'"):
        job.graph()


def test_a_job_without_a_sink_is_refused() -> None:
    job = Job("idle")
    bids(job)
    with pytest.raises(GraphError, match="job 'idle' has no sink"):
        job.graph()


def test_connectors_are_replaced_by_name() -> None:
    job = Job("swap")
    job.source(Rows(Bid)).named("txns").map(label).sink(Nowhere("alerts"))
    source, sink = Rows(Bid), Nowhere("other")
    other = job.with_connectors({"txns": source, "alerts": sink})
    assert other.sources == {"txns": source}
    assert other.sinks == {"sink-alerts": sink}
    assert job.sources["txns"] is not source
    assert other.record_of("alerts") is Named
    assert other.record_of("txns").schema() == Bid.schema()


def test_a_job_may_get_other_numbers_of_tasks() -> None:
    job = Job("wide")
    rows = job.source(Rows(Bid)).named("txns").parallelism(2)
    rows.key_by("bidder").top(1, by="price").named("best").changes().sink(Nowhere("out"))
    other = job.with_parallelism({"txns": 3, "best": 4})
    assert {node.name: node.parallelism for node in other.graph().nodes if node.parallelism} == {"txns": 3, "best": 4}
    assert {node.name: node.parallelism for node in job.graph().nodes if node.parallelism} == {"txns": 2}
    with pytest.raises(GraphError, match="has no operator 'tnxs'; it has txns, best"):
        job.with_parallelism({"tnxs": 3})
    with pytest.raises(GraphError, match="0 is not a number of tasks"):
        job.with_parallelism({"txns": 0})


@pytest.mark.parametrize(
    ("replacements", "message"),
    [
        ({"tnxs": Rows(Bid)}, "job 'swap' has no single source or sink 'tnxs'; it has txns, sink-alerts"),
        ({"txns": Nowhere()}, "txns is a source, but Nowhere is not"),
        ({"txns": Rows(Priced)}, "txns: column 'bidder' is int64 in the job, missing in its replacement"),
        ({"txns": Ports(Bid, Bid)}, "txns has 1 ports, Ports 2"),
    ],
)
def test_a_replacement_that_does_not_fit_is_refused(replacements: dict[str, Any], message: str) -> None:
    job = Job("swap")
    job.source(Rows(Bid)).named("txns").sink(Nowhere("alerts"))
    with pytest.raises(GraphError, match=message):
        job.with_connectors(replacements)


def test_rows_have_the_class_of_their_source() -> None:
    job = Job("known")
    job.source(MemorySource([Named(1, "x")])).filter(lambda row: row.label == "x").sink(Nowhere("out"))
    assert job.record_of("out") is Named


def test_classes_of_rows_may_have_instants() -> None:
    class Seen(Record):
        at: Instant

    assert bids().select(Seen).record is Seen
