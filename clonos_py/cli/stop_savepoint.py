"""``clonos stop --savepoint``: keeps the checkpoint with which a job stops as a savepoint."""

from __future__ import annotations

import click

from clonos_py.checkpoint.storage import CheckpointStore
from clonos_py.checkpoint.stored_jobs import jobs_text
from clonos_py.cli.savepoint import kept_text
from clonos_py.model.errors import CheckpointError, SettingError


class StopSavepoint:
    """The savepoint with which a job is to stop."""

    def __init__(self, job: str, name: str, checkpoints: str | None, address: str | None, namespace: str) -> None:
        """``checkpoints``: the folder of the job's checkpoints; None: that of a detached run on the cluster at
        ``address``. Raises SettingError or ClusterError if there is none, CheckpointError if the job keeps no
        checkpoints in that folder, or has a savepoint of this name."""
        folder = checkpoints or _folder_of(job, address, namespace)
        self._job, self._name, self._store = job, name, CheckpointStore(folder, job)
        if name in self._store.savepoints():
            raise CheckpointError(f"{job!r} has a savepoint {name!r}: savepoints are never overwritten, choose another")
        last = self._store.latest()
        if last is None:
            raise CheckpointError(f"{self._store.path} has no checkpoints yet: {jobs_text(folder)}")
        self._before = last.checkpoint

    def keep(self) -> None:
        """The job has stopped."""
        last = self._store.latest()
        if last is None or last.checkpoint == self._before:
            raise CheckpointError(
                f"{self._job!r} has stopped, and its last checkpoint is not in {self._store.path}: the run has another "
                "folder, with which the next run goes on"
            )
        self._store.write_savepoint(self._name, last)
        click.echo(kept_text(self._job, self._name, last.checkpoint))


def _folder_of(job: str, address: str | None, namespace: str) -> str:
    """The checkpoint folder of a detached run. Raises SettingError or ClusterError if there is none."""
    from clonos_py.runtime.ray.cluster import address_here, connected
    from clonos_py.runtime.ray.detached import driver_of, state_of

    try:
        with connected(address or address_here(), namespace) as cluster:
            driver = driver_of(cluster.named(job))
            state = None if driver is None else state_of(driver)
    except SettingError:
        state = None
    if state is None:
        raise SettingError(f"{job!r} is no detached run: name the folder of its checkpoints with --checkpoints")
    return state.checkpoints
