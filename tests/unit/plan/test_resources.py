"""Resources of operators: what is refused, what a task needs, and how a plan shows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py import GraphError, Record, Stream, col, count
from clonos_py.cli.drawing import draw
from clonos_py.model.ids import TaskId
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.resources import NO_RESOURCES, Resources
from clonos_py.plan.physical import plan
from clonos_py.settings.resolution import resolve
from tests.unit.dsl.connectors import Bid, Nowhere, bids

amounts = st.builds(
    Resources,
    st.integers(0, 90_000).map(lambda units: units / 10_000),
    st.integers(0, 1 << 36),
    st.integers(0, 9).map(float),
)


class Scored(Record):
    auction: int


def score(bid: Bid) -> Scored:
    return Scored(bid.auction)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({}, "give at least one of cpus=, memory= and gpus=, which is more than 0"),
        ({"cpus": 0}, "give at least one of"),
        ({"cpus": -1}, "cpus=-1 is no amount"),
        ({"cpus": float("inf")}, "cpus=inf is no amount"),
        ({"cpus": float("nan")}, "cpus=nan is no amount"),
        ({"cpus": "2"}, "cpus='2' is no amount"),
        ({"cpus": 0.00001}, "is finer than Ray counts"),
        ({"gpus": True}, "gpus=True is no amount"),
        ({"gpus": 1.5}, "more than one GPU must be a whole number"),
        ({"memory": 5}, "memory=5 is not a size: write a number and one of B, KB"),
        ({"memory": "-2GiB"}, "memory='-2GiB' is not a size"),
        ({"memory": "2XB"}, "memory='2XB' is not a size"),
        ({"memory": "0B"}, "memory='0B' is no limit: it must be more than 0"),
    ],
)
def test_what_is_no_amount_is_refused_at_the_call(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphError) as caught:
        bids().resources(**asked)
    assert message in str(caught.value)
    assert ": resources: " in str(caught.value)


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda: bids().rebalance().resources(cpus=1), "a rebalance has no tasks of its own: set the resources"),
        (lambda: planned(bids().resources(memory="9MiB")), "give at least 128MiB"),
        (
            lambda: planned(bids().resources(gpus=1).map(score).resources(gpus=0.5)),
            "the operators of its task need 1.5 GPUs together, and more than one must be a whole number",
        ),
    ],
)
def test_what_no_task_can_have_is_refused(write: Callable[[], Any], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        write()


def planned(rows: Stream[Any], **settings: str) -> PhysicalPlan:
    """The plan of a job that writes these rows."""
    rows.sink(Nowhere()).named("out")
    return plan(rows._output.draft, resolve(command_line=settings))  # type: ignore[arg-type]


def test_a_task_needs_what_its_operators_need_together_and_a_standby_all_but_the_processors() -> None:
    rows = bids().named("bids").resources(cpus=0.1, memory="1GiB").filter(col("price") > 0).map(score)
    rows.resources(cpus=0.2, gpus=1)
    counts = rows.key_by("auction").aggregate(n=count()).named("counts").resources(memory="2GiB")
    out = counts.at_end().sink(Nowhere()).named("out").resources(cpus=2)
    made = plan(out._draft, resolve(command_line={"standby_cpus": "0.5"}))  # type: ignore[arg-type]
    first, second = TaskId("bids", 0), TaskId("counts", 0)
    assert made.demand(first) == Resources(0.3, 1 << 30, 1)
    assert made.demand(first, standby=True) == Resources(0.15, 1 << 30, 1)
    assert made.demand(second) == Resources(2, 2 << 30)
    assert made.tasks_by_demand == [first, second]
    text = draw(made, "text")
    assert "bids x 1, each with 0.3 cpus, 1GiB memory, 1 gpu\n" in text
    assert "counts x 1, each with 2 cpus, 2GiB memory\n" in text


def test_a_filter_with_resources_stays_where_they_are_asked_for() -> None:
    rows = bids().named("bids").map(score).key_by("auction").aggregate(n=count()).named("counts")
    rows.resources(cpus=1)
    kept = rows.changes().filter(col("auction") > 0).resources(gpus=1).parallelism(2)
    made = planned(kept)
    (filtering,) = (vertex for vertex in made.vertices if vertex.resources.gpus)
    assert filtering.operators[0].name == "filter"
    assert made.demand(TaskId("counts", 0)) == Resources(1)


@given(amounts, amounts, amounts)
def test_what_fits_leaves_room_for_what_fits_in_the_rest(free: Resources, one: Resources, other: Resources) -> None:
    both = one.fits_in(free) and other.fits_in(free - one)
    assert both == (one + other).fits_in(free)
    assert one + other - other == one
    assert NO_RESOURCES.fits_in(free - one)
