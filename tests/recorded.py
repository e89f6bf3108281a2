"""Reads the record of a job whole, as a replay would."""

from __future__ import annotations

from itertools import pairwise

from clonos_py.checkpoint.storage import CheckpointStore
from clonos_py.runtime.recorded_logs import counting_snapshots, log_between, sections


def determinants_recorded(store: CheckpointStore) -> dict[str, int]:
    """By task: the number of determinants from the first base to the last checkpoint. Raises if any is missing."""
    bases, manifests = store.bases(), store.manifests()
    assert bases[0].checkpoint == manifests[0].checkpoint
    (section,) = sections(manifests)
    return {
        str(handle.task): sum(
            segment.count
            for before, after in pairwise(counting_snapshots(section, handle.task))
            for segment in log_between(before, after, store.read_record(after.handle.record))
        )
        for handle in section[-1].tasks
    }
