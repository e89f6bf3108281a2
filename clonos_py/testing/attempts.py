"""Attempts of a sink's task, as if each ran in its own process, and the checkpoint data kept between attempts."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import cloudpickle  # type: ignore[import-untyped]
import msgspec
import pyarrow as pa

from clonos_py.model.connectors import SinkDefinition
from clonos_py.model.ids import TaskId
from clonos_py.model.operators import OperatorContext, Output, Sink
from clonos_py.model.state import Chunk, OperatorState
from clonos_py.testing.deaths import in_thread
from clonos_py.testing.rules import Rule, broken, holding

_KEY_GROUPS = 128

PORTABLE = Rule(
    "a definition can be sent to other processes",
    "keep addresses and settings in it, and open files and connections where they are used",
)
RUNS = Rule("a sink takes rows and prepares a checkpoint", "see the error")
NAMED = Rule("prepare gives bytes that name what was prepared, or None", "encode the name, as str.encode or msgpack do")
PLAIN = Rule(
    "a snapshot is plain data that does not change later",
    "keep numbers, text, bytes, lists and dicts in values, and copy what goes on changing",
)


class StoredSnapshot(NamedTuple):
    """A sink's snapshot as checkpoint storage keeps it."""

    tables: dict[str, list[bytes]]
    values: bytes

    @classmethod
    def of(cls, state: OperatorState) -> StoredSnapshot:
        tables = {
            name: [pa.Table.from_batches([chunk.rows]).combine_chunks() for chunk in chunks]
            for name, chunks in state.tables.items()
        }
        kept = {name: [_written(table) for table in found] for name, found in tables.items()}
        return cls(kept, msgspec.msgpack.encode(dict(state.values)))

    def read(self) -> OperatorState:
        tables = {name: [Chunk(_read(content)) for content in kept] for name, kept in self.tables.items()}
        return OperatorState(tables, msgspec.msgpack.decode(self.values))


class StoredCheckpoint(NamedTuple):
    """The checkpoint of one task: its snapshot, and its uncommitted committables, oldest first."""

    snapshot: StoredSnapshot
    committables: list[bytes]


class _TaskContext:
    """The part of an OperatorContext that sinks use."""

    def __init__(self, operator: str, index: int, parallelism: int, lineage: str) -> None:
        self.task, self.operator, self.parallelism = TaskId(operator, index), operator, parallelism
        self.key_groups = _KEY_GROUPS
        self.groups = range(_KEY_GROUPS)  # the check has no key to partition rows by: each task gets any rows
        self.numbering = f"{lineage}-0"

    def count(self, metric: str, amount: int) -> None:
        """Ignored: counters are for users only."""


@dataclass(frozen=True)
class SinkTask:
    """The task of a sink, in one run of a job."""

    operator: str
    lineage: str
    index: int = 0
    parallelism: int = 1


class SinkAttempt:
    """One attempt of a sink's task. Methods that other threads call in a job are called by other threads here, too."""

    def __init__(self, definition: SinkDefinition, schema: pa.Schema, task: SinkTask) -> None:
        self._named = definition
        with holding(definition, PORTABLE):
            copy: SinkDefinition = pickle.loads(cloudpickle.dumps(definition))
        with holding(definition, RUNS):
            self.sink: Sink = copy.create(schema)
            context = _TaskContext(task.operator, task.index, task.parallelism, task.lineage)
            self.sink.open(cast("OperatorContext", context), cast("Output", None))
        self._uncommitted: list[bytes] = []

    def start(
        self, rule: Rule, parts: Sequence[StoredCheckpoint] = (), commit_before_restore: bool = True
    ) -> SinkAttempt:
        """Starts the attempt from a checkpoint (``parts``: one for each task) or without one. Commits the checkpoint's
        committables before or after the task restores its state; both may happen, since another thread commits."""
        self._uncommitted = []
        with holding(self._named, rule):
            self.sink.loaded([part.snapshot.read() for part in parts])
            if not commit_before_restore:
                self.sink.restore([part.snapshot.read() for part in parts])
            if committables := [committable for part in parts for committable in part.committables]:
                in_thread(lambda: self.sink.commit_all(committables))
            if commit_before_restore:
                self.sink.restore([part.snapshot.read() for part in parts])
        return self

    def write(self, rows: pa.RecordBatch) -> None:
        with holding(self._named, RUNS):
            self.sink.on_rows(rows, 0)

    def prepare(self, checkpoint: int) -> StoredCheckpoint:
        with holding(self._named, RUNS):
            prepared: Any = self.sink.prepare(checkpoint)
            state = self.sink.snapshot()
        if prepared is not None and not isinstance(prepared, bytes):
            broken(self._named, NAMED, f"it gave {prepared!r}")
        self._uncommitted += [] if prepared is None else [prepared]
        with holding(self._named, PLAIN):
            return StoredCheckpoint(StoredSnapshot.of(state), list(self._uncommitted))

    def commit(self, stored: StoredCheckpoint, rule: Rule) -> None:
        """Commits the committables of a completed checkpoint."""
        with holding(self._named, rule):
            if stored.committables:
                in_thread(lambda: self.sink.commit_all(stored.committables))
        self._uncommitted = [named for named in self._uncommitted if named not in stored.committables]

    def close(self) -> None:
        with holding(self._named, RUNS):
            self.sink.close()


def _written(table: pa.Table) -> bytes:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema) as stream:
        stream.write_table(table)
    return out.getvalue().to_pybytes()


def _read(content: bytes) -> pa.RecordBatch:
    with pa.ipc.open_stream(content) as stream:
        table = stream.read_all().combine_chunks()
    return table.to_batches()[0] if table.num_rows else pa.RecordBatch.from_pylist([], table.schema)
