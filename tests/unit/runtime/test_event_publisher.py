"""From the coordinator's events and counters to the events of listeners."""

from __future__ import annotations

from typing import Any, get_args, get_type_hints

import msgspec
import pytest

from clonos_py.model.coordinator_events import (
    CheckpointTriggered,
    CoordinatorEvent,
    Finished,
    StandbyLost,
    StandbyPromoted,
    TaskLost,
)
from clonos_py.model.counters import EventTimesRead, ProcessCounters, SavedParts
from clonos_py.model.ids import Attempt, TaskId
from clonos_py.model.user_metrics import MetricKind, UserMetric
from clonos_py.observe.events import (
    Detected,
    Event,
    FunctionPrinted,
    ImplausibleEventTimes,
    KillMissed,
    Listener,
    MetricConflict,
    ProcessWarned,
    Progress,
    TargetMissed,
    TaskFailed,
)
from clonos_py.process.contract import Observed
from clonos_py.runtime.counters import Counters
from clonos_py.runtime.event_publisher import PROGRESS_US, CoordinatorNews, EventPublisher
from clonos_py.runtime.function_output import LineOrigin, WorkerLines
from tests.unit.task.plans import DOWN, MIDDLE, UP, three

BEGAN_US = 1_000_000_000


def counters(*observed: Observed, now_us: int = BEGAN_US) -> ProcessCounters:
    found = Counters()
    for event in observed:
        found.observe(event, now_us)
    return found.added_to(ProcessCounters(active=True))


def at_stake(active: bool, frames: int) -> ProcessCounters:
    return ProcessCounters(active=active, frames_at_stake=frames)


def listening(received: list[tuple[int, Event]]) -> Listener:
    return lambda at_us, event: received.append((at_us, event))


def publish(
    publisher: EventPublisher, received: list[tuple[int, Event]], news: CoordinatorNews, now_us: int = BEGAN_US
) -> list[Event]:
    received.clear()
    publisher.publish(news, now_us)
    return [event for _, event in received]


def finished(at_us: int = BEGAN_US + 5_000_000) -> tuple[int, CoordinatorEvent]:
    return at_us, Finished()


def test_two_failures_on_order_of_one_task_between_two_looks_are_two_failures() -> None:
    received: list[tuple[int, Event]] = []
    failed = TaskLost(MIDDLE, reason="killed")
    news = CoordinatorNews(
        crashes=[(BEGAN_US, MIDDLE), (BEGAN_US, MIDDLE)], events=[(BEGAN_US, failed), (BEGAN_US, failed)]
    )
    publish(EventPublisher(three(), BEGAN_US, listening(received)), received, news)
    assert [event.task for _, event in received if isinstance(event, TaskFailed)] == [MIDDLE, MIDDLE]


def test_a_task_that_moves_has_not_failed_even_where_it_was_ordered_to() -> None:
    received: list[tuple[int, Event]] = []
    moves = TaskLost(MIDDLE, reason="its process has another task", planned=True)
    events: list[tuple[int, CoordinatorEvent]] = [(BEGAN_US, moves), (BEGAN_US, TaskLost(MIDDLE, reason="killed"))]
    publish(
        EventPublisher(three(), BEGAN_US, listening(received)),
        received,
        CoordinatorNews(crashes=[(BEGAN_US, MIDDLE)], events=events),
    )
    found = [event for _, event in received if isinstance(event, TaskFailed)]
    assert [(event.how, event.planned) for event in found] == [
        ("killed by --kill", False),
        ("its process has another task", True),
    ]


def test_lines_of_functions_are_published_one_by_one_with_their_operator() -> None:
    received: list[tuple[int, Event]] = []
    written = [
        WorkerLines(MIDDLE, "map\ta\tb\n\tc\x0bd\n", LineOrigin.FUNCTION, Attempt(1, 2)),
        WorkerLines(DOWN, "refused\n", LineOrigin.ENGINE),
        WorkerLines(UP, "up\t\n", LineOrigin.FUNCTION),
    ]
    news = CoordinatorNews(worker_lines=written)
    publish(EventPublisher(three(), BEGAN_US, listening(received)), received, news)
    found = [event for _, event in received if isinstance(event, FunctionPrinted)]
    assert [(event.task, event.operator, event.text) for event in found] == [
        (MIDDLE, "map", "a\tb"), (MIDDLE, "", "c\x0bd"), (UP, "up", "")
    ]  # fmt: skip
    assert [event.attempt for event in found] == [Attempt(1, 2), Attempt(1, 2), None]
    assert [event for _, event in received if isinstance(event, ProcessWarned)] == [
        ProcessWarned(task=DOWN, text="refused")
    ]


