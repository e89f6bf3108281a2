"""One Spark session for all tests: to start one takes seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from clonos_py.spark.session import session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with session("tests", "local[2]") as found:
        yield found
