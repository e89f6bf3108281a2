"""Executes a link's requests to checkpoint storage and to the sinks of its task: snapshots, commits, causal output.

One executor serves one process. Its driver passes the requests one by one, in the order of the link, so that a durable
snapshot covers only output that is visible and durable by then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from functools import partial

import msgspec

from clonos_py.checkpoint.store import SnapshotStore
from clonos_py.link.instructions import (
    AcquireOutput,
    AdoptState,
    Commit,
    CommitDone,
    KeepTail,
    LinkEvent,
    Load,
    Loaded,
    OutputAcquired,
    OutputWritten,
    Persist,
    Persisted,
    SettleOutput,
    SinkWork,
    WriteOutput,
)
from clonos_py.model.errors import ClonosError
from clonos_py.model.messages import Restore
from clonos_py.model.operators import CausalSink, Committing
from clonos_py.model.state import Chunk, OperatorState
from clonos_py.runtime.disk import Snapshots, keep_tail
from clonos_py.runtime.executors.low_priority import LowPriority

StorageWork = Load | Persist | KeepTail | SinkWork


class StorageExecutor:
    """``carry_out`` does one piece of work and returns the link event that answers it."""

    def __init__(
        self,
        store: SnapshotStore,
        committing: Mapping[str, Committing],
        now_us: Callable[[], int],
        low_priority: LowPriority,
        lost_cpu_us: Callable[[], int] = lambda: 0,
        shared: MutableMapping[str, Chunk] | None = None,
    ) -> None:
        """``committing``: the sinks of the task, and its source if that commits. ``now_us``: a clock that is never set,
        for durations. ``low_priority`` does loads that are not urgent. ``lost_cpu_us``: the processor time that the
        caller's thread has used so far and that tasks could have used; it does not grow where a processor is free.
        ``shared``: see ``Snapshots``."""
        self.snapshots, self._store = Snapshots(store, shared), store
        self._committing, self._now_us, self._low_priority = committing, now_us, low_priority
        self._lost_cpu_us = lost_cpu_us

    def warm_up(self) -> None:
        """Called before the first work, by the same thread."""
        for sink in self._committing.values():
            if isinstance(sink, CausalSink):
                with suppress(ClonosError):
                    sink.warm_up()

    def carry_out(self, work: StorageWork) -> tuple[LinkEvent, ...]:
        """Does one piece of work. Raises SinkError. An error of a snapshot is returned as an event."""
        match work:
            case Load(restore, ahead):
                load = partial(self._load, restore)
                return (self._low_priority.do(load) if ahead else load(),)
            case Persist():
                return (self._persist(work),)
            case KeepTail(tail):
                keep_tail(tail, self._store)
                return ()
            case AdoptState(operators):
                self._adopt({name: [state] for name, state in operators.items()})
                return ()
            case Commit(checkpoint, committables):
                self._commit(committables)
                return (CommitDone(checkpoint),)
            case AcquireOutput(number, name, attempt, checkpoint, shape, lineage):
                return (OutputAcquired(number, self._causal(name).acquire(attempt, checkpoint, shape, lineage)),)
            case WriteOutput(number, name, epoch, log, pieces):
                self._causal(name).append(epoch, log, pieces)
                return (OutputWritten(number, len(pieces)),)
            case SettleOutput(number, name):
                self._causal(name).settle()
                return (OutputWritten(number, 0),)

    def _load(self, restore: Restore) -> LinkEvent:
        event = self.snapshots.load(restore)
        if isinstance(event, Loaded):
            self._adopt(event.operators)
        return event

    def _adopt(self, operators: Mapping[str, Sequence[OperatorState]]) -> None:
        for name, committing in self._committing.items():
            committing.loaded(operators.get(name, ()))

    def _persist(self, request: Persist) -> LinkEvent:
        started_us, lost_us = self._now_us(), self._lost_cpu_us()
        event = self.snapshots.persist(request)
        took_ms = (self._now_us() - started_us) / 1_000
        lost_ms = (self._lost_cpu_us() - lost_us) / 1_000
        if not isinstance(event, Persisted):
            return event
        return msgspec.structs.replace(event, persist_ms=took_ms, persist_cpu_ms=lost_ms)

    def _commit(self, committables: Mapping[str, Sequence[bytes]]) -> None:
        for name, named in committables.items():
            if name in self._committing:
                self._committing[name].commit_all(named)

    def _causal(self, name: str) -> CausalSink:
        sink = self._committing[name]
        assert isinstance(sink, CausalSink)
        return sink
