"""Which tasks that had ended in an earlier run read on in the next one."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from msgspec.structs import replace as replace_struct

from clonos_py.job.reopening import ended_tasks, ended_vertices, reopened
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.snapshots import Manifest, TaskHandle
from clonos_py.process.contract import InputProgress, TaskProgress
from clonos_py.process.progress import progress_of
from tests.unit.job.graphs import graph, task


def two_sources(causal: str = "") -> PhysicalPlan:
    """``a`` and ``b`` are sources, ``b`` goes on to ``c``, both to ``d``. ``causal``: the tasks with causal sinks."""
    plan = graph("ad", "bc", "bd")
    vertices = tuple(
        replace(vertex, operators=tuple(replace(o, sink=True, causal=True) for o in vertex.operators))
        if vertex.name in causal
        else vertex
        for vertex in plan.vertices
    )
    return replace(plan, vertices=vertices)


def manifest(plan: PhysicalPlan, ended: str) -> Manifest:
    handles = []
    for one in plan.tasks:
        inputs = [InputProgress(3, ended=plan.sender(channel).vertex in ended) for channel in plan.inputs[one]]
        at_end = 1 if one.vertex in ended else -1
        progress = TaskProgress(inputs, [], [], [], False, 0, [5, 5], [5], [], {}, finished=at_end > 0, ended=at_end)
        handles.append(TaskHandle(one, 7, {}, msgspec.msgpack.encode(progress), {}))
    return Manifest(plan.job, 7, 1, 128, {vertex.name: 1 for vertex in plan.vertices}, handles)


def test_an_ended_source_and_the_channels_behind_it_are_opened() -> None:
    plan = two_sources()
    stored = manifest(plan, "a")
    ended = ended_tasks(stored)
    opened = reopened(stored, plan, ended)
    assert progress_of(opened[task("a")]).ended == -1
    assert [channel.ended for channel in progress_of(opened[task("d")]).inputs] == [False, False]


@pytest.mark.parametrize(("causal", "opens"), [("", True), ("c", True), ("d", False), ("cd", False)])
def test_what_a_causal_output_may_hold_of_an_ended_source_is_repeated_from_its_state(causal: str, opens: bool) -> None:
    """The output holds what ``a`` has logged since the checkpoint. Only the state as it was repeats that."""
    plan = two_sources(causal)
    stored = manifest(plan, "a")
    ended = ended_tasks(stored)
    assert bool(reopened(stored, plan, ended)) == opens


def test_what_may_go_back_to_before_its_end_has_not_emitted_its_final_results() -> None:
    plan = two_sources()
    stored = manifest(plan, "abcd")
    before = next(handle for handle in manifest(plan, "ab").tasks if handle.task == task("c"))
    back = replace_struct(stored, earlier=[before])
    assert ended_vertices(stored, ended_tasks(stored)) == {"a", "b", "c", "d"}
    assert ended_vertices(back, ended_tasks(back)) == {"a", "b", "d"}
    assert ended_vertices(replace_struct(stored, earlier=stored.tasks), ended_tasks(stored)) == {"a", "b", "c", "d"}


def test_a_task_whose_progress_cannot_be_read_has_not_ended() -> None:
    stored = manifest(two_sources(), "ab")
    stored.tasks[0] = replace_struct(stored.tasks[0], progress=b"\xc1 forged")
    assert ended_tasks(stored) == {task("b")}
