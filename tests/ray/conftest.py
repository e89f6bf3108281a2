"""One Ray for all tests of this folder that a process runs: it takes seconds to start.

Nobody here is taken for dead since the machine is busy: tests that stop processes say how long silence may last.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from clonos_py.runtime.ray.cluster import Cluster, connected, import_ray

import_ray()  # before any test imports it: it is made quiet only once
os.environ.setdefault("CLONOS_HEARTBEAT_TIMEOUT", "10s")


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    with connected(None) as cluster:
        yield cluster
