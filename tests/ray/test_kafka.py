"""Jobs from topic to topic on real actors, tasks and brokers killed: each row is seen once by consumers of what is
committed, who watch throughout, in a causal and in a transactional output.

Many random failures, of tasks, coordinators, brokers and connections, are ``python -m clonos_py.bench soak --kafka``.
"""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

import pytest

from clonos_py.bench.kafka.witnesses import LIBRARIES, KafkaWitnesses, Library, going_on, kafka_witnesses
from clonos_py.bench.soak import soak
from clonos_py.bench.witnesses import PARTITIONS, TASKS, oracle
from clonos_py.model.coordinator_events import RolledBack
from clonos_py.observe.events import Event, TaskFailed
from clonos_py.runtime.launch import run_job
from clonos_py.runtime.ray.cluster import Cluster
from clonos_py.settings.resolution import resolve

pytestmark = pytest.mark.ray

RATE = 100.0


def carried_out(made: KafkaWitnesses, folder: Path, *kills: str) -> list[Event]:
    """The job, in which nothing may be wrong; what happened."""
    events: list[Event] = []
    settings = resolve({"parallelism": 2, "checkpoint_interval": "1s", "checkpoints": str(folder), "kills": kills})
    run_job(made.job, settings, lambda at_us, event: events.append(event))
    assert made.wrong() is None
    assert not [event for event in events if isinstance(event, RolledBack)]
    return events


@pytest.mark.parametrize("library", LIBRARIES)
def test_each_row_is_seen_once_though_every_task_is_killed(library: Library, cluster: Cluster, tmp_path: Path) -> None:
    kills = tuple(f"{task}@{1 + number}s" for number, task in enumerate(TASKS))
    total = int(12 * RATE) * PARTITIONS
    with (
        oracle() as server,
        kafka_witnesses(tmp_path / "kafka", server, total, RATE, library, 1, random.Random(0)) as made,
    ):
        events = carried_out(made, tmp_path / "checkpoints", *kills)
    assert len([event for event in events if isinstance(event, TaskFailed)]) == len(kills)


def test_each_row_is_seen_once_though_the_only_broker_is_away(cluster: Cluster, tmp_path: Path) -> None:
    """For 20 seconds."""
    total = int(12 * RATE) * PARTITIONS
    with (
        oracle() as server,
        kafka_witnesses(tmp_path / "kafka", server, total, RATE, LIBRARIES[0], 1, random.Random(0)) as made,
    ):
        (node,) = made.brokers.cluster.nodes

        def away(stop: threading.Event) -> None:
            stop.wait(8)
            node.kill()
            time.sleep(20)
            node.start()
            node.wait()

        with going_on(away):
            events = carried_out(made, tmp_path / "checkpoints")
    assert not [event for event in events if isinstance(event, TaskFailed)], "the broker was waited for"


def test_random_failures_of_tasks_and_brokers_change_nothing(cluster: Cluster) -> None:
    finding = soak(LIBRARIES[1], seed=19, seconds=5, most=4)
    assert finding.wrong is None
    assert finding.done.faults
