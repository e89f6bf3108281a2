"""Checkpoint intervals beside the figures of the utilization model's paper, simulated, and measured on Ray.

The measured job has one bottleneck: a keyed Python function that counts the rows of its keys, behind a source that is
never empty. It gets a SIGKILL at recorded times, which a seed draws from a Poisson process. Its utilization is counted
from the events of the run and compared with what the model foretells for the same failures
(``evaluation/intervals/accounting.py``).

A job that finds its interval itself begins with an expected rate of failures for which the best interval is ten times
too long, or too short. After ten failures its interval is compared with the best one of what was measured in the run.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa

from clonos_py import Context, Job, Process, Record, state
from clonos_py.bench.paced import PacedSource
from clonos_py.cli.counts import Count
from clonos_py.cli.options import file_in_a_folder
from clonos_py.cli.quantities import DurationParam
from clonos_py.cli.result_files import write_result
from clonos_py.cli.tables import show
from clonos_py.connectors import BlackholeSink
from clonos_py.evaluation.finished_runs import FinishedRuns, LineKind
from clonos_py.evaluation.intervals.accounting import AccountedRun, accounted, foretold
from clonos_py.evaluation.intervals.comparison import TABLE_1_HEADS, TABLE_1_NOTE, simulated_points, table_1
from clonos_py.evaluation.intervals.page import (
    FOUND_HEADS,
    MEASURED_HEADS,
    NUMBER_HEADS,
    found_rows,
    measured_rows,
    number_rows,
    page,
)
from clonos_py.evaluation.intervals.simulation import FAILURES, RUNS
from clonos_py.model.connectors import SourceDefinition
from clonos_py.model.coordinator_events import Deployed, IntervalChosen, Replayed
from clonos_py.model.errors import SettingError
from clonos_py.model.ids import TaskId
from clonos_py.model.operators import Source
from clonos_py.observe.events import Event, TaskFailed
from clonos_py.runtime.stop_switch import StopSwitch
from clonos_py.settings.definitions import Settings
from clonos_py.settings.resolution import resolve

_SIMULATED, _MEASURED, _FOUND = "simulated", "measured", "found"
_KINDS = {
    _SIMULATED: LineKind(("figure", "line", "interval"), "mean"),
    _MEASURED: LineKind(("recovery", "per_minute"), "utilization"),
    _FOUND: LineKind(("start",), "interval_s"),
}
_CAUSAL, _ROLLBACK = "causal", "rollback"
_RUNS = ((_CAUSAL, 1), (_CAUSAL, 3), (_CAUSAL, 6), (_ROLLBACK, 3))
"""Recovery, and kills per minute."""
_STARTS = {"ten times too long": 10.0, "ten times too short": 0.1}
_FOUND_PER_MINUTE, _FOUND_FAILURES = 3, 10
BOTTLENECK, _COUNTER = TaskId("count", 0), "counted.rows_out"
_FOUND_MIN = "50ms"
"""The shortest interval while a job finds its own, so that ten times too short is within the bounds."""
_CALM_S = 5.0
"""Nobody is killed so soon after the deployment."""
_STILL_S_MAX = 5.0
"""A run in which longer nothing was heard of the job is void: then also tasks that were not killed did nothing."""
_PATIENCE_S = 120.0
"""How long a run may take beyond its last failure."""

_READ_ROWS = 64
"""So few, that the source is hardly faster than the bottleneck. While nothing replaces a killed task, a source reads on
(a disconnected receiver holds nobody back), and barriers queue behind all that it has read."""

# ---- the job


class Numbered(Record):
    id: int
    key: int


class _Numbers(PacedSource):
    def __init__(self, keys: int) -> None:
        super().__init__(total=1 << 60, rate=1.0, most=_READ_ROWS)
        self._keys = keys

    def due_rows(self, elapsed_us: float) -> int:
        return self._total

    def rows(self, partition: int, start: int, stop: int) -> pa.RecordBatch:
        ids = np.arange(start, stop)
        return pa.record_batch({"id": ids, "key": ids * 7_919 % self._keys}, schema=Numbered.schema())


class EndlessNumbers(SourceDefinition):
    """Numbered rows with so many keys, as fast as they are taken, until the job is stopped."""

    def __init__(self, keys: int) -> None:
        self.schemas = (Numbered.schema(),)
        self._keys = keys

    def create(self, columns: tuple[tuple[str, ...] | None, ...], read_rows: int | None = None) -> Source:
        return _Numbers(self._keys)


class CountedKey(Process[Numbered, Numbered]):
    """Counts the rows of each key."""

    seen: int = state(0)

    def on_row(self, row: Numbered, ctx: Context) -> Iterator[Numbered]:
        self.seen += 1
        yield row


def saturated(keys: int) -> Job:
    """The measured job."""
    job = Job("saturated")
    counted = job.source(EndlessNumbers(keys)).named("numbers").key_by("key").process(CountedKey).named("count")
    counted.sink(BlackholeSink()).named("counted")
    return job


def kill_times_s(per_minute: float, minutes: float, seed: int) -> list[float]:
    """When the bottleneck is killed, in seconds since the deployment."""
    drawn, at_s, found = random.Random(f"{seed} {per_minute:g}"), _CALM_S, list[float]()
    while (at_s := at_s + drawn.expovariate(per_minute / 60)) < minutes * 60:
        found.append(round(at_s, 3))
    return found


def _kills(times_s: list[float]) -> tuple[str, ...]:
    return tuple(f"{BOTTLENECK}@{round(at_s * 1e6)}us" for at_s in times_s)


# ---- a run


class Watch:
    """A listener that keeps what is counted later, and stops the run ``seconds`` after the deployment, or when
    ``failures`` failures are over and an interval was chosen after them."""

    def __init__(self, seconds: float, failures: int | None = None) -> None:
        self.events: list[tuple[int, Event]] = []
        self.stop = StopSwitch()
        self.end_us: int | None = None
        """When the run was stopped."""
        self.still_s = 0.0
        """The longest time without an event: progress is reported four times a second."""
        self._seconds, self._failures = seconds, failures
        self._deployed_us: int | None = None
        self._failed = 0
        self._over = False

    def __call__(self, at_us: int, event: Event) -> None:
        if self._deployed_us is not None and self.end_us is None:
            self.still_s = max(self.still_s, (at_us - self.events[-1][0]) / 1e6)
        self.events.append((at_us, event))
        if isinstance(event, Deployed) and self._deployed_us is None:
            self._deployed_us = at_us
        if isinstance(event, TaskFailed):
            self._failed += not event.planned
            self._over = False
        if isinstance(event, Replayed):
            self._over = True
        late = self._deployed_us is not None and at_us - self._deployed_us >= self._seconds * 1e6
        found = self._over and isinstance(event, IntervalChosen) and self._failed == self._failures
        if self.end_us is None and (late or found):
            self.end_us = at_us
            self.stop.request()


def _run(keys: int, settings: Settings, watch: Watch) -> None:
    from clonos_py.runtime.launch import run_job

    run_job(saturated(keys), settings, watch, watch.stop)
    if watch.end_us is None:
        raise SettingError("the measured job has ended by itself: run the command again")
    if watch.still_s > _STILL_S_MAX:
        raise SettingError(
            f"the machine stood still for {watch.still_s:.0f} s of the run: run the command again when it is idle"
        )


@dataclass(frozen=True)
class _Terms:
    """What all measured runs share."""

    minutes: int
    interval_s: float
    keys: int
    seed: int

    def settings(self, recovery: str, kills: tuple[str, ...], **more: Any) -> Settings:
        own = {"guarantee": "exactly-once", "sharing_depth": 0} if recovery == _ROLLBACK else {}
        interval = f"{round(self.interval_s * 1e6)}us"
        shared = {"parallelism": 1, "standbys_per_process": 1, "checkpoint_interval": interval, "kills": kills}
        return resolve(command_line={**shared, **own, **more})


def measured(terms: _Terms, recovery: str, per_minute: float) -> dict[str, Any]:
    """One run with a fixed interval."""
    settings = terms.settings(recovery, _kills(kill_times_s(per_minute, terms.minutes, terms.seed)))
    watch = Watch(terms.minutes * 60)
    _run(terms.keys, settings, watch)
    assert watch.end_us is not None
    back = recovery == _ROLLBACK
    found = accounted(watch.events, BOTTLENECK, _COUNTER, watch.end_us, back)
    return {**asdict(found), "interval_s": terms.interval_s, **_expected(found, terms.interval_s, back)}


def _expected(found: AccountedRun, interval_s: float, back: bool) -> dict[str, float]:
    if not found.failures_s:
        raise SettingError("nothing was killed in so short a run: give more --minutes, or another --seed")
    model = found.model(back)
    return {
        "foretold": foretold(model, interval_s, found.failures_s, found.seconds),
        "equation": model.utilization(interval_s),
    }


def found_interval(terms: _Terms, times: float) -> dict[str, Any]:
    """One run that finds its interval. The first one that it chooses is so many times as long as the best one: the best
    interval grows with the root of the time between failures, of which another one is expected."""
    per_s = _FOUND_PER_MINUTE / 60
    minutes = _FOUND_FAILURES / _FOUND_PER_MINUTE * 3
    times_s = kill_times_s(_FOUND_PER_MINUTE, minutes, terms.seed)[:_FOUND_FAILURES]
    tasks = 2
    settings = terms.settings(
        _CAUSAL,
        _kills(times_s),
        checkpoint_interval="auto",
        checkpoint_interval_min=_FOUND_MIN,
        mtbf=f"{max(round(tasks / (per_s / times**2) * 1e6), 1)}us",
    )
    watch = Watch(times_s[-1] + _PATIENCE_S, _FOUND_FAILURES)
    _run(terms.keys, settings, watch)
    assert watch.end_us is not None
    run = accounted(watch.events, BOTTLENECK, _COUNTER, watch.end_us, False)
    deployed_us = next(at_us for at_us, event in watch.events if isinstance(event, Deployed))
    path = [
        ((at_us - deployed_us) / 1e6, event.interval_s)
        for at_us, event in watch.events
        if isinstance(event, IntervalChosen) and at_us <= watch.end_us
    ]
    if len(run.failures_s) < _FOUND_FAILURES:
        raise SettingError(f"only {len(run.failures_s)} of {_FOUND_FAILURES} failures happened: run the command again")
    observed_per_s = len(run.failures_s) / run.failures_s[-1]
    return {
        **asdict(run),
        "failures": len(run.failures_s),
        "failures_per_s": observed_per_s,
        "first_s": path[0][1],
        "interval_s": path[-1][1],
        "best_s": run.model(False, observed_per_s).best_s(),
        "path": path,
    }


# ---- the command


def run(
    out: str, html: Path | None, measure: bool, minutes: int, interval: int, keys: int, seed: int,
    runs: int, failures: int,
) -> int:  # fmt: skip
    """Makes the runs that ``out`` lacks, prints all tables and writes the page. Returns 1 if a run failed."""
    terms = _Terms(minutes, interval / 1e6, keys, seed)
    finished = FinishedRuns(Path(out), _KINDS, "the interval benchmark")
    if finished.cut_off:
        click.echo(finished.cut_off, err=True)
    finished.begin({**asdict(terms), "runs": runs, "failures": failures})
    _simulate(finished, runs, failures, seed)
    failed = _measure(finished, terms) if measure else 0
    _print(finished)
    if html is not None:
        simulated, measured_runs, found = (list(finished.good(kind)) for kind in _KINDS)
        write_result(html, page(simulated, measured_runs, found, finished.terms or {}))
        click.echo(f"the page is {html}")
    return 1 if failed else 0


def _simulate(finished: FinishedRuns, runs: int, failures: int, seed: int) -> None:
    for number, point in enumerate(simulated_points()):
        if not finished.finished(_SIMULATED, point.key):
            draws = np.random.default_rng([seed, number])
            finished.keep(_SIMULATED, point.key, {**point.run(draws, runs, failures), "runs": runs})


def _measure(finished: FinishedRuns, terms: _Terms) -> int:
    """Returns how many runs failed."""
    from clonos_py.runtime.ray.cluster import connected

    failed = 0
    with connected(None):
        for recovery, per_minute in _RUNS:
            key = {"recovery": recovery, "per_minute": per_minute}
            if not finished.finished(_MEASURED, key):
                click.echo(f"{recovery}, {per_minute} kills per minute, {terms.minutes:g} minutes", err=True)
                found = finished.attempt(_MEASURED, key, partial(measured, terms, recovery, per_minute))
                failed += _told(found)
        for start, times in _STARTS.items():
            if not finished.finished(_FOUND, {"start": start}):
                click.echo(f"a job that finds its interval, which is {start} at first", err=True)
                found = finished.attempt(_FOUND, {"start": start}, partial(found_interval, terms, times))
                failed += _told(found)
    return failed


def _told(found: Mapping[str, Any]) -> bool:
    """Prints the error of a run. Returns whether there is one."""
    if "error" in found:
        click.echo(found["error"], err=True)
    return "error" in found


def _print(finished: FinishedRuns) -> None:
    show("Numbers of the paper, and ours", NUMBER_HEADS, number_rows())
    show("Table 1", TABLE_1_HEADS, table_1())
    click.echo(f"{TABLE_1_NOTE}\n")
    apart = [abs(line["apart"]) for line in finished.good(_SIMULATED)]
    click.echo(
        f"{len(apart)} simulated points: {max(apart):.2f} standard errors from the model at most, "
        f"{np.mean(np.array(apart) < 1):.0%} within one\n"
    )
    if lines := list(finished.good(_MEASURED)):
        show("Measured utilization, and foretold for the same failures", MEASURED_HEADS, measured_rows(lines))
    if lines := list(finished.good(_FOUND)):
        show("Intervals that jobs found", FOUND_HEADS, found_rows(lines))


command = click.Command(
    "interval",
    callback=run,
    params=[
        click.Option(
            ["--out"], default="interval.jsonl", show_default=True, help="File of finished runs; goes on with it."
        ),
        click.Option(
            ["--html"], type=click.Path(path_type=Path), metavar="FILE", callback=file_in_a_folder,
            help="Write a page with everything.",
        ),
        click.Option(["--measure"], is_flag=True, help="Run jobs on Ray that fail, too."),
        click.Option(
            ["--minutes"], type=click.IntRange(1, 600), default=10, show_default=True,
            help="Minutes of each run with a fixed interval.",
        ),
        click.Option(
            ["--interval"], type=DurationParam(), default="5s", show_default=True, help="The fixed checkpoint interval."
        ),
        click.Option(["--keys"], type=Count(), default="20k", show_default=True, help="Keys of the measured job."),
        click.Option(["--seed"], type=int, default=1, show_default=True, help="Decides when tasks are killed."),
        click.Option(["--runs"], type=click.IntRange(2), default=RUNS, show_default=True, help="Runs of a simulation."),
        click.Option(
            ["--failures"], type=click.IntRange(1), default=FAILURES, show_default=True,
            help="Failures in each run of a simulation.",
        ),
    ],
    help="Checkpoint intervals: the paper's figures beside ours, simulated, and with --measure measured on Ray.",
)  # fmt: skip
