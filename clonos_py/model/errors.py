"""All errors of the engine in one hierarchy. Each type states its remedy.

A ``ClonosError`` that reaches the command line is printed as one line, ``error: MESSAGE``, with exit code 1.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from enum import Enum

START_OVER = "or start over with --fresh"
DAMAGED_REMEDY = f"restore the file from a copy, {START_OVER}"
"""What to do about a file of a checkpoint that is not as it was written."""


def one_line(error: object) -> str:
    """The text of an error without its line breaks."""
    return " ".join(text_of(error).split())


def text_of(error: object) -> str:
    """The text of an error, even if its ``__str__`` fails or gives half of a surrogate pair, which no format holds."""
    return sound(_called(str, error))


def type_and_text(error: BaseException) -> str:
    """The type of an error and its text, such as ``KeyError: 'bid'``; only the type if there is no text."""
    return f"{type(error).__name__}: {text_of(error)}".removesuffix(": ")


def shown(value: object) -> str:
    """The ``repr`` of a value of the user, even if it fails."""
    return sound(_called(repr, value))


def sound(text: str) -> str:
    """The text with escapes for what is no text: halves of surrogate pairs."""
    return text.encode("utf-8", "backslashreplace").decode()


def _called(spell: Callable[[object], str], value: object) -> str:
    """The text without addresses in memory, as in ``<Rate object at 0x7f5e>``. A replay has others, and the text may be
    in a dead letter."""
    try:
        return _ADDRESS.sub("", spell(value))
    except Interrupted:
        raise
    except BaseException as problem:  # noqa: BLE001 - it is code of the user
        return f"(its {spell.__name__} raised {type(problem).__name__})"


_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]{4,}(?=[^<>]*>)")


def shows_tracebacks() -> bool:
    """Whether the user has asked for tracebacks."""
    return os.environ.get("CLONOS_DEBUG") == "1"


class Remedy(Enum):
    """What the engine does about an error."""

    RETRY = "retry"
    RECOVER_TASK = "recover the task"
    ROLL_BACK = "roll back to the last checkpoint"
    STOP_JOB = "stop the job"
    FIX_INPUT = "refuse the input"


class ClonosError(Exception):
    """Base of all errors that the engine raises itself."""

    remedy = Remedy.STOP_JOB
    traceback = ""
    """The traceback of the user's function that failed, as text, since it also travels between processes."""
    leaves_checkpoint = False
    """Whether the error ended a run that had a completed checkpoint, in a place that outlives the run."""


def error_line(error: ClonosError) -> str:
    """The line that the command line prints for an error. Only this line, and not the error's message, says that the
    last checkpoint is intact: where an error is made, it is not known whether there is a checkpoint that stays."""
    silent = error.remedy is Remedy.FIX_INPUT or isinstance(error, UnreadableCheckpointError)
    kept = " (the last checkpoint is intact)" if error.leaves_checkpoint and not silent else ""
    return f"error: {one_line(error)}{kept}"


class SettingError(ClonosError):
    """A setting or command-line value that is invalid."""

    remedy = Remedy.FIX_INPUT


class GraphError(ClonosError):
    """The job as written cannot run: unknown column, type mismatch, cycle, duplicate name."""

    remedy = Remedy.FIX_INPUT


class Interrupted(KeyboardInterrupt):
    """The run is to stop, as after Ctrl-C. A user's function that raises KeyboardInterrupt itself has failed."""


class Terminated(Interrupted):
    """The run is to stop, because the process has got SIGTERM."""


class UserCodeError(ClonosError):
    """A user's function raised an error. The message names operator and record, and ends with the user's line."""

    remedy = Remedy.STOP_JOB

    def __init__(self, message: str, place: str = "", traceback: str = "") -> None:
        """``place``: see ``model/places.py``."""
        message, place, traceback = sound(message), sound(place), sound(traceback)
        super().__init__(f"{message}; at {place}" if place else message)
        self.text, self.place, self.traceback = message, place, traceback


class ServiceError(ClonosError):
    """A causal service answered with an error; it is logged and raised again on replay."""

    remedy = Remedy.STOP_JOB


class SourceError(ClonosError):
    """A source cannot be read, or returned different content on replay."""

    remedy = Remedy.STOP_JOB


class SinkError(ClonosError):
    """A sink cannot be written or committed."""

    remedy = Remedy.STOP_JOB


class CodecError(ClonosError):
    """Bytes that do not follow their format."""

    remedy = Remedy.RECOVER_TASK


class ProtocolError(ClonosError):
    """A rule of the protocol was broken: a gap, an overlap that differs, an impossible transition."""

    remedy = Remedy.ROLL_BACK


class DivergenceError(ProtocolError):
    """A replay rebuilt something other than its predecessor sent: the named operator is not deterministic (D12)."""


class EndOfRecordError(DivergenceError):
    """The replay of a record asks for an answer that the record does not have there."""


class OrphanError(ProtocolError):
    """Determinants that a survivor depends on were lost with the failed tasks (D10)."""


class CannotRollBackError(ClonosError):
    """A rule of the protocol was broken, and a rollback would break exactly-once: snapshots that tasks
    take alone fit together only if every replay repeats the original run (E8)."""

    remedy = Remedy.STOP_JOB


class CheckpointError(ClonosError):
    """Checkpoint storage is full, read-only, corrupt or missing."""

    remedy = Remedy.STOP_JOB


class UnreadableCheckpointError(CheckpointError):
    """The last checkpoint, or a part of it, cannot be read: it is damaged or missing, or the storage fails."""


class StorageUnavailableError(CheckpointError):
    """Checkpoint storage does not answer, or is too busy, although it was asked several times: it may answer later."""

    remedy = Remedy.RETRY


class RecordError(ClonosError):
    """What a job did cannot be replayed: it was not recorded, is kept no longer, is damaged, or is of other code."""

    remedy = Remedy.FIX_INPUT


class UnmappedStateError(CheckpointError):
    """A checkpoint holds state of operators that the job does not have, and the user has not renamed or dropped it."""

    remedy = Remedy.FIX_INPUT


class EndedError(ClonosError):
    """A task has ended, and a task upstream has restarted and sends again: only a replacement can receive that."""

    remedy = Remedy.RECOVER_TASK


class CapacityError(ClonosError):
    """The in-flight log's budget and reserve are used up."""

    remedy = Remedy.STOP_JOB


class MemoryLimitError(ClonosError):
    """The process of a task holds more memory than its operators were given. The same input may fill another one."""

    remedy = Remedy.RECOVER_TASK


class SpillError(ClonosError):
    """Retained frames that were written to disk cannot be read back; a replacement will make them again."""

    remedy = Remedy.RECOVER_TASK


class ClusterError(ClonosError):
    """Ray is absent, cannot be reached or starts no processes, a job's name is in use, or a port is taken."""

    remedy = Remedy.STOP_JOB


class ClusterLostError(ClusterError):
    """Ray itself was lost while the job ran: its head, or the raylet of the driver's node."""


class SparkError(ClonosError):
    """Spark or the Java that it needs is absent, or a job on it failed."""

    remedy = Remedy.FIX_INPUT


def error_type(name: str) -> type[ClonosError]:
    """The type of an error that another process has reported by name; ClonosError if the engine has no such type."""
    found = globals().get(name)
    return found if isinstance(found, type) and issubclass(found, ClonosError) else ClonosError
