"""One Spark session for all tests, and so one process: it takes seconds to start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from clonos_py.evaluation.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_FOR_FEW_ROWS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""To generate and compile code for a query, and to plan it again after each shuffle, takes longer than to run it."""


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with session("tests", "local[2]", short=True) as found:
        for name, value in _FOR_FEW_ROWS.items():
            found.conf.set(name, value)
        yield found
