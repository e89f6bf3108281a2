"""Writes the trace of a run beside telling its listener, if the settings name a folder for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from clonos_py.dsl.settings import Settings
from clonos_py.model.plan import PhysicalPlan
from clonos_py.observe.events import Event, Listener, TraceStopped
from clonos_py.observe.trace import TraceWriter


@contextmanager
def traced(plan: PhysicalPlan, settings: Settings, listener: Listener) -> Iterator[Listener]:
    """Gives whom to tell. A trace that cannot be written any further ends, and the listener is told so once; the run
    goes on. Raises SettingError where none can be begun."""
    if settings.trace is None:
        yield listener
        return
    writer = TraceWriter(Path(settings.trace), header(plan, settings))
    stopped = False

    def heard(event: Event) -> None:
        nonlocal stopped
        listener(event)
        if not stopped:
            try:
                writer(event)
            except OSError as problem:
                stopped = True
                listener(TraceStopped(at_us=event.at_us, reason=str(problem)))

    try:
        yield heard
    finally:
        with suppress(OSError):
            if not stopped:
                writer.close()


def header(plan: PhysicalPlan, settings: Settings) -> dict[str, Any]:
    """What a reader of the trace should know of the job."""
    return {
        "job": plan.job,
        "began": datetime.now(UTC).isoformat(timespec="seconds"),
        "settings": {key: value for key, value, _ in settings.shown()},
        "vertices": [
            {"name": vertex.name, "parallelism": vertex.parallelism, "source": vertex.source is not None}
            for vertex in plan.vertices
        ],
        "edges": [{"from": edge.source, "to": edge.target} for edge in plan.edges],
    }
