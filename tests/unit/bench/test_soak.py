"""The folder of a soak: gone if all was cleared, else what was left in it is named."""

from __future__ import annotations

import tempfile
from pathlib import Path

from clonos_py.bench.soak import leftovers, own_folder


def test_a_folder_in_which_nothing_is_left_is_gone() -> None:
    with own_folder() as folder:
        assert tempfile.gettempdir() == str(folder)
    assert not folder.exists()
    assert leftovers(folder) == []
    assert tempfile.gettempdir() != str(folder)


def test_what_is_left_stays_and_is_named() -> None:
    with own_folder() as folder:
        Path(tempfile.mkdtemp(prefix="scratch-")).rename(folder / "scratch")
    assert leftovers(folder) == ["scratch"]
    (folder / "scratch").rmdir()
    folder.rmdir()
