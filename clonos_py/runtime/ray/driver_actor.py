"""The driver of a detached run, as an actor that outlives the command that has started it (P8).

Ray starts it again when it dies, also on another node. Tasks go on meanwhile, without a coordinator, which dies with
its driver: the new driver starts one, which takes the running processes over. What the run consists of lies beside its
checkpoints, as does how it has ended: a run that has ended is not started again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from clonos_py.checkpoint.storage import CheckpointStore
from clonos_py.checkpoint.stored_runs import RunEnd, RunParallelism, StoredRuns
from clonos_py.dsl.job import Job
from clonos_py.job.completed import CompletedCheckpoint
from clonos_py.job.preparation import state_ahead
from clonos_py.model.coordinator_events import CoordinatorReplaced, Deployed
from clonos_py.model.errors import (
    CheckpointError,
    ClonosError,
    ClusterError,
    StorageUnavailableError,
    type_and_text,
)
from clonos_py.model.plan import PhysicalPlan
from clonos_py.observe.events import Event, RescaleFailed
from clonos_py.observe.log_lines import LogLines
from clonos_py.observe.start_reports import reported
from clonos_py.plan.physical import plan
from clonos_py.runtime.function_output import LineOrigin
from clonos_py.runtime.pandas_import import defer_pandas
from clonos_py.runtime.ray.actor_registry import end_processes, named_actors_of
from clonos_py.runtime.ray.asking import keep_savepoint
from clonos_py.runtime.ray.cluster import JobName, connected, import_ray
from clonos_py.runtime.ray.driver_lines import DriverLines
from clonos_py.runtime.ray.preparing import RunPreparer
from clonos_py.runtime.ray.rescaling import Rescaling
from clonos_py.runtime.ray.room import check_nodes
from clonos_py.runtime.ray.run import Driven, PreparedRun, RunIdentity, assembled, drive
from clonos_py.runtime.ray.run_events import RunEvents
from clonos_py.runtime.ray.shipping import unpack
from clonos_py.runtime.stop_switch import StopSwitch
from clonos_py.runtime.web.controls import JobControls
from clonos_py.runtime.web.job_view import JobView
from clonos_py.runtime.web.server import serving
from clonos_py.settings.definitions import Settings

DRIVER_THREADS = 8
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


class _Layout(NamedTuple):
    """A run at some parallelism. ``prepared``: what has started ahead for it. ``has_run``: it was deployed before."""

    plan: PhysicalPlan
    settings: Settings
    parallelism: RunParallelism
    prepared: PreparedRun | None = None
    has_run: bool = False

    def close(self) -> None:
        """Ends what has started ahead."""
        if self.prepared is not None:
            self.prepared.close()


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
        self._lock = threading.Lock()
        self._stop, self._stop_requested = StopSwitch(), False
        self._rescaling = Rescaling[_Layout]()
        self._deployed: DetachedJob | None = None
        self._running: _Layout | None = None
        self._lines, self._events = DriverLines(job), RunEvents()
        self._view: JobView | None = None
        self._preparing: RunPreparer | None = None
        self._end: RunEnd | None = None
        threading.Thread(target=self._run, name=f"driver of {job}", daemon=True).start()

    # ---- the run

    def _run(self) -> None:
        try:
            found = self._read()
            end = found if isinstance(found, RunEnd) else self._drive_on(found)
        except BaseException as problem:  # noqa: BLE001 - whatever ends the run is told to who asks
            text = _text(problem)
            end = RunEnd(error=text)
            self._lines.fail(text)
        self._end_processes()
        self._note(lambda: self._runs.end(self._stored_run, end), "how the run has ended")
        self._end = end
        self._rescaling.ended(f"the run is {self._word}")
        time.sleep(_STAYS_S)
        import_ray().kill(import_ray().get_runtime_context().current_actor, no_restart=True)

    def _end_processes(self, but: str | None = None) -> None:
        """Ends the processes of the run, without those whose names begin with ``but``."""
        assert self._identity.detached is not None
        namespace = self._identity.namespace
        found = named_actors_of(self._identity.detached, namespace)
        end_processes([name for name in found if but is None or not name.startswith(but)], namespace)

    def _read(self) -> RunEnd | _Layout:
        """How the run has ended, or what is to run. Storage that does not work is tried again for a while: tasks may be
        running. Raises CheckpointError."""
        until_s = time.monotonic() + _PATIENCE_S
        while True:
            try:
                end = self._runs.ended(self._stored_run)
                if end is not None:
                    return end
                self._deployed = DetachedJob(*unpack(self._runs.read(self._stored_run)))
                parallelism, settings = self._runs.parallelism(self._stored_run), self._settings(self._deployed)
            except CheckpointError as problem:
                if time.monotonic() > until_s and not isinstance(problem, StorageUnavailableError):
                    raise
                self._lines.warn(f"the run cannot be read, which is tried again: {problem}")
                time.sleep(_NOTE_S)
            else:
                found = _planned(self._deployed.job, settings, parallelism)
                return found._replace(has_run=self._restarted)

    def _drive_on(self, layout: _Layout) -> RunEnd:
        """Drives the run to its end, at another parallelism after each change. If it cannot start at one, it goes on at
        the one before."""
        self._end_processes(but=self._identity.rescaled(layout.parallelism.changes).detached)
        former: _Layout | None = None
        while True:
            try:
                result, watched = self._drive(layout)
            except ClonosError as problem:
                if former is None or self._word == "running":
                    raise
                self._lines.warn(f"the run does not start at its new parallelism: {problem}; it goes on as before")
                self._rescaling.failed(_text(problem))
                layout, former = former, None
                self._note(partial(self._runs.rescale, self._stored_run, layout.parallelism), "the parallelism")
                continue
            following = self._rescaling.take()
            if following is None or not result.stopped or watched or self._stop_requested:
                if following is not None:
                    following.close()
                return RunEnd(result.stopped)
            try:
                self._runs.rescale(self._stored_run, following.parallelism)
            except CheckpointError as problem:
                self._lines.warn(f"the run goes on as before, since its parallelism cannot be noted: {problem}")
                following.close()
                self._rescaling.failed(_text(problem))
                layout, former = layout._replace(prepared=None, has_run=True), None
            else:
                layout, former = following, layout._replace(prepared=None, has_run=True)

    def _drive(self, layout: _Layout) -> Driven:
        plan, settings = layout.plan, layout.settings
        with self._lock:
            self._stop = StopSwitch()
            if self._stop_requested:
                self._stop.request()
        began = datetime.now(UTC)
        self._running, self._view = layout, (view := JobView(plan, settings, began))
        lines = LogLines(self._job, view.status, settings.log_level, settings.log_format, self._lines.write, began)

        def report(text: str) -> None:
            lines.report(round((datetime.now(UTC) - began).total_seconds() * 1e6), text)

        with (
            reported(view.status, report),
            serving(view, lines, self._controls) as served,
            self._events.of_run(served) as listener,
        ):

            def listen(at_us: int, event: Event) -> None:
                if isinstance(event, CoordinatorReplaced) and not view.status.tasks:  # deployed by a former driver
                    listener(at_us, Deployed(len(plan.tasks), len(plan.tasks) * settings.standbys))
                listener(at_us, event)
                if isinstance(event, Deployed) and (pause_s := self._rescaling.deployed()) is not None:
                    self._lines.inform(f"runs at its new parallelism after a pause of {pause_s:.1f} s")

            identity = self._identity.rescaled(layout.parallelism.changes)
            try:
                return drive(plan, settings, listen, self._stop, identity, layout.prepared, layout.has_run)
            except BaseException:
                layout.close()
                raise

    def _settings(self, deployed: DetachedJob) -> Settings:
        """The settings of this driver. What applies to a run once does not apply again."""
        self._lines.format = deployed.settings.log_format
        settings = replace(deployed.settings, checkpoints=self._checkpoints, fresh=False, take_over=False, address=None)
        last = CheckpointStore(self._checkpoints, self._job).latest()
        if last is not None and last.checkpoint > deployed.checkpoint:
            settings = replace(settings, drop_state=(), renames=())
        return replace(settings, kills=()) if self._restarted else settings

    def _note(self, write: Callable[[], None], what: str) -> None:
        """Notes something that a driver which is started again must know."""
        while True:
            try:
                write()
            except CheckpointError as problem:
                self._lines.warn(f"{what} cannot be noted, which is tried again: {problem}")
                time.sleep(_NOTE_S)
            else:
                return

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
        return self._lines.after(after)

    def stop(self) -> None:
        """Asks the run to stop with a last checkpoint."""
        with self._lock:
            self._stop_requested = True
            self._stop.request()

    @property
    def _controls(self) -> JobControls:
        return JobControls(
            self.stop, partial(keep_savepoint, JobName(self._job, self._identity.namespace)), self._begin_rescale
        )

    def _begin_rescale(self, default: int | None, operators: Mapping[str, int]) -> None:
        """Begins a change of parallelism. Raises ClonosError if the job cannot have that parallelism. If it does not
        start, the run goes on, and has an event that says why."""
        if isinstance(found := self._layout_at(default, operators), str):
            raise ClusterError(found)

        def carry_out() -> None:
            outcome = self.rescale(default, operators)
            if isinstance(outcome, str):
                self._events.add(RescaleFailed(outcome))

        threading.Thread(target=carry_out, name="rescaling", daemon=True).start()

    def rescale(self, default: int | None, operators: Mapping[str, int]) -> float | str:
        """Has the run go on at another parallelism, see ``RunParallelism``. Its new processes start and load state
        before it stops. Returns the seconds for which it has paused, when all tasks run; or why it does not have that
        parallelism."""
        try:
            with self._rescaling.begun() as change:
                if isinstance(layout := self._layout_at(default, operators), str):
                    return layout
                prepared = layout._replace(prepared=self._prepared(layout))
                outcome = change(prepared, self._stop.request)
                if isinstance(outcome, str):
                    prepared.close()
                return outcome
        except ClonosError as problem:
            return _text(problem)
        finally:
            self._preparing = None

    def _layout_at(self, default: int | None, operators: Mapping[str, int]) -> _Layout | str:
        """The run at another parallelism, or why it cannot have one now. Raises SettingError or GraphError, and
        ClusterError if the nodes could not hold it."""
        running = self._running
        if (ends := self._ends()) or running is None or self._deployed is None:
            return f"{ends}: rescale it when it runs"
        former = running.parallelism
        parallelism = RunParallelism(former.changes + 1, default or former.default, {**former.operators, **operators})
        settings = replace(running.settings, drop_state=(), renames=(), kills=())
        layout = _planned(self._deployed.job, settings, parallelism)
        check_nodes(layout.plan)
        return layout

    def _prepared(self, layout: _Layout) -> PreparedRun:
        """Starts the coordinator and the processes of a layout, and has them load what there is of state. Raises
        ClonosError."""
        plan, settings, before = layout.plan, layout.settings, self._identity.rescaled(layout.parallelism.changes - 1)
        identity, store = (
            self._identity.rescaled(layout.parallelism.changes),
            partial(CheckpointStore, self._checkpoints, self._job),
        )
        with connected(None, identity.namespace) as cluster:
            scratch = Path(identity.scratch)
            spec, actors = assembled(plan, settings, store, scratch, cluster, identity)

        def newest() -> CompletedCheckpoint | None:
            manifest = store().latest()
            own = manifest is not None and manifest.run == before.lineage
            return state_ahead(manifest, plan, spec.policy, spec.code_digest) if own else None

        driver = import_ray().get_runtime_context().current_actor
        self._preparing = preparing = RunPreparer(plan, spec, actors, identity.home, driver)
        return preparing.run(newest, self._ends)

    def _ends(self) -> str:
        """Why the run does not go on; empty if it does."""
        if self._stop_requested:
            return "the run is to stop"
        return "" if self._word == "running" else f"the run is {self._word}"

    # ---- processes that start ahead of a run, to which the driver is a coordinator

    def deliver(self, number: int, sequence: int, message: bytes) -> None:
        """Takes a message of a process. ``sequence``: the number of the message, from 0."""
        if (preparing := self._preparing) is not None:
            preparing.deliver(number, sequence, message)

    def introduce(self, number: int, pid: int, thread: int, node: str) -> None:
        """A process has a place. The coordinator that adopts it asks again."""

    def printed(self, number: int, lines: str, origin: LineOrigin) -> bool:
        """Lines of a process wait for its coordinator."""
        return False


def _planned(job: Job, settings: Settings, parallelism: RunParallelism) -> _Layout:
    """Raises SettingError or GraphError if the job cannot have this parallelism."""
    job, default = job.with_parallelism(parallelism.operators), parallelism.default
    if default is not None:
        settings = replace(settings, parallelism=default)
    return _Layout(plan(job, settings, parallelism=default), settings, parallelism)


def _text(problem: BaseException) -> str:
    return str(problem) if isinstance(problem, ClonosError) else type_and_text(problem)
