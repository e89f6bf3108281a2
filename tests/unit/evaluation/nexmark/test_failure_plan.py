"""Failure plans: kills in a file, for any query."""

from __future__ import annotations

from pathlib import Path

import pytest

from clonos_py.evaluation.nexmark.cell_runs import with_failures
from clonos_py.evaluation.nexmark.failure_plan import drawn, read_plan
from clonos_py.model.errors import SettingError
from clonos_py.model.ids import TaskId
from clonos_py.settings.resolution import resolve

TASKS = [TaskId("source", 0), TaskId("source", 1), TaskId("join", 0), TaskId("join", 1)]


def test_a_plan_is_read_without_comments_and_blank_lines(tmp_path: Path) -> None:
    (tmp_path / "plan").write_text("# two failures\n\njoin[0]@3s  # the join\n  2 any@10s\n")
    assert read_plan(tmp_path / "plan") == ["join[0]@3s", "2 any@10s"]


def test_any_is_drawn_from_the_seed_and_simultaneous_kills_have_different_tasks() -> None:
    orders = ["join[0]@3s", "any@5s", "4 any@10s"]
    kills = drawn(orders, TASKS, seed=3)
    assert kills == drawn(orders, list(reversed(TASKS)), seed=3)
    assert kills[0] == "join[0]@3s"
    assert kills[1].endswith("@5s")
    assert sorted(kills[2:]) == ["join[0]@10s", "join[1]@10s", "source[0]@10s", "source[1]@10s"]
    assert len({drawn(["any@5s"], TASKS, seed)[0] for seed in range(20)}) == len(TASKS)


@pytest.mark.parametrize(
    ("order", "said"),
    [
        ("5 any@1s", "the job has 4 tasks"),
        ("0 any@1s", "1 to 4 can fail"),
        ("any@soon", "soon"),
        ("join", "is not a kill"),
    ],
)
def test_impossible_failures_are_refused(order: str, said: str) -> None:
    with pytest.raises(SettingError, match=said):
        drawn([order], TASKS, seed=0)


@pytest.mark.parametrize("content", [None, "", "# nothing\n"])
def test_a_plan_without_kills_is_refused(content: str | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "plan").write_text(content)
    with pytest.raises(SettingError, match="--failures"):
        read_plan(tmp_path / "plan")


def test_kills_name_the_tasks_of_the_query() -> None:
    settings = with_failures(["3 any@2s"], "q8", resolve({"parallelism": 1, "kills": ["join[0]@1s"]}))
    assert str(settings.kills[0]) == "join[0]@1s"
    assert {kill.operator for kill in settings.kills} == {"source-nexmark", "sellers", "join"}
