"""The files of a job's record that are not those of its checkpoints: marks of bases, and buckets of logs (F1)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence

from clonos_py.checkpoint import layout
from clonos_py.checkpoint.folder import Folder
from clonos_py.checkpoint.manifest import Mark
from clonos_py.checkpoint.record_retention import RecordBase, RecordMeasures, kept_bases
from clonos_py.model.errors import CheckpointError
from clonos_py.model.snapshots import Recorded

_BASES = f"{layout.LINE}/{layout.BASES}"
_RECORDS = f"{layout.LINE}/{layout.RECORDS}"
_ANSWERS = f"{layout.LINE}/{layout.ANSWERS}"
_MANIFESTS = f"{layout.LINE}/{layout.MANIFESTS}"


class RecordFiles:
    """The bases and buckets in the folder of a job. Folders are listed once, and again when a base is added."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._bases: list[RecordBase] | None = None
        """None: not listed yet."""
        self._checked = False
        """Whether the bases were compared with the manifests that count."""
        self._buckets: list[str] | None = None
        self._written_bytes = 0
        """What this store has written of manifests and logs since the newest base."""
        self._pieces: Collection[str] = ()
        """The pieces of logs that the newest manifest names."""

    def forget(self) -> None:
        """The line is another one."""
        self._bases = self._buckets = None
        self._checked = False

    def bases(self) -> list[RecordBase]:
        """The bases, oldest first, also those whose manifests do not count."""
        if self._bases is None:
            numbers = map(layout.base_numbers, self._folder.names(_BASES))
            self._bases = sorted(RecordBase(*found) for found in numbers if found is not None)
        return self._bases

    def keep(
        self,
        newest: Mark,
        recorded: Recorded | None,
        counting: Callable[[], Iterable[Mark]],
        taken: Callable[[Sequence[RecordBase]], Sequence[int]],
    ) -> bool:
        """The checkpoint ``newest`` is complete: adds and deletes marks of bases. ``counting``: returns the manifests
        that count. ``taken``: see RecordMeasures. Returns whether files may have become useless. Raises
        CheckpointError."""
        first_time = not self._checked
        before = self.bases()
        valid = _that_count(before, set(counting())) if first_time and before else before
        kept: list[RecordBase] = []
        if recorded is not None:
            kept = kept_bases(valid, newest, recorded, RecordMeasures(self._grown, taken))
        for base in kept:
            if base not in before:
                self._folder.write(_path(base), b"The state of this checkpoint is kept for the record.\n")
                self._buckets = None
        for base in before:
            if base not in kept:
                self._folder.remove(_path(base))
        if kept and kept[-1] not in before:
            self._written_bytes = 0
        self._bases, self._checked = kept, True
        return first_time or kept != before

    # ---- its size

    def written(self, manifest_bytes: int, pieces: Mapping[str, int]) -> None:
        """A manifest of this size is written. ``pieces``: by location, the bytes of the logs that it names."""
        self._written_bytes += manifest_bytes
        self._written_bytes += sum(size for piece, size in pieces.items() if piece not in self._pieces)
        self._pieces = pieces.keys()

    def _grown(self, base: RecordBase) -> int:
        """See RecordMeasures. What an earlier coordinator wrote is not counted."""
        answers = _sized(self._folder.sizes(_ANSWERS))
        return self._written_bytes + sum(size for checkpoint, size in answers if checkpoint >= base.checkpoint)

    def sizes(self) -> Iterator[tuple[int, int]]:
        """The checkpoint and the bytes of each file of the record: manifests, answers and logs."""
        buckets = (f"{_RECORDS}/{name}" for name in self._folder.names(_RECORDS))
        for folder in (_MANIFESTS, _ANSWERS, *buckets):
            yield from _sized(self._folder.sizes(folder))

    # ---- logs

    def remove_before(self, checkpoint: int) -> Iterator[CheckpointError]:
        """Deletes the buckets whose files are all of earlier checkpoints."""
        if self._buckets is None:
            self._buckets = self._folder.names(_RECORDS)
        for name in list(self._buckets):
            end = layout.bucket_end(name)
            if end is not None and end <= checkpoint:
                try:
                    self._folder.remove_folder(f"{_RECORDS}/{name}")
                    self._buckets.remove(name)
                except CheckpointError as problem:
                    yield problem

    def files_before(self, checkpoint: int) -> list[str]:
        """The files of earlier checkpoints in the bucket of this one, which ``remove_before`` leaves."""
        folder = f"{_RECORDS}/{layout.bucket_name(checkpoint)}"
        found = ((name, layout.checkpoint_of(name)) for name in self._folder.names(folder))
        return [f"{folder}/{name}" for name, of in found if of is not None and of < checkpoint]


def _sized(sizes: Mapping[str, int]) -> Iterator[tuple[int, int]]:
    """The checkpoint in the name of each file, and its size."""
    for name, size in sizes.items():
        checkpoint = layout.checkpoint_of(name)
        if checkpoint is not None:
            yield checkpoint, size


def _that_count(bases: Iterable[RecordBase], counting: Container[Mark]) -> list[RecordBase]:
    """Those of earlier coordinators may be void. Later ones are of this store, which has not been replaced."""
    return [base for base in bases if base.mark in counting]


def _path(base: RecordBase) -> str:
    return f"{_BASES}/{layout.base_name(*base)}"
