"""What detached runs of a job consist of, and how they have ended, beside the checkpoints of the job.

A detached run outlives the command that has started it, and objects in Ray's store do not outlive their owner. So what
a new driver needs lies here. A run is written once, and so is its end; only its parallelism may change. It
holds code, so its name has its digest: who knows the name gets what was deployed, whoever may write to the folder.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import TypeVar

import msgspec

from clonos_py.checkpoint import layout
from clonos_py.checkpoint.folders import open_folder
from clonos_py.model.errors import DAMAGED_REMEDY, CheckpointError, UnreadableCheckpointError

_JOB, _END, _PARALLELISM = "job", "end", "parallelism"
_DIGEST_BYTES = 32
_NAME = re.compile(rf"\d{{13}}-[0-9a-f]{{{2 * _DIGEST_BYTES}}}", re.ASCII)
_KEPT = 10
_Noted = TypeVar("_Noted")


class RunEnd(msgspec.Struct, frozen=True):
    """How a detached run has ended. ``stopped``: with a last checkpoint, before its sources ended. ``error``: why it
    has failed; None if it has not."""

    stopped: bool = False
    error: str | None = None


class RunParallelism(msgspec.Struct, frozen=True):
    """The parallelism that a run was given while it ran. ``changes``: how often it was changed. ``default``: of
    operators that ask for none; None: that of its settings. ``operators``: by name, where it differs from the job."""

    changes: int = 0
    default: int | None = None
    operators: dict[str, int] = {}


class StoredRuns:
    """The detached runs of one job in a checkpoint folder. Raises CheckpointError if the folder does not work."""

    def __init__(self, uri: str, job: str) -> None:
        self._folder = open_folder(uri, layout.name_in_folder(job))

    def write(self, at_ms: int, content: bytes) -> str:
        """Writes what a run consists of, and returns its name. ``at_ms``: the time of day. The oldest are deleted."""
        name = f"{at_ms:013d}-{_digest(content)}"
        self._folder.write(self._path(name, _JOB), content)
        for old in self.names()[:-_KEPT]:
            self._folder.remove_folder(f"{layout.RUNS}/{old}")
        return name

    def read(self, name: str) -> bytes:
        """What a run consists of. Raises CheckpointError if it is damaged, or another one was put in its place."""
        path = self._path(name, _JOB)
        content = self._folder.read(path).to_pybytes()
        if _digest(content) != name.partition("-")[2]:
            raise UnreadableCheckpointError(
                f"{self._folder.root}/{path} is damaged, or not what was deployed: restore the file from a copy, or "
                "run the job again"
            )
        return content

    def names(self) -> list[str]:
        """The names of all stored runs, oldest first."""
        return [name for name in self._folder.names(layout.RUNS) if _NAME.fullmatch(name)]

    def newest(self) -> str:
        """The name of the newest run. Raises CheckpointError if there is none."""
        names = self.names()
        if not names:
            raise CheckpointError(f"{self._folder.root} has no detached run: start one with `clonos run FILE --detach`")
        return names[-1]

    def end(self, name: str, end: RunEnd) -> None:
        """Notes how the run has ended."""
        self._folder.write(self._path(name, _END), msgspec.json.encode(end))

    def ended(self, name: str) -> RunEnd | None:
        """How the run has ended; None if it has not."""
        return self._noted(name, _END, RunEnd)

    def rescale(self, name: str, parallelism: RunParallelism) -> None:
        """Notes that the run has another parallelism from now on."""
        self._folder.write(self._path(name, _PARALLELISM), msgspec.json.encode(parallelism))

    def parallelism(self, name: str) -> RunParallelism:
        """The parallelism that the run was given last."""
        return self._noted(name, _PARALLELISM, RunParallelism) or RunParallelism()

    def _noted(self, name: str, file: str, kind: type[_Noted]) -> _Noted | None:
        """What a file of the run says; None if there is none."""
        if file not in self._folder.names(f"{layout.RUNS}/{name}"):
            return None
        path = self._path(name, file)
        try:
            return msgspec.json.decode(memoryview(self._folder.read(path)), type=kind)
        except msgspec.DecodeError as error:
            raise UnreadableCheckpointError(f"{path} is damaged ({error}); {DAMAGED_REMEDY}") from error

    def _path(self, name: str, file: str) -> str:
        return f"{layout.RUNS}/{name}/{file}"


def _digest(content: bytes) -> str:
    return blake2b(content, digest_size=_DIGEST_BYTES).hexdigest()
