"""Jobs whose checkpoints lie in an object store: what they do while it is cut off, and what commands do with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from clonos_py.model.coordinator_events import CheckpointAborted, CheckpointCompleted, Finished, RolledBack
from clonos_py.runtime.local.run import run
from clonos_py.settings.resolution import resolve
from tests.outages import Outages
from tests.ray.counting_job import assert_exactly_once, counting
from tests.s3_server import S3Server


@pytest.mark.parametrize("kills", [[], ["count[0]@1s"]])
def test_data_goes_on_while_the_store_is_cut_off_and_checkpoints_resume(
    kills: list[str], uri: str, s3: S3Server, impatient: None, tmp_path: Path
) -> None:
    outages = Outages(s3, tmp_path / "unpaced")
    plan = counting(str(tmp_path), total=20_000, rate=2_000, standbys=len(kills))
    run(plan, resolve({"checkpoint_interval": "100ms", "checkpoints": uri, "kills": kills}), outages)
    assert outages.rows_meanwhile[0] > 0
    assert outages.of(Finished)
    assert not outages.of(RolledBack)
    reasons = [event.reason for event in outages.of(CheckpointAborted)]
    assert all("does not answer" in reason for reason in reasons if reason != "a task failed"), reasons
    assert len(outages.of(CheckpointCompleted)) > 1
    assert_exactly_once(tmp_path, 20_000)
