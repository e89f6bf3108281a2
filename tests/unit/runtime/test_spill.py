from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from clonos_py.model.errors import CapacityError
from clonos_py.runtime import spill
from clonos_py.runtime.spill import FileSpill


def batch(start: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(range(start, start + 100))})


def test_what_was_spilled_comes_back(tmp_path: Path) -> None:
    shelf = FileSpill(tmp_path)
    batches = [shelf.write(batch(n)) for n in range(5)]
    message = shelf.write(batch(7).serialize())
    assert [shelf.read(place) for place in batches] == [batch(n) for n in range(5)]
    assert shelf.read(message) == batch(7).serialize()


def test_files_vanish_with_their_last_frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill, "FILE_BYTES", 2_000)
    shelf = FileSpill(tmp_path)
    places = [shelf.write(batch(n)) for n in range(8)]
    assert len(list(tmp_path.iterdir())) > 2
    for place in places:
        shelf.free(place)
    shelf.close()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CapacityError, match="file/frames"):
        FileSpill(tmp_path / "file" / "frames").write(batch(0))
