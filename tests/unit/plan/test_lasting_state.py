"""State that only the number of keys bounds is marked, with what would bound it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from clonos_py import (
    BroadcastProcess,
    Context,
    Job,
    Process,
    Record,
    Stream,
    as_of,
    broadcast_state,
    col,
    count,
    counted,
    event_timer,
    forever,
    last,
    on_change,
    state,
    tumbling,
)
from clonos_py.plan.lasting_state import lasting_state
from clonos_py.plan.physical import plan
from tests.unit.dsl.connectors import Bid, Nowhere, bids


class Seen(Record):
    auction: int


class Remembers(Process[Bid, Seen]):
    seen: int = state(0)

    def on_row(self, bid: Bid, ctx: Context) -> Iterator[Seen]:
        yield Seen(bid.auction)


class Forgets(Remembers):
    seen: int = state(0, ttl="1h")


class Clears(Remembers):
    later = event_timer()

    @later.fires
    def on_later(self, at: int, ctx: Context) -> None: ...


class Ruled(BroadcastProcess[Bid, Bid, Seen]):
    rules: dict[int, int] = broadcast_state()

    def on_row(self, bid: Bid, ctx: Context) -> Iterator[Seen]:
        yield Seen(bid.auction)

    def on_broadcast(self, bid: Bid, ctx: Context) -> None: ...


Write = Callable[[Stream[Bid]], Stream[Any]]

KEPT: dict[str, tuple[Write, str]] = {
    "aggregate": (
        lambda rows: rows.key_by("auction").aggregate(n=count()).named("kept").at_end(),
        '.aggregate(...).ttl("7d")',
    ),
    "top": (
        lambda rows: rows.key_by("auction").top(1, by="at").named("kept").at_end(),
        '.top(...).ttl("7d")',
    ),
    "distinct": (lambda rows: rows.distinct("auction").named("kept"), 'distinct(..., ttl="7d")'),
    "forever": (
        lambda rows: rows.join(rows.select("auction"), "auction", forever()).named("kept"),
        'forever(ttl="7d")',
    ),
    "as_of": (
        lambda rows: rows.join(rows.select("auction", when="at"), "auction", as_of()).named("kept"),
        'as_of(oldest="7d")',
    ),
    "counted": (
        lambda rows: rows.key_by("auction").window(counted(10)).aggregate(n=count()).named("kept"),
        "a window of time",
    ),
    "reduce": (
        lambda rows: rows.key_by("auction").reduce(n=count()).named("kept"),
        "a window of time",
    ),
    "over": (
        lambda rows: rows.key_by("auction").over(last(rows=10)).aggregate(n=count()).named("kept"),
        'over(last("1h"))',
    ),
    "emit": (
        lambda rows: (
            rows.key_by("auction").window(forever(), emit=on_change()).aggregate(n=count()).named("kept").at_end()
        ),
        "a window of time",
    ),
    "process": (lambda rows: rows.key_by("auction").process(Remembers).named("kept"), 'state(ttl="7d")'),
}

BOUNDED: dict[str, Write] = {
    "aggregate": lambda rows: rows.key_by("auction").aggregate(n=count()).ttl("1h").at_end(),
    "of all rows": lambda rows: rows.aggregate(n=count()).at_end(),
    "top": lambda rows: rows.key_by("auction").top(1, by="at").ttl("1h").at_end(),
    "distinct": lambda rows: rows.distinct("auction", ttl="1h"),
    "forever": lambda rows: rows.join(rows.select("auction", when="at"), "auction", forever(ttl="1h")),
    "as_of": lambda rows: rows.join(rows.select("auction", when="at"), "auction", as_of(oldest="1h")),
    "window": lambda rows: rows.key_by("auction").window(tumbling("1m")).aggregate(n=count()),
    "process": lambda rows: rows.key_by("auction").process(Forgets),
    "timers": lambda rows: rows.key_by("auction").process(Clears),
    "emit": lambda rows: rows.key_by("auction").window(tumbling("1m"), emit=on_change()).aggregate(n=count()).at_end(),
    "broadcast": lambda rows: rows.key_by("auction").connect(rows.broadcast()).process(Ruled),
    "over": lambda rows: rows.key_by("auction").over(last("1h")).aggregate(n=count()),
    "limit": lambda rows: rows.limit(10),
    "stateless": lambda rows: rows.filter(col("price") > 1),
}


def written(write: Write) -> Job:
    job = Job("lasting")
    write(bids(job)).sink(Nowhere())
    return job


@pytest.mark.parametrize("kind", KEPT)
def test_state_that_is_kept_for_ever_is_marked_with_a_remedy(kind: str) -> None:
    write, remedy = KEPT[kind]
    made = plan(written(write))
    note = f"nothing bounds the state of kept but the number of keys; {remedy} would"
    assert note in made.notes
    assert [operator.name for vertex in made.vertices for operator in vertex.operators if operator.lasting] == ["kept"]


@pytest.mark.parametrize("kind", BOUNDED)
def test_bounded_state_is_not_marked(kind: str) -> None:
    assert list(lasting_state(written(BOUNDED[kind]).graph())) == []
