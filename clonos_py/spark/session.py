"""A Spark session for as long as a command needs one: local by default, any cluster by its master."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from clonos_py.model.errors import SettingError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    "spark.log.level": "ERROR",
}


@contextmanager
def session(name: str, master: str | None = None) -> Iterator[SparkSession]:
    """Where one is at work already, that one. Raises SettingError where PySpark is not installed."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise SettingError("this needs pyspark: pip install 'clonos-py[spark]'") from None
    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    builder = SparkSession.builder.appName(f"clonos {name}").master(master or "local[*]")
    for key, value in _SETTINGS.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()
