"""Unpacks archives with any Python that the project supports."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any


def unpack(archive: Path, folder: Path) -> None:
    """Python before 3.11.4, such as Debian's, has no filters."""
    filters: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    with tarfile.open(archive) as packed:
        packed.extractall(folder, **filters)
