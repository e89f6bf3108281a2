"""The place of a run's checkpoints: the one that the user names, else a temporary folder of the run."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from clonos_py.model.errors import ClusterLostError
from clonos_py.runtime.held_folders import LOCK_FILE, hold
from clonos_py.runtime.leftovers import CHECKPOINTS, last_checkpoint


@contextmanager
def checkpoint_place(job: str, named: str | None) -> Iterator[str]:
    """The place of checkpoints, for the length of a run.

    A temporary folder is removed at the end. It stays if the cluster was lost and the job has a completed checkpoint
    in it, so that the next run can resume from it. ``named`` may be a folder that an earlier run has left behind: this
    run then holds it, so that no other run removes it."""
    if named is not None:
        held = hold(Path(named)) if (Path(named) / LOCK_FILE).exists() else None
        try:
            yield named
        finally:
            if held is not None:
                held.release()
        return
    folder = Path(tempfile.mkdtemp(prefix=CHECKPOINTS))
    held, kept = hold(folder), False
    try:
        yield str(folder)
    except ClusterLostError:
        kept = last_checkpoint(folder, job) is not None
        raise
    finally:
        if not kept:
            shutil.rmtree(folder, ignore_errors=True)
        held.release()
