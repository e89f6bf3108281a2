"""The answers of queries do not depend on chaining, nor on how the job recovers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clonos_py.bench.digests import UNPACED, wrong_answers
from clonos_py.connectors import read_results
from clonos_py.evaluation.nexmark.jobs import QUERIES, build, files_of
from clonos_py.model.plan import PhysicalPlan
from clonos_py.plan.physical import plan
from clonos_py.runtime.run_settings import policy
from clonos_py.runtime.sim.run import simulate_plan
from clonos_py.settings.definitions import Settings
from clonos_py.settings.resolution import resolve

UNCHAINED: dict[str, Any] = {"chaining": "off"}
ALWAYS = ("q3", "q6", "q10", "q11", "q16")
"""A join, a top, files by day and minute, sessions and a table. ``tests/unit/evaluation/nexmark`` has the answers of
all, and those of each kind of state while tasks are killed."""
ALWAYS_BACK = ("q5", "q9", "q12", "q19")
"""Windows, a join, processing time and a table: what is restored is the same in both recoveries."""
ROLLBACK: dict[str, Any] = {"guarantee": "exactly-once", "sharing_depth": 0}


def planned(query: str, settings: Settings, folder: Path) -> PhysicalPlan:
    return plan(build(query, UNPACED, files_of(query, str(folder))), settings)


CASES = [
    pytest.param(query, given, id=f"{query}-{name}", marks=[pytest.mark.thorough] * (query not in always))
    for name, given, always in (("unchained", UNCHAINED, ALWAYS), ("rollback", ROLLBACK, ALWAYS_BACK))
    for query in QUERIES
]


@pytest.mark.parametrize(("query", "given"), CASES)
def test_answers_are_right_although_tasks_are_killed(query: str, given: dict[str, Any], tmp_path: Path) -> None:
    settings = resolve({"parallelism": 2, "checkpoint_interval": "25ms", **given})
    calm = simulate_plan(planned(query, settings, tmp_path / "calm"), 1, kills=0, policy=policy(settings))
    made = planned(query, settings, tmp_path / "killed")
    outcome = simulate_plan(made, 1, kills=3, policy=policy(settings), actions_expected=calm.actions)
    assert outcome.problems == []
    assert outcome.kills
    assert bool(outcome.rollbacks) == settings.rollback
    assert wrong_answers(query, [tuple(row.values()) for row in read_results(str(tmp_path / "killed"))]) is None
