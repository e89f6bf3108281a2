"""Crash notes: what ended a process from within a user's function, by ``os._exit`` or by a crash of native code.

``write_notes_to`` makes a process write notes to a folder that outlives it: the name of the running operator (once for
each batch), the stack that ``faulthandler`` saves in a crash, and the place of a call of ``os._exit``. ``read`` turns
these notes into an error. A process that is killed from outside leaves no note that names a place in the user's code.
"""

from __future__ import annotations

import faulthandler
import json
import mmap
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

from clonos_py.model.errors import UserCodeError, error_line, shows_tracebacks
from clonos_py.model.places import is_users
from clonos_py.task.at_work import LABEL_BYTES, NOTE, at_work

_FRAME = re.compile(r'^  File "(.+)", line (\d+) in (\S+)$', re.MULTILINE)
_FATAL = re.compile(r"^Fatal Python error: (.+)$", re.MULTILINE)
_ENGINE = ("/clonos_py/task/chain.py", "/clonos_py/runtime/check/trial.py")

_STACK_BYTES_MAX = 1 << 20

_exit = os._exit


class _Paths:
    """The files that the process ``pid`` leaves."""

    def __init__(self, folder: Path, pid: int) -> None:
        self.note, self.stack, self.exit = (folder / f"{pid}.{kind}" for kind in ("note", "stack", "exit"))


def write_notes_to(folder: Path) -> None:
    """From now on this process writes its crash notes to ``folder``, where another process can read them."""
    paths = _Paths(folder, os.getpid())
    with paths.note.open("w+b") as note:
        NOTE.content = _shared(note)
    faulthandler.enable(paths.stack.open("wb"), all_threads=False)
    _note_exits(lambda note: paths.exit.write_text(note, encoding="utf-8"))


def read(folder: Path, pid: int) -> UserCodeError | None:
    """The error that ended the process, if a user's function caused it; else None."""
    paths = _Paths(folder, pid)
    with suppress(FileNotFoundError):
        return _error(paths.exit.read_text(encoding="utf-8"), "")
    with suppress(FileNotFoundError):
        return _crash(paths.stack.read_bytes(), paths.note.read_bytes())
    return None


class CheckpointNote:
    """Whether the run has a completed checkpoint, in a place that outlives it: one byte."""

    def __init__(self, content: bytearray | mmap.mmap) -> None:
        self._content = content

    def take(self) -> None:
        self._content[0] = 1

    @property
    def taken(self) -> bool:
        return bool(self._content[0])


@contextmanager
def watched() -> Iterator[CheckpointNote]:
    """For a run within this process: if the process ends inside the block, a watcher process prints why. The run takes
    the note as soon as it has a checkpoint that outlives it.

    If ``faulthandler`` is enabled already, as in a test, only calls of ``os._exit`` are reported.
    """
    if faulthandler.is_enabled():
        kept = CheckpointNote(bytearray(1))
        with exits_reported(kept):
            yield kept
        return
    with TemporaryFile() as note, TemporaryFile() as stack, TemporaryFile() as checkpoint:
        kept = CheckpointNote(_shared(checkpoint, 1))
        with exits_reported(kept):
            former, NOTE.content = NOTE.content, _shared(note)
            faulthandler.enable(stack, all_threads=False)
            watcher = _watcher(note, stack, checkpoint)
            try:
                yield kept
            finally:
                faulthandler.disable()
                NOTE.content = former
                watcher.communicate(_DONE)


@contextmanager
def exits_reported(kept: CheckpointNote | None = None) -> Iterator[None]:
    """Inside the block, a user's function that calls ``os._exit`` ends the process with a one-line error. The exit code
    is never 0: 0 becomes 1. ``kept``: None if the run leaves no checkpoints."""
    _note_exits(lambda note: _report(note, kept is not None and kept.taken))
    try:
        yield
    finally:
        os._exit = _exit


_DONE = b"done"
_WATCH = """
import json, sys
arguments = json.loads(sys.argv[1])
if sys.stdin.buffer.read() != b"done":
    sys.path[:] = arguments["path"]
    from clonos_py.runtime.crash_notes import report_crash
    report_crash(arguments["note"], arguments["stack"], arguments["checkpoint"])
"""


def _watcher(note: IO[bytes], stack: IO[bytes], checkpoint: IO[bytes]) -> subprocess.Popen[bytes]:
    """A process that waits for the end of this one. It has a session of its own, so that Ctrl-C does not reach it. It
    imports no module of the engine before this process ends."""
    files = {"note": note.fileno(), "stack": stack.fileno(), "checkpoint": checkpoint.fileno()}
    command = [sys.executable, "-I", "-S", "-c", _WATCH, json.dumps({**files, "path": sys.path})]
    return subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True, pass_fds=files.values())


def report_crash(note: int, stack: int, checkpoint: int) -> None:
    """Prints what ended a process, if a user's function caused it. ``note``, ``stack`` and ``checkpoint`` are file
    descriptors."""
    error = _crash(os.pread(stack, _STACK_BYTES_MAX, 0), os.pread(note, LABEL_BYTES, 0))
    if error is not None:
        _print(error, any(os.pread(checkpoint, 1, 0)))


def _shared(file: IO[bytes], size_bytes: int = LABEL_BYTES) -> mmap.mmap:
    """Memory that is mapped to a file."""
    file.truncate(size_bytes)
    return mmap.mmap(file.fileno(), size_bytes)


def _note_exits(write_note: Callable[[str], Any]) -> None:
    """Replaces ``os._exit`` by a function that first passes the place of the call to ``write_note``, if an
    operator runs. Forked children are not affected."""
    pid = os.getpid()

    def exit_with_note(status: int) -> None:
        work = at_work(sys._getframe(1)) if os.getpid() == pid else None
        if work is not None:
            write_note(f"{work.operator}\n{work.place}\nended its process with os._exit({status})")
            status = status or 1
        _exit(status)

    os._exit = exit_with_note  # type: ignore[assignment]


def _report(note: str, leaves_checkpoint: bool) -> None:
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    _print(_error(note, ""), leaves_checkpoint)


def _print(error: UserCodeError, leaves_checkpoint: bool) -> None:
    error.leaves_checkpoint = leaves_checkpoint
    with suppress(OSError, ValueError):
        if error.traceback and shows_tracebacks():
            sys.stderr.write(f"{error.traceback}\n")
        sys.stderr.write(f"{error_line(error)}\n")
        sys.stderr.flush()


def _error(note: str, traceback: str) -> UserCodeError:
    operator, place, what = note.split("\n", 2)
    return UserCodeError(f"operator {operator!r} {what}", place, traceback)


def _crash(saved: bytes, note: bytes) -> UserCodeError | None:
    """The error of a crash in the user's code, else None. Frames in ``saved`` come innermost first."""
    stack, operator = saved.decode(errors="replace"), note.rstrip(b"\0").decode(errors="replace")
    fatal, frames = _FATAL.search(stack), _FRAME.findall(stack)
    inner = [frame[0].endswith(_ENGINE) for frame in frames]
    users = [frame for frame in frames[: inner.index(True)] if is_users(frame[0])] if any(inner) else []
    if fatal is None or not users:
        return None
    file, line, function = users[0]
    place = f"{Path(file).name}:{line} in {function}"
    return _error(f"{operator}\n{place}\ncrashed its process: {fatal[1]}", stack)
