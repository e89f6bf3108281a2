"""Plans that the planner refuses, and its error messages."""

from __future__ import annotations

import re
from typing import Any

import pytest

from clonos_py import GraphError, Job, SettingError, Stream, col, forever
from clonos_py.connectors import MemorySink, UpsertMemorySink
from clonos_py.evaluation.nexmark.jobs import build
from clonos_py.evaluation.nexmark.source import NexmarkSource
from clonos_py.model.plan import PhysicalPlan
from clonos_py.plan.physical import plan
from clonos_py.runtime.launch import run_job
from clonos_py.settings.protocols import INDUCED, UNCOORDINATED
from clonos_py.settings.resolution import resolve
from tests.unit.dsl.connectors import Bid, Nowhere, Rows, bids
from tests.unit.plan.shapes import Label, Person


def test_a_causal_sink_requires_the_full_depth() -> None:
    job = Job("causal")
    bids(job).sink(Nowhere("hot", delivery="causal"))
    assert plan(job).sharing_depth == -1
    with pytest.raises(
        SettingError, match="sink 'sink-hot' has delivery='causal', which needs sharing_depth = full; it is 0"
    ):
        plan(job, resolve({"sharing_depth": 0}))
    with pytest.raises(SettingError, match="which needs sharing_depth = full; it is 0"):
        plan(job, resolve({"guarantee": "exactly-once", "sharing_depth": 0}))


@pytest.mark.parametrize("protocol", [UNCOORDINATED.name, INDUCED.name])
def test_a_causal_sink_requires_checkpoints_of_all_tasks(protocol: str) -> None:
    job = Job("causal")
    bids(job).sink(Nowhere("hot", delivery="causal"))
    with pytest.raises(SettingError) as caught:
        plan(job, resolve({"protocol": protocol}))
    (line,) = str(caught.value).splitlines()
    assert re.match(r".*test_refused\.py:\d+: sink 'sink-hot' has delivery='causal', ", line)
    assert f"protocol is {protocol} (" in line
    assert line.endswith("choose another delivery or protocol")


def test_more_tasks_than_key_groups_are_refused() -> None:
    with pytest.raises(SettingError, match="parallelism is 200: it must be from 1 to the 128 key groups"):
        plan(build("q0", NexmarkSource(1_000), Nowhere()), parallelism=200)


def countdown(job: Job, settings: dict[str, Any] | None = None) -> PhysicalPlan:
    """A loop in which bids go round until their auction is 0."""

    def step(rows: Stream[Any]) -> tuple[Stream[Any], Stream[Any]]:
        less = rows.rebalance().with_columns(auction=col("auction") - 1)
        return less.filter(col("auction") > 0), less

    bids(job).iterate(step).sink(Nowhere())
    return plan(job, resolve(settings or {}))


def test_a_loop_requires_full_sharing_depth_or_none() -> None:
    assert countdown(Job("full")).loops
    assert countdown(Job("none"), {"sharing_depth": 0}).loops
    with pytest.raises(SettingError, match="the loop at 'iterate' needs sharing_depth = full or 0; it is 1"):
        countdown(Job("one"), {"sharing_depth": 1})


@pytest.mark.parametrize("made", [MemorySink, lambda: UpsertMemorySink("auction")], ids=["rows", "upserts"])
def test_a_sink_whose_rows_are_lost_on_ray_is_a_warning_of_the_plan_and_an_error_of_the_run(made: Any) -> None:
    job = Job("lost")
    bids(job).sink(made()).named("found")
    (warning,) = plan(job, resolve({})).warnings
    assert re.match(r".*test_refused\.py:\d+: found: (Upsert)?MemorySink keeps its rows in the process of its", warning)
    assert "run the job with runtime='local', or write to a FileSink" in warning
    with pytest.raises(GraphError) as refused:
        run_job(job, resolve({}))
    assert str(refused.value) == warning
    assert plan(job, resolve({"runtime": "local"})).warnings == ()


class Unportable:
    def __reduce__(self) -> Any:
        raise TypeError("cannot pickle a connection")


connection = Unportable()


def test_a_function_that_cannot_be_pickled_is_refused_with_the_cause() -> None:
    local = Unportable()

    def enrich(row: Bid) -> Label:
        return Label(str(local))

    job = Job("portable")
    bids(job).map(enrich).sink(Nowhere())
    with pytest.raises(GraphError) as caught:
        plan(job)
    assert "test_refused.py" in str(caught.value)
    assert "map: it cannot be sent to a task because of local (Unportable): cannot pickle a connection" in str(
        caught.value
    )
    assert "@service" in str(caught.value)


def test_a_refusal_of_an_operator_names_the_line() -> None:
    job = Job("ttl")
    people = job.source(Rows(Person)).named("people")
    with pytest.raises(GraphError, match="the left stream has no event time"):
        people.join(bids(job), on=("id", "bidder"), within=forever(ttl="1d"))
