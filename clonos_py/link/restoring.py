"""The state that a process is to start from: requested, loaded, or deleted in the meantime (D7)."""

from __future__ import annotations

from clonos_py.link import instructions as io
from clonos_py.model.messages import Restore

_NONE = -1


class Restoring:
    """The state that is requested and the state that is loaded. Without a checkpoint a process starts empty."""

    def __init__(self) -> None:
        self._loaded, self._given = 0, False
        self.requested: Restore | None = None

    def request(self, restore: Restore, ahead: bool = False) -> list[io.Instruction]:
        """Requests state, unless the same state is already being loaded: loading it twice would undo later changes.
        ``ahead``: no failed task waits for it."""
        on_its_way = self.is_requested(restore)
        self.requested = restore
        return [] if on_its_way else [io.Load(restore, ahead)]

    def start_from(self, restore: Restore) -> list[io.Instruction]:
        """The process is promoted: requests the state if it is not loaded."""
        if self._loaded == restore.checkpoint:
            self.requested = restore
            return []
        return self.request(restore)

    def given(self, restore: Restore) -> None:
        """The process starts from a newer state than this, which it got from the feed."""
        self.requested, self._loaded, self._given = restore, restore.checkpoint, True

    def replaced(self) -> None:
        """The loaded state was replaced by one of the feed, and what is being loaded is not needed."""
        self.requested, self._loaded = None, _NONE

    @property
    def ready(self) -> bool:
        """Whether the requested state is loaded."""
        return self.requested is not None and self._loaded == self.requested.checkpoint

    def loaded(self, restore: Restore) -> None:
        """The requested state was loaded."""
        self._loaded = restore.checkpoint

    def failed(self) -> None:
        """The requested state cannot be read. It may be requested again."""
        self.requested = None

    def is_awaited(self, restore: Restore) -> bool:
        """Whether this state is (still) requested from storage."""
        return self.is_requested(restore) and not self._given

    def is_requested(self, restore: Restore) -> bool:
        """Whether this state is (still) requested."""
        return self.requested is not None and self.requested.checkpoint == restore.checkpoint
