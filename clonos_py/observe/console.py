"""The live view of a run on a terminal, and the summary at its end.

All output goes to standard error, since standard output is for the job's own output. On a terminal, a table of rates,
lag, checkpoints and recoveries is drawn four times a second. If standard error is no terminal, or lines of JSON are
asked for, checkpoints, recoveries and warnings are lines as they happen, and so is what a long start waits for.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from clonos_py.model.coordinator_events import Deployed, FunctionHangs
from clonos_py.model.reports import LogFormat, LogLevel
from clonos_py.model.user_metrics import MetricKind, UserMetric, operator_and_name, total
from clonos_py.observe.events import (
    Event,
    FunctionPrinted,
    ImplausibleEventTimes,
    Listener,
    MetricConflict,
    PlanWarning,
    Progress,
    TargetMissed,
    VertexProgress,
)
from clonos_py.observe.latest import Latest
from clonos_py.observe.log_lines import LogLines, stop_text
from clonos_py.observe.start_reports import reported
from clonos_py.observe.status import (
    RunStatus,
    awaited_text,
    exceeded_text,
    interval_text,
    left_text,
    missed_text,
    restart_text,
    skipped_text,
    undeleted_text,
    unready_text,
    untraced_text,
    unwritten_text,
)
from clonos_py.observe.units import bytes_text, duration_text

T = TypeVar("T")

REFRESHES_PER_S = 4
_RECOVERIES_SHOWN = 3
_PAST_US = 86_400_000_000
"""Rows with a lag of at least a day are historical data."""


@contextmanager
def watch(
    job: str,
    level: LogLevel = LogLevel.INFO,
    format_: LogFormat = LogFormat.PLAIN,
    console: Console | None = None,
) -> Iterator[Listener]:
    """Shows the live view of a run within the block, or writes lines, and prints the summary after it."""
    console = console or Console(stderr=True)
    status, began = RunStatus(), time.monotonic()
    live = console.is_terminal and format_ is LogFormat.PLAIN
    shown = LogLevel.WARNING if live and level is LogLevel.INFO else level
    lines = LogLines(job, status, shown, format_, partial(_write, console), datetime.now(UTC))

    def listen(at_us: int, event: Event) -> None:
        status.on(at_us, event)
        if not live or isinstance(
            event, FunctionHangs | ImplausibleEventTimes | MetricConflict | TargetMissed | PlanWarning | FunctionPrinted
        ):
            lines(at_us, event)
        elif isinstance(event, Deployed) and level is LogLevel.INFO:
            lines.report(at_us, stop_text(job))

    def waited() -> int:
        return round((time.monotonic() - began) * 1e6)

    def report(text: str) -> None:
        lines.report(waited(), text)

    try:
        with _live(job, status, console, began) if live else reported(status, report):
            yield listen
    finally:
        left = _left(status) if live or level is LogLevel.OFF else ()  # otherwise they were lines at once
        for line in summary(job, status) if status.finished else left:
            lines.conclude(waited(), line)


def _write(console: Console, line: str) -> None:
    """Writes a line, if that is possible: a full disk or a reader that is gone must not end the job."""
    with suppress(OSError, SystemExit):  # which Rich raises for a broken pipe
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _live(job: str, status: RunStatus, console: Console, began: float) -> Live:
    """The live display. If standard output is the same terminal, its lines are printed above the view."""
    return Live(
        get_renderable=lambda: view(job, status, round((time.monotonic() - began) * 1e6)),
        console=console,
        refresh_per_second=REFRESHES_PER_S,
        transient=True,
        redirect_stdout=sys.stdout.isatty(),
    )


def view(job: str, status: RunStatus, waited_us: int = 0) -> RenderableType:
    """The current view. ``waited_us``: the time since the command began, shown until the first events arrive."""
    # Another thread adds news, so a copy is drawn.
    awaited = [awaited_text(status.awaited)] if status.awaited else []
    news = [*status.news, *awaited, *(str(recovery) for recovery in status.recoveries[-_RECOVERIES_SHOWN:])]
    chosen = [Text(f"  {interval_text(status.interval)}")] if status.interval else []
    return Group(
        _headline(job, status, waited_us),
        *chosen,
        *([_vertices(status)] if status.progress else []),
        *(Text(f"  {line}", style="yellow") for line in news),
    )


def _headline(job: str, status: RunStatus, waited_us: int) -> Text:
    at_us = status.at_us if status.tasks else max(status.at_us, waited_us)
    parts = [f"{at_us / 1e6:.1f} s"]
    if status.tasks:
        parts.append(f"{status.tasks} tasks, {status.standbys} standbys")
    if status.checkpoints:
        last = status.checkpoints[-1]
        parts.append(f"checkpoint {last.checkpoint}: {last.duration_ms:,.0f} ms, {bytes_text(last.bytes)}")
    if status.progress and status.tasks:
        parts.append(f"{bytes_text(status.progress.in_flight_bytes)} retained")
        if status.progress.standby_lag_us is not None:
            parts.append(f"standbys {status.progress.standby_lag_us / 1e3:,.0f} ms behind")
        if status.progress.extent is not None:
            parts.append(f"{status.progress.extent:,} footprints, {status.progress.replay_rows or 0:,} rows to replay")
    return Text.assemble((job, "bold"), "   ", " · ".join(parts if status.tasks else [*parts, status.deployment]))


def _vertices(status: RunStatus) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("operator")
    for heading in ("tasks", "rows in/s", "rows out/s", "rows in", "lag"):
        table.add_column(heading, justify="right")
    for vertex in status.progress.vertices if status.progress else ():
        table.add_row(*_vertex_row(vertex, status))
    return table


def _vertex_row(vertex: VertexProgress, status: RunStatus) -> tuple[str, ...]:
    return (
        vertex.vertex,
        str(vertex.parallelism),
        f"{status.rows_in[vertex.vertex].per_second:,.0f}",
        f"{status.rows_out[vertex.vertex].per_second:,.0f}",
        f"{vertex.rows_in:,}",
        ", ".join(_lag(vertex)),
    )


def _lag(vertex: VertexProgress) -> Iterator[str]:
    """The lag of a vertex as text. For historical data, the event time reached is shown instead of its age."""
    if vertex.lag_us is not None and vertex.event_time_us is not None and vertex.lag_us >= _PAST_US:
        yield f"at {datetime.fromtimestamp(vertex.event_time_us / 1e6, UTC):%Y-%m-%d %H:%M}"
    elif vertex.lag_us is not None:
        yield duration_text(vertex.lag_us)
    if vertex.rows_waiting is not None:
        yield f"{vertex.rows_waiting:,} rows"


def summary(job: str, status: RunStatus) -> Iterator[str]:
    """The lines of the summary: totals, and the recovery from every failure."""
    ending = "stopped" if status.finished and status.finished.stopped else "finished"
    parts = [f"{job} {ending} after {status.at_us / 1e6:.1f} s"]
    if status.progress:
        parts += _totals(status.progress)
    for kind, amount in (
        ("checkpoint", status.checkpoints.amount),
        ("recovery", status.recoveries.amount),
        ("rollback", status.rollbacks.amount),
        ("lapse of exactly-once", status.restarts_without_log.amount),
        ("coordinator lost and replaced", status.coordinators_replaced),
    ):
        if amount:
            noun, _, rest = kind.partition(" ")
            plural = (noun[:-1] + "ies" if noun.endswith("y") else noun + "s") + " " * bool(rest) + rest
            parts.append(f"{amount} {kind if amount == 1 else plural}")
    yield ", ".join(parts)
    if status.code_changed:
        yield f"  the code has changed since checkpoint {status.code_changed.checkpoint}, from which this run went on"
    yield from (f"  {line}" for line in _left(status))
    if status.trace_stopped:
        yield f"  {untraced_text(*status.trace_stopped)}"
    if status.interval is not None:
        yield f"  {interval_text(status.interval)}"
    if counted := counts_text(status.progress.counts if status.progress else {}):
        yield f"  counted: {counted}"
    if measured := metrics_text(status.progress.metrics if status.progress else {}):
        yield f"  measured: {measured}"
    yield from _listed(status.recoveries, str)
    yield from _listed(status.rollbacks, lambda event: f"rolled back to checkpoint {event.checkpoint}: {event.reason}")
    yield from _listed(status.restarts_without_log, restart_text)
    yield from _listed(status.standbys_unready, unready_text)
    yield from _listed(status.spills_failed, unwritten_text)
    if status.interval_exceeded is not None:
        yield f"  {exceeded_text(status.interval_exceeded)}"
    if status.skipped:
        yield f"  {skipped_text(status.skipped)}"
    yield from _listed(status.deletions_failed, undeleted_text)
    yield from _listed(status.kills_missed, missed_text)


def _listed(items: Latest[T], text: Callable[[T], str]) -> Iterator[str]:
    """A line for each of the latest items, behind the number of those before them."""
    if items.dropped:
        yield f"  {items.dropped:,} earlier ones like the next are not listed"
    yield from (f"  {text(item)}" for item in items)


def _totals(progress: Progress) -> Iterator[str]:
    yield f"{sum(vertex.rows_in for vertex in progress.vertices if vertex.reads):,} rows read"
    if written := sum(vertex.rows_written for vertex in progress.vertices):
        yield f"{written:,} written in all"


def _left(status: RunStatus) -> Iterator[str]:
    """The checkpoints that an earlier run left behind. They are also shown after a failed run, which may have failed
    because it did not resume from them."""
    yield from map(left_text, status.checkpoints_left)


def counts_text(counts: Mapping[str, int]) -> str:
    """The counters of dropped rows as text, such as ``7 late rows in window``. Counts of result rows are left out."""
    amounts = ((amount, *name.rpartition(".")[::2]) for name, amount in sorted(counts.items()) if amount)
    return ", ".join(
        f"{amount:,} {counter.replace('_', ' ')} in {operator}"
        for amount, operator, counter in amounts
        if counter != "rows_out"
    )


def metrics_text(metrics: Mapping[str, Mapping[int, UserMetric]]) -> str:
    """Metrics of users' functions as text, such as ``orders 1,234 in enrich``. Of gauges, those of each task."""
    return ", ".join(
        f"{name} {_value_text(list(by_task.values()))} in {operator}"
        for key, by_task in sorted(metrics.items())
        for operator, name in [operator_and_name(key)]
    )


def _value_text(by_task: Sequence[UserMetric]) -> str:
    together = total(by_task)
    if together is None:
        values = [metric.value for metric in by_task]
        least, most = (f"{value:,.6g}" for value in (min(values), max(values)))
        return least if least == most else f"{least} to {most}"
    if together.kind is MetricKind.COUNTER:
        return f"{together.value:,.15g}"
    return f"{together.value / together.count:,.6g} on average of {together.count:,}"
