"""A script starts a job on a Ray of its own in a thread, watches it and stops it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from clonos_py.connectors import read_results
from clonos_py.runtime.ray.process_table import entries

pytestmark = pytest.mark.ray

SCRIPT = """
import sys
from clonos_py import Job, Record
from clonos_py.connectors import FileSink, FileSource

class Row(Record):
    number: int

job = Job("script", checkpoint_interval="1h")
rows = job.source(FileSource("in.jsonl", format="jsonl", schema=Row, follow=True)).named("rows")
rows.sink(FileSink("out")).named("out")

if __name__ == "__main__":
    print(job.preview(rows, rows=2).to_pylist())
    run = job.start(checkpoints="checkpoints")
    while run.counters.get("out.rows_out", 0) < int(sys.argv[1]):
        if run.wait(timeout_s=0.1):
            sys.exit("the run has ended")
    print("stopped" if run.stop() else "interrupted")
"""


@pytest.mark.thorough
def test_a_script_starts_watches_and_stops_a_run_and_the_next_run_resumes(tmp_path: Path) -> None:
    """The only checkpoint of each run is that of its stop."""
    (tmp_path / "script.py").write_text(SCRIPT)
    lines = [f'{{"number": {number}}}\n' for number in range(20)]
    (tmp_path / "in.jsonl").write_text("".join(lines[:10]))
    assert finished(tmp_path, 10) == ["[{'number': 0}, {'number': 1}]", "stopped"]
    assert sorted(row["number"] for row in read_results(str(tmp_path / "out"))) == list(range(10))
    (tmp_path / "in.jsonl").write_text("".join(lines))
    assert finished(tmp_path, 20)[-1] == "stopped"
    assert sorted(row["number"] for row in read_results(str(tmp_path / "out"))) == list(range(20))
    assert not [command for _, command in entries() if bytes(tmp_path) in command], "its Ray has ended with it"


def finished(folder: Path, rows: int) -> list[str]:
    command = [sys.executable, "script.py", str(rows)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=180)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
