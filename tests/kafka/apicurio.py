"""A real schema registry: Apicurio's, from Maven Central, in memory."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx

from clonos_py.bench.kafka.jars import fetched_once, java
from clonos_py.bench.ports import free_ports
from tests.archives import unpack

_VERSION = "3.0.9"
_NAME = f"apicurio-registry-app-{_VERSION}"
_URL = f"https://repo1.maven.org/maven2/io/apicurio/apicurio-registry-app/{_VERSION}/{_NAME}-all.tar.gz"
_SHA256 = "2b28181501a20cbf6efcd77f9b7153908fc01f3d3a7c32024c0bd9e1b04c8a43"
_START_S = 120.0


@contextmanager
def registry(folder: Path) -> Iterator[str]:
    """The address for clients of Confluent's registry."""
    (port,) = free_ports(1)
    options = [
        f"-Dquarkus.http.port={port}",
        "-Dquarkus.http.host=127.0.0.1",
        "-Dquarkus.http.access-log.enabled=false",
    ]
    with (folder / "registry.log").open("w") as log:
        command = [
            java(),
            "-Xmx256m",
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            *options,
            "-jar",
            str(fetched_once(_NAME, _fetch) / f"{_NAME}-runner.jar"),
        ]
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
    try:
        until = time.monotonic() + _START_S
        while not _answers(url):
            told = (folder / "registry.log").read_text()[-2_000:]
            assert time.monotonic() < until, f"the registry has not started: {told}"
            assert process.poll() is None, f"the registry has ended: {told}"
            time.sleep(0.1)
        yield url
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _answers(url: str) -> bool:
    with suppress(httpx.HTTPError):
        return httpx.get(f"{url}/subjects", timeout=5).is_success
    return False


def _fetch(folder: Path) -> None:
    archive = folder / "all.tar.gz"
    with httpx.stream("GET", _URL, timeout=60, follow_redirects=True) as answer, archive.open("wb") as file:
        answer.raise_for_status()
        for part in answer.iter_bytes():
            file.write(part)
    assert hashlib.sha256(archive.read_bytes()).hexdigest() == _SHA256, f"{_URL} has other content than before"
    unpack(archive, folder)
    archive.unlink()
