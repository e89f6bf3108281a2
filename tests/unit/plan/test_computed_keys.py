"""The state of an operator belongs to keys as the job computes them: another expression is another definition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from clonos_py import Context, CoProcess, Job, Process, Record, Stream, apply, between, col, count, state, tumbling
from clonos_py.job.state_mapping import definitions_of
from clonos_py.model.state_definitions import StateDefinition, differences
from clonos_py.plan.physical import plan
from clonos_py.settings.resolution import resolve
from tests.unit.dsl.connectors import Bid, Nowhere, Rows

Bids = Stream[Any]


class Keyed(Record):
    k: int


class Seen(Record):
    seen: int


class Count(Process[Keyed, Seen]):
    n: int = state(0)

    def on_row(self, row: Keyed, ctx: Context) -> Seen:
        return Seen(self.n)


class CountBoth(CoProcess[Keyed, Keyed, Seen]):
    n: int = state(0)

    def on_left(self, row: Keyed, ctx: Context) -> Seen:
        return Seen(self.n)

    def on_right(self, row: Keyed, ctx: Context) -> Seen:
        return Seen(self.n)


def rest(values: pa.Array[Any]) -> pa.Array[Any]:
    return values


def others(values: pa.Array[Any]) -> pa.Array[Any]:
    return values


def is_dear(bid: Bid) -> bool:
    return bid.price > 3


OPERATORS: dict[str, tuple[str, Callable[[Bids, Bids], Any]]] = {
    "a table": ("keys", lambda bids, other: bids.key_by("k").aggregate(n=count())),
    "windows": ("keys", lambda bids, other: bids.key_by("k").window(tumbling("1s")).aggregate(n=count())),
    "top": ("keys", lambda bids, other: bids.key_by("k").top(2, by="price")),
    "top of windows": ("keys", lambda bids, other: bids.key_by("k").window(tumbling("1s")).top(2, by="price")),
    "distinct": ("keys", lambda bids, other: bids.distinct("k")),
    "a process": ("keys", lambda bids, other: bids.key_by("k").process(Count)),
    "a process of two inputs": (
        "keys of the right input",
        lambda bids, other: other.key_by("k").connect(bids.key_by("k")).process(CountBoth),
    ),
    "a join": (
        "right keys",
        lambda bids, other: other.select("k", "at").join(
            bids.select("k", then=col("at")), on="k", within=between("-1s", "1s")
        ),
    ),
}
"""By name: the fact of its definition that changes, and the operator with key ``k`` of a stream."""

PROGRAMS: list[tuple[str, list[Callable[[Bids], Bids]]]] = [
    ("k = (auction % 5)", [
        lambda bids: bids.with_columns(k=col("auction") % 5),
        lambda bids: bids.with_columns(k=col("auction") % 5).filter(col("price") > 3),
        lambda bids: bids.with_columns(k=col("auction") % 5).filter(is_dear),
        lambda bids: bids.filter(col("price") > 3).with_columns(k=col("auction") % 5).union(
            bids.filter(col("price") <= 3).with_columns(k=col("auction") % 5)
        ),
        lambda bids: bids.rebalance().with_columns(k=col("auction") % 5),
        lambda bids: bids.select("at", "price", "bidder", five=col("auction") % 5).with_columns(k=col("five")),
        lambda bids: bids.select("at", "price", a=col("auction")).with_columns(k=col("a") % 5),
    ]),
    ("k = (auction % 7)", [lambda bids: bids.with_columns(k=col("auction") % 7)]),
    ("k = (auction % 5) | (auction % 7)", [
        lambda bids: bids.filter(col("price") > 3).with_columns(k=col("auction") % 5).union(
            bids.filter(col("price") <= 3).with_columns(k=col("auction") % 7)
        ),
    ]),
    ("k = (bidder % 5)", [lambda bids: bids.with_columns(k=col("bidder") % 5)]),
    ("k = auction", [lambda bids: bids.with_columns(k=col("auction"))]),
    ("k = bidder", [lambda bids: bids.with_columns(k=col("bidder"))]),
    ("k = rest(auction)", [lambda bids: bids.with_columns(k=apply(rest, "auction", returns=int))]),
    ("k = others(auction)", [lambda bids: bids.with_columns(k=apply(others, "auction", returns=int))]),
]  # fmt: skip
"""By text of the key: programs that compute it."""


def definitions(operator: str, program: Callable[[Bids], Bids]) -> StateDefinition:
    job = Job("test")
    bids, other = (job.source(Rows(Bid), event_time="at").named(name) for name in ("bids", "other"))
    made = OPERATORS[operator][1](program(bids), other.with_columns(k=col("auction")))
    if hasattr(made, "at_end"):
        made = made.at_end()
    made.named("made").sink(Nowhere("out"))
    return definitions_of(plan(job, resolve({"parallelism": 2})))["made"]


@pytest.mark.parametrize("operator", OPERATORS)
def test_programs_that_compute_a_key_in_the_same_way_have_the_same_definition(operator: str) -> None:
    fact, _ = OPERATORS[operator]
    found = [(text, definitions(operator, program)) for text, programs in PROGRAMS for program in programs]
    for text, definition in found:
        assert definition.facts[fact].removesuffix(": int64") == text
    for old, was in found:
        for new, is_ in found:
            assert bool(list(differences(was, is_, {}))) == (old != new)


def test_a_computed_key_may_be_written_in_key_by_or_before_it() -> None:
    def facts(key: Callable[[Bids], Any]) -> Any:
        job = Job("test")
        key(job.source(Rows(Bid))).aggregate(n=count()).at_end().named("made").sink(Nowhere("out"))
        return definitions_of(plan(job, resolve({})))["made"].facts["keys"]

    assert facts(lambda bids: bids.key_by("bidder", k=col("auction") % 5)) == "bidder, k = (auction % 5)"
    assert facts(lambda bids: bids.with_columns(k=col("auction") % 5).key_by("bidder", "k")) == (
        "bidder, k = (auction % 5)"
    )
