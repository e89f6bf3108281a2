"""The commands in the documents run as printed from a checkout.

What installs is left out, which ``make dist`` and ``make setup`` try, and so is what takes hours: benchmarks and the
proof of all queries, of which a test has a shorter one.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from clonos_py.bench.kafka.cluster import cluster as kafka
from clonos_py.runtime.ray.process_table import entries
from tests.examples.commands import checkout, run, shown
from tests.examples.documents import ROOT
from tests.waiting import wait_until

pytestmark = pytest.mark.ray

QUICK = ("README.md", "docs/guide.md")
LONG = ("docs/tasks/failures.md", "docs/tasks/nexmark.md", "docs/tasks/checkpoint-interval.md")
HOURS = "clonos nexmark prove"
SHOWN_BROKER = "localhost:9092"


def test_the_first_commands_run_as_printed(tmp_path: Path) -> None:
    lines = shown("clonos", tuple(ROOT / name for name in QUICK))
    assert len(lines) >= 4
    folder, before = checkout(tmp_path), rays()
    for line in lines:
        run(line, folder)
    wait_until(lambda: rays() <= before)


def rays() -> set[int]:
    """The processes of every Ray on this machine, without those of ended ones that are only still listed."""
    return {process.pid for process, command in entries() if b"ray::" in command or b"/ray/" in command}


@pytest.mark.thorough
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("document", LONG)
def test_long_commands_run_as_printed(document: str, tmp_path: Path) -> None:
    lines = [line for line in shown("clonos", (ROOT / document,)) if not line.startswith(HOURS)]
    folder = checkout(tmp_path)
    with kafka(tmp_path / "kafka") as found:
        for line in lines:
            run(line.replace(SHOWN_BROKER, found.bootstrap), folder)
