"""Runs a plan in this process: all tasks and standbys in one thread, started in about a second. Another thread does the
work of storage and sinks, so that a slow disk does not hold the tasks back.

An ordered failure (``--kill``) drops a task's objects. Recovery from it runs the same machines as on Ray.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from clonos_py.checkpoint.storage import CheckpointStore
from clonos_py.checkpoint.store import SnapshotStore
from clonos_py.job.events import EndJob
from clonos_py.model.calls import Answered, ServiceCall
from clonos_py.model.coordinator_events import CheckpointCompleted, CoordinatorEvent
from clonos_py.model.ids import TaskId
from clonos_py.model.plan import PhysicalPlan
from clonos_py.observe.events import Listener
from clonos_py.runtime.callers import Callers, http_client
from clonos_py.runtime.checkpoint_place import checkpoint_place
from clonos_py.runtime.crash_notes import watched
from clonos_py.runtime.event_publisher import EventPublisher
from clonos_py.runtime.hangs import HangWatch
from clonos_py.runtime.held_folders import temporary
from clonos_py.runtime.interrupts import interrupts
from clonos_py.runtime.leftovers import SPILLED, clear
from clonos_py.runtime.local.clock import RealTime
from clonos_py.runtime.local.storage_thread import StorageThread
from clonos_py.runtime.monitor import Monitor
from clonos_py.runtime.operator_environment import LiveEnvironment
from clonos_py.runtime.run_settings import RunResult, drawn_lineage, kills, limits, policy, raise_for
from clonos_py.runtime.spill import FileShelf
from clonos_py.runtime.standby_starts import PATIENCE_US
from clonos_py.runtime.stop_switch import StopSwitch
from clonos_py.runtime.user_code import code_digest
from clonos_py.runtime.world.world import OutsideStorage, World, WorldSettings
from clonos_py.services.registry import ServiceRegistry
from clonos_py.settings.definitions import Settings


def run(plan: PhysicalPlan, settings: Settings, listener: Listener, stop: StopSwitch | None = None) -> RunResult:
    """Runs until the sources end, or until ``stop`` is requested and a last checkpoint committed. Ctrl-C ends the run,
    with its last checkpoint intact, and is raised again. Raises the ClonosError that ended the job."""
    clock = RealTime()
    ordered_kills = kills(plan, settings)
    publisher = EventPublisher(plan, clock.now_us(), listener, ordered_kills)
    publisher.name_leftovers(clear(plan.job), settings.checkpoints)
    with ExitStack() as stack:
        monitor = Monitor(publisher, ordered_kills, clock.now_us, stack.enter_context(interrupts()))
        store_place = stack.enter_context(checkpoint_place(plan.job, settings.checkpoints))
        store = _open_store(plan, settings, store_place)
        note = stack.enter_context(watched())

        def report(time_us: int, event: CoordinatorEvent) -> None:
            if isinstance(event, CheckpointCompleted) and settings.checkpoints is not None:
                note.take()
            monitor.report(time_us, event)

        world = World(
            plan,
            store,
            clock,
            local_environment(store),
            WorldSettings(
                replace(policy(settings, drawn_lineage()), heartbeat_us=0),
                limits(settings),
                settings.linger_us,
                code_digest(),
                shelf=_shelf(stack),
                standby_patience_us=PATIENCE_US,
                call=_calls(clock, stack),
                outside=OutsideStorage(
                    _storage(clock, stack), lambda: CheckpointStore(store_place, plan.job, read_soon=False)
                ),
                post=clock.post,
            ),
            report,
            monitor.observe,
            monitor,
        )
        if world.job.checkpoint and settings.checkpoints is not None:
            note.take()
        try:
            watch = HangWatch(threading.get_ident(), settings.function_timeout_us, monitor.hangs)
            stack.callback(watch.stop)
            stack.enter_context((stop or StopSwitch()).connected(partial(clock.post, world.request_stop)))
            end = _run_to_the_end(world, monitor)
        except KeyboardInterrupt:
            publisher.stop(clock.now_us())
            raise
    raise_for(end, settings.checkpoints)
    return RunResult(plan, publisher.latency, end.stopped)


def _run_to_the_end(world: World, monitor: Monitor) -> EndJob:
    try:
        return world.run()
    finally:
        monitor.publish(world)


def _shelf(stack: ExitStack) -> Callable[[int], FileShelf]:
    """Creates the shelf for spilled frames of a process, by its number. Its folder is removed after the run."""
    folder = stack.enter_context(temporary(SPILLED))
    return lambda number: FileShelf(folder / f"spilled-{number}")


def _calls(clock: RealTime, stack: ExitStack) -> Callable[[ServiceCall, Callable[[Answered], None]], None]:
    """A function that starts the calls of asynchronous functions, in threads."""
    callers = Callers(http_client)
    stack.callback(callers.close)
    return lambda call, deliver: callers.start(call, lambda answered: clock.post(partial(deliver, answered)))


def _storage(clock: RealTime, stack: ExitStack) -> Callable[[Callable[[], Callable[[], None]]], None]:
    """A function that passes work for storage and sinks to a thread."""
    storage = StorageThread(clock.post)
    stack.callback(storage.close)
    return storage.do


def local_environment(store: SnapshotStore) -> Callable[[TaskId], LiveEnvironment]:
    """The environment of tasks in this process."""
    return lambda task: LiveEnvironment(ServiceRegistry({}, http_client), lambda: store, task)


def _open_store(plan: PhysicalPlan, settings: Settings, place: str) -> SnapshotStore:
    store = CheckpointStore(place, plan.job)
    if settings.fresh:
        store.archive()
    return store
