"""What ``Job`` needs of the room that runs jobs, which is looked up when a run is asked for: defining a job imports
nothing that runs one."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Protocol, cast

import pyarrow as pa

from clonos_py.dsl.callsite import CallSite
from clonos_py.dsl.outputs import OutputPort
from clonos_py.model.plan import PhysicalPlan

_RUNNER = "clonos_py.runtime.from_python"

STOP_TIMEOUT_S = 60.0
"""So long the last checkpoint of a run that is stopped may take."""


class FinishedRun(Protocol):
    """What is left of a run besides its output."""

    @property
    def plan(self) -> PhysicalPlan:
        """What has run."""
        ...


class JobHandle(Protocol):
    """A run in a thread of this process."""

    @property
    def running(self) -> bool:
        """False once the run has ended, failed or been stopped."""
        ...

    @property
    def counters(self) -> Mapping[str, int]:
        """Totals of all tasks so far, a quarter of a second old at most: ``TASK.rows_in``, ``TASK.rows_out``, and what
        operators count, such as ``OPERATOR.late_rows``. Empty before the first task has reported."""
        ...

    @property
    def result(self) -> FinishedRun | None:
        """Of a run whose sources have ended; None before, and of a run that was stopped."""
        ...

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until the run is over, ``timeout_s`` at most, and says whether it is. Raises the ClonosError that ended
        the run."""
        ...

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> bool:
        """Has the run take a last checkpoint, commit it and end, and waits for that. What sinks had received before the
        call is visible then; the next run with these checkpoints goes on from there. If the checkpoint takes longer
        than ``timeout_s``, the run is interrupted as by Ctrl-C: its last complete checkpoint is intact.

        Returns whether the last checkpoint was taken, or the run had ended before. Raises the ClonosError that ended
        the run."""
        ...


class Runner(Protocol):
    """See the methods of ``Job`` with these names; ``job`` is the Job."""

    def run(self, job: Any, settings: Mapping[str, object]) -> FinishedRun: ...

    def start(self, job: Any, settings: Mapping[str, object]) -> JobHandle: ...

    def preview(self, output: OutputPort, rows: int, timeout_us: int, site: CallSite) -> pa.Table: ...


def runner() -> Runner:
    return cast("Runner", import_module(_RUNNER))
