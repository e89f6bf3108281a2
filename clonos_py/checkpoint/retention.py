"""Retention: the files that the kept checkpoints need, those that they refer to and all files of later snapshots."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from clonos_py.checkpoint.layout import FileOrigin, Location, writer_name
from clonos_py.model.errors import START_OVER, UnreadableCheckpointError
from clonos_py.model.snapshots import Manifest, TaskHandle

GONE_REMEDY = f"put the file back and resume, {START_OVER}; only the job itself may delete from this folder"


class OldestEpochs(NamedTuple):
    """The oldest epochs that are still needed: by task, and for all other writers."""

    every: int
    by_writer: Mapping[str, int] = {}

    def of(self, writer: str) -> int:
        return self.by_writer.get(writer, self.every)


def needed_bytes(handles: Iterable[TaskHandle]) -> dict[str, int]:
    """By chunk file that snapshots need: the least length in bytes that it must have. Raises CheckpointError if they
    refer to anything else."""
    needed: dict[str, int] = {}
    for location in (Location.parse(text) for handle in handles for text in handle.locations):
        if location.is_record:
            raise UnreadableCheckpointError(f"{location.file} holds no state: the manifest is damaged")
        needed[location.file] = max(needed.get(location.file, 0), location.offset + location.size_bytes)
    return needed


def check_records(handles: Iterable[TaskHandle]) -> None:
    """Raises CheckpointError if the record of a snapshot is not in record files."""
    for location in (Location.parse(piece.location) for handle in handles for piece in handle.record):
        if not location.is_record:
            raise UnreadableCheckpointError(f"{location.file} holds no record: the manifest is damaged")


def check_present(needed: Mapping[str, int], sizes: Mapping[str, int], folder: str) -> None:
    """Raises CheckpointError if a needed file is missing or too short. ``sizes``: of the existing files."""
    for file, size_bytes in needed.items():
        if file not in sizes:
            raise UnreadableCheckpointError(
                f"{folder}/{file} is missing, which the next checkpoint needs, too; {GONE_REMEDY}"
            )
        if sizes[file] < size_bytes:
            raise UnreadableCheckpointError(
                f"{folder}/{file} has {sizes[file]} bytes, the next checkpoint needs {size_bytes} of it; {GONE_REMEDY}"
            )


def are_present(manifest: Manifest, sizes: Mapping[str, int]) -> bool:
    """Whether all chunk files that a manifest needs exist. ``sizes``: of the existing files. A file that is too short
    counts: it is damaged, not deleted."""
    return all(file in sizes for file in needed_bytes(manifest.handles))


def oldest_epochs(manifest: Manifest) -> OldestEpochs:
    """The epochs of the earliest snapshots that a manifest names."""
    by_writer: dict[str, int] = {}
    for handle in manifest.handles:
        writer = writer_name(handle.task)
        by_writer[writer] = min(handle.checkpoint, by_writer.get(writer, handle.checkpoint))
    return OldestEpochs(min(by_writer.values(), default=manifest.checkpoint), by_writer)


def collectable(files: Mapping[str, FileOrigin | None], referenced: Collection[str], oldest: OldestEpochs) -> list[str]:
    """The files that are not needed any more. ``files``: by name, the writer and the epoch; None for a foreign file.

    A file is dead if its epoch is earlier than that of its task in the oldest kept manifest, and no kept manifest
    refers to it: state that was still in use at that epoch would be part of the manifest. A later file may belong to a
    snapshot that no manifest names yet.
    """
    return [
        file
        for file, origin in files.items()
        if origin is not None and origin.epoch < oldest.of(origin.writer) and file not in referenced
    ]
