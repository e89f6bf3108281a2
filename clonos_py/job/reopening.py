"""Sources that had read all of their input in an earlier run, while others had not: they may have more rows now.

In the run that resumes they are read again, and so are the tasks behind them that had ended: the marks of the end are
removed from their progress and from that of their receivers. Everything else stays, such as sequence numbers, so that
the tasks that had not ended continue as they were. A source that has nothing new ends again at once.

Operators that had emitted their final results stay closed, see ``Restore``. That is known for all tasks of a vertex
only, so a vertex is opened again once all of its tasks had ended.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from clonos_py.model.ids import TaskId
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.snapshots import Manifest, TaskHandle
from clonos_py.model.times import MIN_TIME
from clonos_py.process.contract import InputProgress, TaskProgress
from clonos_py.process.progress import progress_of


def ended_vertices(manifest: Manifest) -> set[str]:
    """The vertices of which all tasks had read all of their input. Empty if progress cannot be read: the task that
    restores it reports that."""
    try:
        progress = _progress(manifest)
    except msgspec.MsgspecError:
        return set()
    running = {task.vertex for task, found in progress.items() if found.ended < 0}
    return {task.vertex for task in progress} - running


def reopened(manifest: Manifest, plan: PhysicalPlan, ended: Collection[str]) -> dict[TaskId, TaskHandle] | None:
    """By task: its snapshot, with which it reads on. ``manifest``: of the same tasks; ``ended``: see above. None:
    nothing can be opened again. That is so if frames in flight or logs are stored with the snapshots, since they may
    hold the end of a channel, or if some tasks of a vertex had ended behind such a source, and others had not. It is
    so as well if a causal output holds what an ended vertex has done since the checkpoint: that repeats only from the
    state as it was."""
    handles = {handle.task: handle for handle in manifest.tasks}
    if not ended:
        return handles
    if not manifest.coordinated or plan.loops or any(map(_holds_more, manifest.tasks)):
        return None
    if any(_is_held(plan, vertex) for vertex in ended):
        return None
    progress = _progress(manifest)
    opened = {task: [plan.sender(channel).vertex in ended for channel in plan.inputs[task]] for task in progress}
    if any(found.ended >= 0 and task.vertex not in ended and any(opened[task]) for task, found in progress.items()):
        return None
    return {
        task: _with_progress(handles[task], _reopened(found, task.vertex in ended, opened[task]))
        for task, found in progress.items()
    }


def _is_held(plan: PhysicalPlan, vertex: str) -> bool:
    """Whether logs of this vertex may be in the output of a causal sink."""
    reached = {vertex, *(task.vertex for origin in plan.tasks if origin.vertex == vertex for task in plan.hops[origin])}
    return any(plan.by_name[name].causal_sinks for name in reached)


def _progress(manifest: Manifest) -> Mapping[TaskId, TaskProgress]:
    return {handle.task: progress_of(handle) for handle in manifest.tasks}


def _with_progress(handle: TaskHandle, progress: TaskProgress) -> TaskHandle:
    return msgspec.structs.replace(handle, progress=msgspec.msgpack.encode(progress))


def _holds_more(handle: TaskHandle) -> bool:
    """Whether frames in flight or logs are stored with a snapshot."""
    return handle.logs is not None or any(handle.frames.values())


def _reopened(progress: TaskProgress, itself: bool, inputs: Collection[bool]) -> TaskProgress:
    """``itself``: whether the task reads on. ``inputs``: by channel, whether its sender does."""
    channels = [
        InputProgress(channel.next_seq) if is_opened else channel
        for channel, is_opened in zip(progress.inputs, inputs, strict=True)
    ]
    changed = msgspec.structs.replace(progress, inputs=channels)
    if not itself:
        return changed
    return msgspec.structs.replace(
        changed,
        ended=-1,
        finished=False,
        watermarks=[MIN_TIME] * len(progress.watermarks),
        received=[MIN_TIME] * len(progress.received),
        edge_watermarks=[MIN_TIME] * len(progress.edge_watermarks),
    )
