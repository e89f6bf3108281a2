"""Where frames live that may have to be sent again (Clonos, section 6.1)."""

from __future__ import annotations

from enum import Enum


class Spill(Enum):
    """Where the in-flight log keeps its frames. All but the last are the paper's."""

    IN_MEMORY = "in-memory"
    EPOCH = "spill-epoch"
    """An epoch goes to disk as soon as the next one begins."""
    BUFFER = "spill-buffer"
    """Every frame goes to disk as it is cut."""
    THRESHOLD = "spill-threshold"
    """The oldest frames go to disk when those in memory are more than a threshold."""
    REGENERATE = "regenerate"
    """Sources that can make their frames again keep none; all others spill by threshold."""
