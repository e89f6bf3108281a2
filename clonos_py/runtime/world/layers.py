"""Layers that the simulator puts between the executors of a world and parts of their environments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from clonos_py.checkpoint.store import SnapshotStore
from clonos_py.job.events import JobEvent
from clonos_py.job.machine import JobMachine
from clonos_py.job.preparation import Preparation
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.snapshots import Manifest
from clonos_py.runtime.executors.job import Coordinator, complete
from clonos_py.runtime.executors.link import DataConnections
from clonos_py.runtime.world.dispatcher import Dispatcher
from clonos_py.runtime.world.processes import LocalProcess, Storage


def _no_dispatcher(inner: Dispatcher, processes: Mapping[int, LocalProcess]) -> Dispatcher:
    return inner


def _no_connections(process: LocalProcess, inner: DataConnections) -> DataConnections:
    return inner


def _no_storage(process: LocalProcess, inner: Storage) -> Storage:
    return inner


def _no_coordinator(machine: JobMachine) -> Coordinator:
    return machine


def _nothing(number: int) -> None:
    pass


def _at_once(process: LocalProcess, alone: bool, started: Callable[[], None]) -> None:
    started()


@dataclass(frozen=True)
class Layers:
    """Each function takes the part below and returns the part that the world uses instead. The default returns the same
    part."""

    dispatcher: Callable[[Dispatcher, Mapping[int, LocalProcess]], Dispatcher] = _no_dispatcher
    """The second argument: all processes of the world."""
    connections: Callable[[LocalProcess, DataConnections], DataConnections] = _no_connections
    storage: Callable[[LocalProcess, Storage], Storage] = _no_storage
    coordinator: Callable[[JobMachine], Coordinator] = _no_coordinator
    """Called for each coordinator when it begins."""
    preparation: Callable[[PhysicalPlan], Preparation] = Preparation
    """Makes the machine that starts processes ahead of a deployment."""
    complete: Callable[[Manifest, SnapshotStore], Iterable[JobEvent]] = complete
    """Writes a manifest to checkpoint storage."""
    fence: Callable[[int], None] | None = None
    """Ends a process for the coordinator. None: the world ends it."""
    starting: Callable[[LocalProcess, bool, Callable[[], None]], None] = _at_once
    """Called for a process that starts, unless it replaces another in its host process. The second argument: whether a
    host process starts with it. The function calls the third argument when the process has started."""
    ending: Callable[[int], None] = _nothing
    """Called for every process before it ends."""
