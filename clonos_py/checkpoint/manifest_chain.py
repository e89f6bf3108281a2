"""Delta manifests: where tasks take snapshots alone, a manifest stores only the changes to the one before (E6).

    whole <-- delta <-- delta <-- ... <-- delta    whole <-- delta <-- ...

A delta manifest names its base, with the checksum of that file, and holds the snapshots that the base does not name.
The base is the manifest that the same coordinator wrote before it. A manifest is composed of all files back to the
whole one. Each of these must be present and undamaged, so the files of a chain are retained as long as a manifest needs
them.

A manifest is whole if it is the first of a generation, or if it follows ``DELTAS_MAX`` deltas. It is also whole if all
tasks have new snapshots, as in all manifests of coordinated checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from clonos_py.checkpoint import manifest as manifests
from clonos_py.checkpoint.manifest import Base, ManifestDelta, Mark, NamedEpochs
from clonos_py.model.errors import DAMAGED_REMEDY, UnreadableCheckpointError
from clonos_py.model.ids import TaskId
from clonos_py.model.snapshots import Manifest

DELTAS_MAX = 63


class ManifestChain:
    """Encodes the manifests that one coordinator writes one after the other."""

    def __init__(self, deltas_max: int = DELTAS_MAX) -> None:
        self._deltas_max = deltas_max
        self._newest: Manifest | None = None
        self._checksum = ""
        self.marks: list[Mark] = []
        """The marks of the files that the newest manifest is composed of."""

    def end(self) -> None:
        """Ends the chain: the next manifest is whole."""
        self._newest, self.marks = None, []

    def encode(self, manifest: Manifest) -> bytes:
        """The content of a manifest's file: a delta if that is possible and shorter."""
        base = self._newest
        if base is not None and base.generation == manifest.generation and len(self.marks) <= self._deltas_max:
            delta = _delta(base, self._checksum, manifest)
            if len(delta.named) < len(manifest.tasks) and composed(base, delta) == manifest:
                return manifests.encode(delta)
        return manifests.encode(manifest)

    def written(self, manifest: Manifest, content: bytes) -> None:
        """The file of ``manifest`` is durable."""
        if not manifests.is_delta(content):
            self.marks = []
        self.marks.append((manifest.checkpoint, manifest.generation))
        self._newest, self._checksum = manifest, manifests.checksum(content)


def read(newest: Mark, file: Callable[[Mark], tuple[bytes, str]], job: str) -> tuple[Manifest, list[Mark]]:
    """The manifest with this mark, and the marks of all files that it is composed of, the whole one first. ``file``
    returns content and path of each. Raises CheckpointError if a file is damaged or is not the base of the next one."""
    deltas: list[ManifestDelta] = []
    mark = newest
    content, path = file(mark)
    while manifests.is_delta(content):
        delta = manifests.decode_delta(content, job, path, mark)
        if delta.base.checkpoint >= delta.checkpoint:
            raise UnreadableCheckpointError(f"{path} has a base later than itself; {DAMAGED_REMEDY}")
        deltas.append(delta)
        mark = delta.base.checkpoint, delta.generation
        content, base_path = file(mark)
        if manifests.checksum(content) != delta.base.checksum:
            raise UnreadableCheckpointError(f"{base_path} is not the base of {path}; {DAMAGED_REMEDY}")
        path = base_path
    manifest, marks = manifests.decode(content, job, path, mark), [mark]
    for delta in reversed(deltas):
        manifest = composed(manifest, delta)
        marks.append((delta.checkpoint, delta.generation))
    return manifest, marks


def read_each(marks: Iterable[Mark], file: Callable[[Mark], tuple[bytes, str]], job: str) -> Iterator[Manifest]:
    """The manifests with these marks, in this order; see ``read``. A delta whose base is the manifest before it is
    composed with that, so that no file is read twice."""
    last: tuple[Mark, str, Manifest] | None = None
    for mark in marks:
        content, path = file(mark)
        delta = manifests.decode_delta(content, job, path, mark) if manifests.is_delta(content) else None
        if delta is None:
            manifest = manifests.decode(content, job, path, mark)
        elif last is not None and last[:2] == ((delta.base.checkpoint, delta.generation), delta.base.checksum):
            manifest = composed(last[2], delta)
        else:
            manifest, _ = read(mark, file, job)
        last = mark, manifests.checksum(content), manifest
        yield manifest


def composed(base: Manifest, delta: ManifestDelta) -> Manifest:
    """The manifest that ``delta`` makes of ``base``. Tasks keep their order. Raises CheckpointError if a snapshot that
    the delta names is in neither."""
    epochs = _epochs(base) | {named.task: named.epochs for named in delta.named}
    known = {(handle.task, handle.checkpoint): handle for handle in (*base.handles, *delta.handles)}
    try:
        tasks = [known[task, newest] for task, (*_, newest) in epochs.items()]
        earlier = [known[task, epoch] for task, (*before, _) in epochs.items() for epoch in before]
    except (KeyError, ValueError) as unknown:
        raise UnreadableCheckpointError(
            f"the manifest of checkpoint {delta.checkpoint} names a snapshot that no file holds, {unknown}; "
            f"{DAMAGED_REMEDY}"
        ) from unknown
    return msgspec.structs.replace(
        base,
        checkpoint=delta.checkpoint,
        generation=delta.generation,
        tasks=tasks,
        earlier=earlier,
        estimates=delta.estimates,
        recorded=delta.recorded,
    )


def _delta(base: Manifest, checksum: str, manifest: Manifest) -> ManifestDelta:
    before = _epochs(base)
    known = {(handle.task, handle.checkpoint): handle for handle in base.handles}
    return ManifestDelta(
        manifest.job,
        manifest.checkpoint,
        manifest.generation,
        Base(base.checkpoint, checksum),
        [NamedEpochs(task, epochs) for task, epochs in _epochs(manifest).items() if epochs != before.get(task)],
        [handle for handle in manifest.handles if known.get((handle.task, handle.checkpoint)) != handle],
        manifest.estimates,
        manifest.recorded,
    )


def _epochs(manifest: Manifest) -> dict[TaskId, list[int]]:
    """By task: the epochs of its snapshots, the newest last; tasks in order."""
    epochs: dict[TaskId, list[int]] = {handle.task: [] for handle in manifest.tasks}
    for handle in manifest.handles:
        epochs.setdefault(handle.task, []).append(handle.checkpoint)
    return epochs
