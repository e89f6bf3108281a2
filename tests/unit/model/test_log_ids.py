"""The ids of logs: the same in every plan that has the task, and different for all tasks of a plan."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py import GraphError, Job
from clonos_py.model.ids import TaskId
from clonos_py.model.plan import PhysicalPlan
from clonos_py.plan.physical import plan
from tests.unit.dsl.connectors import Nowhere, bids


def fanned_out(names: Sequence[str], parallelism: int = 1) -> PhysicalPlan:
    """One source whose rows go to a sink of each name."""
    job = Job("fan")
    rows = bids(job)
    for name in names:
        rows.rebalance().sink(Nowhere(name))
    return plan(job, parallelism=parallelism)


def test_a_log_keeps_its_id_at_another_parallelism_and_beside_other_vertices() -> None:
    before, after = fanned_out(["z"], 2), fanned_out(["a", "b", "z"], 3)
    assert before.tasks.index(TaskId("sink-z", 1)) != after.tasks.index(TaskId("sink-z", 1))
    assert before.logs.items() <= after.logs.items()


def test_the_id_of_a_log_is_the_same_in_all_versions() -> None:
    """Snapshots and journals hold it: a change of it needs another version of these formats."""
    assert [TaskId(vertex, index).log_id for vertex, index in (("join", 0), ("join", 1), ("é", 7))] == [
        3031272519,
        3031272520,
        866461998,
    ]


@given(st.text(), st.integers(0, 1 << 12), st.integers(1, 1 << 12))
def test_the_tasks_of_one_vertex_have_different_logs(vertex: str, index: int, more: int) -> None:
    assert TaskId(vertex, index).log_id != TaskId(vertex, index + more).log_id


def test_vertices_whose_tasks_would_share_a_log_are_refused() -> None:
    """The digests of these names follow each other."""
    assert len(fanned_out(["beii", "bqxd"]).logs) == 3
    with pytest.raises(GraphError, match=r"the logs of sink-.*\[[01]\] and sink-.*\[[01]\] would have the same number"):
        fanned_out(["beii", "bqxd"], 2)
