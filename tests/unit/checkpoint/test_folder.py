"""A folder of durable files on this machine: what is on the disk when, who may read it, and which paths are no
files."""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from clonos_py.checkpoint.folder import LocalFolder
from clonos_py.checkpoint.storage import CheckpointStore
from clonos_py.model.errors import CheckpointError
from tests.disks import PowerSupply
from tests.unit.checkpoint.stores import FIRST, JOB, JOIN, chunk, manifest, snapshot

pytestmark = pytest.mark.timeout(300, method="thread")


@pytest.fixture
def folder(tmp_path: Path) -> LocalFolder:
    return LocalFolder(str(tmp_path / "root"))


@pytest.fixture
def wide_open() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def a_fifo(path: Path) -> None:
    os.mkfifo(path)


def a_link(path: Path) -> None:
    path.with_name("elsewhere").write_bytes(b"content")
    path.symlink_to("elsewhere")


def a_folder(path: Path) -> None:
    path.mkdir()


IMPOSTORS: dict[Callable[[Path], None], str] = {
    a_fifo: "a is no regular file; restore the file from a copy",
    a_link: "a: it is a symbolic link, which no checkpoint contains: put the file itself there",
    a_folder: "a is no regular file",
}


@pytest.mark.parametrize("impostor", IMPOSTORS)
def test_only_regular_files_are_read(folder: LocalFolder, impostor: Callable[[Path], None]) -> None:
    folder.write("a", b"content")
    path = Path(folder.root) / "a"
    path.unlink()
    impostor(path)
    for read in (lambda: folder.read("a"), lambda: folder.read_ranges("a", [(0, 3)])):
        with pytest.raises(CheckpointError, match=IMPOSTORS[impostor]):
            read()
    assert folder.sizes("").get("a") is None


@pytest.mark.parametrize("impostor", [a_fifo, a_link])
def test_an_impostor_in_the_place_of_a_file_is_replaced_by_a_write(
    folder: LocalFolder, impostor: Callable[[Path], None]
) -> None:
    folder.write("b", b"")
    for name in ("a", "a.incomplete"):
        impostor(Path(folder.root) / name)
    folder.write("a", b"new")
    assert folder.read("a").to_pybytes() == b"new"
    elsewhere = Path(folder.root) / "elsewhere"
    assert not elsewhere.exists() or elsewhere.read_bytes() == b"content"


@pytest.mark.usefixtures("wide_open")
def test_only_the_owner_may_read(tmp_path: Path) -> None:
    store = CheckpointStore(str(tmp_path / "made" / "too"), JOB)
    store.open_generation()
    store.keep_answer(0, JOIN, 0, b"answer")
    store.write_manifest(manifest(1, store.write(snapshot(1, [chunk(0)]), FIRST)))
    store.archive()
    found = {path: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "made").rglob("*")}
    assert {mode for path, mode in found.items() if path.is_file()} == {0o600}
    assert {mode for path, mode in found.items() if path.is_dir()} == {0o700}
    assert len(found) > 8


def test_all_files_that_a_manifest_needs_are_flushed_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = CheckpointStore(str(tmp_path), JOB)
    power = PowerSupply(monkeypatch)
    store.open_generation()
    store.keep_answer(0, JOIN, 0, b"answer")
    handles = [store.write(snapshot(1, [chunk(n)]), FIRST) for n in range(2)]
    store.write_manifest(manifest(1, *handles))
    lost = {os.path.relpath(target, tmp_path): found for target, found in power.at_rename}
    assert [os.path.dirname(name).rpartition("/")[2] for name in lost][-4:] == [
        "answers",
        "state",
        "state",
        "manifests",
    ]
    assert set().union(*lost.values()) == set(), "written under a name before the files it needs were flushed"
    assert power.unflushed_names == set(), "a power cut would lose the name"


def test_a_file_that_disappears_during_a_listing_hides_no_other(
    folder: LocalFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks write, and so rename, files beside the listed ones."""
    folder.write("state/here", b"abc")
    folder.write("state/going", b"abc")
    scandir = os.scandir

    @contextmanager
    def listed(path: str) -> Iterator[list[os.DirEntry[str]]]:
        with scandir(path) as entries:
            found = list(entries)
        folder.remove("state/going")
        yield found

    monkeypatch.setattr(os, "scandir", listed)
    assert folder.sizes("state") == {"here": 3}


@pytest.mark.skipif(sys.platform != "linux", reason="other systems take no such advice")
@pytest.mark.parametrize("read_soon", [True, False])
def test_a_file_that_nobody_reads_soon_leaves_memory_once_it_is_durable(
    read_soon: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def refused(descriptor: int, start: int, length: int, advice: int) -> None:
        calls.append("advice" if (start, length, advice) == (0, 0, os.POSIX_FADV_DONTNEED) else "other advice")
        raise OSError(errno.EINVAL, "not here")

    monkeypatch.setattr(os, "fsync", lambda descriptor: calls.append("flush"))
    monkeypatch.setattr(os, "posix_fadvise", refused)
    folder = LocalFolder(str(tmp_path), read_soon)
    folder.write("first", b"")
    calls.clear()
    folder.write("state", b"rows")
    assert calls == ["flush", *([] if read_soon else ["advice"]), "flush"]
    assert bytes(folder.read("state")) == b"rows"
