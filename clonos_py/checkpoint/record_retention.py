"""Which checkpoints a job that records keeps (F1).

The record of a job is as long as its setting says, and its state may be large. So state is kept of *bases* only: the
first checkpoint in each of ``SLOTS`` parts of that time, and each with which another run of the job went on. A replay
starts from a base. So manifests, logs and answers are kept from the last base on that was complete when the time began,
and everything before it is deleted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from clonos_py.checkpoint.layout import Location, record_origin
from clonos_py.checkpoint.manifest import Mark
from clonos_py.checkpoint.retention import OldestEpochs, oldest_epochs
from clonos_py.model.snapshots import Manifest, Recorded

SLOTS = 96


class RecordBase(NamedTuple):
    """A checkpoint whose state is kept for the record, and the time of its completion in ms since 1970, UTC."""

    checkpoint: int
    generation: int
    completed_ms: int

    @property
    def mark(self) -> Mark:
        return self.checkpoint, self.generation


def kept_bases(bases: Iterable[RecordBase], newest: Mark, recorded: Recorded) -> list[RecordBase]:
    """The bases to keep once the checkpoint ``newest`` is complete, oldest first. It becomes one if it is the first in
    its part of the time. ``bases``: those so far that still count."""
    last = RecordBase(*newest, recorded.completed_ms)
    record_ms = recorded.record_us // 1_000
    slot_ms = max(1, record_ms // SLOTS)
    found = sorted({*bases, *([RecordBase(*recorded.resumed)] if recorded.resumed is not None else [])})
    if not found or found[-1].completed_ms // slot_ms != last.completed_ms // slot_ms:
        found.append(last)
    begun_ms = last.completed_ms - record_ms
    first = max((number for number, base in enumerate(found) if base.completed_ms <= begun_ms), default=0)
    return found[first:]


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
