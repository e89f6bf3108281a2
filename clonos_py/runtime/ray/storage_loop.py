"""The storage thread: loads and persists snapshots, and has sinks commit and write, while link and task go on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial

from clonos_py.checkpoint.store import SnapshotStore
from clonos_py.model.operators import Sink
from clonos_py.runtime import outputs
from clonos_py.runtime.disk import Snapshots
from clonos_py.runtime.ray.background import Background
from clonos_py.runtime.ray.request_loop import RequestLoop
from clonos_py.task.instructions import LinkEvent, Load, Persist, Persisted, SinkWork

Request = Load | Persist | SinkWork


class StorageLoop(RequestLoop[Request]):
    def __init__(
        self,
        store: SnapshotStore,
        sinks: Mapping[str, Sink],
        answer: Callable[[LinkEvent], None],
        fail: Callable[[BaseException], None],
        background: Background,
    ) -> None:
        """``sinks`` are those of the task; ``background`` loads what nobody waits for."""
        super().__init__(answer, fail)
        self._background = background
        self._snapshots, self._sinks = Snapshots(store), sinks

    def _serve(self, request: Request) -> Iterable[LinkEvent]:
        match request:
            case Load(restore, ahead):
                load = partial(self._snapshots.load, restore)
                yield self._background.do(load) if ahead else load()
            case Persist():
                yield self._persist(request)
            case _:
                yield outputs.work(request, self._sinks)

    def _persist(self, request: Persist) -> LinkEvent:
        started = time.monotonic()
        event = self._snapshots.persist(request)
        took_ms = (time.monotonic() - started) * 1_000
        return replace(event, persist_ms=took_ms) if isinstance(event, Persisted) else event
