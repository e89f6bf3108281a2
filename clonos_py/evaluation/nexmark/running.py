"""Runs one query and returns its report, for the command line and the bench scripts."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from clonos_py.connectors import BlackholeSink, DigestSink, read_results
from clonos_py.connectors.digests import read_digest
from clonos_py.evaluation.nexmark.jobs import EventSource, build, files_of
from clonos_py.evaluation.nexmark.model import OFFICIAL, Model
from clonos_py.evaluation.nexmark.new_users import difference, new_users
from clonos_py.evaluation.nexmark.recorded import RecordedEvents
from clonos_py.evaluation.nexmark.report import Recorder, report
from clonos_py.evaluation.nexmark.source import NexmarkSource
from clonos_py.model.connectors import SinkDefinition
from clonos_py.model.errors import SettingError
from clonos_py.observe.events import Event, Listener, no_listener
from clonos_py.settings.definitions import Settings


class SinkKind(Enum):
    """The sink of a query's results."""

    FILES = "files"
    DIGEST = "digest"
    BLACKHOLE = "blackhole"


@dataclass(frozen=True)
class QueryRun:
    """A query run: the query, the events (generated or from a folder), the rate, and the sink. ``partitions``: of
    generated events; rounded up to the same number for every task."""

    query: str
    events: int
    rate: float | None = None
    event_rate: int = 500_000
    sink: SinkKind = SinkKind.BLACKHOLE
    out: Path | None = None
    model: Model = OFFICIAL
    events_from: Path | None = None
    partitions: int = 8

    def __post_init__(self) -> None:
        if self.sink is SinkKind.FILES and self.out is None:
            raise SettingError("results in files need a folder: add --out DIR")
        if self.sink is SinkKind.BLACKHOLE and self.out is not None:
            raise SettingError("a blackhole leaves nothing to put into a folder: omit --out, or choose another sink")

    def source(self, settings: Settings) -> EventSource:
        """The source of the events."""
        if self.events_from is not None:
            return RecordedEvents(str(self.events_from.absolute()), self.rate)
        return NexmarkSource(
            events=self.events,
            rate=self.rate,
            event_rate=self.event_rate,
            seed=settings.seed,
            partitions=-(-self.partitions // settings.parallelism) * settings.parallelism,
            model=self.model,
        )


def run_query(order: QueryRun, settings: Settings, listener: Listener = no_listener) -> dict[str, Any]:
    """Runs the query to the end of the events and returns the report. Raises any error of the run."""
    recorder = Recorder()

    def on_event(at_us: int, event: Event) -> None:
        recorder(at_us, event)
        listener(at_us, event)

    with ExitStack() as stack:
        folder = order.out or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="clonos-nexmark-")))
        job = build(order.query, order.source(settings), _sink(order.query, order.sink, folder))
        from clonos_py.runtime.launch import run_job

        result = run_job(job, settings, on_event)
        shown = {key: value for key, value, _ in settings.shown()}
        return {
            "query": order.query,
            **report(recorder, result.plan, shown, result.latency),
            "output": _output(order.sink, folder),
        }


def verify_new_users(order: QueryRun, settings: Settings) -> tuple[int, str | None]:
    """The number of rows in the files of a run of query 8, and how they differ from an independent computation, or
    None."""
    found = [tuple(row.values()) for row in read_results(str(order.out))]
    return len(found), difference(new_users(order.source(settings).origin), found)


def _sink(query: str, kind: SinkKind, folder: Path) -> SinkDefinition:
    match kind:
        case SinkKind.FILES:
            return files_of(query, str(folder))
        case SinkKind.DIGEST:
            return DigestSink(str(folder))
        case SinkKind.BLACKHOLE:
            return BlackholeSink()


def _output(kind: SinkKind, folder: Path) -> Mapping[str, Any]:
    if kind is not SinkKind.DIGEST:
        return {"sink": kind.value}
    digest, rows = read_digest(str(folder))
    return {"sink": kind.value, "digest": f"{digest:016x}", "rows": rows}
