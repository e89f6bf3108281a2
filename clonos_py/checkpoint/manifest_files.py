"""The files of a job's manifests: which of them count, what each is composed of, and the savepoints."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from clonos_py.checkpoint import layout, manifest_chain
from clonos_py.checkpoint import manifest as manifests
from clonos_py.checkpoint.folder import Folder
from clonos_py.checkpoint.generation_files import GenerationFiles
from clonos_py.checkpoint.manifest import Mark
from clonos_py.checkpoint.manifest_chain import ManifestChain
from clonos_py.model.errors import CheckpointError
from clonos_py.model.snapshots import Manifest

_MANIFESTS = f"{layout.LINE}/{layout.MANIFESTS}"
_SAVEPOINTS = f"{layout.LINE}/{layout.SAVEPOINTS}"


class ManifestFiles:
    """The manifest files in the folder of a job."""

    def __init__(self, folder: Folder, job: str) -> None:
        self._folder, self._job = folder, job
        self._generations = GenerationFiles(folder, job)
        self._chain = ManifestChain()
        self.written_bytes = 0
        """The size of the manifest that was written last."""

    @property
    def path(self) -> str:
        return f"{self._folder.root}/{_MANIFESTS}"

    # ---- generations

    def open_generation(self, after: int | None) -> int:
        """See ``SnapshotStore``."""
        self._chain.end()
        self.latest()  # refuses a damaged line before any file is written
        number = self._generations.begin(after)
        newest = self.latest()
        self._generations.adopt(number, newest.checkpoint if newest else None)
        return number

    def archived(self, target: str) -> None:
        """A new line begins. Damaged generation files are moved to ``target``."""
        self._chain.end()
        self._generations.archive_damaged(target)

    # ---- manifests

    def check(self, manifest: Manifest) -> None:
        """Raises CheckpointError if the manifest is of another job, or of a generation that has been replaced."""
        self._check_job(manifest)
        manifests.check_not_fenced(manifest, self._generations.known())

    def write(self, manifest: Manifest) -> list[Mark]:
        """Writes a manifest. Returns the marks of the files that it is composed of. Raises CheckpointError if a later
        generation has been opened meanwhile."""
        content = self._chain.encode(manifest)
        self._folder.write(_path((manifest.checkpoint, manifest.generation)), content)
        manifests.check_not_fenced(manifest, self._generations.known())
        self._chain.written(manifest, content)
        self.written_bytes = len(content)
        return list(self._chain.marks)

    def latest(self) -> Manifest | None:
        """The newest manifest that counts. Raises CheckpointError if it, or the line, is damaged."""
        marks = self.valid()
        return self.read(marks[-1])[0] if marks else None

    def valid(self) -> list[Mark]:
        """The marks of the manifests that count, oldest checkpoint first."""
        generations = self._generations.known()
        marks = [mark for name in self._folder.names(_MANIFESTS) if (mark := layout.manifest_mark(name))]
        for _, generation in marks:
            manifests.check_begun(generation, generations, self._generations.path)
        valid = [mark for mark in marks if not manifests.is_void(*mark, generations)]
        if self._folder.names(layout.LINE):
            manifests.check_adopted([checkpoint for checkpoint, _ in valid], generations, self.path)
        return valid

    def read(self, mark: Mark) -> tuple[Manifest, list[Mark]]:
        """The manifest, and the marks of the files that it is composed of."""
        return manifest_chain.read(mark, self._file, self._job)

    def read_each(self, marks: Iterable[Mark]) -> Iterator[Manifest]:
        """The manifests with these marks, in this order."""
        return manifest_chain.read_each(marks, self._file, self._job)

    def _file(self, mark: Mark) -> tuple[bytes, str]:
        return self._folder.read(_path(mark)).to_pybytes(), f"{self._folder.root}/{_path(mark)}"

    def paths(self, marks: Iterable[Mark]) -> list[str]:
        """The files of manifests."""
        return [_path(mark) for mark in marks]

    def before(self, checkpoint: int, needed: Collection[Mark]) -> list[str]:
        """Files of earlier checkpoints, incomplete and void ones included, except those with a mark in ``needed``."""
        names = {name: layout.checkpoint_of(name) for name in self._folder.names(_MANIFESTS)}
        return [
            f"{_MANIFESTS}/{name}"
            for name, found in names.items()
            if found is not None and found < checkpoint and layout.manifest_mark(name) not in needed
        ]

    # ---- savepoints

    def write_savepoint(self, name: str, manifest: Manifest) -> None:
        """See ``SnapshotStore``."""
        self._check_job(manifest)
        manifests.check_needs_no_log(manifest)
        path = f"{_SAVEPOINTS}/{layout.name_in_folder(name)}{layout.MANIFEST_SUFFIX}"
        if not self._folder.create(path, manifests.encode(manifest)):
            raise CheckpointError(
                f"{self._folder.root}/{path} exists: savepoints are never overwritten, choose another name"
            )

    def savepoints(self) -> list[str]:
        """The names of their files."""
        return [file for file in self._folder.names(_SAVEPOINTS) if file.endswith(layout.MANIFEST_SUFFIX)]

    def remove_savepoint(self, name: str) -> None:
        self._folder.remove(f"{_SAVEPOINTS}/{layout.name_in_folder(name)}{layout.MANIFEST_SUFFIX}")

    def read_savepoint(self, file: str) -> Manifest:
        content = self._folder.read(f"{_SAVEPOINTS}/{file}").to_pybytes()
        return manifests.decode(content, self._job, f"{self._folder.root}/{_SAVEPOINTS}/{file}")

    def _check_job(self, manifest: Manifest) -> None:
        if manifest.job != self._job:
            raise CheckpointError(
                f"{self._folder.root} belongs to job {self._job!r}: the manifest is of job {manifest.job!r}"
            )


def _path(mark: Mark) -> str:
    return f"{_MANIFESTS}/{layout.manifest_name(*mark)}"
