"""Which sources make their frames again, and what the plan says of those that do not."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from clonos_py import Context, Job, Stream, apply, col, deterministic
from clonos_py.model.plan import PhysicalPlan
from clonos_py.nexmark.jobs import build
from clonos_py.nexmark.source import NexmarkSource
from clonos_py.plan.physical import plan
from clonos_py.settings.resolution import resolve
from tests.unit.dsl.connectors import Bid, Nowhere, bids
from tests.unit.plan.shapes import Label, quick


def asking(bid: Bid, ctx: Context) -> Label:
    return Label(str(ctx.time.now()))


@deterministic
def declared(bid: Bid) -> Label:
    return Label("x")


@deterministic
def doubled(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows


@deterministic
def counted(texts: Any) -> Any:
    return pc.utf8_length(texts)


def planned(stream: Stream[Any], job: Job, **settings: object) -> PhysicalPlan:
    stream.rebalance().sink(Nowhere("out"))
    return plan(job, resolve({"parallelism": 2, **settings}))


def first(job: Job, stream: Stream[Any], **settings: object) -> tuple[bool, str]:
    """Whether the source's vertex makes its frames again, and what is noted."""
    made = planned(stream, job, **settings)
    return made.vertices[0].regenerates, made.notes[-1]


REGENERATE = {"spill": "regenerate"}


def test_filters_and_projections_are_made_again() -> None:
    job = Job("j")
    stream = bids(job).filter(col("price") > 100).select("auction")
    assert first(job, stream, **REGENERATE) == (True, "'source-rows' makes its frames again")


def test_nothing_is_unless_it_is_asked_for() -> None:
    job = Job("j")
    assert not first(job, bids(job).select("auction"))[0]


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (quick, "'source-rows' keeps its frames: 'map' calls a function that is not declared deterministic"),
        (asking, "'source-rows' keeps its frames: 'map' takes ctx"),
        (declared, "'source-rows' makes its frames again"),
    ],
)
def test_of_functions_only_those_that_are_declared_deterministic_are_called_again(function: Any, why: str) -> None:
    job = Job("j")
    assert first(job, bids(job).map(function), **REGENERATE) == ("again" in why, why)


def test_a_function_of_batches_can_be_declared_too() -> None:
    job = Job("j")
    assert first(job, bids(job).map_batches(doubled, returns=Bid), **REGENERATE)[0]


def test_an_expression_with_a_function_of_the_users_is_made_again_if_that_is_declared() -> None:
    job = Job("j")
    assert first(job, bids(job).select(n=apply(counted, "note", returns=int)), **REGENERATE)[0]
    regenerates, note = first(other := Job("k"), bids(other).filter(apply(len, "note", returns=bool)), **REGENERATE)
    assert not regenerates
    assert "'filter' calls a function that is not declared deterministic" in note


def test_what_has_a_sink_in_its_own_task_keeps_its_frames_if_it_has_any() -> None:
    job = Job("j")
    stream = bids(job)
    stream.sink(Nowhere("beside"))
    regenerates, note = first(job, stream, **REGENERATE)
    assert not regenerates
    assert "'sink-beside' has state or effects" in note


def test_partial_aggregates_of_a_batch_are_made_again_and_windows_are_not() -> None:
    source = NexmarkSource(1_000)
    made = plan(build("q5", source, Nowhere("out")), resolve({"parallelism": 2, **REGENERATE}))
    assert [vertex.name for vertex in made.vertices if vertex.regenerates] == ["source-nexmark"]
