"""Warnings of the engine in a worker, such as of a connection that was refused: lines for the log of the run.

Python's ``logging`` passes them on. A worker's own standard error, where they go, too, is a file of Ray's session.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

_ENGINE = "clonos_py"


class WarningLines(logging.Handler):
    """Gives each warning to ``take`` as a line with its end. ``take`` returns at once, and drops what it has no room
    for: the threads that log own connections."""

    def __init__(self, take: Callable[[str], object]) -> None:
        super().__init__(logging.WARNING)
        self._take = take

    def emit(self, record: logging.LogRecord) -> None:
        if logging.lastResort is not None:
            logging.lastResort.handle(record)  # Python does so only where no other handler is
        self._take(f"{' '.join(self.format(record).split())}\n")


def carry_warnings(take: Callable[[str], object]) -> None:
    """From now on ``take`` gets the engine's warnings in this process."""
    logging.getLogger(_ENGINE).addHandler(WarningLines(take))
