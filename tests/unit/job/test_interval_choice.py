"""A coordinator that finds the checkpoint interval itself: what it measures, and when the next checkpoint comes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clonos_py.checkpoint.interval import IntervalModel, LocalFailures
from clonos_py.job.events import AutoInterval, JobPolicy, ManifestWritten, ProcessDied, WriteManifest
from clonos_py.model.coordinator_events import IntervalChosen
from clonos_py.model.counters import ProcessCounters
from clonos_py.model.messages import (
    NewEffect,
    Pong,
    RequestCheckpoint,
    Running,
    Sever,
    Snapshotted,
    Started,
    StatusReport,
    TriggerCheckpoint,
)
from clonos_py.model.snapshots import TaskHandle
from tests.unit.job.stage import MIDDLE, SECOND_US, SINK, SOURCE, Stage, chain, deployed, of, reported, sent

TASKS = (SOURCE, MIDDLE, SINK)
MTBF_US = 3_600 * SECOND_US
POLICY = JobPolicy(
    checkpoint_interval_us=5 * SECOND_US,
    checkpoint_timeout_us=1_000_000 * SECOND_US,
    heartbeat_us=0,
    auto_interval=AutoInterval(SECOND_US, 600 * SECOND_US, MTBF_US, budget_bytes=1_000_000),
)
PER_S = len(TASKS) / 3_600


def complete(stage: Stage, checkpoint: int, cost_ms: float = 10) -> IntervalChosen:
    """The snapshots of a triggered checkpoint become durable, and its manifest is written."""
    snapshots(stage, checkpoint, cost_ms)
    events = reported(stage.say(ManifestWritten(checkpoint)))
    (chosen,) = [event for event in events if isinstance(event, IntervalChosen)]
    return chosen


def snapshots(stage: Stage, checkpoint: int, cost_ms: float) -> None:
    for task in TASKS:
        handle, lost_ms = TaskHandle(task, checkpoint, {}, b"", {}), (cost_ms / 2, cost_ms / 4, cost_ms / 4)
        stage.say(Snapshotted(stage.process(task), handle, 0.0, *lost_ms))


def triggered(stage: Stage, duration_us: float) -> list[int]:
    """The checkpoints that are triggered in this time."""
    return [trigger.checkpoint for _, trigger in sent(stage.wait(round(duration_us)), TriggerCheckpoint)]


def test_the_first_checkpoint_comes_after_the_first_interval_and_the_next_after_the_chosen_one() -> None:
    stage = deployed(policy=POLICY)
    assert triggered(stage, 4.9 * SECOND_US) == []
    assert triggered(stage, 0.2 * SECOND_US) == [1]
    chosen = complete(stage, 1)
    assert chosen.cost_s == 0.01
    assert chosen.failures_per_s == pytest.approx(0.1 / (0.1 / PER_S + 5.1))
    expected_s = IntervalModel(0.01, None, LocalFailures(chosen.failures_per_s)).best_s()
    assert chosen.interval_s == pytest.approx(expected_s)
    assert (chosen.best_s, chosen.bound) == (chosen.interval_s, None)
    since_trigger_s = 0.1
    assert triggered(stage, (expected_s - since_trigger_s) * SECOND_US - 1_000) == []
    assert triggered(stage, 2_000) == [2]


@pytest.mark.parametrize(("cost_ms", "found"), [(10_000, []), (0.01, [2])])
def test_the_chosen_interval_counts_from_the_last_trigger_whether_it_is_longer_or_shorter(
    cost_ms: float, found: list[int]
) -> None:
    stage = deployed(policy=POLICY)
    assert triggered(stage, 7 * SECOND_US) == [1]
    complete(stage, 1, cost_ms)
    assert triggered(stage, 1) == found


def test_a_policy_with_a_fixed_interval_chooses_none() -> None:
    stage = deployed(policy=JobPolicy(checkpoint_interval_us=5 * SECOND_US, heartbeat_us=0))
    stage.wait(5 * SECOND_US + 1)
    stage.snapshot(*TASKS, checkpoint=1)
    stage.say(ManifestWritten(1))
    assert not [event for event in reported(stage.instructions) if isinstance(event, IntervalChosen)]


def fail(stage: Stage, detected_us: int, replay_us: int) -> None:
    """The task in the middle fails, and its standby replays."""
    stage.start_up()
    died = stage.say(ProcessDied(stage.process(MIDDLE), "killed"))
    stage.wait(detected_us)
    stage.answer(sent(died, Sever))
    stage.wait(replay_us)
    stage.say(Running(stage.process(MIDDLE), 2, 100))


def test_restart_and_replay_speed_come_from_recoveries() -> None:
    stage = deployed(policy=POLICY)
    stage.wait(5 * SECOND_US)
    stage.wait(1)
    complete(stage, 1)
    stage.wait(4 * SECOND_US)
    fail(stage, SECOND_US // 2, SECOND_US)
    stage.wait(100 * SECOND_US)
    chosen = complete(stage, 2)
    assert chosen.restart_s == pytest.approx(0.5)
    assert chosen.replay_speed == pytest.approx(4, rel=0.01)
    assert chosen.failures_per_s > 5 * PER_S
    assert chosen.utilization == pytest.approx(1 - (0.02 + 1.5) / (stage.now_us / SECOND_US), abs=1e-3)


def test_the_time_of_an_earlier_recovery_is_no_work_to_replay() -> None:
    """Two failures since a checkpoint, 4 s and 5 s of work behind it; each replays at 4 times normal speed."""
    stage = deployed(policy=POLICY)
    stage.wait(5 * SECOND_US)
    stage.wait(1)
    complete(stage, 1)
    stage.wait(4 * SECOND_US)
    fail(stage, SECOND_US // 2, SECOND_US)
    stage.wait(SECOND_US)
    fail(stage, SECOND_US // 2, 5 * SECOND_US // 4)
    stage.wait(30 * SECOND_US)
    _, newest = sent(stage.instructions, TriggerCheckpoint)[-1]
    assert complete(stage, newest.checkpoint).replay_speed == pytest.approx(4, rel=0.01)


def test_work_that_is_done_again_counts_from_the_rollback() -> None:
    """Two rollbacks to the start, after 4 s and then after 3 s of work."""
    stage = deployed(replace(chain(sharing_depth=0), rollback=True), POLICY)
    for worked_s in (4, 3):
        stage.wait(worked_s * SECOND_US)
        stage.say(ProcessDied(stage.process(MIDDLE), "killed"))
        stage.wait(SECOND_US)
        stage.start_up()
        for task in TASKS:
            stage.say(NewEffect(stage.process(task)))
    chosen = complete(stage, triggered(stage, 8 * SECOND_US)[-1])
    assert chosen.utilization == pytest.approx(1 - (4 + 3 + 2 + 0.01) / (stage.now_us / SECOND_US), abs=1e-3)


def test_a_checkpoint_that_waits_for_a_replay_does_not_show_how_long_checkpoints_take() -> None:
    stage = deployed(policy=POLICY)
    stage.wait(5 * SECOND_US)
    stage.wait(1)
    complete(stage, 1)
    stage.wait(4 * SECOND_US)
    fail(stage, SECOND_US // 2, 20 * SECOND_US)
    _, newest = sent(stage.instructions, TriggerCheckpoint)[-1]
    assert newest.checkpoint > 1, "triggered during the replay"
    assert complete(stage, newest.checkpoint).bound == "checkpoint_interval_min"
    (third,) = triggered(stage, 15 * SECOND_US)
    assert complete(stage, third).bound == "the time until a checkpoint is complete"


def test_tasks_that_are_lost_together_are_one_failure() -> None:
    one, both = deployed(policy=POLICY), deployed(policy=POLICY)
    for stage, tasks in ((one, (MIDDLE,)), (both, (MIDDLE, SINK))):
        stage.wait(5 * SECOND_US + 1)
        complete(stage, 1)
        severs = []
        for task in tasks:
            severs = sent(stage.say(ProcessDied(stage.process(task), "killed")), Sever)
        stage.answer(severs)
        stage.start_up()
        for task in tasks:
            stage.say(Running(stage.process(task), 2, 100))
        stage.wait(100 * SECOND_US)
    assert complete(one, 2).failures_per_s == complete(both, 2).failures_per_s


def test_a_coordinator_that_replaces_a_lost_one_goes_on_with_its_estimates() -> None:
    stage = deployed(policy=POLICY)
    stage.wait(5 * SECOND_US)
    stage.wait(1)
    complete(stage, 1, cost_ms=100)
    stage.wait(4 * SECOND_US)
    fail(stage, SECOND_US // 2, SECOND_US)
    chosen = work(stage, 100)[-1]
    manifest = of(stage.instructions, WriteManifest)[-1].manifest
    roster = {stage.process(task): task for task in TASKS}
    successor = Stage(policy=POLICY, manifest=manifest, generation=2, roster=roster)
    successor.attempts = stage.attempts
    for process, task in roster.items():
        successor.say(Started(process, f"host:{process}"))
        successor.say(StatusReport(process, stage.attempts[task][1], begun=True))
    one, other = (work(each, chosen.interval_s + 2)[0] for each in (stage, successor))
    assert (other.restart_s, other.replay_speed) == (one.restart_s, one.replay_speed)
    assert other.failures_per_s == pytest.approx(one.failures_per_s, rel=0.1)
    assert other.interval_s == pytest.approx(one.interval_s, rel=0.1)
    assert other.utilization == pytest.approx(one.utilization, abs=0.01)


def work(stage: Stage, seconds: float) -> list[IntervalChosen]:
    """Time passes; triggered checkpoints are complete at once. Returns what was chosen."""
    found = []
    for _ in range(round(seconds * 10)):
        found += [complete(stage, checkpoint, cost_ms=100) for checkpoint in triggered(stage, 0.1 * SECOND_US)]
    return found


def test_a_later_run_begins_without_the_estimates_of_the_one_before() -> None:
    stage = deployed(policy=POLICY)
    stage.wait(6 * SECOND_US)
    complete(stage, 1, cost_ms=100)
    (write,) = of(stage.instructions, WriteManifest)
    assert write.manifest.estimates is not None
    later = Stage(policy=replace(POLICY, lineage="later"), manifest=write.manifest)
    later.start_up()
    assert len(triggered(later, 5.1 * SECOND_US)) == 1, "the first interval is that of the policy"


def test_where_nothing_is_logged_failures_are_rollbacks() -> None:
    plan = chain(sharing_depth=0)
    stage = Stage(plan, POLICY)
    stage.start_up()
    stage.wait(5 * SECOND_US + 1)
    assert complete(stage, 1).replay_speed is None


def test_the_in_flight_budget_bounds_the_interval() -> None:
    stage = deployed(policy=POLICY)
    stage.wait(5 * SECOND_US + 1)
    stage.say(Pong(stage.process(SOURCE), 1, ProcessCounters(active=True, in_flight_bytes=500_000)))
    stage.say(Pong(stage.process(MIDDLE), 1, ProcessCounters(active=True, in_flight_bytes=100_000)))
    chosen = complete(stage, 1, cost_ms=100)
    assert chosen.bound == "in_flight_budget"
    assert chosen.interval_s == pytest.approx(5, rel=0.01)
    assert chosen.best_s is not None
    assert chosen.best_s > 10


def test_an_hour_without_failures_exceeds_neither_the_bounds_nor_the_memory() -> None:
    """The source retains what it sends until a checkpoint covers it, after half an hour eight times as much. As every
    task it requests a checkpoint when half of its budget is used."""
    budget_bytes = 1_000_000
    auto = AutoInterval(SECOND_US, 60 * SECOND_US, 24 * 3_600 * SECOND_US, budget_bytes)
    stage = deployed(policy=replace(POLICY, auto_interval=auto))
    retained, requested, found, sizes = 0, False, list[tuple[IntervalChosen, int]](), list[int]()
    for second in range(3_600):
        triggers = triggered(stage, SECOND_US)
        retained += 5_000 if second < 1_800 else 40_000
        sizes.append(retained)
        stage.say(Pong(stage.process(SOURCE), second, ProcessCounters(active=True, in_flight_bytes=retained)))
        if retained >= budget_bytes // 2 and not requested:
            requested = True
            said = stage.say(RequestCheckpoint(stage.process(SOURCE)))
            triggers += [trigger.checkpoint for _, trigger in sent(said, TriggerCheckpoint)]
        for checkpoint in triggers:
            found.append((complete(stage, checkpoint, cost_ms=100), retained))
            retained, requested = 0, False
    assert all(1 <= chosen.interval_s <= 60 for chosen, _ in found)
    assert {chosen.bound for chosen, _ in found} == {"checkpoint_interval_max", "in_flight_budget"}
    assert max(sizes) <= budget_bytes
    assert max(sizes[1_900:]) <= budget_bytes // 2 + 40_000
    assert found[-1][0].interval_s == pytest.approx(12.5, rel=0.1)


def test_what_stays_of_a_job_is_bounded() -> None:
    stage = deployed(policy=POLICY)
    for checkpoint in range(1, 50):
        stage.wait(700 * SECOND_US)
        assert complete(stage, checkpoint, cost_ms=1e6).bound == "checkpoint_interval_max"
    assert triggered(stage, 600 * SECOND_US) == [50]
