"""Which state a process is to start from: asked for, loaded, or reclaimed in the meantime (D7)."""

from __future__ import annotations

from clonos_py.link import instructions as io
from clonos_py.model.messages import Restore


class Restoring:
    """What is wanted, and what is here. A process without any checkpoint starts from nothing, which is here already."""

    def __init__(self) -> None:
        self._loaded = 0
        self.wanted: Restore | None = None

    def ask(self, restore: Restore, ahead: bool = False) -> list[io.Instruction]:
        """Asks for state, unless just this is on its way already: loading it twice would undo what came after.
        ``ahead``: no failed task waits for it."""
        on_its_way = self._is_wanted(restore)
        self.wanted = restore
        return [] if on_its_way else [io.Load(restore, ahead)]

    def start_from(self, restore: Restore) -> list[io.Instruction]:
        """The process is promoted. Asks for the state if it is not ``here``."""
        if self._loaded == restore.checkpoint:
            self.wanted = restore
            return []
        return self.ask(restore)

    @property
    def here(self) -> bool:
        """Whether the state that is wanted has been loaded."""
        return self.wanted is not None and self._loaded == self.wanted.checkpoint

    def loaded(self, restore: Restore) -> bool:
        """State has come. Whether it is the one that is wanted (still)."""
        if not self._is_wanted(restore):
            return False
        self._loaded = restore.checkpoint
        return True

    def failed(self, restore: Restore) -> bool:
        """State cannot be read. Whether it is the one that is wanted (still); if so it may be asked for again."""
        if not self._is_wanted(restore):
            return False
        self.wanted = None
        return True

    def _is_wanted(self, restore: Restore) -> bool:
        return self.wanted is not None and self.wanted.checkpoint == restore.checkpoint
