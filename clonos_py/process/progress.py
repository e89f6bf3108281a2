"""Reads the progress of a task that a checkpoint holds."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from clonos_py.model.snapshots import TaskHandle
from clonos_py.process.contract import TaskProgress


def progress_of(handle: TaskHandle) -> TaskProgress:
    """What a task had taken and sent at a snapshot. Raises msgspec.MsgspecError if it cannot be read."""
    return decoded(handle.progress)


@lru_cache(maxsize=4_096)
def decoded(progress: bytes) -> TaskProgress:
    """Stored progress. Raises msgspec.MsgspecError if it cannot be read."""
    return msgspec.msgpack.decode(progress, type=TaskProgress)
