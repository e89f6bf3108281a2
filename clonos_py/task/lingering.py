"""The linger time: how long output rows may wait for a fuller frame (D5)."""

from __future__ import annotations

from clonos_py.task.outputs import Outputs


class Lingering:
    """``until_us``: when pending rows must be cut; None while no rows are pending."""

    def __init__(self, outputs: Outputs, linger_us: int) -> None:
        self._outputs, self._linger_us = outputs, linger_us
        self.until_us: int | None = None

    def arm(self, now_us: int) -> None:
        """Starts or clears the timeout. Called after each event."""
        if not self._outputs.waiting:
            self.until_us = None
        elif self.until_us is None:
            self.until_us = now_us + self._linger_us

    def due(self, now_us: int) -> bool:
        """Whether to cut now. If so, the timeout is cleared."""
        if self.until_us is None or self.until_us > now_us:
            return False
        self.until_us = None
        return self._outputs.waiting
