"""The output of file sinks while a job is running."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from clonos_py.connectors import read_results


def visible_rows(folder: Path) -> list[dict[str, Any]]:
    """All visible rows; none before the sink has created its folder."""
    return read_results(str(folder)) if folder.exists() else []
