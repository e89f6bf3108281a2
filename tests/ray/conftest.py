"""One Ray for all tests of this folder: it takes seconds to start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from clonos_py.runtime.ray.cluster import Cluster, connected, import_ray
from tests.s3_server import S3Server, running, use

import_ray()  # before any test imports it: it is made quiet only once


@pytest.fixture(scope="session")
def object_store() -> Iterator[S3Server]:
    """An object store, which the processes of the cluster find, too."""
    with running() as server, pytest.MonkeyPatch.context() as patch:
        use(server, patch)
        yield server


@pytest.fixture(scope="session")
def cluster(object_store: S3Server) -> Iterator[Cluster]:
    with connected(None) as cluster:
        yield cluster
