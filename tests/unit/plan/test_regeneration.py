"""Which sources regenerate their frames, and the notes of the plan on those that do not."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from clonos_py import Context, Job, Stream, apply, col, deterministic
from clonos_py.evaluation.nexmark.jobs import build
from clonos_py.evaluation.nexmark.source import NexmarkSource
from clonos_py.model.plan import PhysicalPlan
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
    """Whether the source's vertex regenerates its frames, and the note."""
    made = planned(stream, job, **settings)
    return made.vertices[0].regenerates, made.notes[-1]


REGENERATE = {"spill": "regenerate"}


def test_frames_after_filters_and_projections_are_regenerated() -> None:
    job = Job("j")
    stream = bids(job).filter(col("price") > 100).select("auction")
    assert first(job, stream, **REGENERATE) == (True, "'source-rows' makes its frames again")


def test_frames_that_are_retained_can_be_regenerated_too() -> None:
    job = Job("j")
    regenerates, note = first(job, bids(job).select("auction"))
    assert regenerates, "a replacement makes those again that its predecessor had retained"
    assert "again" not in note


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (quick, "'source-rows' keeps its frames: 'map' calls a function that is not declared deterministic"),
        (asking, "'source-rows' keeps its frames: 'map' takes ctx"),
        (declared, "'source-rows' makes its frames again"),
    ],
)
def test_frames_after_functions_are_regenerated_only_if_they_are_declared_deterministic(
    function: Any, why: str
) -> None:
    job = Job("j")
    assert first(job, bids(job).map(function), **REGENERATE) == ("again" in why, why)


def test_a_function_of_batches_can_be_declared_deterministic() -> None:
    job = Job("j")
    assert first(job, bids(job).map_batches(doubled, returns=Bid), **REGENERATE)[0]


def test_frames_after_an_expression_are_regenerated_if_its_function_is_declared_deterministic() -> None:
    job = Job("j")
    assert first(job, bids(job).select(n=apply(counted, "note", returns=int)), **REGENERATE)[0]
    regenerates, note = first(other := Job("k"), bids(other).filter(apply(len, "note", returns=bool)), **REGENERATE)
    assert not regenerates
    assert "'filter' calls a function that is not declared deterministic" in note


def test_a_source_with_a_sink_in_its_task_retains_its_frames() -> None:
    job = Job("j")
    stream = bids(job)
    stream.sink(Nowhere("beside"))
    regenerates, note = first(job, stream, **REGENERATE)
    assert not regenerates
    assert "'sink-beside' has state or effects" in note


def test_frames_of_partial_aggregates_are_regenerated_and_those_of_windows_are_not() -> None:
    source = NexmarkSource(1_000)
    made = plan(build("q5", source, Nowhere("out")), resolve({"parallelism": 2, **REGENERATE}))
    assert [vertex.name for vertex in made.vertices if vertex.regenerates] == ["source-nexmark"]
