"""Names in a checkpoint are input: sinks follow them to their own staged rows only, and check that these are intact."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from clonos_py.connectors import FileSink, UpsertFileSink, read_results
from clonos_py.connectors.staging import StagedFile, StagedPiece
from clonos_py.model.connectors import SinkDefinition
from clonos_py.model.errors import CheckpointError, SinkError
from tests.connectors.hot import hot, prepared, start

pytestmark = pytest.mark.timeout(20, method="thread")

SINKS: dict[str, Callable[[Path], SinkDefinition]] = {
    "files": lambda folder: FileSink(str(folder)),
    "csv": lambda folder: FileSink(str(folder), "csv"),
    "parquet": lambda folder: FileSink(str(folder), "parquet"),
    "partitioned": lambda folder: FileSink(str(folder), partition_by="note"),
    "upserts": lambda folder: UpsertFileSink(str(folder), key="auction"),
}
everywhere = pytest.mark.parametrize("kind", SINKS)


def left(kind: str, folder: Path) -> tuple[bytes, Any, list[Path]]:
    """A sink dies with a checkpoint complete and not committed: its committable, its state, its staged files."""
    sink = start(SINKS[kind](folder))
    sink.on_rows(hot(1, 2), 0)
    committable = prepared(sink, 1)
    return committable, sink.snapshot(), sorted(path for path in (folder / ".staged").rglob("*") if path.is_file())


def resumed(kind: str, folder: Path, committable: bytes, state: Any) -> None:
    sink = start(SINKS[kind](folder))
    sink.restore([state])
    sink.commit(committable)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def a_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def a_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@everywhere
@pytest.mark.parametrize("damage", [flip, cut, a_fifo, a_link, a_folder])
def test_altered_staged_rows_never_become_visible(tmp_path: Path, kind: str, damage: Callable[[Path], None]) -> None:
    committable, state, (staged, *_) = left(kind, tmp_path)
    damage(staged)
    with pytest.raises(SinkError, match=f"{staged} is not what was staged there: restore it from a copy"):
        resumed(kind, tmp_path, committable, state)


@everywhere
def test_intact_staged_rows_become_visible(tmp_path: Path, kind: str) -> None:
    committable, state, _ = left(kind, tmp_path)
    resumed(kind, tmp_path, committable, state)
    assert [int(row["auction"]) for row in read_results(str(tmp_path))] == ([2, 1] if kind == "partitioned" else [1, 2])


OUTSIDE = ["../secret", "/etc/passwd", "..", ".", "", "out-0/../../secret", "secret", ".staged", "out-0\0"]


@everywhere
@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.parametrize("field", ["staged", "final"])
def test_names_that_lead_out_of_the_folder_are_refused(tmp_path: Path, kind: str, name: str, field: str) -> None:
    folder = tmp_path / "out"
    committable, state, _ = left(kind, folder)
    (tmp_path / "secret").mkdir()
    (folder / "secret").mkdir()
    piece = msgspec.msgpack.decode(committable, type=StagedPiece)
    led = msgspec.msgpack.encode(msgspec.structs.replace(piece, **{field: name}))
    with pytest.raises(
        CheckpointError, match=r"as rows of operator 'out', which is no file of it in .*/out: its manifest"
    ):
        resumed(kind, folder, led, state)
    assert (tmp_path / "secret").is_dir()
    assert (folder / "secret").is_dir()
    assert read_results(str(folder)) == []


@pytest.mark.parametrize("place", ["..", "note=1/..", "note=1/../../x=1", "/note=1", "note", "", "a=1/b=2"])
def test_staged_places_that_lead_out_of_the_folder_are_refused(tmp_path: Path, place: str) -> None:
    committable, state, _ = left("partitioned", tmp_path)
    piece = msgspec.msgpack.decode(committable, type=StagedPiece)
    led = msgspec.structs.replace(piece, files=(StagedFile(place, 1, 1),))
    with pytest.raises(CheckpointError, match="which is no file of it in"):
        resumed("partitioned", tmp_path, msgspec.msgpack.encode(led), state)


@pytest.mark.parametrize("kind", ["files", "csv", "parquet", "partitioned"])
def test_rows_of_a_later_checkpoint_than_the_restart_point_are_an_error(tmp_path: Path, kind: str) -> None:
    """The manifest of the later one is gone: its rows would come again, maybe in other files."""
    folder, copy = tmp_path / "out", tmp_path / "copy"
    sink = start(SINKS[kind](folder))
    sink.on_rows(hot(1), 0)
    first, state = prepared(sink, 1), sink.snapshot()
    sink.on_rows(hot(3), 0)
    second = prepared(sink, 2)
    sink.commit(first)
    shutil.copytree(folder, copy)
    sink.commit(second)
    again = start(SINKS[kind](folder))
    again.restore([state])
    with pytest.raises(SinkError, match=r"is of a later checkpoint than 1, from which this run continues: restore"):
        again.prepare(3)
    intact = start(SINKS[kind](copy))
    intact.restore([state])
    assert intact.prepare(3) is None


def test_staged_files_keep_the_umask_of_the_user(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        committable, state, _ = left("files", tmp_path)
        resumed("files", tmp_path, committable, state)
    finally:
        os.umask(before)
    (visible,) = tmp_path.glob("*.jsonl")
    assert visible.stat().st_mode & 0o777 == 0o644
