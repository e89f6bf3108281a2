"""Every kind of file in the storage of a job, and every kind of damage to one."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

JOB = "checkpoints/written"
KINDS = {
    "generation": (f"{JOB}/generations/????????", 2),
    "adoption": (f"{JOB}/generations/*.adopted", 2),
    "manifest": (f"{JOB}/line/manifests/*.manifest", 2),
    "chunks": (f"{JOB}/line/state/*.chunks", 2),
    "answer": (f"{JOB}/line/answers/*.answer", 2),
    "staged": ("out/later/.staged/*.jsonl", 1),
    "staged in places": ("out/placed/.staged/*/*/rows.jsonl", 2),
    "staged table": ("out/latest/.staged/*.jsonl", 1),
    "journal": ("out/at_once/.causal/*/*/*", 1),
    "causal rows": ("out/at_once/at_once-0-4.jsonl", 1),
}
"""By pattern, with the number of files that are damaged, the newest first."""
ALONE = ("staged", "staged table", "journal", "causal rows")
"""There is one file, with which none can be swapped."""

FOLDERS = (
    JOB,
    f"{JOB}/generations",
    f"{JOB}/line",
    f"{JOB}/line/manifests",
    f"{JOB}/line/state",
    f"{JOB}/line/answers",
    "out/later/.staged",
    "out/placed/.staged",
    "out/latest/.staged",
    "out/at_once/.causal",
    "out/at_once/.causal/at_once-0",
    "out/at_once/.causal/at_once-0/2.1",
)


def files(folder: Path, kind: str) -> list[Path]:
    """The newest first. Files of replaced attempts in ``.staged`` are not needed, and not among them."""
    found = sorted(folder.glob(KINDS[kind][0]), key=lambda path: (_age(path), path.name), reverse=True)
    return [path for path in found if path.is_file() and path.stat().st_size]


def _age(path: Path) -> tuple[int, ...]:
    """Names begin with the checkpoint, or contain the one after which they were staged, or end with it."""
    for part in reversed(path.parts[-4:]):
        numbers = "".join(c if c.isdigit() else " " for c in part.partition(".after-")[2] or part).split()
        if ".after-" in part:
            return int(numbers[0]), int(numbers[-1])
    numbers = "".join(c if c.isdigit() else " " for c in path.stem).split()
    return (int(numbers[-1]),) if path.suffix == ".jsonl" else (int(numbers[0]), int(numbers[-1]))


def _flipped(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1 << random.Random(place).randrange(8)
    path.write_bytes(content)


def flip_first(path: Path, of_its_kind: list[Path]) -> None:
    _flipped(path, 0)


def flip_last(path: Path, of_its_kind: list[Path]) -> None:
    _flipped(path, path.stat().st_size - 1)


def flip_early(path: Path, of_its_kind: list[Path]) -> None:
    _flipped(path, path.stat().st_size // 5)


def flip_middle(path: Path, of_its_kind: list[Path]) -> None:
    _flipped(path, path.stat().st_size // 2)


def flip_late(path: Path, of_its_kind: list[Path]) -> None:
    _flipped(path, path.stat().st_size * 5 // 6)


def empty(path: Path, of_its_kind: list[Path]) -> None:
    os.truncate(path, 0)


def cut_in_half(path: Path, of_its_kind: list[Path]) -> None:
    os.truncate(path, path.stat().st_size // 2)


def cut_by_a_byte(path: Path, of_its_kind: list[Path]) -> None:
    os.truncate(path, path.stat().st_size - 1)


def zeros(path: Path, of_its_kind: list[Path]) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def grown(path: Path, of_its_kind: list[Path]) -> None:
    path.write_bytes(path.read_bytes() + b"\n")


def removed(path: Path, of_its_kind: list[Path]) -> None:
    path.unlink()


def swapped(path: Path, of_its_kind: list[Path]) -> None:
    other = next(other for other in of_its_kind if other != path)
    here, there = path.read_bytes(), other.read_bytes()
    path.write_bytes(there)
    other.write_bytes(here)


def older(path: Path, of_its_kind: list[Path]) -> None:
    """The content of the oldest file of its kind; a growing file loses its second half."""
    if len(of_its_kind) > 1 and path.suffix != ".jsonl":
        path.write_bytes(of_its_kind[-1].read_bytes())
    elif path.suffix == ".jsonl":
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(lines[: len(lines) // 2]))
    else:
        length = int.from_bytes(path.read_bytes()[:4], "big")
        os.truncate(path, 12 + length)


def a_fifo(path: Path, of_its_kind: list[Path]) -> None:
    path.unlink()
    os.mkfifo(path)


def a_link_to_itself_elsewhere(path: Path, of_its_kind: list[Path]) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def a_link_to_nothing(path: Path, of_its_kind: list[Path]) -> None:
    path.unlink()
    path.symlink_to("nothing")


def a_folder(path: Path, of_its_kind: list[Path]) -> None:
    path.unlink()
    path.mkdir()


Damage = Callable[[Path, list[Path]], None]
DAMAGES: tuple[Damage, ...] = (
    flip_first,
    flip_early,
    flip_middle,
    flip_late,
    flip_last,
    empty,
    cut_in_half,
    cut_by_a_byte,
    zeros,
    grown,
    removed,
    swapped,
    older,
    a_fifo,
    a_link_to_itself_elsewhere,
    a_link_to_nothing,
    a_folder,
)


def folder_removed(path: Path) -> None:
    shutil.rmtree(path)


def folder_emptied(path: Path) -> None:
    shutil.rmtree(path)
    path.mkdir()


def folder_is_a_fifo(path: Path) -> None:
    shutil.rmtree(path)
    os.mkfifo(path)


def folder_is_a_file(path: Path) -> None:
    shutil.rmtree(path)
    path.write_bytes(b"")


FOLDER_DAMAGES = (
    folder_removed,
    folder_emptied,
    folder_is_a_fifo,
    pytest.param(folder_is_a_file, marks=pytest.mark.thorough),  # no folder either, and it cannot block
)
_LIKE_OTHERS: tuple[Damage, ...] = (flip_early, flip_late, flip_last, empty, cut_by_a_byte, a_link_to_nothing)
"""Found in the same way as another damage: by the checksum, or since nothing can be read."""
NEWEST = tuple(damage for damage in DAMAGES if damage not in _LIKE_OTHERS)
"""Damages to the newest file of a kind for every run."""
OLDER: tuple[Damage, ...] = (flip_middle, removed, a_fifo)
"""The same to others: a run rarely reads them."""
CASES = [
    pytest.param(kind, number, damage, marks=[pytest.mark.thorough] * (damage not in (OLDER if number else NEWEST)))
    for kind, (_, amount) in KINDS.items()
    for number in range(amount)
    for damage in DAMAGES
    if damage is not swapped or kind not in ALONE
]
ONE_FILE = [
    pytest.param(damage, marks=[pytest.mark.thorough] * (damage in _LIKE_OTHERS))
    for damage in DAMAGES
    if damage not in (swapped, older)
]
"""What can happen to a file that has no others of its kind."""
NOTHING_LEFT = (empty, zeros, removed, a_fifo, a_link_to_nothing, a_folder)
"""Damages after which there is nothing of a file."""
