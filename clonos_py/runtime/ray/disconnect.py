"""The end of the connection to Ray. Ray takes seconds for it at times; an interrupted run does not wait so long."""

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
    """Ends the connection, and a local Ray. Returns after ``patience_s`` at the latest; the rest is then done in the
    background, until the interpreter ends."""
    thread = threading.Thread(target=ray.shutdown, name=_THREAD, daemon=True)
    thread.start()
    thread.join(patience_s)


def await_disconnected() -> None:
    """Waits for a connection that is still being ended: a process has one at a time."""
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
