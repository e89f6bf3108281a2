"""Tables in a job: the keys of their rows, what can be made from them, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from clonos_py import (
    GraphError,
    Instant,
    Job,
    Money,
    Record,
    Stream,
    Table,
    col,
    count,
    forever,
    on_change,
    session,
    tumbling,
    until,
)
from clonos_py.model.hidden import hidden
from clonos_py.plan.logical import AggregateTable, TopTable
from tests.unit.dsl.connectors import Bid, Nowhere, bids


class Ranked(Record):
    bidder: int
    price: Money
    place: int


def highest(job: Job | None = None) -> Table[Any]:
    return bids(job).key_by("auction").aggregate(top=col("price").max())


def test_rows_of_a_top_n_have_the_key_and_their_rank_as_keys() -> None:
    table = bids().key_by("auction").top(3, by=[col("price").desc(), "at"])
    assert table.keys == ("auction", "rank_number")
    assert table.schema.names == [*Bid.schema().names, "rank_number"]
    filled = bids().key_by("auction").top(3, by=col("price").desc(), into=Ranked, rank="place")
    assert (filled.keys, filled.schema) == (("auction", "place"), Ranked.schema())


def test_a_top_1_has_no_rank() -> None:
    table = bids().key_by("auction").top(1, by="at", into=Bid)
    assert (table.keys, table.schema) == (("auction",), Bid.schema())
    assert bids().key_by("auction").top(1, by="at").schema.names == Bid.schema().names


def test_rows_of_a_top_n_of_all_rows_have_their_rank_as_key() -> None:
    assert bids().top(3, by=col("price").desc()).keys == ("rank_number",)


def test_only_changes_that_come_once_have_an_event_time() -> None:
    keyed = bids().key_by("auction")
    keyed.top(1, by="price").changes("change").window(tumbling("1s")).aggregate(n=count())
    with pytest.raises(GraphError, match="has no event time"):
        bids().key_by("auction").top(2, by="price").changes("change").window(tumbling("1s")).aggregate(n=count())


def test_rows_may_be_ordered_by_an_expression() -> None:
    job = Job("computed")
    table = bids(job).key_by("auction").top(1, by=(col("price") * 2).desc(), into=Bid)
    table.at_end().sink(Nowhere())
    (work,) = [node.work for node in job.graph().nodes if isinstance(node.work, TopTable)]
    assert [(key.column, key.descending) for key in work.order] == [(hidden("order:0"), True)]


def test_a_table_of_a_table_takes_its_differences() -> None:
    job = Job("twice")
    pairs = bids(job).key_by("auction", "bidder").aggregate(top=col("price").max()).named("tops")
    pairs.key_by("bidder").aggregate(n=count(), mean=col("top").mean()).named("means").sink(Nowhere(upserts=True))
    tops, means = [node.work for node in job.graph().nodes if isinstance(node.work, AggregateTable)]
    assert (tops.mode, tops.weighted, means.mode, means.weighted) == ("deltas", False, "changes", True)


def test_a_filtered_aggregate_is_null_where_no_row_passes() -> None:
    made = bids().key_by("auction").aggregate(
        low=count().where(col("price") < 5), top=col("price").max().where(col("bidder") == 1),
        bidders=col("bidder").count_distinct(), average=col("bidder").mean(whole=True)
    )  # fmt: skip
    assert [(field.name, str(field.type), field.nullable) for field in made.schema][1:] == [
        ("low", "int64", False),
        ("top", "decimal128(18, 2)", True),
        ("bidders", "int64", False),
        ("average", "int64", False),
    ]


class InWindow(Record):
    bidder: int
    window_end: Instant
    rank_number: int


def test_the_first_rows_of_windows_have_the_bounds_of_their_window() -> None:
    windows = bids().key_by("auction").window(tumbling("10s"))
    assert windows.top(2, by=col("price").desc(), into=InWindow).schema == InWindow.schema()
    everything = windows.top(2, by=col("price").desc())
    assert everything.schema.names == [*Bid.schema().names, "window_start", "window_end", "rank_number"]
    assert everything.window(tumbling("10s")).aggregate(n=count()).schema.names == ["window_start", "window_end", "n"]


class Price(Record):
    top: Money


def highest_price() -> Table[Any]:
    return bids().key_by("auction").aggregate(Price, top=col("price").max())


def _joined_changes() -> Any:
    job = Job("joined")
    rows = bids(job)
    table = rows.key_by("auction").aggregate(top=col("price").max())
    return rows.join(table.changes(), on="auction", within=forever())


def test_changes_with_their_kind_are_ordinary_rows() -> None:
    changes = highest().changes(kind="change")
    assert changes.schema.names == ["auction", "top", "change"]
    assert changes.key_by("change").aggregate(n=count()).schema.names == ["change", "n"]


def test_a_top_n_of_a_table_retracts_rows_that_leave_it() -> None:
    job = Job("twice")
    tops = bids(job).key_by("auction", "bidder").aggregate(top=col("price").max()).named("tops")
    best = tops.key_by("bidder").top(3, by=col("top").desc()).named("best")
    best.changes().sink(Nowhere())
    first, second = [node.work for node in job.graph().nodes if isinstance(node.work, AggregateTable | TopTable)]
    assert isinstance(first, AggregateTable)
    assert isinstance(second, TopTable)
    assert (first.mode, first.retract_when_changed, second.table_keys) == ("deltas", ("bidder",), ("auction", "bidder"))
    assert (tops.schema.names, best.keys) == (["auction", "bidder", "top"], ("bidder", "rank_number"))
    assert best.schema.names == ["auction", "bidder", "top", "rank_number"]


def pair_of_tables() -> tuple[Table[Any], Table[Any]]:
    """The highest price of each bidder at an auction, and the number of bids of each auction."""
    rows = bids(Job("pair"))
    tops = rows.key_by("auction", "bidder").aggregate(top=col("price").max()).named("tops")
    return tops, rows.key_by("auction").aggregate(n=count()).named("counts")


def _used_before() -> Table[Any]:
    table = highest()
    table.aggregate(n=count())
    return table


def _without_within() -> Any:
    rows = bids()
    return rows.join(rows.select("auction", other="bidder"), on="auction")  # type: ignore[call-overload]


def looked_up(how: Any = "inner", within: Any = None) -> Stream[Any]:
    """Bids with the number of bids of their auction."""
    rows = bids(Job("looked-up"))
    counts = rows.key_by("auction").aggregate(n=count()).named("counts")
    return rows.join(counts, "auction", within, how=how)  # type: ignore[call-overload, no-any-return]


def test_rows_of_a_stream_keep_their_event_time_when_they_are_joined_with_a_table() -> None:
    stream = looked_up()
    assert stream.schema.names == [*bids().schema.names, "n"]
    assert stream._output.time == bids()._output.time
    assert not stream.schema.field("n").nullable
    assert looked_up("left").schema.field("n").nullable
    assert looked_up("semi").schema == bids().schema


def joined_tables(on: Any, how: Any = "inner") -> Table[Any]:
    left, right = pair_of_tables()
    return left.join(right, on=on, how=how)


@pytest.mark.parametrize(
    ("how", "keys", "shrinks"),
    [
        ("inner", ("auction", "bidder"), False),
        ("left", ("auction", "bidder"), False),
        ("right", ("auction", "bidder"), True),
        ("full", ("auction", "bidder"), True),
        ("semi", ("auction", "bidder"), False),
        ("anti", ("auction", "bidder"), True),
    ],
)
def test_rows_of_a_join_are_identified_by_what_does_not_follow_from_the_rest(
    how: Any, keys: tuple[str, ...], shrinks: bool
) -> None:
    table = joined_tables("auction", how)
    assert (table.keys, table._rows.shrinks) == (keys, shrinks)


def test_joined_columns_that_may_change_are_keys_of_the_result() -> None:
    left, right = pair_of_tables()
    table = left.join(right.select(number="auction", top=col("n").cast(Money)), on="top")
    assert (table.keys, table._rows.shrinks) == (("top", "auction", "bidder", "number"), True)


def test_a_row_of_one_table_each_is_identified_by_the_key_of_both() -> None:
    rows = bids(Job("pair"))
    first = rows.key_by("auction").aggregate(n=count()).named("first")
    second = rows.key_by("auction").aggregate(top=col("price").max()).named("second")
    assert first.join(second, on="auction", how="full").keys == ("auction",)
    renamed = second.select(other="auction", top="top").named("renamed")
    assert first.join(renamed, on=("auction", "other"), how="full").keys == ("auction", "other")
    assert first.join(renamed, on=("auction", "other"), how="left").keys == ("auction",)
    assert first.join(renamed, on=("auction", "other"), how="right").keys == ("other",)


class Rankless(Record):
    bidder: int


class Wrong(Record):
    expires: Instant


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda: bids().key_by("auction").top(0, by="at"), "top: n is 0: it must be a number of rows"),
        (lambda: bids().key_by("auction").top(2, by="at", into=Rankless), "Rankless needs a field 'rank_number'"),
        (lambda: bids().key_by("auction").top(2, by=[]), "by=[]: say in which order"),
        (lambda: bids().key_by("auction").top(2, by=col("price")), "by=col('price'): write"),  # type: ignore[call-overload]
        (lambda: bids().key_by("auction").top(2, by="prize"), "no column 'prize'"),
        (lambda: bids().key_by("auction").top(2, by="at", rank="note"), "there is a column 'note' already"),
        (lambda: bids().key_by("auction").top(1, by="at", into=Wrong), "Wrong.expires: nothing of that name"),
        (lambda: bids().window(session("1s")).top(1, by="at"), "it takes tumbling or hopping windows in event time"),
        (lambda: bids().window(tumbling("1s"), lateness="1s").top(1, by="at"), "and no lateness"),
        (lambda: highest().key_by("tip"), "no column 'tip' in this table; there are auction, top"),
        (lambda: highest().key_by(), "it needs at least one column"),
        (lambda: highest().key_by("top").top(2, by="auction").changes(), "rows of this table may be deleted"),
        (lambda: highest().key_by("top").aggregate(n=count()).changes(), "rows of this table may be deleted"),
        (
            lambda: highest().key_by("top").top(2, by="auction").top(1, by="top", rank="place").changes(),
            "rows of this table may be deleted",
        ),
        (
            lambda: highest().key_by("top").top(2, by="auction").sink(Nowhere(upserts=True)),
            "rows of this table may be deleted, and Nowhere only replaces rows",
        ),
        (lambda: highest().changes(kind="top"), "there is a column 'top' already"),
        (lambda: highest().changes().key_by("top").top(2, by="auction"), "changes of the table at tests"),
        (lambda: highest().changes().filter(col("top") > 2).aggregate(n=count()), "would both count; write .key_by"),
        (lambda: highest().changes().window(tumbling("1s")), "write the window before"),
        (_joined_changes, "join the rows that the table is made of"),
        (lambda: highest_price().top(1, by="top"), "'auction' is a key of this table, but not one of its columns"),
        (
            lambda: highest().aggregate(one=col("top").first()),
            "rows of a table change, and have no order of arrival",
        ),
        (lambda: bids().key_by("auction").aggregate(n=count().where(col("price"))), "is decimal128(18, 2), not bool"),
        (lambda: bids().key_by("auction").aggregate(n=col("price").mean(whole=True)), "whole=True is for integers"),
        (lambda: highest().select("top"), "'auction' is a key of this table, by which its rows are updated: keep it"),
        (lambda: highest().with_columns(auction=col("auction") + 1), "'auction' is a key of this table"),
        (lambda: highest().filter(col("top")), "is decimal128(18, 2), not bool"),
        (lambda: highest().filter(lambda row: True), "is not an expression, such as"),  # type: ignore[arg-type]
        (lambda: highest().filter(col("top") > 1).changes(), "rows of this table may be deleted"),
        (lambda: highest().filter(col("top") > 1).parallelism(2), "filter runs in the tasks of the table before it"),
        (lambda: highest().ttl("0s"), "ttl is '0s': it must be more than 0"),
        (lambda: highest().filter(col("top") > 1).ttl("1h"), "filter keeps no rows: set the ttl on the table before"),
        (
            lambda: highest().key_by("top").aggregate(n=count()).ttl("1h"),
            "the rows that the tables it is made of lose",
        ),
        (
            lambda: highest().key_by("top").top(1, by="auction").ttl("1h"),
            "the rows that the tables it is made of lose",
        ),
        (
            lambda: bids().key_by("auction").window(tumbling("1m"), emit=on_change()).aggregate(n=count()).ttl("1h"),
            "state of windows ends with them",
        ),
        (
            lambda: bids().key_by("auction").window(forever(), emit=on_change()).aggregate(n=count()).ttl("1h"),
            "forever() keeps the rows of all keys; for a ttl aggregate without",
        ),
        (lambda: joined_tables("auction").ttl("1h"), "the rows that the tables it is made of lose"),
        (lambda: bids().aggregate(n=count()).ttl("1h"), "this table has no keys, so no row of it is ever without"),
        (lambda: _used_before().ttl("1h"), "this table is read by another verb already: set the ttl before that"),
        (lambda: bids().select("auction").key_by("auction").aggregate(n=count()).ttl("1h"), "has no event time; say"),
        (lambda: highest().ttl("1h").changes(), "rows of this table may be deleted"),
        (lambda: highest().join(bids(), on="auction"), "Stream: a table is joined with a table"),  # type: ignore[call-overload]
        (lambda: highest().join(highest(), on="auction"), "the tables belong to different jobs"),
        (lambda: bids().join(highest(), on="auction"), "the stream and the table belong to different jobs"),
        (lambda: looked_up(within=forever()), "a row is joined with the rows that the table has when it comes"),
        (lambda: looked_up("full"), "how='full': a row of a table is looked up for each row of the stream; take how="),
        (_without_within, "within=None: a match may take tumbling(...)"),
        (
            lambda: bids().join(bids(), "auction", forever(), load_first=True),  # type: ignore[call-overload]
            "load_first=True: only a table is loaded, such as",
        ),
        (lambda: joined_tables("auction", "outer"), "how='outer': a join is one of"),
        (lambda: joined_tables("top"), "on: no column 'top' on the right"),
        (lambda: joined_tables("auction", "full").changes(), "rows of this table may be deleted"),
        (
            lambda: bids().join(bids().select("auction", "at"), on="auction", within=until("gone")),
            "belongs to job",
        ),
    ],
)
def test_an_impossible_table_is_refused(write: Callable[[], Any], message: str) -> None:
    with pytest.raises(GraphError) as caught:
        write()
    assert message in str(caught.value)
    assert "test_tables.py:" in str(caught.value)


def test_a_table_can_be_used_in_only_one_way() -> None:
    table = highest()
    table.aggregate(n=count())
    with pytest.raises(GraphError, match="this table is read by another verb already; write it twice"):
        table.at_end()
    table = highest()
    table.at_end()
    with pytest.raises(GraphError, match=r"this table is used as .at_end\(\) already"):
        table.aggregate(n=count())
    table = highest()
    table.changes()
    with pytest.raises(GraphError, match=r"used as .changes\(\) already; write that behind the other verbs"):
        table.aggregate(n=count())


def test_the_changes_of_a_table_come_behind_its_other_verbs() -> None:
    table = highest()
    table.aggregate(n=count())
    table.changes()
