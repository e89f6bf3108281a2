"""A disk that is really full, for the files of a simulated job."""

from __future__ import annotations

from tests.disks import small_disk

__all__ = ["small_disk"]
