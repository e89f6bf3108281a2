"""A Nexmark query for each kind of operator on real actors, with a SIGKILL in the middle.

The rows are those of the independent computation, and, sorted, the same bytes as those of an undisturbed run in one
process. ``python -m clonos_py.bench digests`` runs all queries in every combination, ``clonos nexmark prove`` compares
them with Spark.
"""

from __future__ import annotations

from functools import lru_cache

import pytest

from clonos_py.bench.digests import DigestCase, DigestFinding, find
from clonos_py.runtime.ray.cluster import Cluster
from clonos_py.settings.definitions import Runtime
from clonos_py.settings.protocols import CONTINUOUS

pytestmark = pytest.mark.ray

KILLED = {
    "q3": "a join of all that has ever been",
    "q5": "hopping windows, and a join within them",
    "q6": "a process function with timers, behind a join that forgets and the first of many rows",
    "q8": "a join within tumbling windows",
    "q10": "files by day and minute",
    "q11": "sessions",
    "q12": "windows in processing time",
    "q16": "distinct values",
    "q19": "the first ten",
}
"""What is lost and comes back."""


@pytest.mark.thorough
@pytest.mark.parametrize("query", KILLED)
def test_a_query_has_the_same_answer_when_one_of_its_tasks_is_killed(cluster: Cluster, query: str) -> None:
    assert_as_in_one_process(find(DigestCase(query, 2, Runtime.RAY, killed=True)), query)


@pytest.mark.parametrize("query", [pytest.param("q5"), pytest.param("q15", marks=pytest.mark.thorough)])
def test_a_query_has_the_same_answer_when_windows_are_saved_one_by_one(cluster: Cluster, query: str) -> None:
    assert_as_in_one_process(find(DigestCase(query, 2, Runtime.RAY, True, CONTINUOUS.name)), query)


@pytest.mark.thorough
def test_a_query_has_the_same_answer_when_its_only_task_is_killed(cluster: Cluster) -> None:
    assert_as_in_one_process(find(DigestCase("q7", 1, Runtime.RAY, killed=True)), "q7")


@pytest.mark.thorough
def test_a_query_has_the_same_answer_without_a_kill(cluster: Cluster) -> None:
    assert_as_in_one_process(find(DigestCase("q5", 2, Runtime.RAY)), "q5")


def assert_as_in_one_process(found: DigestFinding, query: str) -> None:
    assert found.wrong is None
    assert found.rows > 0
    assert found.digest == in_one_process(query).digest


@lru_cache
def in_one_process(query: str) -> DigestFinding:
    return find(DigestCase(query, 1, Runtime.LOCAL))
