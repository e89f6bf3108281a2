"""Fetches the jars of Kafka from Maven Central, once, with ``spark-submit --packages``."""

from __future__ import annotations

import fcntl
import os
import subprocess
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

VERSION = "4.1.1"
_PACKAGE = f"org.apache.kafka:kafka_2.13:{VERSION}"
_PROJECT = Path(__file__).parents[3]


def java() -> str:
    """The path of the ``java`` command."""
    return str(Path(_java_home()) / "bin" / "java")


def fetched_once(name: str, fetch: Callable[[Path], None]) -> Path:
    """Calls ``fetch`` with a folder of this checkout, unless that was done before, and returns the folder. A lock makes
    concurrent tests wait for the first one."""
    folder = _PROJECT / ".tools" / name
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = folder / "done"
        if not done.exists():
            fetch(folder)
            done.touch()
    return folder


def classpath() -> str:
    """The Java class path of the broker and its tools. Fetches the jars, and fails if that is not possible."""
    folder = fetched_once(f"kafka-{VERSION}", _fetch)
    (scala,) = _spark().glob("jars/scala-library-*.jar")  # Spark includes it, and so does not fetch it
    return f"{folder}/jars/*:{scala}"


def _java_home() -> str:
    found: str = import_module("clonos_py.spark.java").java_home(os.environ)  # the only use of Spark's room in bench
    return found


def _spark() -> Path:
    """The folder in which PySpark is installed."""
    found = find_spec("pyspark")
    assert found is not None
    assert found.origin is not None, "this needs clonos-py[spark]"
    return Path(found.origin).parent


def _fetch(folder: Path) -> None:
    submit = _spark() / "bin" / "spark-submit"
    options = ("--master", "local", "--conf", f"spark.jars.ivy={folder}", "--packages", _PACKAGE)
    command = [str(submit), *options, "--class", "kafka.tools.StorageTool", "spark-internal", "random-uuid"]
    made = subprocess.run(
        command, env={**os.environ, "JAVA_HOME": _java_home()}, capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, f"{_PACKAGE} cannot be fetched: {made.stderr[-2_000:]}"
