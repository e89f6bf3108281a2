"""Files of results are whole, or are not there."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from clonos_py.cli.result_files import write_result
from clonos_py.model.errors import SettingError


def test_a_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "plot.svg"
    for text in ("first", "\u00b5s"):
        write_result(path, text)
        assert path.read_text(encoding="utf-8") == text
    assert os.listdir(tmp_path) == ["plot.svg"]


def test_a_full_disk_is_named_with_the_remedy_and_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "report.json"
    write_result(path, "old")
    write_text = Path.write_text

    def full(self: Path, text: str, encoding: str) -> int:
        write_text(self, text[:1], encoding=encoding)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(SettingError, match=r"report.json cannot be written \(No space left on device\): make room"):
        write_result(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["report.json"]
