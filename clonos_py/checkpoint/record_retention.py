"""Which checkpoints a job that records keeps (F1).

The record of a job is as long, or as large, as its setting says, and its state may be large. So state is kept of
*bases* only: the first checkpoint in each of ``SLOTS`` parts of that time, and each with which another run of the job
went on. A replay starts from a base. So manifests, logs and answers are kept from the last base on that was complete
when the time began, and everything before it is deleted.

A record with a size has a base in each quarter of an hour, and one when a part of that size has been written since the
last. Whenever a base is new, the record is measured, with the state of its bases, and begins with the first base from
which it has that size. The newest base is always kept.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from clonos_py.checkpoint.layout import Location, record_origin
from clonos_py.checkpoint.manifest import Mark
from clonos_py.checkpoint.retention import OldestEpochs, oldest_epochs
from clonos_py.model.snapshots import Manifest, Recorded

SLOTS = 96
SLOT_OF_A_SIZE_MS = 15 * 60_000
"""How often a record that has a size gets a base."""


class RecordBase(NamedTuple):
    """A checkpoint whose state is kept for the record, and the time of its completion in ms since 1970, UTC."""

    checkpoint: int
    generation: int
    completed_ms: int

    @property
    def mark(self) -> Mark:
        return self.checkpoint, self.generation


@dataclass(frozen=True)
class RecordMeasures:
    """How a record is measured that has a size."""

    grown: Callable[[RecordBase], int]
    """The bytes that were written for it after a base, without state."""
    taken: Callable[[Sequence[RecordBase]], Sequence[int]]
    """By base: the bytes that the record takes if it begins there, with the state of this base and of those after it.
    """


def kept_bases(
    bases: Sequence[RecordBase], newest: Mark, recorded: Recorded, measures: RecordMeasures
) -> list[RecordBase]:
    """The bases to keep once the checkpoint ``newest`` is complete, oldest first. It becomes one if it is the first in
    its part of the time or size. ``bases``: those so far that still count, oldest first."""
    last = RecordBase(*newest, recorded.completed_ms)
    record_ms = recorded.record_us // 1_000
    slot_ms = SLOT_OF_A_SIZE_MS if recorded.record_bytes else max(1, record_ms // SLOTS)
    found = sorted({*bases, *([RecordBase(*recorded.resumed)] if recorded.resumed is not None else [])})
    is_new = not found or found[-1].completed_ms // slot_ms != last.completed_ms // slot_ms
    if recorded.record_bytes and not is_new:
        is_new = measures.grown(found[-1]) * SLOTS >= recorded.record_bytes
    if is_new:
        found.append(last)
    if recorded.record_bytes:
        return found if found == list(bases) else _within(recorded.record_bytes, found, measures)
    begun_ms = last.completed_ms - record_ms
    first = max((number for number, base in enumerate(found) if base.completed_ms <= begun_ms), default=0)
    return found[first:]


def _within(record_bytes: int, bases: list[RecordBase], measures: RecordMeasures) -> list[RecordBase]:
    taken = measures.taken(bases)
    first = next((number for number, size in enumerate(taken) if size <= record_bytes), len(bases) - 1)
    return bases[first:]


def taken_bytes(
    first_needed: Sequence[int], state: Sequence[Mapping[str, int]], files: Iterable[tuple[int, int]]
) -> list[int]:
    """By base, oldest first, what a record takes that begins there. ``first_needed``: by base, the first checkpoint of
    whose files it needs any. ``state``: by base, the sizes of its files or chunks of state, by name; what bases have in
    common counts once. ``files``: the checkpoint and the size of every other file of the record."""
    ordered = sorted(files)
    checkpoints = [checkpoint for checkpoint, _ in ordered]
    reached = [0, *accumulate(size for _, size in ordered)]
    taken: list[int] = []
    counted: dict[str, int] = {}
    for first, sizes in zip(reversed(first_needed), reversed(state), strict=True):
        counted |= sizes
        taken.append(reached[-1] - reached[bisect_left(checkpoints, first)] + sum(counted.values()))
    return taken[::-1]


def first_needed(manifest: Manifest, marks: Iterable[Mark]) -> int:
    """The first checkpoint of whose files a replay from ``manifest`` needs any. ``marks``: of the files that it is
    composed of."""
    answers = answers_from(manifest)
    return min(first_record(manifest), answers.every, *answers.by_writer.values(), *(number for number, _ in marks))


def answers_from(manifest: Manifest) -> OldestEpochs:
    """The epochs of the earliest answers that a replay needs if ``manifest`` is the oldest that is kept. From the first
    checkpoint of a job its record goes back to the beginning."""
    recorded = manifest.recorded
    return OldestEpochs(0) if recorded is not None and recorded.first else oldest_epochs(manifest)


def first_record(manifest: Manifest) -> int:
    """The checkpoint of the oldest record file that a manifest refers to; its own number if it refers to none. Later
    manifests refer to no older one: a task's restart point does not move back behind what a manifest names."""
    pieces = (piece for handle in manifest.handles for piece in handle.record)
    origins = (record_origin(Location.parse(piece.location).file) for piece in pieces)
    return min((origin.epoch for origin in origins if origin is not None), default=manifest.checkpoint)
