"""Ends the connection to Ray. Ray takes a second or more for that. A command that ends anyway does not wait for it: it
kills its local Ray, whose processes nobody needs any more. Nor does an interrupted run."""

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


class _Process:
    """What the process does after a run."""

    ends = False


def process_ends() -> None:
    """Announces that this process ends after its command, with ``exit_now``."""
    _Process.ends = True


def patience_with_local_ray() -> float | None:
    """How long to wait for the end of a local Ray at the end of a run."""
    return 0.0 if _Process.ends else None


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
