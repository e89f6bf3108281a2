"""Fits the prices of the simulated cluster, that is, the CPU time for each kind of work, to runs on Ray (E12).

Every vertex of every run gives one equation: the CPU time that its tasks used per second equals the sum over all kinds
of work of amount times price. The prices minimize the squares of the relative errors, and none is negative. Runs differ
in query, parallelism and rate, so that the kinds of work can be told apart.

Some amounts are estimates. A source is assumed to read once for each frame. Processes count the frames and bytes that
they send, not those that arrive. If a vertex sends to several vertices, each is assumed to get an equal share of the
frames, and a share of the bytes in proportion to its rows. The CPU time of Ray's own processes, the coordinator and
standbys is not measured here; the background price of the simulation includes it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import click
import numpy as np
from numpy.typing import NDArray

from clonos_py.bench.checkmate.grid import Variant
from clonos_py.bench.checkmate.running import RunTerms
from clonos_py.bench.cluster.costs import BACKGROUND, BLOCK_EVENTS, WAKE_US, WORK, Duty, duty_of
from clonos_py.cli.tables import show
from clonos_py.evaluation.checkmate.dimensions import CAUSAL, ROLLBACK
from clonos_py.evaluation.metrics import WARM_UP_US
from clonos_py.model.coordinator_events import Deployed
from clonos_py.model.counters import ProcessCounters
from clonos_py.model.ids import TaskId
from clonos_py.model.plan import PhysicalPlan
from clonos_py.observe.events import Event, Measured
from clonos_py.settings.protocols import ALIGNED

_QUERIES, _PARALLELISMS, _RATES = ("q1", "q3", "q12"), (1, 2, 4), (200_000, 800_000, 3_200_000)
_RECOVERIES = (ROLLBACK, CAUSAL)
_SECONDS = 8.0
_LEAST_S = 1.5
"""A task that was observed for a shorter time is left out."""
_LEAST_CPU = 20_000.0
"""Microseconds per second. Errors are relative to the CPU time plus this, so that idle vertices do not dominate."""

_PRICES: Mapping[str, float] = {
    "background, us/s of a task": BACKGROUND * 1e6,
    "arrive and take": WORK["arrive"].each + WORK["take"].each + WAKE_US,
    "arrive, a KiB": WORK["arrive"].kib,
    "cut and acknowledge": WORK["cut"].each + WORK["acknowledge"].each + 2 * WAKE_US,
    "cut, a KiB": WORK["cut"].kib,
    "segment, a KiB": WORK["segment"].kib,
    "read": WORK["read"].each,
    "read, an event": WORK["read"].row + WORK["block"].each / BLOCK_EVENTS,
    "give, a row": WORK["give"].row,
    "compute, a row": WORK["compute"].row,
    "keep, a row": WORK["keep"].row,
}
"""The prices of the simulation, in microseconds. At low rates a process wakes up for each frame that arrives, for each
frame that it sends, and for each acknowledgement."""


@dataclass(frozen=True)
class VertexWork:
    """The work of all tasks of a vertex per second: amounts by price, and the CPU time in microseconds."""

    vertex: str
    done: Mapping[str, float]
    cpu_us: float


class _Rates(NamedTuple):
    """Rates per second of one task, or of all tasks of a vertex together."""

    rows_in: float
    rows_out: float
    frames_out: float
    kib_out: float
    log_kib_out: float
    cpu_us: float


def works(events: Sequence[tuple[int, Event]], plan: PhysicalPlan) -> Iterator[VertexWork]:
    """The work of each vertex in steady state, computed from the events of a listener."""
    rates = {vertex: _Rates(*map(sum, zip(*tasks, strict=True))) for vertex, tasks in _steady(events).items()}
    for vertex in plan.vertices:
        own = rates.get(vertex.name)
        if own is None:
            continue
        frames, kib, log_kib = _arriving(vertex.name, plan, rates)
        done = {
            "background, us/s of a task": float(vertex.parallelism),
            "arrive and take": frames,
            "arrive, a KiB": kib,
            "cut and acknowledge": own.frames_out,
            "cut, a KiB": own.kib_out,
            "segment, a KiB": log_kib,
        }
        duty = duty_of(vertex)
        if duty is Duty.READ:
            done |= {"read": own.frames_out, "read, an event": own.rows_in, "give, a row": own.rows_out}
        else:
            done[f"{duty.value}, a row"] = own.rows_in
        yield VertexWork(vertex.name, done, own.cpu_us)


def fitted(found: Sequence[VertexWork]) -> dict[str, float]:
    """The fitted prices in microseconds. A price that would be negative is set to 0."""
    amounts = np.array([[work.done.get(name, 0.0) for name in _PRICES] for work in found])
    cpu_us = np.array([work.cpu_us for work in found])
    weights = 1 / (cpu_us + _LEAST_CPU)
    kinds = np.flatnonzero(amounts.any(axis=0))
    prices: NDArray[Any] = np.zeros(0)
    while kinds.size:
        prices = np.linalg.lstsq(amounts[:, kinds] * weights[:, None], cpu_us * weights, rcond=None)[0]
        if (prices >= 0).all():
            break
        kinds = np.delete(kinds, prices.argmin())
    return dict.fromkeys(_PRICES, 0.0) | {list(_PRICES)[kind]: float(p) for kind, p in zip(kinds, prices, strict=True)}


def explained(work: VertexWork, prices: Mapping[str, float]) -> float:
    """The ratio of the CPU time at these prices to the CPU time that was measured."""
    return sum(prices[name] * amount for name, amount in work.done.items()) / work.cpu_us


def _steady(events: Sequence[tuple[int, Event]]) -> dict[str, list[_Rates]]:
    """The rates of each task, by vertex."""
    begin_us = min(at_us for at_us, event in events if isinstance(event, Deployed)) + WARM_UP_US
    readings: dict[TaskId, list[tuple[int, ProcessCounters]]] = {}
    for _, event in events:
        for reading in event.readings if isinstance(event, Measured) else ():
            if reading.counters.active and reading.at_us >= begin_us:
                readings.setdefault(reading.task, []).append((reading.at_us, reading.counters))
    found: dict[str, list[_Rates]] = {}
    for task, seen in readings.items():
        (first_us, first), (last_us, last) = seen[0], seen[-1]
        seconds = (last_us - first_us) / 1e6
        if seconds < _LEAST_S:
            continue
        found.setdefault(task.vertex, []).append(
            _Rates(
                (last.rows_in - first.rows_in) / seconds,
                (last.rows_out - first.rows_out) / seconds,
                (last.frames_sent - first.frames_sent) / seconds,
                (last.data_bytes - first.data_bytes) / seconds / 1024,
                (last.determinant_bytes - first.determinant_bytes) / seconds / 1024,
                (last.cpu_us - first.cpu_us) / seconds,
            )
        )
    return found


def _arriving(vertex: str, plan: PhysicalPlan, rates: Mapping[str, _Rates]) -> tuple[float, float, float]:
    """What arrives at a vertex per second: frames, KiB of rows and KiB of determinants."""
    frames = kib = log_kib = 0.0
    for source in {edge.source for edge in plan.edges if edge.target == vertex} & rates.keys():
        targets = {edge.target for edge in plan.edges if edge.source == source}
        rows = sum(rates[target].rows_in for target in targets & rates.keys())
        frames += rates[source].frames_out / len(targets)
        log_kib += rates[source].log_kib_out / len(targets)
        kib += rates[source].kib_out * rates[vertex].rows_in / rows if rows else 0.0
    return frames, kib, log_kib


def _run(variant: Variant, rate: float, terms: RunTerms) -> list[VertexWork]:
    events: list[tuple[int, Event]] = []
    settings, count = terms.settings(variant), rate * terms.seconds
    plan = terms.run(variant.query, count, rate, settings, lambda at_us, event: events.append((at_us, event)))
    return [*works(events, plan)]


@click.command("prices")
@click.option("--seconds", type=click.FloatRange(6), default=_SECONDS, show_default=True, help="How long a run lasts.")
def command(seconds: float) -> None:
    """Fits the prices of the simulated cluster to runs on Ray: processor time for each frame, row and KiB."""
    from clonos_py.runtime.ray.cluster import connected

    terms = RunTerms(0.0, seconds, 0.0, None, {"runtime": "ray", "checkpoint_interval": "2s"})
    found: list[VertexWork] = []
    with connected(None):
        runs = itertools.product(_QUERIES, _RECOVERIES, _PARALLELISMS, _RATES)
        for query, recovery, parallelism, rate in runs:
            click.echo(f"{query}, {recovery}, parallelism {parallelism}, {rate:,} events/s", err=True)
            found += _run(Variant(query, ALIGNED.name, recovery, parallelism), rate, terms)
    if not found:
        raise click.ClickException(f"no task was in steady state for {_LEAST_S} s: give more --seconds")
    prices = fitted(found)
    show("Microseconds of processor time", ["price", "fitted", "simulated"], [
        [name, f"{price:,.3f}", f"{_PRICES[name]:,.3f}"] for name, price in prices.items()
    ])  # fmt: skip
    shares = sorted(explained(work, prices) for work in found)
    within = sum(0.75 <= share <= 1.25 for share in shares)
    click.echo(f"{within} of {len(shares)} vertices used what the fitted prices say, within 25%")
