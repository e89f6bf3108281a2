"""A disk that is really full, for runs that write frames."""

from __future__ import annotations

from tests.disks import small_disk

__all__ = ["small_disk"]
