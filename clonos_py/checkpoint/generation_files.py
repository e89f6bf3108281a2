"""The files of a job's generations: which generations have begun, and which checkpoint each has adopted (D11)."""

from __future__ import annotations

from clonos_py.checkpoint import layout
from clonos_py.checkpoint import manifest as manifests
from clonos_py.checkpoint.folder import Folder
from clonos_py.checkpoint.manifest import Adoption, Generation, Generations
from clonos_py.model.errors import CheckpointError

_GENERATIONS = layout.GENERATIONS


class GenerationFiles:
    """The generation files in the folder of a job."""

    def __init__(self, folder: Folder, job: str) -> None:
        self._folder, self._job = folder, job
        self._begun: dict[int, Generation] = {}
        self._adoptions: dict[int, Adoption] = {}
        self._opening: int | None = None
        """The generation that this coordinator opens: an earlier call may have got no answer."""
        self._has_begun = False
        """Whether ``_opening`` has begun."""

    @property
    def path(self) -> str:
        return f"{self._folder.root}/{_GENERATIONS}"

    def begin(self, after: int | None) -> int:
        """Begins the next generation and returns its number, which no other coordinator gets. One that an earlier call
        has begun, and for which ``adopt`` has failed, is returned again. Raises CheckpointError if ``after`` is given
        and is not the newest."""
        while not self._has_begun:
            newest = self.known().newest
            if self._opening != newest:
                manifests.check_newest(after, newest, self._job)
                self._opening = newest + 1
            self._has_begun = self._create(self._opening)
            if not self._has_begun:
                self._opening = None
        assert self._opening is not None
        return self._opening

    def _create(self, number: int) -> bool:
        record = manifests.encode_generation(Generation(number))
        return self._folder.create(f"{_GENERATIONS}/{layout.generation_name(number)}", record)

    def adopt(self, number: int, checkpoint: int | None) -> None:
        """Generation ``number`` adopts this checkpoint. Raises CheckpointError if there is a newer generation."""
        record = manifests.encode_generation(Adoption(number, checkpoint))
        self._folder.write(f"{_GENERATIONS}/{layout.adoption_name(number)}", record)
        newest = self.known().newest
        self._opening, self._has_begun = None, False
        manifests.check_newest(number, newest, self._job)

    def known(self) -> Generations:
        """All generations. Each file is read once, since files never change."""
        names = self._folder.names(_GENERATIONS)
        numbers = [number for name in names if (number := layout.generation_number(name)) is not None]
        newest = manifests.check_numbers(numbers, self.path)
        for number in numbers:
            name, adopted = layout.generation_name(number), layout.adoption_name(number)
            if number not in self._begun:
                self._begun[number] = manifests.decode_generation(self._read(name), number, f"{self.path}/{name}")
            if number not in self._adoptions and adopted in names:
                record = manifests.decode_adoption(self._read(adopted), number, f"{self.path}/{adopted}")
                self._adoptions[number] = record
        return Generations(newest, tuple(adoption for _, adoption in sorted(self._adoptions.items())))

    def _read(self, name: str) -> bytes:
        return self._folder.read(f"{_GENERATIONS}/{name}").to_pybytes()

    def archive_damaged(self, target: str) -> None:
        """Moves damaged files to ``target``, since no generation could begin with them. The numbers continue."""
        try:
            self.known()
        except CheckpointError:
            numbers = map(layout.generation_number, self._folder.names(_GENERATIONS))
            newest = max((number for number in numbers if number is not None), default=0)
            self._folder.move(_GENERATIONS, target)
            self._begun.clear()
            self._adoptions.clear()
            self._create(newest + 1)
