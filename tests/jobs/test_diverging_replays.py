"""A nondeterministic function, and what its replay does to a job under each checkpoint protocol."""

from __future__ import annotations

from contextlib import chdir
from pathlib import Path

import pytest

from clonos_py.connectors import read_results
from clonos_py.settings.protocols import ALIGNED, INDUCED, UNALIGNED, UNCOORDINATED
from tests.jobs import in_process
from tests.jobs.in_process import Ended

ROWS = 600

JOB = """
from __future__ import annotations
import random
import time
from clonos_py import *
from clonos_py.connectors import *

class Row(Record):
    id: int
    key: int

def fickle(row: Row) -> Row:
    time.sleep(0.0005)
    return Row(row.id, random.randrange(1_000_000))

job = Job("fickle", runtime="local", parallelism=2, checkpoint_interval="100ms", checkpoint_calls="independent")
rows = job.source(FileSource("in.jsonl", format="jsonl", schema=Row)).named("rows")
rows = rows.rebalance().map(fickle).named("fickle")
rows.rebalance().filter(col("key") >= 0).named("large").sink(FileSink("left")).named("left")
rows.rebalance().filter(col("key") >= 0).named("small").sink(FileSink("right")).named("right")
"""


KILLS_S = (0.15, 0.3, 0.6, 1.2, 2.4, 4.8)
"""When the task is killed. Its replay diverges if frames were sent since its snapshot: when, depends on the machine."""


def run(folder: Path, protocol: str, kill_s: float = KILLS_S[0]) -> Ended:
    folder.mkdir(exist_ok=True)
    (folder / "job.py").write_text(JOB)
    (folder / "in.jsonl").write_text("".join(f'{{"id": {number}, "key": 0}}\n' for number in range(ROWS)))
    settings = ["--protocol", protocol, "--kill", f"fickle[0]@{kill_s}s"]
    with chdir(folder):
        return in_process.run(folder / "job.py", "--checkpoints", "checkpoints", *settings)


@pytest.mark.parametrize("protocol", [pytest.param(ALIGNED.name, marks=pytest.mark.thorough), UNALIGNED.name])
def test_a_divergence_rolls_the_job_back_and_all_sinks_have_the_same_rows(protocol: str, tmp_path: Path) -> None:
    done = run(tmp_path, protocol)
    assert done.returncode == 0, done.stderr
    left, right = (
        sorted((row["id"], row["key"]) for row in read_results(str(tmp_path / name))) for name in ("left", "right")
    )
    assert [number for number, _ in left] == list(range(ROWS))
    assert left == right


@pytest.mark.parametrize("protocol", [UNCOORDINATED.name, pytest.param(INDUCED.name, marks=pytest.mark.thorough)])
def test_a_divergence_ends_a_job_whose_tasks_take_snapshots_alone_and_names_the_operator(
    protocol: str, tmp_path: Path
) -> None:
    """Other tasks may have taken snapshots, and sinks may have committed rows, which the replay does not repeat."""
    runs = (run(tmp_path / str(kill_s), protocol, kill_s) for kill_s in KILLS_S)
    done = next(done for done in runs if done.returncode)
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert done.returncode == 1
    assert "an operator of this task is not deterministic" in line
    assert "its task runs fickle" in line
    assert "the job cannot roll back" in line
    assert "--fresh" in line
