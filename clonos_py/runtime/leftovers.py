"""What runs have left in the temporary folder when they were killed: removed, or named, when the next one starts.

Sockets and spilled frames are of no use to any other run. Checkpoints are: a run that was killed goes on from them. So
those stay for a week after the last one was completed.
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
"""And twelve hexadecimal digits: Unix-domain sockets need short paths."""
SPILLED = "clonos-spilled-"
CHECKPOINTS = "clonos-checkpoints-"
_OF_NO_USE = re.compile(rf"{SCRATCH}[0-9a-f]{{12}}|{SPILLED}.*")
_WEEK_S = 7 * 86_400.0


class Leftover(NamedTuple):
    """Checkpoints of a job that was killed."""

    folder: Path
    checkpoint: int


def clear(job: str) -> list[Leftover]:
    """Removes what is of no use, and gives what is left of this job. May be called by several runs at once."""
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
    """Removes what is of no use to any run: enough on a node where a run does not start."""
    for folder in _left_behind(SCRATCH):
        if _OF_NO_USE.fullmatch(folder.name):
            remove(folder)


def last_checkpoint(folder: Path, job: str) -> int | None:
    """The last completed checkpoint of the job in a folder of this machine, None if there is none."""
    manifests = folder / name_in_folder(job) / LINE / MANIFESTS
    return max((mark[0] for path in manifests.glob("*") if (mark := manifest_mark(path.name))), default=None)


def _left_behind(prefix: str) -> Iterator[Path]:
    """Each is locked as long as it is looked at: what others may remove at the same moment raises nothing."""
    for folder in sorted(Path(tempfile.gettempdir()).glob(f"{prefix}*")):
        with suppress(OSError), unheld(folder) as left_behind:
            if left_behind:
                yield folder


def _is_worth_keeping(folder: Path) -> bool:
    """Whether a checkpoint was completed in the last week."""
    manifests = [path for path in folder.glob(f"*/{LINE}/{MANIFESTS}/*") if manifest_mark(path.name)]
    return any(time.time() - path.stat().st_mtime < _WEEK_S for path in manifests)
