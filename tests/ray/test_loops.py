"""The reachability query on real actors, with real SIGKILLs of tasks inside and outside its loop."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from clonos_py.bench.reachability.source import CommandSource
from clonos_py.connectors import FileSink, read_results
from clonos_py.evaluation.reachability.generator import Reachability
from clonos_py.model.coordinator_events import RolledBack
from clonos_py.observe.events import Event, TaskFailed
from clonos_py.runtime.launch import run_job
from clonos_py.runtime.ray.cluster import Cluster
from clonos_py.settings.protocols import ALIGNED, INDUCED, UNCOORDINATED
from clonos_py.settings.resolution import resolve
from tests.expected_paths import expected_paths, final_paths

pytestmark = pytest.mark.ray

COMMANDS = Reachability(300_000, nodes=1_000_000)
RATE = 50_000
CAUSAL: dict[str, str] = {}
ROLLBACK = {"guarantee": "exactly-once", "sharing_depth": "0"}


@cache
def expected() -> Counter[bytes]:
    paths = expected_paths([COMMANDS.batch(0, COMMANDS.rows)]).to_pylist()
    return Counter({row["path"]: row["weight"] for row in paths})


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("protocol", "recovery"),
    [
        (UNCOORDINATED.name, CAUSAL),
        *(
            pytest.param(*other, marks=pytest.mark.thorough)
            for other in ((ALIGNED.name, CAUSAL), (INDUCED.name, ROLLBACK))
        ),
    ],
)
def test_the_paths_equal_those_of_a_direct_computation_when_tasks_are_killed(
    protocol: str, recovery: dict[str, str], cluster: Cluster, tmp_path: Path
) -> None:
    heard: list[Event] = []
    job = final_paths(CommandSource(COMMANDS, RATE), FileSink(str(tmp_path / "paths"), "parquet"))
    given = {
        "protocol": protocol, "parallelism": 2, "checkpoint_interval": "1s",
        "checkpoints": str(tmp_path / "checkpoints"), "kills": ["join[1]@2s", "join[0]@4s", "commands[0]@5s"],
        **recovery,
    }  # fmt: skip
    run_job(job, resolve(command_line=given), lambda at_us, event: heard.append(event))
    found = read_results(str(tmp_path / "paths"))
    assert {row["path"]: row["weight"] for row in found} == expected()
    assert len([event for event in heard if isinstance(event, TaskFailed)]) >= 3
    assert RolledBack not in map(type, heard)
