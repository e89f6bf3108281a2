"""The cost of work on Ray, from the counters of processes."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
from click.testing import CliRunner

from clonos_py.bench import prices
from clonos_py.bench.checkmate.grid import Variant
from clonos_py.bench.checkmate.jobs import job_of
from clonos_py.bench.prices import VertexWork, explained, fitted, works
from clonos_py.model.coordinator_events import Deployed
from clonos_py.model.counters import ProcessCounters
from clonos_py.model.ids import TaskId
from clonos_py.observe.events import Event, Measured, ProcessReading
from clonos_py.plan.physical import plan
from clonos_py.runtime.ray import cluster
from clonos_py.settings.resolution import resolve


def work(cpu_us: float, **done: float) -> VertexWork:
    names = {"background": "background, us/s of a task", "arrive": "arrive and take", "keep": "keep, a row"}
    return VertexWork("join", {names[name]: amount for name, amount in done.items()}, cpu_us)


def test_prices_are_fitted_to_all_vertices() -> None:
    found = fitted(
        [
            work(1 * 25_000 + 100 * 600, background=1, arrive=100),
            work(2 * 25_000 + 50 * 600, background=2, arrive=50),
            work(2 * 25_000 + 50 * 600 + 1_000 * 1.5, background=2, arrive=50, keep=1_000),
        ]
    )
    assert found["background, us/s of a task"] == pytest.approx(25_000)
    assert found["arrive and take"] == pytest.approx(600)
    assert found["keep, a row"] == pytest.approx(1.5)
    assert found["give, a row"] == 0, "no vertex determines its price"
    assert explained(work(85_000, background=1, arrive=100), found) == pytest.approx(1)


def test_no_price_is_below_zero() -> None:
    vertices = [
        work(50_000, background=2, arrive=10),
        work(50_000, background=2, arrive=10),
        work(48_000, background=2, arrive=90),
    ]
    found = fitted(vertices)
    assert found["arrive and take"] == 0
    assert found["background, us/s of a task"] == pytest.approx(25_000, rel=0.05)


def test_work_of_tasks_is_counted_per_second_in_steady_state() -> None:
    """Two tasks of each vertex of query 1. The first reading is from the start, and does not count."""
    settings = resolve({}, command_line=Variant("q1", "aligned", "rollback", 2).settings | {"standbys_per_process": 1})
    physical = plan(job_of("q1", 1_000, 100.0, settings), settings)

    def measured(at_us: int, times: int) -> tuple[int, Event]:
        counters = ProcessCounters(
            active=True, rows_in=100 * times, rows_out=90 * times, frames_sent=10 * times, data_bytes=2_048 * times,
            determinant_bytes=512 * times, cpu_us=5_000 * times,
        )  # fmt: skip
        tasks = [TaskId(vertex.name, index) for vertex in physical.vertices for index in (0, 1)]
        return at_us, Measured(tuple(ProcessReading(at_us, task, 1, counters) for task in tasks))

    events: list[tuple[int, Event]] = [
        (1_000_000, Deployed(6, 0)), measured(1_500_000, 0), measured(4_000_000, 10), measured(8_000_000, 50),
    ]  # fmt: skip
    source, select, sink = works(events, physical)
    assert source.vertex == "source-nexmark"
    assert source.cpu_us == 2 * 50_000
    assert (source.done["read"], source.done["read, an event"], source.done["give, a row"]) == (200, 2_000, 1_800)
    assert (select.done["arrive and take"], select.done["arrive, a KiB"]) == (200, 40)
    assert (source.done["segment, a KiB"], select.done["segment, a KiB"]) == (0, 10)
    assert (select.done["compute, a row"], select.done["background, us/s of a task"]) == (2_000, 2)
    assert sink.done["cut and acknowledge"] == 200


def test_runs_that_are_too_short_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "connected", lambda address: nullcontext())
    monkeypatch.setattr(prices, "_run", lambda *_: [])
    ended = CliRunner().invoke(prices.command, ["--seconds", "6"])
    assert ended.exit_code == 1
    assert "no task was in steady state for 1.5 s: give more --seconds" in ended.output
