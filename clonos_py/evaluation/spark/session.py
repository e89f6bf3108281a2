"""Spark sessions: local by default, or on a cluster given by its master. They print nothing, and use UTC."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from clonos_py.model.errors import SparkError
from clonos_py.runtime.java import java_home

if TYPE_CHECKING:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

LOCAL = "local[*]"

_REFRESH_S = 0.25
_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    "spark.ui.enabled": "false",
}
_LOCAL_SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "8",
}
_SHORT_SETTINGS = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""In a session of a few seconds, Java's optimizing compiler would take half of the processor time."""


@contextmanager
def session(name: str, master: str | None = None, short: bool = False) -> Iterator[SparkSession]:
    """A session for the duration of the block, or the active session if there is one. ``short``: for some seconds of
    work. A local Java then compiles faster, to slower code.

    Raises SparkError if pyspark or Java is missing, or if Spark does not start.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise SparkError("this needs pyspark: pip install 'clonos-py[spark]'") from error
    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    with tempfile.NamedTemporaryFile(prefix="clonos-spark-", suffix=".log", delete=False) as log:
        context = _context(_configured(name, master or LOCAL, short), log.fileno(), log.name)
    try:
        yield SparkSession(context)
    finally:
        context.stop()
        _end_java()
        os.unlink(log.name)


def _end_java() -> None:
    """Ends the Java process by closing its input. The next session starts a new one."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is None:
        return
    gateway.shutdown()
    if gateway.proc is not None:
        gateway.proc.stdin.close()
        gateway.proc.wait()
    SparkContext._gateway = SparkContext._jvm = None


def _configured(name: str, master: str, short: bool) -> SparkConf:
    from pyspark import SparkConf

    conf = SparkConf(loadDefaults=False).setAppName(f"clonos {name}").setMaster(master)
    local = {**_LOCAL_SETTINGS, **(_SHORT_SETTINGS if short else {})} if master.startswith("local") else {}
    for key, value in {**_SETTINGS, **local}.items():
        conf.set(key, value)
    return conf


def _context(conf: SparkConf, log: int, log_name: str) -> SparkContext:
    """Starts Spark. The output of Java goes to a log, since errors are raised as exceptions anyway."""
    from pyspark import SparkContext
    from pyspark.java_gateway import launch_gateway

    os.environ["JAVA_HOME"] = java_home(os.environ)
    if conf.get("spark.master", "").startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else Spark uses the first python3 in the PATH
    try:
        gateway = launch_gateway(conf, {"stdout": log, "stderr": log})  # type: ignore[no-untyped-call]
        return SparkContext(conf=conf, gateway=gateway)
    except _errors(OSError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise SparkError(
            f"Spark does not start with master {conf.get('spark.master')}: {reason} (see {log_name})"
        ) from error


def _errors(*more: type[Exception]) -> tuple[type[Exception], ...]:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    return PySparkException, Py4JError, *more


@contextmanager
def named_errors(what: str) -> Iterator[None]:
    """Converts Spark's errors into a SparkError of one line."""
    try:
        yield
    except _errors() as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
        if lines and lines[0].startswith("An error occurred while calling"):
            lines[:1] = causes[-1:]  # the first line names only a Java method
        message = next((line for line in lines if "clonos_py.model.errors" in line), lines[0] if lines else repr(error))
        raise SparkError(f"{what}: {message.rpartition('clonos_py.model.errors.')[2]}") from error


@contextmanager
def shown(spark: SparkSession, what: str) -> Iterator[None]:
    """Shows the progress of the block's Spark jobs on a terminal. Prints nothing otherwise."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    columns = (TextColumn(what), BarColumn(), TextColumn("{task.completed}/{task.total} tasks"), TimeElapsedColumn())
    done = threading.Event()
    with Progress(*columns, console=console, transient=True) as progress:
        watcher = threading.Thread(target=_watch, args=(spark, progress, done), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()


def _watch(spark: SparkSession, progress: Progress, done: threading.Event) -> None:
    tracker = spark.sparkContext.statusTracker()
    task = progress.add_task("", total=None)
    while not done.wait(_REFRESH_S):
        stages = [info for stage in tracker.getActiveStageIds() if (info := tracker.getStageInfo(stage))]
        if stages:
            completed, total = sum(s.numCompletedTasks for s in stages), sum(s.numTasks for s in stages)
            progress.update(task, completed=completed, total=total)
