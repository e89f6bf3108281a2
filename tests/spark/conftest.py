"""One Spark session for all tests, and so one process: it takes seconds to start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from clonos_py.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with session("tests", "local[2]", short=True) as found:
        found.conf.set("spark.sql.shuffle.partitions", 2)
        yield found
