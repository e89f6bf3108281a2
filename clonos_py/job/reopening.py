"""Sources that had read all of their input in an earlier run, while others had not: they may have more rows now.

In the run that resumes they are read again, and so are the tasks behind them that had ended: the marks of the end are
removed from their progress and from that of their receivers. Everything else stays, such as sequence numbers, so that
the tasks that had not ended continue as they were. A source that has nothing new ends again at once.

The partitions of a source that had ended are read again, too: the task that restores them does that
(``SourceReopened``).

Operators that had emitted their final results stay closed, see ``Restore``. That is known for all tasks of a vertex
only. So of a vertex with state no task is opened again before all had ended.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from clonos_py.model.ids import TaskId
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.snapshots import Manifest, TaskHandle
from clonos_py.model.times import MIN_TIME
from clonos_py.process.contract import InputProgress, TaskProgress
from clonos_py.process.progress import progress_of


def ended_tasks(manifest: Manifest) -> set[TaskId]:
    """The tasks that had read all of their input."""
    return {handle.task for handle in manifest.tasks if _has_ended(handle)}


def ended_vertices(manifest: Manifest, ended: Collection[TaskId]) -> set[str]:
    """The vertices of which all tasks had ``ended``, and none may go back to an earlier snapshot in which it had not:
    then it emits its final results again."""
    going_on = {handle.task.vertex for handle in manifest.tasks if handle.task not in ended}
    going_on |= {handle.task.vertex for handle in manifest.earlier if not _has_ended(handle)}
    return {handle.task.vertex for handle in manifest.tasks} - going_on


def _has_ended(handle: TaskHandle) -> bool:
    """Not if its progress cannot be read: the task that restores it reports that."""
    try:
        return progress_of(handle).ended >= 0
    except msgspec.MsgspecError:
        return False


def reopened(manifest: Manifest, plan: PhysicalPlan, ended: Collection[TaskId]) -> dict[TaskId, TaskHandle]:
    """By task that is opened again or is behind one: its snapshot, with which it reads on. ``manifest``: of the same
    tasks; ``ended``: see above."""
    handles, opened = {handle.task: handle for handle in manifest.tasks}, _opened(manifest, plan, ended)
    inputs = {task: [plan.sender(channel) in opened for channel in plan.inputs[task]] for task in handles}
    return {
        task: _with_progress(handle, _reopened(progress_of(handle), task in opened, inputs[task]))
        for task, handle in handles.items()
        if task in opened or any(inputs[task])
    }


def _opened(manifest: Manifest, plan: PhysicalPlan, ended: Collection[TaskId]) -> set[TaskId]:
    """The tasks that read on. There are none if frames in flight or logs are stored with the snapshots, since they may
    hold the end of a channel, or if a task with state had ended behind such a source, and others of its vertex had not.
    It is so as well if a causal output holds what an ended task has done since the checkpoint: that repeats only from
    the state as it was."""
    if not manifest.coordinated or plan.loops or any(map(_holds_more, manifest.tasks)):
        return set()
    if any(_is_held(plan, vertex) for vertex in {task.vertex for task in ended}):
        return set()
    whole = ended_vertices(manifest, ended)
    stateful = {v.name for v in plan.vertices if any(o.stateful and not o.sink for o in v.operators)}
    opened = {task for task in ended if task.vertex in whole or task.vertex not in stateful}
    while unfed := {t for t in opened if plan.inputs[t] and not any(plan.sender(c) in opened for c in plan.inputs[t])}:
        opened -= unfed
    shut = [task for task in ended if task not in opened]
    return set() if any(plan.sender(channel) in opened for task in shut for channel in plan.inputs[task]) else opened


def _is_held(plan: PhysicalPlan, vertex: str) -> bool:
    """Whether logs of this vertex may be in the output of a causal sink."""
    reached = {vertex, *(task.vertex for origin in plan.tasks if origin.vertex == vertex for task in plan.hops[origin])}
    return any(plan.by_name[name].causal_sinks for name in reached)


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
