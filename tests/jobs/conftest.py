"""Where jobs run in tests: in a folder of their own, or on a disk that is really full or read-only."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.disks import small_disk

__all__ = ["small_disk"]


@pytest.fixture
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working folder of a user who has not asked for tracebacks."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CLONOS_DEBUG", raising=False)
