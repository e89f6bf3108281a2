"""``clonos run`` in the process of the test: a process of its own would import everything once more."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from clonos_py.cli.main import invoke
from clonos_py.dsl.loading import load_job_file
from clonos_py.observe.events import Event, Listener
from clonos_py.runtime import user_code
from clonos_py.runtime.launch import run_job
from clonos_py.runtime.stop_switch import StopSwitch
from clonos_py.settings.resolution import resolve


class Ended(NamedTuple):
    """How a run ended, as of a process."""

    returncode: int
    stderr: str


def run(script: Path, *more: str) -> Ended:
    """``clonos run SCRIPT ...``."""
    said = io.StringIO()
    with loaded_once(script), redirect_stderr(said):
        code = invoke(["run", str(script), *more])
    return Ended(code, said.getvalue())


def run_heard(
    listener: Listener,
    script: Path,
    values: dict[str, Any] | None = None,
    stop: StopSwitch | None = None,
    **settings: Any,
) -> None:
    """Runs the job of the script. ``values``: of its parameters."""
    with loaded_once(script):
        job = load_job_file(str(script)).job(values)
        run_job(job, resolve(job.settings, command_line=settings), listener, stop)


def run_until(enough: Callable[[], Any], script: Path, values: dict[str, Any] | None = None, **settings: Any) -> None:
    """Runs the job until the condition is true, and interrupts it. The condition is asked at every event. Raises
    AssertionError if the job ends before."""

    def listener(at_us: int, event: Event) -> None:
        if enough():
            raise KeyboardInterrupt

    try:
        run_heard(listener, script, values, **settings)
    except KeyboardInterrupt:
        return
    raise AssertionError("the job had ended before")


@contextmanager
def loaded_once(script: Path) -> Iterator[None]:
    """Within the block the script can be imported, even if others with its name were, or it had another content. It is
    all of the user's code: modules of other tests come and go."""
    path, cached = list(sys.path), sys.dont_write_bytecode
    before = sys.modules.pop(script.stem, None)
    sys.dont_write_bytecode = True  # it is valid for all contents of one size and one second
    try:
        with patch.object(user_code, "user_modules", lambda: [sys.modules[script.stem]]):
            yield
    finally:
        sys.path[:], sys.dont_write_bytecode = path, cached
        sys.modules.pop(script.stem, None)
        if before is not None:
            sys.modules[script.stem] = before
