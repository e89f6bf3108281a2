"""Ends the connection to Ray. Ray sometimes takes seconds for that; an interrupted run does not wait for it."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from pathlib import Path
from types import ModuleType

from clonos_py.runtime.ray.process_table import descendants

_THREAD = "disconnecting from Ray"
_LOCAL_RAY = ("raylet", "gcs_server")
"""The programs that ``ray.init`` starts for a local Ray."""


def disconnect(ray: ModuleType, patience_s: float | None) -> None:
    """Ends the connection and a local Ray. Waits for ``patience_s`` at most (None: to the end). What is left is then
    done in the background, until the interpreter ends."""
    thread = threading.Thread(target=ray.shutdown, name=_THREAD, daemon=True)
    thread.start()
    thread.join(patience_s)


def await_disconnected() -> None:
    """Waits until earlier connections have ended: a process can have only one at a time."""
    for thread in _threads():
        thread.join()


def exit_now(code: int) -> None:
    """Ends this process and its local Ray at once, if the connection is still being ended. Otherwise does nothing."""
    if not _threads():
        return
    for pid, program in list(descendants(os.getpid())):
        if Path(program).name in _LOCAL_RAY:
            for number in [*(child for child, _ in descendants(pid)), pid]:
                with suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)
    os._exit(code)


def _threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == _THREAD]
