"""Every kind of file in the storage of a job, and every kind of damage to one."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

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


FOLDER_DAMAGES = (folder_removed, folder_emptied, folder_is_a_fifo, folder_is_a_file)
_FOLDERS_ALIKE = (folder_emptied, folder_is_a_file)
"""A folder without files, and no folder: an empty one cannot block."""
_BASIC: tuple[Damage, ...] = (flip_middle, removed, a_fifo)
"""Content that a checksum must find, no content, and a file that would block its reader: to each kind of file."""
_LIKE_OTHERS: tuple[Damage, ...] = (flip_early, flip_late, flip_last, empty, cut_by_a_byte, a_link_to_nothing)
"""Found in the same way as another damage: by the checksum, or since nothing can be read."""
_IN_TURN = tuple(damage for damage in DAMAGES if damage not in (*_BASIC, *_LIKE_OTHERS))
_ONE_IN = 3
"""Of the other damages a kind of file has one in so many in every run, and the next kind the next ones: so each damage
is done to several kinds."""
_RARELY_READ: tuple[Damage, ...] = (removed, a_fifo)
"""Damages to files that are not the newest of their kind."""


def _in_turn(number: int, damage: Damage) -> bool:
    return damage in _BASIC or (damage in _IN_TURN and (_IN_TURN.index(damage) + number) % _ONE_IN == 0)


def _case(*values: object, always: bool) -> Any:
    return pytest.param(*values, marks=[pytest.mark.thorough] * (not always))


CASES = [
    _case(kind, number, damage, always=damage in _RARELY_READ if number else _in_turn(place, damage))
    for place, (kind, (_, amount)) in enumerate(KINDS.items())
    for number in range(amount)
    for damage in DAMAGES
    if damage is not swapped or kind not in ALONE
]
CASES_OF_FOLDERS = [
    _case(folder, damage, always=damage not in _FOLDERS_ALIKE or (damage is folder_emptied and place % _ONE_IN == 0))
    for place, folder in enumerate(FOLDERS)
    for damage in FOLDER_DAMAGES
]
NOTHING_LEFT = (empty, zeros, removed, a_fifo, a_link_to_nothing, a_folder)
"""Damages after which there is nothing of a file."""


def cases_of_one(kinds: Sequence[str]) -> list[Any]:
    """The same for kinds of which there is one file, that cannot be swapped with another."""
    return [
        _case(kind, damage, always=_in_turn(place, damage))
        for place, kind in enumerate(kinds)
        for damage in DAMAGES
        if damage not in (swapped, older)
    ]
