"""Which state a process is to start from: asked for, loaded, or reclaimed in the meantime (D7)."""

from __future__ import annotations

from clonos_py.link import instructions as io
from clonos_py.model.messages import Restore


class Restoring:
    """What is wanted, and what is here. A process without any checkpoint starts from nothing, which is here already."""

    def __init__(self, out: list[io.Instruction]) -> None:
        self._out = out
        self._loaded = 0
        self.wanted: Restore | None = None

    def ask(self, restore: Restore, ahead: bool = False) -> None:
        """Asks for state, unless just this is on its way already: loading it twice would undo what came after.
        ``ahead``: nobody waits for it."""
        if self.wanted is None or self.wanted.checkpoint != restore.checkpoint:
            self._out.append(io.Load(restore, ahead))
        self.wanted = restore

    def start_from(self, restore: Restore) -> bool:
        """The process is promoted. Whether the state is here; it is asked for if not."""
        if self._loaded == restore.checkpoint:
            self.wanted = restore
            return True
        self.ask(restore)
        return False

    @property
    def here(self) -> bool:
        return self.wanted is not None and self._loaded == self.wanted.checkpoint

    def loaded(self, restore: Restore) -> bool:
        """State has come. Whether it is the one that is wanted (still)."""
        if self.wanted is None or restore.checkpoint != self.wanted.checkpoint:
            return False
        self._loaded = restore.checkpoint
        return True

    def failed(self, restore: Restore) -> bool:
        """State cannot be read. Whether it is the one that is wanted (still); if so it may be asked for again."""
        if self.wanted is None or restore.checkpoint != self.wanted.checkpoint:
            return False
        self.wanted = None
        return True
