from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from clonos_py.link.instructions import (
    FramesNotRead,
    FramesNotWritten,
    FramesRead,
    FramesWritten,
    FreeFrames,
    ReadFrames,
    WriteFrames,
)
from clonos_py.model.errors import CapacityError, SpillError
from clonos_py.runtime import spill
from clonos_py.runtime.executors.spill import SpillExecutor
from clonos_py.runtime.spill import FileShelf, MemoryShelf


def batch(start: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(range(start, start + 100))})


def test_stored_frames_are_read_back(tmp_path: Path) -> None:
    shelf = FileShelf(tmp_path)
    batches = [shelf.write(batch(n)) for n in range(5)]
    message = shelf.write(batch(7).serialize())
    assert [shelf.read(place) for place in batches] == [batch(n) for n in range(5)]
    assert shelf.read(message) == batch(7).serialize()


def open_files(folder: Path) -> int:
    """How many files of the folder are open; other tests in this process may leave files that are closed meanwhile."""
    found = 0
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            found += os.readlink(f"/proc/self/fd/{descriptor}").startswith(str(folder))
    return found


def test_files_are_freed_with_their_last_frame_and_have_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spill, "FILE_BYTES", 2_000)
    shelf = FileShelf(tmp_path)
    places = [shelf.write(batch(n)) for n in range(8)]
    assert open_files(tmp_path) > 2
    assert list(tmp_path.iterdir()) == [], "a process that is killed leaves nothing"
    for place in places[:-1]:
        shelf.free(place)
    assert open_files(tmp_path) == 1
    shelf.close()
    assert open_files(tmp_path) == 0


def test_a_folder_that_cannot_be_created_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CapacityError, match="file/frames, cannot be written: Not a directory"):
        FileShelf(tmp_path / "file" / "frames").write(batch(0))


def test_a_full_disk_is_reported_and_stored_frames_stay_intact(small_disk: Path) -> None:
    shelf = FileShelf(small_disk / "frames")
    large = pa.record_batch({"n": pa.array(range(50_000))})
    (bad, good) = SpillExecutor(shelf).carry_out(WriteFrames(3, [(seq, large) for seq in range(4)]))
    assert isinstance(good, FramesWritten)
    assert isinstance(bad, FramesNotWritten)
    assert [seq for seq, _ in good.places] == [0, 1]
    assert (bad.output, bad.seqs) == (3, [2, 3])
    assert "frames, is full" in bad.reason
    assert [shelf.read(place) for _, place in good.places] == [large, large]
    for _, place in good.places:
        shelf.free(place)
    (again,) = SpillExecutor(shelf).carry_out(WriteFrames(3, [(2, large), (3, large)]))
    assert isinstance(again, FramesWritten), "its file has ended with its frames, so there is room again"
    shelf.close()


def test_a_frame_that_cannot_be_read_back_is_reported(tmp_path: Path) -> None:
    shelf = FileShelf(tmp_path)
    place = shelf.write(batch(0))
    os.ftruncate(place.file.descriptor, 10)
    (event,) = SpillExecutor(shelf).carry_out(ReadFrames(0, [(0, place)]))
    assert isinstance(event, FramesNotRead)
    assert isinstance(event.problem, SpillError)
    shelf.close()


def test_requests_are_answered_with_the_numbers_of_their_frames() -> None:
    shelf = MemoryShelf(frames_max=2)
    (written,) = SpillExecutor(shelf).carry_out(WriteFrames(1, [(7, "seven"), (8, "eight")]))
    assert isinstance(written, FramesWritten)
    assert list(SpillExecutor(shelf).carry_out(ReadFrames(1, written.places))) == [
        FramesRead(1, [(7, "seven"), (8, "eight")])
    ]
    assert list(SpillExecutor(shelf).carry_out(WriteFrames(1, [(9, "nine")]))) == [
        FramesNotWritten(1, [9], "the simulated disk is full")
    ]
    assert list(SpillExecutor(shelf).carry_out(FreeFrames([place for _, place in written.places]))) == []
    (written,) = SpillExecutor(shelf).carry_out(WriteFrames(1, [(9, "nine")]))
    assert isinstance(written, FramesWritten)
