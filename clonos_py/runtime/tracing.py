"""Writes the trace of a run in addition to its listener, if the settings name a folder for the trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from clonos_py.model.errors import ClonosError
from clonos_py.model.plan import PhysicalPlan
from clonos_py.observe.events import Broken, Event, Listener, TraceStopped
from clonos_py.observe.trace import TraceWriter
from clonos_py.settings.definitions import Settings


@contextmanager
def traced(plan: PhysicalPlan, settings: Settings, listener: Listener) -> Iterator[Listener]:
    """The listener for the run: ``listener`` itself, or one that also writes the trace. If writing fails, the trace
    ends, the listener gets one ``TraceStopped``, and the run goes on. Raises SettingError if no trace can be begun."""
    if settings.trace is None:
        yield listener
        return
    tracing = _TracingListener(TraceWriter(Path(settings.trace), header(plan, settings)), listener)
    try:
        yield tracing
    except ClonosError as error:
        tracing.trace(tracing.at_us, Broken(f"{type(error).__name__}: {error}"))
        raise
    finally:
        tracing.close()


class _TracingListener:
    """Passes each event to the listener first, then writes it to the trace."""

    def __init__(self, writer: TraceWriter, listener: Listener) -> None:
        self._writer, self._listener = writer, listener
        self._stopped = False
        self.at_us = 0

    def __call__(self, at_us: int, event: Event) -> None:
        self.at_us = max(self.at_us, at_us)
        self._listener(at_us, event)
        self.trace(at_us, event)

    def trace(self, at_us: int, event: Event) -> None:
        if not self._stopped:
            self._attempt(partial(self._writer, at_us, event))

    def close(self) -> None:
        if not self._stopped:
            self._attempt(self._writer.close)

    def _attempt(self, write: Callable[[], None]) -> None:
        try:
            write()
        except OSError as problem:
            self._stopped = True
            self._listener(self.at_us, TraceStopped(str(problem)))


def header(plan: PhysicalPlan, settings: Settings) -> dict[str, Any]:
    """The head of the trace: the job, its settings, vertices and edges."""
    return {
        "job": plan.job,
        "began": datetime.now(UTC).isoformat(timespec="seconds"),
        "settings": {key: value for key, value, _ in settings.shown()},
        "vertices": [
            {"name": vertex.name, "parallelism": vertex.parallelism, "source": vertex.source is not None}
            for vertex in plan.vertices
        ],
        "edges": [{"from": edge.source, "to": edge.target, "feedback": edge.feedback} for edge in plan.edges],
    }
