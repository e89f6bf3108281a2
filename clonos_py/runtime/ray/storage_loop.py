"""The storage thread: loads and persists snapshots, and has sinks commit and write, while link and task go on."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from queue import SimpleQueue

from clonos_py.checkpoint.store import SnapshotStore
from clonos_py.model.errors import CheckpointError
from clonos_py.model.messages import Restore
from clonos_py.model.operators import Sink
from clonos_py.model.state import Chunk
from clonos_py.runtime.outputs import work
from clonos_py.task.instructions import (
    LinkEvent,
    Load,
    Loaded,
    LoadFailed,
    Persist,
    Persisted,
    PersistFailed,
    SinkWork,
)


class StorageLoop:
    """One request after the other. ``run`` is the thread; ``put`` and ``stop`` may be called by any thread."""

    def __init__(
        self,
        store: SnapshotStore,
        sinks: Mapping[str, Sink],
        answer: Callable[[LinkEvent], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        """``sinks`` are those of the task; ``answer`` takes results, ``fail`` what ended the process."""
        self._store, self._sinks, self._answer, self._fail = store, sinks, answer, fail
        self._inbox: SimpleQueue[Load | Persist | SinkWork | None] = SimpleQueue()
        self._known: Mapping[str, Chunk] = {}

    def put(self, request: Load | Persist | SinkWork) -> None:
        self._inbox.put(request)

    def stop(self) -> None:
        self._inbox.put(None)

    def run(self) -> None:
        """Until stopped, or until a request fails that nothing but the process's end can answer."""
        try:
            while (request := self._inbox.get()) is not None:
                self._answer(self._serve(request))
        except Exception as problem:  # noqa: BLE001 - whatever it is, the coordinator must know
            self._fail(problem)

    def _serve(self, request: Load | Persist | SinkWork) -> LinkEvent:
        match request:
            case Load(restore):
                return self._load(restore)
            case Persist():
                return self._persist(request)
            case _:
                return work(request, self._sinks)

    def _load(self, restore: Restore) -> LinkEvent:
        """Chunks that an earlier load brought are not read again."""
        try:
            states = {
                name: [self._store.read(handle, self._known) for handle in handles]
                for name, handles in restore.operators.items()
            }
        except CheckpointError as problem:
            return LoadFailed(restore, problem)
        chunks = [c for parts in states.values() for s in parts for table in s.tables.values() for c in table]
        self._known = {chunk.location: chunk for chunk in chunks if chunk.location is not None}
        return Loaded(restore, states)

    def _persist(self, request: Persist) -> LinkEvent:
        """Of a task, which loads nothing any more: what it does not need itself is let go."""
        self._known = {}
        started = time.monotonic()
        try:
            handle = self._store.write(request.snapshot, request.attempt)
        except CheckpointError as problem:
            return PersistFailed(request.snapshot.checkpoint, str(problem))
        return Persisted(handle, (time.monotonic() - started) * 1_000)
