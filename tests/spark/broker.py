"""A real Kafka broker of one node, fetched from Maven Central by Spark's own means."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pyspark

from clonos_py.runtime.transport.ports import free_ports
from clonos_py.spark.java import java_home

_KAFKA = "org.apache.kafka:kafka_2.13:4.1.0"
_CLUSTER_ID = "clonosclonosclonosclon"
_START_S = 120.0
_SETTINGS = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
log.dirs={folder}/logs
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""


class Broker(NamedTuple):
    address: str
    process: subprocess.Popen[bytes]

    def kill(self) -> None:
        """It may be dead already."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


@contextmanager
def broker(folder: Path) -> Iterator[Broker]:
    port, controller = free_ports(2)
    settings = folder / "server.properties"
    settings.write_text(_SETTINGS.format(port=port, controller=controller, folder=folder))
    with (folder / "broker.log").open("wb") as log:
        made = ("format", "-t", _CLUSTER_ID, "-c", str(settings))
        subprocess.run(
            _command("kafka.tools.StorageTool", *made), stdout=log, stderr=log, env=_environment(), check=True
        )
        process = subprocess.Popen(
            _command("kafka.Kafka", str(settings)), stdout=log, stderr=log, env=_environment(), start_new_session=True
        )
        running = Broker(f"127.0.0.1:{port}", process)
        try:
            _wait_for(port, process)
            yield running
        finally:
            running.kill()


def _command(main: str, *arguments: str) -> list[str]:
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    options = ("--master", "local", "--driver-memory", "512m", "--packages", _KAFKA, "--class", main)
    return [str(submit), *options, "spark-internal", *arguments]


def _environment() -> dict[str, str]:
    return {**os.environ, "JAVA_HOME": java_home(os.environ)}


def _wait_for(port: int, running: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        assert running.poll() is None, "the broker does not start, see broker.log"
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.2)
    raise AssertionError("the broker does not answer, see broker.log")
