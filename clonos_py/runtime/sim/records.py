"""Checks the record of a run at its end (F1): from the first base on, nothing is missing that a replay needs.

The logs of each task join from snapshot to snapshot, end where the snapshots say, and can be decoded. The answers that
they name exist, and so does the state of all bases. A gap is allowed only where a task has restarted without its log.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from clonos_py.causal.codec import LogCodec
from clonos_py.causal.determinants import Answer, Completion
from clonos_py.checkpoint.memory import MemoryStore
from clonos_py.model.errors import ClonosError
from clonos_py.model.ids import TaskId
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.segments import LogSegment
from clonos_py.model.snapshots import Manifest
from clonos_py.runtime.recorded_logs import RecordGapError, counting_snapshots, log_between, sections


def record_problems(store: MemoryStore, plan: PhysicalPlan, may_restart_without_log: bool) -> Iterator[str]:
    """What is wrong with the record of a run that has ended."""
    if not plan.recorded:
        return
    bases = store.bases()
    if not bases and store.latest() is not None:
        yield "the record has no base"
    for base in bases:
        yield from _state_problems(store, base)
    first = bases[0].checkpoint if bases else 0
    for section in sections(m for m in store.manifests() if m.checkpoint >= first):
        for task in plan.tasks:
            yield from _log_problems(store, section, task, may_restart_without_log)


def _state_problems(store: MemoryStore, base: Manifest) -> Iterator[str]:
    try:
        for handle in base.handles:
            for operator in handle.operators.values():
                for chunks in operator.tables.values():
                    store.read_chunks(chunks)
            store.read_frames(stored.location for frames in handle.frames.values() for stored in frames)
            store.read_chunks([handle.logs] if handle.logs is not None else [])
    except ClonosError as problem:
        yield f"the state of base {base.checkpoint} is incomplete: {problem}"


def _log_problems(
    store: MemoryStore, section: list[Manifest], task: TaskId, may_restart_without_log: bool
) -> Iterator[str]:
    snapshots = counting_snapshots(section, task)
    for before, after in pairwise(snapshots):
        try:
            _decode(store, log_between(before, after, store.read_record(after.handle.record)))
        except RecordGapError as gap:
            if not (gap.explained and may_restart_without_log):
                yield str(gap)
        except ClonosError as problem:
            yield f"the record of {task} before checkpoint {after.handle.checkpoint} cannot be used: {problem}"


def _decode(store: MemoryStore, log: list[LogSegment]) -> None:
    """Raises ClonosError if the log cannot be decoded from here, or names an answer that is gone."""
    codec = LogCodec()
    for segment in log:
        for determinant in codec.load(segment):
            if isinstance(determinant, Answer | Completion) and determinant.kept is not None:
                store.kept_answer(determinant.kept)
