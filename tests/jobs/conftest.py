"""A disk that is really full or read-only, for jobs, too."""

from __future__ import annotations

from tests.disks import small_disk

__all__ = ["small_disk"]
