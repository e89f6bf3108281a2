"""Sources that keep no frames, on real actors: receivers die, sources die, and both at once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clonos_py.evaluation.nexmark.running import QueryRun, SinkKind, run_query
from clonos_py.runtime.ray.cluster import Cluster
from clonos_py.settings.resolution import resolve

pytestmark = pytest.mark.ray

SOURCE = "source-nexmark"
KILLS = [f"{SOURCE}[0]@1.5s", "join[1]@2.3s", f"{SOURCE}[1]@3.1s", "join[0]@3.1s"]


@pytest.mark.thorough
def test_frames_are_regenerated_and_the_answer_is_that_of_a_run_without_failures(cluster: Cluster) -> None:
    order = QueryRun("q3", 1_000_000, rate=200_000, event_rate=20_000, sink=SinkKind.DIGEST)
    calm = run_query(replace(order, rate=None), resolve({"parallelism": 2, "runtime": "local"}))
    settings = {"parallelism": 2, "checkpoint_interval": "10s", "spill": "regenerate", "kills": KILLS}
    made = run_query(order, resolve(settings))
    assert made["output"] == calm["output"]
    assert made["rollbacks"] == 0
    assert len(made["failures"]) == len(KILLS)
    replayed = [failure["rows_replayed"] for failure in made["failures"] if failure["task"].startswith(SOURCE)]
    assert min(replayed) < 100_000, "rows read since the checkpoint are not read again"
