"""One Ray for all tests of this folder: it takes seconds to start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from clonos_py.runtime.ray.cluster import Cluster, connected, import_ray

import_ray()  # before any test imports it: it is made quiet only once


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    with connected(None) as cluster:
        yield cluster
