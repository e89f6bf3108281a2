"""Memory by row of state, from samples at checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest

from clonos_py.bench.state import Growth, Sampler, StateSample, halves
from clonos_py.checkpoint.storage import CheckpointStore
from clonos_py.cli.options import resolved
from clonos_py.connectors import BlackholeSink
from clonos_py.evaluation.nexmark.jobs import build
from clonos_py.evaluation.nexmark.source import NexmarkSource
from clonos_py.model.errors import SettingError
from clonos_py.runtime.launch import run_job


def test_memory_before_the_first_row_does_not_count() -> None:
    samples = [StateSample(rows, 10 * rows, 5_000 + 20 * rows) for rows in range(100, 1_000, 100)]
    assert halves(samples) == (Growth(10, 20), Growth(10, 20))


def test_memory_that_grows_faster_and_faster_shows_in_the_second_half() -> None:
    samples = [StateSample(rows, 10 * rows, rows * rows) for rows in range(100, 1_000, 100)]
    first, second = halves(samples)
    assert second.resident_bytes > first.resident_bytes


def test_too_few_checkpoints_and_state_that_does_not_grow_are_refused() -> None:
    with pytest.raises(SettingError, match="2 checkpoints are too few"):
        halves([StateSample(1, 1, 1), StateSample(2, 2, 2)])
    with pytest.raises(SettingError, match="did not grow"):
        halves([StateSample(1, 1, 1)] * 5)


def test_rows_are_counted_from_the_snapshots(tmp_path: Path) -> None:
    job = build("q3", NexmarkSource(50_000, 200_000.0, partitions=2), BlackholeSink())
    settings = resolved(
        {"runtime": "local", "checkpoints": str(tmp_path), "checkpoint_interval": "50ms", "standbys": 0}, {}
    )
    sampler = Sampler(CheckpointStore(str(tmp_path), job.name), [])
    run_job(job, settings, sampler)
    found = [sample.rows for sample in sampler.samples]
    assert len(found) > 1
    assert found == sorted(found)
    assert 0 < found[-1] < 4_000, "of 1,000 people those of three states, of 3,000 auctions those of a category"
    assert sampler.samples[-1].stored_bytes > 8 * found[-1]
