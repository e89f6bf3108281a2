"""Continuous eventual checkpoints beside the figures of their paper (Sebepou and Magoutis, CEC, section IV).

One operator aggregates windows of ten rows over 100,000 keys, about 90,000 of them open, in batches of 1,000 rows. It
runs alone, as fast as it can; footprints of opened windows are written with each batch, and the oldest windows are
saved again by the policy under test. Then the state is rebuilt from its footprints and the input since the oldest one,
and compared with that of the operator.

The extent is the number of footprints from the oldest one that decides. The response time is that from the opening of a
window to its end: by Little's law, the open windows divided by the windows that end per second.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
import pyarrow as pa

from clonos_py.cli.counts import Count
from clonos_py.cli.tables import show
from clonos_py.evaluation.finished_runs import FinishedRuns, LineKind
from clonos_py.model.aggregates import Aggregate
from clonos_py.model.errors import ClonosError
from clonos_py.model.ids import TaskId
from clonos_py.model.protocols import FootprintPolicy
from clonos_py.model.windows import Counted
from clonos_py.operators.count_windows import CountWindowAggregate
from clonos_py.process.contract import InputProgress
from clonos_py.task.partwise import Arrival, PartwiseState

_KIND = {"run": LineKind(("experiment", "target"), "extent")}
_AGGREGATES = (Aggregate("count", None, "rows", pa.int64()), Aggregate("sum", "value", "total", pa.int64()))
_FIELDS: list[Any] = [("key", pa.int64()), ("rows", pa.int64()), ("total", pa.int64())]
_KEY_GROUPS = 128
_SAVED_EVERY = 10
"""Footprints of opened windows are written after so many batches."""
_TARGETS = {
    "Q": {"1x open": 1, "2x open": 2, "4x open": 4, "8x open": 8},
    "U": {"125k rows": 125_000, "250k rows": 250_000, "500k rows": 500_000, "1M rows": 1_000_000},
    "CP": {"none": 0, "250 ms": 250_000, "100 ms": 100_000, "50 ms": 50_000, "25 ms": 25_000},
}
_PAPER: Mapping[tuple[str, str], str] = {
    ("Q", "1x open"): "extent 120k",
    ("Q", "2x open"): "extent 180k",
    ("Q", "8x open"): "extent 500k",
    ("U", "125k rows"): "extent 120k, replay 20 MB",
    ("U", "1M rows"): "extent 230k, replay 90 MB",
    ("CP", "none"): "response 16.5 s",
    ("CP", "100 ms"): "response 18.5 s",
    ("CP", "50 ms"): "response 21.5 s",
    ("CP", "25 ms"): "response 32.5 s",
}


@dataclass(frozen=True)
class _Scale:
    keys: int
    window: int
    batch: int
    rows: int
    """How many rows are taken before the run is measured, and again as many while it is."""
    seed: int

    @property
    def open(self) -> int:
        """About how many windows are open: a key is between two windows once in ``window`` rows."""
        return self.keys * (self.window - 1) // self.window

    def batches(self) -> Iterator[pa.RecordBatch]:
        drawn = np.random.default_rng(self.seed)
        while True:
            keys, values = drawn.integers(0, self.keys, self.batch), drawn.integers(0, 1_000, self.batch)
            yield pa.record_batch({"key": pa.array(keys), "value": pa.array(values)})


class _Context:
    """What the operator asks of its task."""

    task, operator, parallelism, groups, key_groups = TaskId("cec", 0), "cec", 1, range(_KEY_GROUPS), _KEY_GROUPS

    def count(self, metric: str, amount: int) -> None:
        pass


class _Windows:
    """Counts the windows that end."""

    def __init__(self) -> None:
        self.ended = 0
        self.last: list[pa.RecordBatch] = []

    def emit(self, rows: pa.RecordBatch, port: int = 0) -> None:
        self.ended += rows.num_rows
        self.last = [*self.last[-3:], rows]


def _operator(scale: _Scale) -> tuple[CountWindowAggregate, _Windows]:
    operator = CountWindowAggregate(
        ("key",), Counted(scale.window, scale.window, True), _AGGREGATES, pa.schema(_FIELDS)
    )
    out = _Windows()
    context: Any = _Context()
    operator.open(context, out)
    return operator, out


def policy_of(experiment: str, target: str, open_windows: int) -> FootprintPolicy | None:
    """The policy of one run; None: nothing is saved."""
    value = _TARGETS[experiment][target]
    match experiment:
        case "Q":
            return FootprintPolicy(extent_max=value * open_windows, check_us=5_000, period_us=100_000)
        case "U":
            return FootprintPolicy(replay_max=value, check_us=5_000, period_us=100_000)
        case _:
            return None if not value else FootprintPolicy(extent_max=open_windows, check_us=10_000, period_us=value)


class _Run(NamedTuple):
    """An operator that has taken ``rows`` rows, with what a rebuild needs."""

    operator: CountWindowAggregate
    out: _Windows
    state: PartwiseState | None
    kept: deque[tuple[int, pa.RecordBatch]]
    """The input since the oldest footprint, by position."""


def taken(scale: _Scale, policy: FootprintPolicy | None, rows: int, run: _Run | None = None) -> _Run:
    """Takes so many rows, with all that the policy demands. ``run``: goes on with this one."""
    if run is None:
        operator, out = _operator(scale)
        state = None if policy is None else PartwiseState(operator, 0, policy)
        run = _Run(operator, out, state, deque())
    operator, out, state, kept = run
    for number, batch in enumerate(scale.batches()):
        if number * scale.batch >= rows:
            return run
        operator.on_rows(batch, 0)
        if state is None:
            continue
        kept.append((state.taken, batch))
        state.took(Arrival(0, 1), scale.batch)
        now_us = time.monotonic_ns() // 1_000
        if number % _SAVED_EVERY == 0:
            state.save(_inputs(state), now_us)
            while kept and kept[0][0] < state.rebuild_from()[0]:
                kept.popleft()
        if state.check_due(now_us) and state.check(_inputs(state), now_us):
            state.check_due(time.monotonic_ns() // 1_000)
    raise AssertionError


def _inputs(state: PartwiseState) -> list[InputProgress]:
    return [InputProgress(state.taken)]


def measured(scale: _Scale, experiment: str, target: str) -> dict[str, Any]:
    """One run, and the rebuild of its state. Raises ClonosError if the rebuilt state is another one."""
    policy = policy_of(experiment, target, scale.open)
    run = taken(scale, policy, scale.rows)
    checked = _count_checks(run.operator)
    before, ended = time.perf_counter(), run.out.ended
    taken(scale, policy, scale.rows, run)
    seconds, ended = time.perf_counter() - before, run.out.ended - ended
    found = {"extent": 0, "rows_per_s": scale.rows / seconds, "response_s": scale.open * seconds / ended}
    if run.state is None:
        return found
    saved = run.state.save(_inputs(run.state), 0)
    extent = run.operator.extent
    operator, out = _operator(scale)
    operator.save_in_parts()
    began = time.perf_counter()
    operator.restore([saved])
    operator.begin_rebuild()
    loaded = time.perf_counter()
    again = [(position, batch) for position, batch in run.kept if position >= extent.positions[0]]
    for position, batch in again:
        operator.rebuild(batch, 0, position)
    operator.rebuilt()
    rebuilt = time.perf_counter()
    run.out.last, out.last = [], []
    run.operator.on_end()
    operator.on_end()
    if run.out.last != out.last:
        raise ClonosError("the rebuilt operator has other windows than its predecessor")
    return {
        **found,
        "extent": sum(extent.records),
        "open": sum(extent.live),
        "checked": checked[0],
        "replay_rows": len(again) * scale.batch,
        "load_s": loaded - began,
        "replay_s": rebuilt - loaded,
    }


def _count_checks(operator: CountWindowAggregate) -> list[int]:
    """Counts the windows that are saved again from now on."""
    check, counted = operator.check, [0]

    def counting(position: int, parts: int) -> None:
        counted[0] += parts
        check(position, parts)

    operator.check = counting  # type: ignore[method-assign]
    return counted


def costs(scale: _Scale, policy: FootprintPolicy, pairs: int) -> list[float]:
    """CPU per row without footprints divided by that with them, for each of some alternating pairs."""
    ratios = []
    for pair in range(pairs):
        times = {}
        for on in (pair % 2 == 0, pair % 2 == 1):
            run = taken(scale, policy if on else None, scale.rows // 16)
            before = time.process_time()
            taken(scale, policy if on else None, scale.rows // 4, run)
            times[on] = time.process_time() - before
        ratios.append(times[False] / times[True])
    return ratios


def run(out: str, keys: int, window: int, batch: int, rows: int, pairs: int) -> None:
    """Measures what ``out`` does not have yet, and prints all of it."""
    scale = _Scale(keys, window, batch, rows, seed=1)
    finished = FinishedRuns(Path(out), _KIND, "the CEC benchmark")
    finished.begin({"keys": keys, "window": window, "batch": batch, "rows": rows, "pairs": pairs})
    wanted = [(experiment, target) for experiment, targets in _TARGETS.items() for target in targets]
    for number, (experiment, target) in enumerate(wanted, 1):
        key = {"experiment": experiment, "target": target}
        if not finished.finished("run", key):
            click.echo(f"{number} of {len(wanted)}: {experiment} {target}", err=True)
            finished.attempt("run", key, lambda e=experiment, t=target: measured(scale, e, t))  # type: ignore[misc]
    for name, (of, policy) in _costs(scale).items():
        key = {"experiment": "cost", "target": name}
        if not finished.finished("run", key):
            click.echo(f"cost: {name}", err=True)
            ratios = costs(of, policy, pairs)
            finished.keep("run", key, {"extent": 0, "ratio": float(np.median(ratios)), "ratios": ratios})
    heads = (
        "experiment",
        "target",
        "extent",
        "checked",
        "replayed",
        "load s",
        "replay s",
        "rows/s",
        "response s",
        "paper",
    )
    title = f"{keys:,} keys, windows of {window} rows, about {scale.open:,} open"
    show(title, heads, (_line(*which, _found(finished, *which)) for which in wanted))
    lines = (_cost(name, _found(finished, "cost", name)) for name in _costs(scale))
    show("CPU per row without footprints / with", ("windows", "median", "least", "most"), lines)


def _found(finished: FinishedRuns, experiment: str, target: str) -> Mapping[str, Any]:
    return finished.of("run", {"experiment": experiment, "target": target}) or {}


def _costs(scale: _Scale) -> dict[str, tuple[_Scale, FootprintPolicy]]:
    long, short = replace(scale, window=1_000, keys=scale.keys // 10), replace(scale, window=1)
    off, slow = FootprintPolicy(check_us=0), FootprintPolicy(extent_max=1, check_us=10_000, period_us=250_000)
    return {
        "1,000 rows, as they open": (long, off),
        "1,000 rows, CP 250 ms": (long, slow),
        f"{scale.window:,} rows, as they open": (scale, off),
        "1 row, as they open": (short, off),
    }


def _line(experiment: str, target: str, found: Mapping[str, Any]) -> tuple[str, ...]:
    def shown(name: str, form: str) -> str:
        return form.format(found[name]) if name in found else ""

    return (
        experiment,
        target,
        shown("extent", "{:,}"),
        shown("checked", "{:,}"),
        shown("replay_rows", "{:,}"),
        shown("load_s", "{:.2f}"),
        shown("replay_s", "{:.2f}"),
        shown("rows_per_s", "{:,.0f}"),
        shown("response_s", "{:.2f}"),
        found.get("error", _PAPER.get((experiment, target), "")),
    )


def _cost(name: str, found: Mapping[str, Any]) -> tuple[str, ...]:
    ratios = found.get("ratios", [np.nan])
    return name, *(f"{value:.3f}" for value in (np.median(ratios), min(ratios), max(ratios)))


command = click.Command(
    "cec",
    callback=run,
    params=[
        click.Option(["--out"], default="cec.jsonl", show_default=True, help="File of finished runs; goes on with it."),
        click.Option(["--keys"], type=Count(), default="100k", show_default=True, help="How many keys."),
        click.Option(["--window"], type=Count(), default="10", show_default=True, help="Rows of a window."),
        click.Option(["--batch"], type=Count(), default="1k", show_default=True, help="Rows of a batch."),
        click.Option(["--rows"], type=Count(), default="3M", show_default=True, help="Rows of each run, taken twice."),
        click.Option(["--pairs"], type=Count(), default="15", show_default=True, help="Alternating pairs for costs."),
    ],
    help="Continuous eventual checkpoints beside the figures of their paper: extent, replay, load and response.",
)
