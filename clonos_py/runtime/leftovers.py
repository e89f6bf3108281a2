"""Files that killed runs have left in the temporary folder. When the next run starts, it removes or reports them.

Sockets and spilled frames are of no use to another run. Checkpoints are: the job can resume from them. So these stay
for a week after the last one was completed.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from clonos_py.checkpoint.layout import LINE, MANIFESTS, manifest_mark, name_in_folder
from clonos_py.runtime.held_folders import remove, unheld

SCRATCH = "clonos-"
"""Twelve hexadecimal digits follow: Unix-domain sockets need short paths."""
SPILLED = "clonos-spilled-"
CHECKPOINTS = "clonos-checkpoints-"
_OF_NO_USE = re.compile(rf"{SCRATCH}[0-9a-f]{{12}}|{SPILLED}.*")
_WEEK_S = 7 * 86_400.0


class Leftover(NamedTuple):
    """Checkpoints that a killed run has left, and the last completed one among them."""

    folder: Path
    checkpoint: int


def clear(job: str) -> list[Leftover]:
    """Removes files that are of no use, and returns the checkpoints of this job that were left behind. Several runs may
    call it at once."""
    clear_scratch()
    found = []
    for folder in _left_behind(CHECKPOINTS):
        checkpoint = last_checkpoint(folder, job)
        if not _is_worth_keeping(folder):
            remove(folder)
        elif checkpoint is not None:
            found.append(Leftover(folder, checkpoint))
    return found


def clear_scratch() -> None:
    """Removes sockets and spilled frames that were left behind. That is enough on a node where no run starts."""
    for folder in _left_behind(SCRATCH):
        if _OF_NO_USE.fullmatch(folder.name):
            remove(folder)


def last_checkpoint(folder: Path, job: str) -> int | None:
    """The last completed checkpoint of the job in a local folder, None if there is none."""
    manifests = folder / name_in_folder(job) / LINE / MANIFESTS
    return max((mark[0] for path in manifests.glob("*") if (mark := manifest_mark(path.name))), default=None)


def _left_behind(prefix: str) -> Iterator[Path]:
    """Folders that were left behind. Each is locked while the caller handles it. Errors are ignored, since other runs
    may remove the same folders."""
    for folder in sorted(Path(tempfile.gettempdir()).glob(f"{prefix}*")):
        with suppress(OSError), unheld(folder) as left_behind:
            if left_behind:
                yield folder


def _is_worth_keeping(folder: Path) -> bool:
    """Whether a checkpoint was completed in the last week."""
    manifests = [path for path in folder.glob(f"*/{LINE}/{MANIFESTS}/*") if manifest_mark(path.name)]
    return any(time.time() - path.stat().st_mtime < _WEEK_S for path in manifests)
