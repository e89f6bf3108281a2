"""How long output may wait for more before it is cut into frames (D5)."""

from __future__ import annotations

from clonos_py.task.outputs import Outputs


class Lingering:
    """``until_us``: when what is pending has waited long enough; None while nothing is."""

    def __init__(self, outputs: Outputs, linger_us: int) -> None:
        self._outputs, self._linger_us = outputs, linger_us
        self.until_us: int | None = None

    def arm(self, now_us: int) -> None:
        """After each event."""
        if not self._outputs.waiting:
            self.until_us = None
        elif self.until_us is None:
            self.until_us = now_us + self._linger_us

    def due(self, now_us: int) -> bool:
        """Whether to cut now; the time begins again then."""
        if self.until_us is None or self.until_us > now_us:
            return False
        self.until_us = None
        return self._outputs.waiting