def test_a_kill_that_never_came_is_told_at_the_end() -> None:
    received: list[tuple[int, Event]] = []
    publisher = EventPublisher(
        three(), BEGAN_US, listening(received), [(9_000_000, MIDDLE), (1_000_000, MIDDLE), (2_000_000, UP)]
    )
    publish(publisher, received, CoordinatorNews(crashes=[(BEGAN_US + 1_000_000, MIDDLE)]))
    events = publish(publisher, received, CoordinatorNews(crashes=[(BEGAN_US + 2_000_000, UP)], events=[finished()]))
    missed = [event for event in events if isinstance(event, KillMissed)]
    assert [(kill.task, kill.after_us) for kill in missed] == [(MIDDLE, 9_000_000)]
    assert isinstance(events[-1], Finished)


def test_event_times_that_cannot_be_meant_are_told_once() -> None:
    received: list[tuple[int, Event]] = []
    publisher = EventPublisher(three(), BEGAN_US, listening(received))
    read = counters(Observed(event_times=[EventTimesRead("up", "at", 5, 7)]))
    warned = [
        event
        for _ in range(2)
        for event in publish(publisher, received, CoordinatorNews(counters={0: (UP, read)}))
        if isinstance(event, ImplausibleEventTimes)
    ]
    assert [(warning.source, warning.column, warning.value_us) for warning in warned] == [("up", "at", 5)]


def test_a_target_that_is_not_met_is_told_once_for_each_setting() -> None:
    received: list[tuple[int, Event]] = []
    publisher = EventPublisher(three(), BEGAN_US, listening(received))
    told = []
    for setting in ("extent_max", "extent_max", "replay_max"):
        seen = counters(Observed(saved_parts=SavedParts(90_000, 200_000, 5_000, setting)))
        events = publish(publisher, received, CoordinatorNews(counters={0: (UP, seen)}))
        told += [event.reason for event in events if isinstance(event, TargetMissed)]
    assert [reason.partition(":")[0] for reason in told] == [
        f"{UP} does not keep extent_max",
        f"{UP} does not keep replay_max",
    ]
    assert "with 90,000 open windows or keys, a restart reads 200,000 footprints and takes 5,000 rows again" in told[0]


def test_a_name_of_metrics_with_two_kinds_is_told_once() -> None:
    received: list[tuple[int, Event]] = []
    publisher = EventPublisher(three(), BEGAN_US, listening(received))
    told = []
    for key, kind in [("a", MetricKind.GAUGE), ("b", MetricKind.GAUGE), *[("c.d", MetricKind.COUNTER)] * 2]:
        seen = counters(Observed(metrics={f"{key}.depth": UserMetric(kind, 1), f"{key}.{kind}": UserMetric(kind, 1)}))
        events = publish(publisher, received, CoordinatorNews(counters={0: (UP, seen)}))
        told += [event.reason for event in events if isinstance(event, MetricConflict)]
    assert told == [
        "metric 'depth' is a gauge in 'a' and a counter in 'c.d': /metrics shows one of them only; rename one"
    ]


def test_metrics_and_counts_are_those_of_the_newest_process_of_a_task_that_has_any() -> None:
    received: list[tuple[int, Event]] = []
    publisher = EventPublisher(three(), BEGAN_US, listening(received))
    first, second, other = (
        counters(Observed(metrics={"o.n": UserMetric(MetricKind.COUNTER, n)}, counts={"o.late_rows": n}))
        for n in (9, 4, 7)
    )
    seen = {0: (UP, first), 3: (UP, second), 5: (UP, counters()), 1: (TaskId(UP.vertex, 1), other)}
    events = publish(publisher, received, CoordinatorNews(counters=seen))
    (progress,) = [event for event in events if isinstance(event, Progress)]
    assert progress.counts == {"o.late_rows": 11}
    assert {task: metric.value for task, metric in progress.metrics["o.n"].items()} == {0: 4, 1: 7}


def test_the_progress_has_the_extent_of_all_tasks_and_the_longest_replay() -> None:
    received: list[tuple[int, Event]] = []
    publisher = EventPublisher(three(), BEGAN_US, listening(received))
    seen = {
        number: (
            task,
            msgspec.structs.replace(counters(Observed(saved_parts=SavedParts(1, extent, rows))), active=True),
        )
        for number, (task, extent, rows) in enumerate([(UP, 100, 7), (MIDDLE, 20, 9)])
    }
    events = publish(publisher, received, CoordinatorNews(counters=seen))
    (progress,) = [event for event in events if isinstance(event, Progress)]
    assert (progress.extent, progress.replay_rows) == (120, 9)


