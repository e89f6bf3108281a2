"""Runs on a simulated cluster: every protocol, with a killed task, and rows that stand for many."""

from __future__ import annotations

from typing import Any

import pytest

from clonos_py.bench.checkmate.grid import CheckmateCell, Variant
from clonos_py.bench.checkmate.jobs import job_of
from clonos_py.bench.checkmate.running import RunTerms, run_cell
from clonos_py.bench.checkmate.simulated import ClusterTerms
from clonos_py.bench.cluster.costs import WORK, Costs, UnitPrice
from clonos_py.bench.cluster.machines import Machines
from clonos_py.bench.cluster.run import CostedCluster, run, run_on
from clonos_py.evaluation.checkmate.dimensions import CAUSAL, CYCLE, KEYS, NONE, ROLLBACK
from clonos_py.model.coordinator_events import Deployed
from clonos_py.model.operators import Read
from clonos_py.model.plan import PhysicalPlan
from clonos_py.observe.events import Event, no_listener
from clonos_py.plan.physical import plan
from clonos_py.settings.protocols import PROTOCOLS


def terms(**cluster: int) -> RunTerms:
    return RunTerms(1.0, 2.0, 2.0, None, {"checkpoint_interval": "500ms"}, ClusterTerms(**cluster))


def simulated(variant: Variant, rate: float, **cluster: int) -> Any:
    return run_cell(CheckmateCell(variant, 0, None, 1), rate, terms(**cluster))["metrics"]


@pytest.mark.parametrize(
    ("recovery", "protocol"),
    [
        pytest.param(recovery, protocol.name, marks=[pytest.mark.thorough] * ((number + shift) % 2))
        for shift, recovery in enumerate((CAUSAL, ROLLBACK))
        for number, protocol in enumerate(PROTOCOLS)
        if recovery == CAUSAL or protocol.rolls_back
    ],
)
def test_a_task_that_is_killed_recovers_under_every_protocol(recovery: str, protocol: str) -> None:
    metrics = simulated(Variant("q3", protocol, recovery, 2), 2_000.0)
    assert metrics["throughput_events_per_s"] == pytest.approx(2_000, rel=0.15), "after a rollback rows are read again"
    assert metrics["kills_missed"] == 0
    assert metrics["failure"]["task"] == "join[0]"
    assert 0 < metrics["failure"]["detected_ms"] < 100
    assert 0 < metrics["failure"]["restart_ms"] < 1_000
    assert metrics["checkpoints"]["snapshots"] > 0


def test_the_cyclic_query_runs_on_a_simulated_cluster() -> None:
    metrics = simulated(Variant(CYCLE, "uncoordinated", CAUSAL, 2), 100.0)
    assert metrics["failure"]["restart_ms"] is not None
    assert metrics["failure"]["invalid"] == 0


def test_two_runs_of_one_cell_give_the_same_metrics() -> None:
    variant = Variant("q3", "communication-induced", ROLLBACK, 2)
    assert simulated(variant, 200.0) == simulated(variant, 200.0)


@pytest.mark.thorough
def test_keys_are_shuffled_by_hash_or_by_remainder_as_the_cell_says() -> None:
    """Tasks of their own make the keys that the remainder shares."""
    variant = Variant("q12", NONE, NONE, 2)
    by_hash, by_remainder = (run_cell(CheckmateCell(variant, 50, None, 1, keys), 1_000.0, terms()) for keys in KEYS)
    assert by_remainder["tasks"] > by_hash["tasks"]
    assert by_remainder["metrics"]["throughput_events_per_s"] == pytest.approx(1_000, rel=0.05)


def test_a_row_that_stands_for_many_costs_as_much_as_they_do() -> None:
    variant = Variant("q1", NONE, NONE, 2)
    metrics = simulated(variant, 50_000.0, rows_per_row=100)
    assert metrics["throughput_events_per_s"] == pytest.approx(50_000, rel=0.05)
    one_by_one = simulated(variant, 500.0)
    assert metrics["bytes"]["rows"] == pytest.approx(100 * one_by_one["bytes"]["rows"], rel=0.05)


def test_reads_and_frames_stand_for_the_same_number_of_rows_at_any_weight() -> None:
    cluster = ClusterTerms(rows_per_row=20)
    settings = terms().settings(Variant("q3", "aligned", ROLLBACK, 1))
    ran = cluster.run(job_of("q3", 400_000, None, settings), settings, no_listener)
    real = plan(job_of("q3", 400_000, None, settings), settings)
    for edge, real_edge in zip(ran.edges, real.edges, strict=True):
        assert (edge.frame_rows, edge.merge_rows) == (real_edge.frame_rows // 20, real_edge.merge_rows // 20)
    assert first_read(real).event_count == 5_000
    assert first_read(ran).event_count == 2_500


def test_events_are_generated_in_blocks_of_the_same_size_at_any_weight() -> None:
    for weight in (1, 20):
        settings, machines = terms().settings(Variant("q1", NONE, NONE, 1)), Machines(2, [0.0])
        physical = plan(job_of("q1", 120_000 // weight, None, settings), settings)
        run_on(physical, settings, no_listener, CostedCluster(1, 2, Costs(rows_per_row=weight)), machines)
        assert machines.done.times["block"] == 2


def first_read(physical: PhysicalPlan) -> Read:
    (definition,) = [vertex.source for vertex in physical.vertices if vertex.source is not None]
    source = definition.factory()
    source.open(0, 1)
    read = source.poll(0)
    assert isinstance(read, Read)
    return read


def test_latency_grows_at_a_rate_that_the_processors_cannot_sustain() -> None:
    """One processor of one machine for all tasks, and as many as there are tasks."""
    variant = Variant("q1", NONE, NONE, 2)
    slow = simulated(variant, 3_000_000.0, machines=1, processors=1, rows_per_row=8_000)
    fast = simulated(variant, 3_000_000.0, machines=2, processors=6, rows_per_row=8_000)
    assert slow["latency_ms"]["p50"] > 500
    assert fast["latency_ms"]["p50"] < 500


@pytest.mark.parametrize(("start_us", "least_s", "most_s"), [(1_000_000.0, 3.0, 4.5), (0.0, 0.0, 0.5)])
def test_processes_that_start_share_the_processors(start_us: float, least_s: float, most_s: float) -> None:
    """Three vertices of two tasks on two processors."""
    settings = terms().settings(Variant("q1", "aligned", ROLLBACK, 2), standbys=0, standbys_per_process=1)
    happened: list[tuple[int, Event]] = []
    costs = Costs(work={**WORK, "start": UnitPrice(start_us)})
    run(
        plan(job_of("q1", 10, 1_000.0, settings), settings),
        settings,
        lambda at_us, event: happened.append((at_us, event)),
        CostedCluster(1, 2, costs),
    )
    (deployed_us,) = (at_us for at_us, event in happened if isinstance(event, Deployed))
    assert least_s <= deployed_us / 1e6 < most_s
