"""Where the processes of a job write: scratch on each node, and checkpoints in a place that all of them reach."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from clonos_py.model.errors import SettingError


@contextmanager
def folders(checkpoints: str | None, machines: Collection[str]) -> Iterator[tuple[Path, str]]:
    """Scratch (with a short path, as sockets need it) and checkpoints; both temporary, unless the user names a place
    for checkpoints. Raises SettingError if the temporary one would be on one machine of several."""
    if checkpoints is None and len(machines) > 1:
        raise SettingError(
            f"the job runs on {len(machines)} machines ({', '.join(sorted(machines))}), and its checkpoints have no "
            "place that all of them reach: give --checkpoints a shared folder or a URI such as s3://bucket/folder"
        )
    scratch = Path(tempfile.gettempdir()) / f"clonos-{secrets.token_hex(6)}"
    with tempfile.TemporaryDirectory(prefix="clonos-checkpoints-") as temporary:
        try:
            yield scratch, checkpoints or temporary
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
