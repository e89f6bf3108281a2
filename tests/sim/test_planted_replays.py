"""Replays of simulated jobs find what a record lacks, or has too much (F2): one planted bug at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec
import pytest

from clonos_py.checkpoint.memory import MemoryStore
from clonos_py.model.ids import TaskId
from clonos_py.model.segments import LogSegment
from clonos_py.model.snapshots import Manifest, RecordTail, TaskHandle
from clonos_py.runtime.replay import interval
from clonos_py.runtime.sim.generator import ROLLBACK, Range
from clonos_py.settings.protocols import PROTOCOLS
from tests import replays
from tests.replays import KeepingStore, replays_of
from tests.sim.planted import records

SEEDS = 60
UNCOORDINATED = next(protocol for protocol in PROTOCOLS if protocol.name == "uncoordinated")

Plant = Callable[[pytest.MonkeyPatch], None]


def an_answer_of_another_lineage_is_replayed(patch: pytest.MonkeyPatch) -> None:
    """A log names an answer that its task had kept before, as where an attempt was given up."""
    keep = MemoryStore.keep_answer
    names: dict[tuple[int, TaskId], str] = {}

    def keeping(self: MemoryStore, epoch: int, task: TaskId, process: int, content: bytes) -> str:
        return names.setdefault((id(self), task), keep(self, epoch, task, process, content))

    patch.setattr(KeepingStore, "keep_answer", keeping)


def snapshots_that_were_rolled_back_count(patch: pytest.MonkeyPatch) -> None:
    """A task's snapshot stays its newest after the task has gone back behind it."""
    read = MemoryStore.manifests

    def never_back(self: MemoryStore) -> list[Manifest]:
        newest: dict[TaskId, TaskHandle] = {}
        found = []
        for manifest in read(self):
            for handle in manifest.tasks:
                if handle.task not in newest or newest[handle.task].checkpoint < handle.checkpoint:
                    newest[handle.task] = handle
            found.append(msgspec.structs.replace(manifest, tasks=[newest[handle.task] for handle in manifest.tasks]))
        return found

    patch.setattr(KeepingStore, "manifests", never_back)


def determinants_of_the_last_epoch_are_missing(patch: pytest.MonkeyPatch) -> None:
    read = MemoryStore.read_record

    def short(self: MemoryStore, record: Iterable[object]) -> list[LogSegment]:
        found = read(self, record)  # type: ignore[arg-type]
        return [segment for segment in found if segment.epoch != found[-1].epoch] if found else found

    patch.setattr(KeepingStore, "read_record", short)


def an_earlier_failure_goes_on_after_the_newest_checkpoint(patch: pytest.MonkeyPatch) -> None:
    """The logs that were held when a run failed are joined to the snapshots of another, wherever offsets fit."""

    def any_tails(newest: Manifest | None, tails: Sequence[RecordTail]) -> Sequence[RecordTail]:
        return KeepingStore.kept.tails() if KeepingStore.kept is not None else tails

    patch.setattr(replays, "tails_after", any_tails)
    patch.setattr(interval, "with_tail", joined_by_offset)


def joined_by_offset(
    task: TaskId, recorded: interval.RecordedTask, tails: Sequence[RecordTail]
) -> interval.RecordedTask:
    held = {segment.start: segment for tail in tails for segment in tail.logs if segment.log == task.log_id}
    log = list(recorded.log)
    at = log[-1].stop if log else min(held, default=0)
    while (segment := held.get(at)) is not None and segment.count:
        log.append(segment)
        at = segment.stop
    return interval.RecordedTask(recorded.start, log, recorded.snapshots)


PLANTED: list[tuple[Plant, Range]] = [
    (records.a_piece_is_kept_for_one_epoch_too_few, Range(protocol=None)),
    (records.the_log_of_an_attempt_that_was_rolled_back_is_kept, Range(protocol=None, recovery=ROLLBACK)),
    (records.the_log_that_is_replayed_is_not_recorded, Range(protocol=None)),
    (determinants_of_the_last_epoch_are_missing, Range(protocol=None)),
    (an_answer_of_another_lineage_is_replayed, Range(protocol=None)),
    (snapshots_that_were_rolled_back_count, Range(protocol=UNCOORDINATED, recovery=ROLLBACK)),
    (an_earlier_failure_goes_on_after_the_newest_checkpoint, Range(protocol=None)),
]


FOUND_BY = {
    "a_piece_is_kept_for_one_epoch_too_few": 1,
    "the_log_of_an_attempt_that_was_rolled_back_is_kept": 1,
    "the_log_that_is_replayed_is_not_recorded": 9,
    "determinants_of_the_last_epoch_are_missing": 1,
    "an_answer_of_another_lineage_is_replayed": 1,
    "snapshots_that_were_rolled_back_count": 5,
    "an_earlier_failure_goes_on_after_the_newest_checkpoint": 52,
}
"""The seeds that are tried before all others: a hint that saves time."""


@pytest.mark.parametrize(("plant", "range_"), PLANTED, ids=lambda value: getattr(value, "__name__", ""))
def test_replays_find(plant: Plant, range_: Range, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in (FOUND_BY[plant.__name__], *range(SEEDS)):
        with monkeypatch.context() as patch:
            plant(patch)
            try:
                found = replays_of(seed, range_, patch).problems
            except AssertionError:
                return  # the run was already wrong
        if found:
            return
    pytest.fail(f"{SEEDS} seeds do not find it")
