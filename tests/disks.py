"""For tests that write files: a file system that is really full or read-only, and what a power cut would lose."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of one MiB."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def make_read_only(folder: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", folder], check=True)


class PowerSupply:
    """Records what would be left after a power cut: a file's content once it is flushed, and its name once the folder
    is flushed after the file got it."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.flushed: set[int] = set()
        self.unflushed_names: set[str] = set()
        self._fsync, self._rename, self._link, self._mkdir = os.fsync, os.rename, os.link, os.mkdir
        for name in ("fsync", "rename", "link", "mkdir"):
            patch.setattr(os, name, getattr(self, name))
        self.at_rename: list[tuple[str, set[str]]] = []
        """Each file that got its name, and what would have been lost then."""

    def fsync(self, descriptor: int) -> None:
        self._fsync(descriptor)
        found = os.fstat(descriptor)
        self.flushed.add(found.st_ino)
        if stat.S_ISDIR(found.st_mode):
            path = os.readlink(f"/proc/self/fd/{descriptor}")
            self.unflushed_names = {name for name in self.unflushed_names if os.path.dirname(name) != path}

    def rename(self, source: str, target: str) -> None:
        self._named(source, target)
        self._rename(source, target)

    def link(self, source: str, target: str) -> None:
        self._named(source, target)
        self._link(source, target)

    def mkdir(self, path: str, mode: int = 0o777) -> None:
        self._mkdir(path, mode)
        self.unflushed_names.add(path)

    def _named(self, source: str, target: str) -> None:
        lost = set() if os.stat(source).st_ino in self.flushed else {target}
        self.at_rename.append((target, lost | self.unflushed_names))
        self.unflushed_names.add(target)
