"""How long output rows may wait for a fuller frame (D5): for the linger time, or less while the task has time.

A fuller frame saves work. A task that waits for input saves nothing by a full one, so it cuts what is pending. Each
frame costs sender and receivers some hundred microseconds, so such cuts are apart from each other: on a node where
other tasks are busy they take little of their time.
"""

from __future__ import annotations

from clonos_py.task.outputs import Outputs

_APART_US = 1_000
"""The time between two cuts of a task that waits for input, for each frame of the first one."""


class Lingering:
    """``until_us``: when pending rows must be cut; None while no rows are pending."""

    def __init__(self, outputs: Outputs, linger_us: int, cuts_early: bool) -> None:
        """``cuts_early``: whether rows leave earlier if the task has nothing else to do."""
        self._outputs, self._linger_us, self._cuts_early = outputs, linger_us, cuts_early
        self.until_us: int | None = None
        self._early_from_us = 0

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

    def due_early(self, now_us: int) -> bool:
        """Whether a task that has nothing else to do is to cut now. If so, the timeout is cleared."""
        if not self._cuts_early or self.until_us is None or now_us < self._early_from_us:
            return False
        self.until_us = None
        frames = len(self._outputs.uncut)
        self._early_from_us = now_us + _APART_US * frames
        return frames > 0

    def wake_us(self, now_us: int) -> int | None:
        """When a task that has nothing to do now has to cut; None while no rows are pending."""
        if self.until_us is None or not self._cuts_early or self._early_from_us <= now_us:
            return self.until_us
        return min(self.until_us, self._early_from_us)
