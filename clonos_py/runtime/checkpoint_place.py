"""Where a run's checkpoints are: in the place that the user names, else in a temporary folder of the run."""

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
    """The temporary one is removed at the end, unless the cluster was lost: then the next run goes on from it. One that
    a former run has left behind may be named; it is held as long as this run lasts."""
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
