"""Attempts of the task of a sink, each as in a process of its own, and what is kept of a checkpoint between them."""

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
    """What checkpoint storage keeps of a sink."""

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
    """Of one task: its snapshot, and what it has prepared and was not committed before, oldest first."""

    snapshot: StoredSnapshot
    committables: list[bytes]


class _TaskContext:
    """What a sink uses of an OperatorContext."""

    def __init__(self, operator: str, index: int, parallelism: int, lineage: str) -> None:
        self.task, self.operator, self.parallelism = TaskId(operator, index), operator, parallelism
        self.key_groups = _KEY_GROUPS
        self.groups = range(_KEY_GROUPS)  # a check does not know the key: it gives each task any rows
        self.numbering = f"{lineage}-0"

    def count(self, metric: str, amount: int) -> None:
        """Counted for people only."""


@dataclass(frozen=True)
class SinkTask:
    """Which task of which run of a job a sink belongs to."""

    operator: str
    lineage: str
    index: int = 0
    parallelism: int = 1


class SinkAttempt:
    """One attempt of a task of a sink. What other threads do in a job, other threads do here."""

    def __init__(self, definition: SinkDefinition, schema: pa.Schema, task: SinkTask) -> None:
        self._named = definition
        with holding(definition, PORTABLE):
            copy: SinkDefinition = pickle.loads(cloudpickle.dumps(definition))
        with holding(definition, RUNS):
            self.sink: Sink = copy.create(schema)
            context = _TaskContext(task.operator, task.index, task.parallelism, task.lineage)
            self.sink.open(cast("OperatorContext", context), cast("Output", None))
        self._uncommitted: list[bytes] = []

    def begin(self, rule: Rule, parts: Sequence[StoredCheckpoint] = (), commits_first: bool = True) -> SinkAttempt:
        """At a checkpoint, of whose tasks these are parts, or without one. What it names is committed, before or after
        the task takes its state over: it is another thread that commits."""
        self._uncommitted = []
        with holding(self._named, rule):
            self.sink.loaded([part.snapshot.read() for part in parts])
            if not commits_first:
                self.sink.restore([part.snapshot.read() for part in parts])
            if committables := [committable for part in parts for committable in part.committables]:
                in_thread(lambda: self.sink.commit_all(committables))
            if commits_first:
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
        """The checkpoint is complete."""
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
