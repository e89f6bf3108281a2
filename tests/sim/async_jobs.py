"""The two-witness job with an asynchronous function: its answers go to two sinks over different paths."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from clonos_py import AsyncContext, Context, Job, Process, Record, service, state
from clonos_py.connectors.memory import MemorySink, MemorySource
from clonos_py.plan.physical import plan
from clonos_py.runtime.sim.run import SimulatedRun, simulate_plan
from clonos_py.services.http import HTTP, IDEMPOTENCY_KEY, Request
from clonos_py.settings.resolution import resolve

TOTAL = 60
ACTIONS_MAX = 30_000
"""Ten times what a run takes: a planted bug may never let it end."""
_names = itertools.count()


class Number(Record):
    id: int
    key: int


class Told(Number):
    seen: int
    drawn: int
    answer: int
    price: int


class Ranked(Told):
    rank: int


@service
def oracle() -> Iterator[Callable[..., int]]:
    yield lambda *args, **kwargs: 0


class Rank(Process[Told, Ranked]):
    """Numbers the rows of a key in the order of their arrival."""

    count: int = state(0)

    def on_row(self, row: Told, ctx: Context) -> Iterator[Ranked]:
        self.count += 1
        yield Ranked.extend(row, rank=self.count)


async def enrich(row: Number, ctx: AsyncContext) -> Told:
    drawn = ctx.random.getrandbits(32)
    answer = await ctx.call(oracle, row.id, drawn=drawn)
    if drawn % 4 == 0:
        await ctx.sleep("3ms")
    price = (await ctx.http.get(f"http://prices/{row.id}", retries=3, backoff="1ms")).json()
    return Told(row.id, row.key, ctx.time.now(), drawn, answer, price)


@dataclass
class World:
    """A service that answers every request differently; every fourth request fails. It records each request by its
    key."""

    random: random.Random
    keys: dict[str, set[str]] = field(default_factory=dict)

    def client(self, name: str) -> Any:
        return self if name == HTTP else lambda *args, **kwargs: self.random.getrandbits(40)

    def send(self, request: Request) -> dict[str, Any]:
        self.keys.setdefault(request.url, set()).add(request.headers[IDEMPOTENCY_KEY])
        status = 503 if self.random.random() < 0.25 else 200
        padding = " " * (70_000 if self.random.random() < 0.05 else 0)
        return {"status": status, "headers": {}, "content": f"{self.random.getrandbits(40)}{padding}".encode()}


def job(ordered: bool, concurrency: int, left: MemorySink, right: MemorySink) -> Job:
    numbers = [Number(i, i % 5) for i in range(TOTAL)]
    made = Job("async-witnesses")
    source = made.source(MemorySource(numbers, schema=Number, batch_rows=4)).named("numbers")
    enriched = source.rebalance().map(enrich, concurrency=concurrency, ordered=ordered).named("enrich")
    enriched.rebalance().sink(left).named("left")
    enriched.key_by("key").process(Rank).named("rank").sink(right).named("right")
    return made


def simulate(seed: int, kills: int = 4) -> SimulatedRun:
    """One run; disagreements of the witnesses are among its problems. After one failure the key of every request still
    names the same request. After several at once, frames that no receiver holds may be cut differently, and rows have
    other places in them."""
    drawn = random.Random(seed)
    left, right = MemorySink(f"left-{next(_names)}"), MemorySink(f"right-{next(_names)}")
    made = job(drawn.random() < 0.5, drawn.choice([1, 3, 20]), left, right)
    world = World(random.Random(seed + 1))
    physical = plan(made, resolve(made.settings), parallelism=drawn.choice([1, 2]))
    if drawn.random() < 0.5:  # else frames and reads begin with one row
        vertices = [
            v if v.source is None else replace(v, source=replace(v.source, adaptive=False)) for v in physical.vertices
        ]
        edges = tuple(replace(edge, adaptive=False) for edge in physical.edges)
        physical = replace(physical, vertices=tuple(vertices), edges=edges)
    outcome = simulate_plan(physical, seed, kills, client=world.client, actions_max=ACTIONS_MAX)
    outcome.problems += disagreements(left.rows(Told), right.rows(Ranked))
    if kills == 1 and any(len(keys) > 1 for keys in world.keys.values()):
        outcome.problems.append("a request came under several idempotency keys")
    left.clear()
    right.clear()
    return outcome


def disagreements(left: list[Told], right: list[Ranked]) -> list[str]:
    found = []
    by_id = {row.id: row for row in left}
    for name, rows in (("left", left), ("right", right)):
        if sorted(row.id for row in rows) != list(range(TOTAL)):
            found.append(f"{name} has {len(rows)} rows of {len({row.id for row in rows})} numbers")
    if differ := [row.id for row in right if Told.extend(row) != by_id.get(row.id)]:
        found.append(f"the witnesses differ on {differ[:5]}")
    ranks: dict[int, list[int]] = {}
    for row in right:
        ranks.setdefault(row.key, []).append(row.rank)
    if any(sorted(given) != list(range(1, len(given) + 1)) for given in ranks.values()):
        found.append("ranks are missing or doubled")
    return found
