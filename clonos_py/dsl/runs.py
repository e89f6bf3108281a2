"""The interface of ``Job`` to the package that runs jobs. It is imported when a run is requested, so that defining a
job imports nothing that runs one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

from clonos_py.model.errors import GraphError

if TYPE_CHECKING:  # clonos stop needs only the time
    import pyarrow as pa

    from clonos_py.dsl.callsite import CallSite
    from clonos_py.dsl.outputs import OutputPort
    from clonos_py.model.plan import PhysicalPlan
    from clonos_py.model.user_metrics import UserMetric

_RUNNER = "clonos_py.runtime.from_python"

STOP_TIMEOUT_S = 60.0
"""How long a stop waits for the last checkpoint."""


class FinishedRun(Protocol):
    """The result of a run, apart from its output."""

    @property
    def plan(self) -> PhysicalPlan:
        """The plan that ran."""
        ...


class JobHandle(Protocol):
    """A run in a thread of this process."""

    @property
    def running(self) -> bool:
        """False once the run has ended, failed or been stopped."""
        ...

    @property
    def counters(self) -> Mapping[str, int]:
        """Totals over all tasks, at most a quarter of a second old: ``TASK.rows_in``, ``TASK.rows_out``, and the
        operators' own counters, such as ``OPERATOR.late_rows``. Empty until the first task has reported."""
        ...

    @property
    def metrics(self) -> Mapping[str, Mapping[int, UserMetric]]:
        """What functions have given to ``ctx.metrics``, at most a quarter of a second old: by ``OPERATOR.NAME``, then
        by number of the task. ``value`` is the total of a counter, the last number of a gauge, the sum of a histogram.
        """
        ...

    @property
    def result(self) -> FinishedRun | None:
        """The result once all sources have ended; None before, and for a run that was stopped."""
        ...

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until the run is over, at most ``timeout_s``; returns whether it is. Raises its ClonosError."""
        ...

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> bool:
        """Takes a last checkpoint, commits it and ends the run. Rows that sinks had received before the call are
        visible then, and the next run with these checkpoints goes on from there. If the checkpoint takes longer than
        ``timeout_s``, the run is interrupted as by Ctrl-C: the last complete checkpoint stays intact.

        Returns whether the last checkpoint was taken, or the run had ended before. Raises the ClonosError that ended
        the run, and SettingError for a ``timeout_s`` that is not a number; the run goes on then."""
        ...


class ShownReplay(Protocol):
    """What a replay has shown."""

    @property
    def rows(self) -> Mapping[str, pa.Table]:
        """By sink: the rows that it was given, in the order of the replay."""
        ...

    @property
    def determinants(self) -> pa.Table:
        """The log of all tasks: ``task``; ``checkpoint``, the last one that the task had taken; ``offset`` in its log;
        ``kind``; ``count``, the number of equal ones in a row; ``what`` as text."""
        ...

    @property
    def identical(self) -> bool:
        """Whether state, progress and checksums of outputs were those of the record at every checkpoint."""
        ...

    @property
    def report(self) -> Any:
        """What was replayed: the checkpoints at which it begins and ends, and one line for each snapshot that differs
        (``differences``)."""
        ...


class Runner(Protocol):
    """Implements the methods of ``Job`` with the same names; ``job`` is the Job. ``replay``: see
    ``dsl/replaying.py``."""

    def run(self, job: Any, settings: Mapping[str, object]) -> FinishedRun: ...

    def start(self, job: Any, settings: Mapping[str, object]) -> JobHandle: ...

    def preview(self, output: OutputPort, rows: int, timeout_us: int, site: CallSite) -> pa.Table: ...

    def replay(self, job: Any, checkpoints: Any, **chosen: Any) -> ShownReplay: ...


_files_being_loaded: list[str] = []


@contextmanager
def loading(file: str) -> Iterator[None]:
    """A command executes this file inside the block, to find a job. The file must not run one: the command would run
    it once more, or was only asked for its plan."""
    _files_being_loaded.append(file)
    try:
        yield
    finally:
        _files_being_loaded.pop()


def check_not_loading() -> None:
    """Raises GraphError if a command is loading a job file at the moment."""
    if _files_being_loaded:
        raise GraphError(
            f"the clonos command loads {_files_being_loaded[-1]} to find its job, so the file itself cannot run one; "
            'put this line below: if __name__ == "__main__":'
        )


def runner() -> Runner:
    return cast("Runner", import_module(_RUNNER))
