"""The folders that a job's processes write to: scratch on each node, and checkpoints in a place that all can reach."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from clonos_py.model.errors import SettingError
from clonos_py.runtime.checkpoint_place import checkpoint_place
from clonos_py.runtime.held_folders import hold
from clonos_py.runtime.leftovers import SCRATCH


def scratch_path() -> str:
    """A new path for the scratch of a run, on every node: short, as sockets need it."""
    return str(Path(tempfile.gettempdir()) / f"{SCRATCH}{secrets.token_hex(6)}")


@contextmanager
def folders(
    job: str, checkpoints: str | None, machines: Collection[str], scratch_path: str
) -> Iterator[tuple[Path, str]]:
    """The folders for scratch and for checkpoints. Both are temporary, unless the user names a place for checkpoints.
    Raises SettingError if temporary checkpoints would be on one machine of several."""
    if checkpoints is None and len(machines) > 1:
        raise SettingError(
            f"the job runs on {len(machines)} machines ({', '.join(sorted(machines))}), and its checkpoints have no "
            "place that all of them reach: give --checkpoints a shared folder or a URI such as s3://bucket/folder"
        )
    scratch = Path(scratch_path)
    held = hold(scratch)
    try:
        with checkpoint_place(job, checkpoints) as place:
            yield scratch, place
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        held.release()
