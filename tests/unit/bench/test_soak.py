"""The folder of a soak: deleted if it is empty, else its leftovers are named."""

from __future__ import annotations

import tempfile
from pathlib import Path

from clonos_py.bench.soak import leftovers, own_folder


def test_an_empty_folder_is_deleted() -> None:
    with own_folder() as folder:
        assert tempfile.gettempdir() == str(folder)
    assert not folder.exists()
    assert leftovers(folder) == []
    assert tempfile.gettempdir() != str(folder)


def test_leftovers_stay_and_are_named() -> None:
    with own_folder() as folder:
        Path(tempfile.mkdtemp(prefix="scratch-")).rename(folder / "scratch")
    assert leftovers(folder) == ["scratch"]
    (folder / "scratch").rmdir()
    folder.rmdir()
