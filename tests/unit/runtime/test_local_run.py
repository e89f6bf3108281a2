"""The local driver keeps time while it is busy: what is due is done, and what is told is true."""

from __future__ import annotations

from clonos_py.bench.nexmark.running import Order, SinkKind, run_query
from clonos_py.dsl.settings import resolve
from clonos_py.observe.status import RunStatus


def busy_run(**settings: object) -> RunStatus:
    status = RunStatus()
    order = Order("q8", 3_000_000, sink=SinkKind.DIGEST)
    run_query(order, resolve({"runtime": "local", **settings}), status.on)
    return status


def test_a_job_that_never_waits_takes_its_checkpoints_and_its_kills_in_time() -> None:
    status = busy_run(checkpoint_interval="50ms", kills=["join[0]@60ms"])
    (recovery,) = status.recoveries
    assert str(recovery.task) == "join[0]"
    assert status.finished is not None
    assert 60_000 <= recovery.failed_at_us < status.finished.at_us
    assert recovery.first_new_effect_ms is not None
    assert len(status.checkpoints) >= 2
    assert not status.rollbacks


def test_the_last_progress_told_counts_every_row() -> None:
    status = busy_run()
    assert status.finished is not None
    assert status.progress is not None
    assert status.progress.vertices[0].rows_in == 3_000_000