def test_kills_that_an_interrupted_run_never_saw_are_told_too() -> None:
    received: list[tuple[int, Event]] = []
    EventPublisher(three(), BEGAN_US, listening(received), [(9_000_000, DOWN)]).stop(BEGAN_US + 1)
    assert [type(event) for _, event in received] == [Progress, KillMissed, Finished]
    assert received[-1] == (1, Finished(stopped=True))


def sample(kind: type[CoordinatorEvent]) -> CoordinatorEvent:
    """An event of this kind, with any values."""
    values: dict[type, Any] = {
        TaskId: MIDDLE,
        Attempt: Attempt(1, 2),
        int: 3,
        float: 1.5,
        bool: False,
        str: "a chunk is damaged",
    }
    hints = get_type_hints(kind)
    found = {name: next(v for t, v in values.items() if t in (hint, *get_args(hint))) for name, hint in hints.items()}
    return kind(**found)


NOT_FOR_LISTENERS = (CheckpointTriggered, StandbyLost, StandbyPromoted)


@pytest.mark.parametrize("kind", get_args(CoordinatorEvent))
def test_every_event_of_the_coordinator_is_published_or_known_not_to_be(kind: type[CoordinatorEvent]) -> None:
    received: list[tuple[int, Event]] = []
    event = sample(kind)
    publisher = EventPublisher(three(), BEGAN_US, listening(received))
    publisher.publish(CoordinatorNews(events=[(BEGAN_US + 7, event)]), BEGAN_US)
    if isinstance(event, NOT_FOR_LISTENERS):
        expected: list[Event] = []
    elif isinstance(event, TaskLost):
        expected = [TaskFailed(task=MIDDLE, how="a chunk is damaged"), Detected(MIDDLE)]
    else:
        expected = [event]
    assert [(at_us, event) for at_us, event in received if not isinstance(event, Progress)] == [
        (7, e) for e in expected
    ]


def last_progress(found: dict[int, tuple[TaskId, ProcessCounters]]) -> Progress:
    received: list[tuple[int, Event]] = []
    events = publish(
        EventPublisher(three(), BEGAN_US, listening(received)), received, CoordinatorNews(counters={**found}), BEGAN_US
    )
    progress = events[-1]
    assert isinstance(progress, Progress)
    return progress


def test_counts_are_those_of_the_newest_process_of_each_task() -> None:
    dead = counters(Observed(counts={"seen.late_rows": 5}))
    replacement = counters(Observed(counts={"seen.late_rows": 4}), Observed(counts={"seen.late_rows": 7}))
    standby = counters()
    other = counters(Observed(counts={"seen.late_rows": 100, "seen.dead_letters": 1}))
    found = {2: (MIDDLE, dead), 11: (MIDDLE, replacement), 12: (MIDDLE, standby), 4: (TaskId("middle", 1), other)}
    assert last_progress(found).counts == {"seen.late_rows": 107, "seen.dead_letters": 1}


def test_the_lag_of_a_vertex_is_that_of_the_task_whose_watermark_is_farthest_behind() -> None:
    near = counters(Observed(events=1, watermark=BEGAN_US - 20), Observed(events=1, watermark=BEGAN_US - 10))
    far = counters(Observed(events=1, watermark=BEGAN_US - 3_000_000))
    found = {1: (UP, counters(Observed(events=1))), 2: (MIDDLE, near), 3: (TaskId("middle", 1), far)}
    vertices = last_progress(found).vertices
    assert [vertex.lag_us for vertex in vertices] == [None, 3_000_000, None]
    assert [vertex.event_time_us for vertex in vertices] == [None, BEGAN_US - 3_000_000, None]


def test_what_a_server_keeps_for_a_source_is_that_of_its_last_read() -> None:
    assert counters(Observed()).bytes_kept is None
    assert counters(Observed(bytes_kept=9), Observed(bytes_kept=5), Observed()).bytes_kept == 5


def test_what_a_failure_puts_at_stake_is_told_by_the_task_and_not_by_its_standby() -> None:
    received: list[tuple[int, Event]] = []
    publisher = EventPublisher(three(), 0, listening(received))
    publisher.publish(CoordinatorNews(counters={1: (MIDDLE, at_stake(True, 70))}), 10)
    publisher.publish(CoordinatorNews(counters={2: (MIDDLE, at_stake(False, 0))}), 20)
    publisher.publish(CoordinatorNews(crashes=[(30, MIDDLE)]), PROGRESS_US + 10)
    assert [event.frames_at_stake for _, event in received if isinstance(event, Progress)] == [{MIDDLE: 70}] * 2
    assert [event.frames_at_stake for _, event in received if isinstance(event, TaskFailed)] == [70]
