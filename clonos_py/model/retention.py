"""Spill policies: where frames are stored that may have to be sent again (Clonos, section 6.1)."""

from __future__ import annotations

from enum import Enum


class Spill(Enum):
    """Where the in-flight log stores its frames. All policies but the last are the paper's."""

    IN_MEMORY = "in-memory"
    EPOCH = "spill-epoch"
    """The frames of an epoch go to disk when the next epoch begins."""
    BUFFER = "spill-buffer"
    """Every frame goes to disk as it is cut."""
    THRESHOLD = "spill-threshold"
    """The oldest frames go to disk when those in memory exceed a threshold."""
    REGENERATE = "regenerate"
    """Vertices whose frames can be made again retain none; all others spill by threshold."""
