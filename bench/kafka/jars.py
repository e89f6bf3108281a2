"""Fetches the jars of Kafka from Maven Central, once. ``jars.txt`` names them, with their checksums."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import httpx

from clonos_py.runtime.java import java_home

VERSION = "4.1.1"
_REPOSITORY = "https://repo1.maven.org/maven2"
_LIST = Path(__file__).with_name("jars.txt")
"""``org.apache.kafka:kafka_2.13`` of this version and all that it needs: SHA-256 and path in the repository, as
``sha256sum`` prints them. ``spark-submit --packages`` finds the same jars; its search takes longer than the broker."""
_PROJECT = Path(__file__).parents[3]
_CONNECTIONS = 8


def java() -> str:
    """The path of the ``java`` command."""
    return str(Path(java_home(os.environ)) / "bin" / "java")


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


def _spark() -> Path:
    """The folder in which PySpark is installed."""
    found = find_spec("pyspark")
    assert found is not None
    assert found.origin is not None, "this needs clonos-py[spark]"
    return Path(found.origin).parent


def _fetch(folder: Path) -> None:
    jars = folder / "jars"
    jars.mkdir(exist_ok=True)
    with httpx.Client(timeout=60) as client, ThreadPoolExecutor(_CONNECTIONS) as pool:

        def fetch(line: str) -> None:
            sha256, path = line.split()
            answer = client.get(f"{_REPOSITORY}/{path}").raise_for_status()
            assert hashlib.sha256(answer.content).hexdigest() == sha256, f"{path} has other content than before"
            (jars / path.rpartition("/")[2]).write_bytes(answer.content)

        list(pool.map(fetch, _LIST.read_text().splitlines()))
