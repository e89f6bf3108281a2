"""The driver of a detached run, as an actor that outlives the command that has started it (P8).

Ray starts it again when it dies, also on another node. Tasks go on meanwhile, without a coordinator, which dies with
its driver: the new driver starts one, which takes the running processes over. What the run consists of lies beside its
checkpoints, as does how it has ended: a run that has ended is not started again.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from clonos_py.checkpoint.storage import CheckpointStore
from clonos_py.checkpoint.stored_runs import RunEnd, StoredRuns
from clonos_py.dsl.job import Job
from clonos_py.model.coordinator_events import CoordinatorReplaced, Deployed
from clonos_py.model.errors import CheckpointError, ClonosError, type_and_text
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.reports import LogFormat, LogLevel
from clonos_py.observe.events import Event
from clonos_py.observe.log_lines import LogLines
from clonos_py.observe.start_reports import reported
from clonos_py.plan.physical import plan
from clonos_py.runtime.pandas_import import defer_pandas
from clonos_py.runtime.ray.actor_registry import end_processes, named_actors_of
from clonos_py.runtime.ray.cluster import import_ray
from clonos_py.runtime.ray.run import RunIdentity, drive
from clonos_py.runtime.ray.shipping import unpack
from clonos_py.runtime.stop_switch import StopSwitch
from clonos_py.runtime.web.job_view import JobView
from clonos_py.runtime.web.server import serving
from clonos_py.settings.definitions import Settings

DRIVER_THREADS = 8
_LINES_KEPT = 10_000
_NOTE_S = 5.0
"""The time between attempts to note how the run has ended."""
_PATIENCE_S = 300.0
"""The time that storage gets to give what a run consists of."""
_STAYS_S = 3_600.0
"""How long the driver of a run that has ended tells how."""


class DetachedJob(NamedTuple):
    """What a detached run consists of, as it is stored. Sources of the job have looked up what they read.
    ``checkpoint``: the last one when it was deployed."""

    job: Job
    settings: Settings
    checkpoint: int


class DriverState(NamedTuple):
    """What ``clonos list`` and ``clonos run --detach`` show of a run. ``state``: starting, running, finished, stopped
    or failed. ``restarted``: whether the driver is not the first one of the run."""

    job: str
    state: str
    error: str | None
    since: str
    checkpoints: str
    stored_run: str
    restarted: bool

    @property
    def goes_on(self) -> bool:
        """Whether the run has not ended."""
        return self.state in ("starting", "running")


class DriverActor:
    """Drives one detached run in a thread. All methods may be called by any thread."""

    def __init__(self, job: str, checkpoints: str, stored_run: str, identity: RunIdentity) -> None:
        """``checkpoints``: the place where the run of this name is stored."""
        defer_pandas()
        self._job, self._checkpoints, self._stored_run = job, checkpoints, stored_run
        self._identity = RunIdentity(*identity)
        self._runs = StoredRuns(checkpoints, job)
        self._restarted = bool(import_ray().get_runtime_context().was_current_actor_reconstructed)
        self._since = datetime.now(UTC)
        self._stop = StopSwitch()
        self._lines: deque[tuple[int, str]] = deque(maxlen=_LINES_KEPT)
        self._line = 0
        self._view: JobView | None = None
        self._end: RunEnd | None = None
        threading.Thread(target=self._run, name=f"driver of {job}", daemon=True).start()

    # ---- the run

    def _run(self) -> None:
        try:
            found = self._deployed()
            end = found if isinstance(found, RunEnd) else self._drive(*found)
        except BaseException as problem:  # noqa: BLE001 - whatever ends the run is told to who asks
            text = str(problem) if isinstance(problem, ClonosError) else type_and_text(problem)
            end = RunEnd(error=text)
            self._write(f"error: {text}")
        assert self._identity.detached is not None
        end_processes(named_actors_of(self._identity.detached))
        self._note(end)
        self._end = end
        time.sleep(_STAYS_S)
        import_ray().kill(import_ray().get_runtime_context().current_actor, no_restart=True)

    def _deployed(self) -> RunEnd | tuple[PhysicalPlan, Settings]:
        """How the run has ended, or what is to run. Storage that does not work is tried again for a while: tasks may be
        running. Raises CheckpointError."""
        until_s = time.monotonic() + _PATIENCE_S
        while True:
            try:
                end = self._runs.ended(self._stored_run)
                if end is not None:
                    return end
                deployed = DetachedJob(*unpack(self._runs.read(self._stored_run)))
                settings = self._settings(deployed)
            except CheckpointError as problem:
                if time.monotonic() > until_s:
                    raise
                self._write(f"warning: the run cannot be read, which is tried again: {problem}")
                time.sleep(_NOTE_S)
            else:
                return plan(deployed.job, settings), settings

    def _drive(self, plan: PhysicalPlan, settings: Settings) -> RunEnd:
        self._view = view = JobView(plan, settings, self._since)
        lines = LogLines(self._job, view.status, LogLevel.INFO, LogFormat.PLAIN, self._write, self._since)

        def report(text: str) -> None:
            lines.report(round((datetime.now(UTC) - self._since).total_seconds() * 1e6), text)

        with reported(view.status, report), serving(view, lines, self._stop) as listener:

            def listen(at_us: int, event: Event) -> None:
                if isinstance(event, CoordinatorReplaced) and not view.status.tasks:  # deployed by a former driver
                    listener(at_us, Deployed(len(plan.tasks), len(plan.tasks) * settings.standbys))
                listener(at_us, event)

            return RunEnd(drive(plan, settings, listen, self._stop, self._identity).stopped)

    def _settings(self, deployed: DetachedJob) -> Settings:
        """The settings of this driver. What applies to a run once does not apply again."""
        settings = replace(deployed.settings, checkpoints=self._checkpoints, fresh=False, take_over=False, address=None)
        last = CheckpointStore(self._checkpoints, self._job).latest()
        if last is not None and last.checkpoint > deployed.checkpoint:
            settings = replace(settings, drop_state=(), renames=())
        return replace(settings, kills=()) if self._restarted else settings

    def _note(self, end: RunEnd) -> None:
        """Notes the end, so that a driver that is started again does not repeat the run."""
        while True:
            try:
                self._runs.end(self._stored_run, end)
            except CheckpointError as problem:
                self._write(f"warning: how the run has ended cannot be noted: {problem}")
                time.sleep(_NOTE_S)
            else:
                return

    def _write(self, line: str) -> None:
        self._line += 1
        self._lines.append((self._line, f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {line}"))

    # ---- who asks

    def state(self) -> DriverState:
        """How the run is."""
        return DriverState(
            self._job,
            self._word,
            self._end.error if self._end else None,
            f"{self._since:%Y-%m-%d %H:%M:%S}",
            self._checkpoints,
            self._stored_run,
            self._restarted,
        )

    @property
    def _word(self) -> str:
        if self._end is not None:
            return "failed" if self._end.error else "stopped" if self._end.stopped else "finished"
        return "running" if self._view is not None and self._view.status.tasks else "starting"

    def job(self) -> dict[str, Any]:
        """The run as ``/api/v1/job`` has it, with its state, its error and the start of its driver; only these before
        it is planned, and of a run that a former driver has ended."""
        found = self._view.job() if self._view is not None else {}
        state = self.state()
        return {**found, "job": state.job, "state": state.state, "error": state.error, "since": state.since}

    def lines(self, after: int) -> Sequence[tuple[int, str]]:
        """The lines behind that number which are kept still, each with its number."""
        while True:
            with suppress(RuntimeError):  # a line was added meanwhile
                return [line for line in self._lines if line[0] > after]

    def stop(self) -> None:
        """Asks the run to stop with a last checkpoint."""
        self._stop.request()
