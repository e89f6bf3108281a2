"""What tests look for in the events of a run and in what it has printed."""

from __future__ import annotations

from collections.abc import Iterable

from clonos_py.model.ids import TaskId
from clonos_py.observe.events import Event, TaskFailed


def killed(events: Iterable[Event]) -> list[TaskId]:
    """The tasks that were killed as ``--kill`` orders. Others may fail, too: standbys share processes, so after
    failures in quick succession tasks do, and fail together, or move apart."""
    return [event.task for event in events if isinstance(event, TaskFailed) and event.how == "killed by --kill"]


def without_warnings(printed: str) -> list[str]:
    """The lines that a run has printed, without its warnings, of which it may have any number before it fails."""
    return [line for line in printed.splitlines() if not line.startswith("warning: ")]
