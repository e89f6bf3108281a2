"""Runs that a script or a notebook starts. ``dsl/runs.py`` looks up this module."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial

from clonos_py.dsl.job import Job
from clonos_py.dsl.runs import STOP_TIMEOUT_S, JobHandle
from clonos_py.model.errors import Interrupted, SettingError
from clonos_py.model.user_metrics import UserMetric
from clonos_py.observe.console import watch
from clonos_py.observe.events import Event, Listener, Progress
from clonos_py.runtime.launch import run_job
from clonos_py.runtime.preview import preview
from clonos_py.runtime.replay.frames import replay
from clonos_py.runtime.run_settings import RunResult
from clonos_py.runtime.stop_switch import StopSwitch
from clonos_py.settings.resolution import resolve_here

__all__ = ["preview", "replay", "run", "start"]


def run(job: Job, settings: Mapping[str, object]) -> RunResult:
    """See ``Job.run``."""
    resolved = resolve_here(job.settings, arguments=settings)
    with watch(job.name, resolved.log_level, resolved.log_format) as listener:
        return run_job(job, resolved, listener)


def start(job: Job, settings: Mapping[str, object]) -> JobHandle:
    """See ``Job.start``."""
    resolved = resolve_here(job.settings, arguments=settings)
    return JobThread(job.name, partial(run_job, job, resolved))


class JobThread(JobHandle):
    """A run in a thread of its own. The run's listener keeps its progress, and raises Interrupted to interrupt it."""

    def __init__(self, name: str, carry_out: Callable[[Listener, StopSwitch], RunResult]) -> None:
        self.name = name
        self._carry_out = carry_out
        self._progress: Progress | None = None
        self._stop = StopSwitch()
        self._interrupt = threading.Event()
        self._result: RunResult | None = None
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"job {name}", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        state = "running" if self.running else "failed" if self._problem is not None else "ended"
        return f"<JobHandle {self.name!r}: {state}>"

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    @property
    def counters(self) -> Mapping[str, int]:
        progress = self._progress
        if progress is None:
            return {}
        rows = {
            f"{vertex.vertex}.{name}": count
            for vertex in progress.vertices
            for name, count in (("rows_in", vertex.rows_in), ("rows_out", vertex.rows_out))
        }
        return {**rows, **progress.counts}

    @property
    def metrics(self) -> Mapping[str, Mapping[int, UserMetric]]:
        return self._progress.metrics if self._progress is not None else {}

    @property
    def result(self) -> RunResult | None:
        return None if self._result is None or self._result.stopped else self._result

    def wait(self, timeout_s: float | None = None) -> bool:
        _check_seconds(timeout_s)
        self._thread.join(timeout_s)
        if self.running:
            return False
        if self._problem is not None:
            raise self._problem
        return True

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> bool:
        _check_seconds(timeout_s)
        self._stop.request()
        if not self.wait(timeout_s):
            self._interrupt.set()
            self.wait()
        return self._result is not None

    def _run(self) -> None:
        try:
            self._result = self._carry_out(self._on_event, self._stop)
        except BaseException as problem:  # noqa: BLE001 - raised by wait
            if not (self._stop.requested and isinstance(problem, KeyboardInterrupt)):
                self._problem = problem

    def _on_event(self, at_us: int, event: Event) -> None:
        if isinstance(event, Progress):
            self._progress = event
        if self._interrupt.is_set():
            self._interrupt.clear()  # the listener still gets the last events
            raise Interrupted


def _check_seconds(timeout_s: object) -> None:
    """Raises SettingError for a timeout that is not a number, or longer than a thread can wait."""
    if timeout_s is None or (isinstance(timeout_s, int | float) and timeout_s <= threading.TIMEOUT_MAX):
        return
    raise SettingError(f"timeout_s is {timeout_s!r}: give a number of seconds, such as 60")
