"""The storage thread: loads and persists snapshots, and has sinks commit and write, while link and task go on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from clonos_py.checkpoint.store import SnapshotStore
from clonos_py.model.messages import Restore
from clonos_py.model.operators import Sink
from clonos_py.model.state import Chunk
from clonos_py.runtime import outputs
from clonos_py.runtime.disk import load, persist
from clonos_py.runtime.ray.request_loop import RequestLoop
from clonos_py.task.instructions import LinkEvent, Load, Loaded, Persist, Persisted, SinkWork

Request = Load | Persist | SinkWork


class StorageLoop(RequestLoop[Request]):
    """Knows the chunks that the last load brought."""

    def __init__(
        self,
        store: SnapshotStore,
        sinks: Mapping[str, Sink],
        answer: Callable[[LinkEvent], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        """``sinks`` are those of the task."""
        super().__init__(answer, fail)
        self._store, self._sinks = store, sinks
        self._known: Mapping[str, Chunk] = {}

    def _serve(self, request: Request) -> Iterable[LinkEvent]:
        match request:
            case Load(restore):
                yield self._load(restore)
            case Persist():
                yield self._persist(request)
            case _:
                yield outputs.work(request, self._sinks)

    def _load(self, restore: Restore) -> LinkEvent:
        """Chunks that an earlier load brought are not read again."""
        event = load(restore, self._store, self._known)
        if isinstance(event, Loaded):
            states = [state for parts in event.operators.values() for state in parts]
            chunks = [chunk for state in states for table in state.tables.values() for chunk in table]
            self._known = {chunk.location: chunk for chunk in chunks if chunk.location is not None}
        return event

    def _persist(self, request: Persist) -> LinkEvent:
        """Of a task, which loads nothing any more: what it does not need itself is let go."""
        self._known = {}
        started = time.monotonic()
        event = persist(request, self._store)
        took_ms = (time.monotonic() - started) * 1_000
        return replace(event, persist_ms=took_ms) if isinstance(event, Persisted) else event
