"""What former instances of operators have counted, for a run with other tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

import msgspec

from clonos_py.model.ids import TaskId
from clonos_py.model.snapshots import Manifest
from clonos_py.model.user_metrics import UserMetric, operator_of, total
from clonos_py.process.contract import TaskProgress
from clonos_py.process.progress import progress_of


def counted_before(
    manifest: Manifest, operators: Collection[str], task: TaskId, parallelism: int
) -> tuple[dict[str, int], dict[str, UserMetric]]:
    """The counters and the metrics of ``operators`` with which a task goes on, one of ``parallelism``: those of every
    so many-th former instance. Gauges have no value until they are set again."""
    counts, metrics = Counter[str](), dict[str, list[UserMetric]]()
    for progress in _progress(manifest, task.index, parallelism):
        counts.update({name: count for name, count in progress.counts.items() if operator_of(name) in operators})
        for name, metric in progress.metrics.items():
            if operator_of(name) in operators:
                metrics.setdefault(name, []).append(metric)
    totals = {name: found for name, parts in metrics.items() if (found := total(parts)) is not None}
    return dict(counts), totals


def _progress(manifest: Manifest, index: int, parallelism: int) -> Iterator[TaskProgress]:
    """A progress that cannot be read has counted nothing: at another parallelism nothing else of it is needed."""
    for handle in manifest.tasks:
        if handle.task.index % parallelism == index:
            try:
                yield progress_of(handle)
            except msgspec.MsgspecError:
                continue
