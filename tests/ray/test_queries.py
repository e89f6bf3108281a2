"""Every Nexmark query on real actors, with and without a SIGKILL in the middle, at parallelism 1 and 2.

The rows are those of the independent computation, and, sorted, the same bytes as those of a run in one process.
"""

from __future__ import annotations

from functools import lru_cache

import pytest

from clonos_py.bench.digests import PARALLELISMS, Case, Finding, find
from clonos_py.bench.nexmark.jobs import QUERIES
from clonos_py.dsl.settings import Runtime
from clonos_py.runtime.ray.cluster import Cluster

pytestmark = pytest.mark.ray


@pytest.mark.parametrize("parallelism", PARALLELISMS)
@pytest.mark.parametrize("query", QUERIES)
def test_a_query_answers_alike_when_a_task_is_killed(cluster: Cluster, query: str, parallelism: int) -> None:
    assert_as_in_one_process(find(Case(query, parallelism, Runtime.RAY, killed=True)), query)


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_answers_alike_when_nobody_is_killed(cluster: Cluster, query: str) -> None:
    assert_as_in_one_process(find(Case(query, 1, Runtime.RAY)), query)


def assert_as_in_one_process(found: Finding, query: str) -> None:
    assert found.wrong is None
    assert found.rows > 0
    assert found.digest == in_one_process(query).digest


@lru_cache
def in_one_process(query: str) -> Finding:
    return find(Case(query, 1, Runtime.LOCAL))
