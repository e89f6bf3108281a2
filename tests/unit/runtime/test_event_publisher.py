"""From reports and counters to what listeners hear."""

from __future__ import annotations

from clonos_py.job.events import Report, ReportKind
from clonos_py.model.counters import ProcessCounters
from clonos_py.model.ids import TaskId
from clonos_py.observe.events import (
    DeletionFailed,
    Event,
    Finished,
    KillMissed,
    Progress,
    RestartedWithoutLog,
    StandbyUnready,
    TaskFailed,
)
from clonos_py.process.contract import Observed
from clonos_py.runtime.counters import Counters
from clonos_py.runtime.event_publisher import PROGRESS_US, CoordinatorNews, EventPublisher
from tests.unit.task.plans import DOWN, MIDDLE, UP, three

BEGAN_US = 1_000_000_000


def counters(*observed: Observed, now_us: int = BEGAN_US) -> ProcessCounters:
    found = Counters()
    for event in observed:
        found.observe(event, now_us)
    return found.added_to(ProcessCounters(active=True))


def at_stake(active: bool, frames: int) -> ProcessCounters:
    return ProcessCounters(active=active, frames_at_stake=frames)


def told(publisher: EventPublisher, heard: list[Event], news: CoordinatorNews, now_us: int = BEGAN_US) -> list[Event]:
    heard.clear()
    publisher.publish(news, now_us)
    return list(heard)


def finished(at_us: int = BEGAN_US + 5_000_000) -> tuple[int, Report]:
    return at_us, Report(ReportKind.FINISHED)


def test_two_failures_on_order_of_one_task_between_two_looks_are_two_failures() -> None:
    heard: list[Event] = []
    failed = Report(ReportKind.TASK_FAILED, MIDDLE, {"reason": "killed"})
    news = CoordinatorNews(
        crashes=[(BEGAN_US, MIDDLE), (BEGAN_US, MIDDLE)], reports=[(BEGAN_US, failed), (BEGAN_US, failed)]
    )
    told(EventPublisher(three(), BEGAN_US, heard.append), heard, news)
    assert [event.task for event in heard if isinstance(event, TaskFailed)] == [MIDDLE, MIDDLE]


def test_a_kill_that_never_came_is_told_at_the_end() -> None:
    heard: list[Event] = []
    publisher = EventPublisher(
        three(), BEGAN_US, heard.append, [(9_000_000, MIDDLE), (1_000_000, MIDDLE), (2_000_000, UP)]
    )
    told(publisher, heard, CoordinatorNews(crashes=[(BEGAN_US + 1_000_000, MIDDLE)]))
    events = told(publisher, heard, CoordinatorNews(crashes=[(BEGAN_US + 2_000_000, UP)], reports=[finished()]))
    missed = [event for event in events if isinstance(event, KillMissed)]
    assert [(kill.task, kill.after_us) for kill in missed] == [(MIDDLE, 9_000_000)]
    assert isinstance(events[-1], Finished)


def test_kills_that_an_interrupted_run_never_saw_are_told_too() -> None:
    heard: list[Event] = []
    EventPublisher(three(), BEGAN_US, heard.append, [(9_000_000, DOWN)]).stop(BEGAN_US + 1)
    assert [type(event) for event in heard] == [Progress, KillMissed, Finished]
    assert heard[-1] == Finished(at_us=1, stopped=True)


def test_a_standby_that_is_not_ready_is_told_with_its_reason() -> None:
    heard: list[Event] = []
    report = Report(ReportKind.STANDBY_UNREADY, MIDDLE, {"checkpoint": 3, "reason": "a chunk is damaged"})
    events = told(
        EventPublisher(three(), BEGAN_US, heard.append), heard, CoordinatorNews(reports=[(BEGAN_US + 7, report)])
    )
    assert events[0] == StandbyUnready(at_us=7, task=MIDDLE, checkpoint=3, reason="a chunk is damaged")


def test_checkpoints_that_cannot_be_deleted_are_told_with_the_reason() -> None:
    heard: list[Event] = []
    report = Report(ReportKind.DELETION_FAILED, None, {"reason": "a is stuck"})
    events = told(
        EventPublisher(three(), BEGAN_US, heard.append), heard, CoordinatorNews(reports=[(BEGAN_US + 7, report)])
    )
    assert events[0] == DeletionFailed(at_us=7, reason="a is stuck")


def test_a_lapse_is_told_with_the_checkpoint_since_which_rows_may_count_twice() -> None:
    heard: list[Event] = []
    report = Report(ReportKind.RESTARTED_WITHOUT_LOG, None, {"checkpoint": 3, "reason": "an orphan"})
    events = told(
        EventPublisher(three(), BEGAN_US, heard.append), heard, CoordinatorNews(reports=[(BEGAN_US + 7, report)])
    )
    assert events[0] == RestartedWithoutLog(at_us=7, checkpoint=3, reason="an orphan")


def last_progress(found: dict[int, tuple[TaskId, ProcessCounters]]) -> Progress:
    heard: list[Event] = []
    events = told(EventPublisher(three(), BEGAN_US, heard.append), heard, CoordinatorNews(counters={**found}), BEGAN_US)
    progress = events[-1]
    assert isinstance(progress, Progress)
    return progress


def test_the_newest_process_of_each_task_knows_what_was_counted() -> None:
    dead = counters(Observed(counts={"seen.late_rows": 5}))
    replacement = counters(Observed(counts={"seen.late_rows": 4}), Observed(counts={"seen.late_rows": 7}))
    standby = counters()
    other = counters(Observed(counts={"seen.late_rows": 100, "seen.dead_letters": 1}))
    found = {2: (MIDDLE, dead), 11: (MIDDLE, replacement), 12: (MIDDLE, standby), 4: (TaskId("middle", 1), other)}
    assert last_progress(found).counts == {"seen.late_rows": 107, "seen.dead_letters": 1}


def test_a_vertex_lags_as_far_as_the_task_whose_watermark_is_farthest_behind() -> None:
    near = counters(Observed(events=1, watermark=BEGAN_US - 20), Observed(events=1, watermark=BEGAN_US - 10))
    far = counters(Observed(events=1, watermark=BEGAN_US - 3_000_000))
    found = {1: (UP, counters(Observed(events=1))), 2: (MIDDLE, near), 3: (TaskId("middle", 1), far)}
    assert [vertex.lag_us for vertex in last_progress(found).vertices] == [None, 3_000_000, None]


def test_what_a_failure_puts_at_stake_is_told_by_the_task_and_not_by_its_standby() -> None:
    heard: list[Event] = []
    publisher = EventPublisher(three(), 0, heard.append)
    publisher.publish(CoordinatorNews(counters={1: (MIDDLE, at_stake(True, 70))}), 10)
    publisher.publish(CoordinatorNews(counters={2: (MIDDLE, at_stake(False, 0))}), 20)
    publisher.publish(CoordinatorNews(crashes=[(30, MIDDLE)]), PROGRESS_US + 10)
    assert [event.frames_at_stake for event in heard if isinstance(event, Progress)] == [{MIDDLE: 70}] * 2
    assert [event.frames_at_stake for event in heard if isinstance(event, TaskFailed)] == [70]
