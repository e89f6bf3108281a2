"""Jobs from topic to topic on real actors, tasks and brokers killed: consumers of committed messages, who watch
throughout, see each row once in a causal and in a transactional output.

Many random failures, of tasks, coordinators, brokers and connections, are ``python -m clonos_py.bench soak --kafka``.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from clonos_py.bench.fault_injector import FaultInjector, wake
from clonos_py.bench.kafka.command import latency
from clonos_py.bench.kafka.new_users import DELIVERIES, JournaledDelivery, new_users
from clonos_py.bench.kafka.traffic import LIBRARIES, JobOverTopics, Library, Watcher, in_background
from clonos_py.bench.kafka.witnesses import kafka_witnesses
from clonos_py.bench.soak import KAFKA_JOBS, soak
from clonos_py.bench.witnesses import FIRST_TASKS, PARTITIONS, TASKS, answer_server
from clonos_py.connectors.kafka.client import TopicPartition
from clonos_py.connectors.kafka.clients import ClusterAddress
from clonos_py.model.coordinator_events import Deployed, RolledBack, StandbyActivated
from clonos_py.observe.events import Event, TaskFailed
from clonos_py.runtime.launch import run_job
from clonos_py.runtime.ray.cluster import Cluster
from clonos_py.settings.resolution import resolve
from tests.observed import killed
from tests.waiting import SOON_S

pytestmark = pytest.mark.ray

RATE = 100.0
TOTAL = int(12 * RATE) * PARTITIONS
KILLS = tuple(f"{task}@{1 + number}s" for number, task in enumerate(FIRST_TASKS))


def carried_out(
    made: JobOverTopics,
    folder: Path,
    *kills: str,
    heard: Callable[[Event], None] = lambda event: None,
    beside: Callable[[threading.Event], None] = lambda over: None,
) -> list[Event]:
    """Runs the job and checks its output; returns the events. ``beside`` runs once the job is deployed."""
    events: list[Event] = []

    def listener(at_us: int, event: Event) -> None:
        events.append(event)
        if isinstance(event, Deployed):
            made.begin()
            stack.enter_context(in_background(beside))
        heard(event)

    settings = resolve({"parallelism": 2, "checkpoint_interval": "1s", "checkpoints": str(folder), "kills": kills})
    with ExitStack() as stack:
        run_job(made.job, settings, listener)
    assert made.wrong() is None
    assert not [event for event in events if isinstance(event, RolledBack)]
    return events


@pytest.mark.thorough
@pytest.mark.parametrize("library", LIBRARIES)
def test_each_row_is_seen_once_though_a_task_of_each_operator_is_killed(
    library: Library, cluster: Cluster, tmp_path: Path
) -> None:
    with answer_server() as server, kafka_witnesses(tmp_path / "kafka", server, TOTAL, RATE, library) as made:
        events = carried_out(made, tmp_path / "checkpoints", *KILLS)
    assert len(killed(events)) == len(KILLS)


@pytest.mark.thorough
def test_each_row_is_visible_once_although_every_task_returns_as_a_zombie(cluster: Cluster, tmp_path: Path) -> None:
    """Each is stopped, and woken when its standby has replaced it."""
    replaced: set[str] = set()
    with (
        answer_server() as server,
        kafka_witnesses(tmp_path / "kafka", server, TOTAL, RATE, LIBRARIES[0], grown_to=PARTITIONS) as made,
    ):
        injector = FaultInjector(made.job.name)

        def heard(event: Event) -> None:
            if isinstance(event, StandbyActivated):
                replaced.add(str(event.task))
            if made.complete() and replaced == set(TASKS):
                raise KeyboardInterrupt

        def stop_all(over: threading.Event) -> None:
            for task in TASKS:
                (pid,) = injector.await_process(task)
                os.kill(pid, signal.SIGSTOP)
                try:
                    while task not in replaced and not over.wait(0.05):
                        pass
                finally:
                    wake(pid)

        with pytest.raises(KeyboardInterrupt):
            carried_out(made, tmp_path / "checkpoints", heard=heard, beside=stop_all)
        assert made.wrong() is None


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("library", "delivery"),
    [(LIBRARIES[0], DELIVERIES[0]), pytest.param(LIBRARIES[1], DELIVERIES[1], marks=pytest.mark.thorough)],
)
def test_query_8_finds_each_new_user_once_although_tasks_are_killed(
    library: Library, delivery: JournaledDelivery, cluster: Cluster, tmp_path: Path
) -> None:
    with new_users(tmp_path / "kafka", 12, 400, library, delivery) as made:
        events = carried_out(
            made, tmp_path / "checkpoints", "person[0]@2s", "join[1]@3s", "sellers[0]@4s", "auction[1]@5s", "join[0]@6s"
        )
    assert len(killed(events)) == 5


@pytest.mark.thorough
@pytest.mark.parametrize("library", LIBRARIES)
def test_partitions_added_under_load_are_read_once(library: Library, cluster: Cluster, tmp_path: Path) -> None:
    """From their first offset on, and though a task that reads them is killed."""
    with (
        answer_server() as server,
        kafka_witnesses(tmp_path / "kafka", server, TOTAL, RATE, library, grown_to=5) as made,
    ):

        def end(event: Event) -> None:
            if made.complete():
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            carried_out(made, tmp_path / "checkpoints", "numbers[0]@9s", "numbers[1]@11s", heard=end)
        assert made.wrong() is None


@pytest.mark.thorough
def test_rows_in_the_log_are_not_read_again_from_the_topic(cluster: Cluster, tmp_path: Path) -> None:
    """Messages are deleted as soon as their results are visible, as may happen in a compacted topic."""
    with (
        answer_server() as server,
        kafka_witnesses(tmp_path / "kafka", server, TOTAL, RATE, LIBRARIES[0], replay="logged") as made,
    ):

        def delete(over: threading.Event) -> None:
            watcher = Watcher(made.brokers.bootstrap, "left")
            admin = ClusterAddress(made.brokers.bootstrap).connect().admin()
            with in_background(watcher.run):
                while not over.wait(0.2):
                    numbers = [row["id"] for row in list(watcher.rows)]
                    for partition in range(PARTITIONS):
                        read = [number // PARTITIONS for number in numbers if number % PARTITIONS == partition]
                        if read:
                            admin.delete_before({TopicPartition("numbers", partition): max(read) + 1})
            admin.close()

        events = carried_out(made, tmp_path / "checkpoints", *KILLS, beside=delete)
    assert len(killed(events)) == len(KILLS)


@pytest.mark.thorough
def test_a_source_directly_before_a_causal_sink_is_replaced_without_lost_rows(cluster: Cluster) -> None:
    """Reads are small there, and a replacement cuts them out of larger pieces."""
    measured = latency(LIBRARIES[0], "causal", rate=2_000, seconds=12)
    assert measured.rows == 24_000
    assert measured.gap_ms < 1_000 * SOON_S


def waits_for_brokers(made: JobOverTopics, folder: Path, away_s: float) -> None:
    """Each broker dies in turn, and is back after some seconds."""

    def take_away(over: threading.Event) -> None:
        for node in made.brokers.nodes:
            if not over.wait(2):
                node.kill()
                time.sleep(away_s)
                node.start()
                node.wait()

    events = carried_out(made, folder, beside=take_away)
    assert not [event for event in events if isinstance(event, TaskFailed)], "the job waited for the brokers"


@pytest.mark.thorough
def test_each_row_is_visible_once_although_the_only_broker_is_down_for_a_while(
    cluster: Cluster, tmp_path: Path
) -> None:
    """For 20 seconds."""
    with answer_server() as server, kafka_witnesses(tmp_path / "kafka", server, TOTAL, RATE, LIBRARIES[0]) as made:
        waits_for_brokers(made, tmp_path / "checkpoints", 20)


@pytest.mark.thorough
def test_each_row_is_seen_once_though_one_broker_of_three_is_away(cluster: Cluster, tmp_path: Path) -> None:
    """The others go on meanwhile."""
    with (
        answer_server() as server,
        kafka_witnesses(tmp_path / "kafka", server, TOTAL, RATE, LIBRARIES[1], nodes=3) as made,
    ):
        waits_for_brokers(made, tmp_path / "checkpoints", 3)


@pytest.mark.thorough
def test_random_failures_of_tasks_and_brokers_do_not_change_the_output(cluster: Cluster) -> None:
    finding = soak(KAFKA_JOBS[1], seed=19, seconds=5, most=4)
    assert finding.wrong is None
    assert finding.counts.faults
