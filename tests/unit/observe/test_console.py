"""The display of a run: a live view on a terminal, the last lines into a pipe."""

from __future__ import annotations

import io

import msgspec
import pytest
from rich.console import Console

from clonos_py.model.coordinator_events import (
    CheckpointAborted,
    CheckpointCompleted,
    CheckpointSkipped,
    CodeChanged,
    DeletionFailed,
    Deployed,
    Deploying,
    Finished,
    FirstNewEffect,
    IntervalChosen,
    IntervalExceeded,
    Replayed,
    RestartedWithoutLog,
    RolledBack,
    StandbyActivated,
    StandbyUnready,
    TaskKeepsDying,
)
from clonos_py.model.ids import Attempt, TaskId
from clonos_py.model.user_metrics import MetricKind, UserMetric
from clonos_py.observe.console import summary, view, watch
from clonos_py.observe.events import (
    CheckpointsLeft,
    CoordinatorAwaited,
    Detected,
    Event,
    ImplausibleEventTimes,
    KillMissed,
    Preparing,
    Progress,
    Recovered,
    TaskFailed,
    VertexProgress,
)
from clonos_py.observe.log_lines import log_line
from clonos_py.observe.status import RunStatus, interval_text
from clonos_py.observe.units import bytes_text, duration_text

JOIN = TaskId("join", 0)


Timed = tuple[int, Event]


def progress(at_us: int, rows: int) -> Timed:
    vertices = (
        VertexProgress(vertex="bids", parallelism=2, rows_in=rows, rows_out=rows, reads=True),
        VertexProgress(vertex="join", parallelism=2, rows_in=rows, rows_out=0, rows_written=rows // 10, lag_us=14_000),
    )
    return at_us, Progress(vertices=vertices, in_flight_bytes=12_300_000)


STORY: tuple[Timed, ...] = (
    (0, Deployed(tasks=4, standbys=4)),
    progress(0, 0),
    progress(1_000_000, 2_500_000),
    (1_100_000, CheckpointCompleted(checkpoint=1, duration_ms=42.4, bytes=3_000_000)),
    (2_000_000, TaskFailed(task=JOIN, how="SIGKILL")),
    (2_012_000, Detected(task=JOIN)),
    (2_050_000, StandbyActivated(task=JOIN, attempt=Attempt(1, 1))),
    (2_200_000, Replayed(task=JOIN, rows=123_456)),
    (2_210_000, FirstNewEffect(task=JOIN)),
    (3_000_000, Recovered(task=JOIN)),
)


def drawn(status: RunStatus) -> str:
    console = Console(file=io.StringIO(), width=150)
    console.print(view("hot", status))
    text = console.file
    assert isinstance(text, io.StringIO)
    return text.getvalue()


def status_after(*events: Timed) -> RunStatus:
    status = RunStatus()
    for at_us, event in events:
        status.on(at_us, event)
    return status


def test_the_live_view_shows_rates_lag_checkpoints_and_recoveries() -> None:
    text = drawn(status_after(*STORY))
    assert "4 tasks, 4 standbys" in text
    assert "checkpoint 1: 42 ms, 3.0 MB" in text
    assert "12.3 MB retained" in text
    assert "2,500,000" in text
    assert "250,000" in text
    assert "14 ms" in text
    assert "join[0] failed (SIGKILL): detected after 12 ms, standby activated after 50 ms" in text


def test_the_live_view_shows_the_event_time_of_old_data_instead_of_a_lag() -> None:
    for lag_us, said in ((86_400_000_000 * 400, "at 2025-06-15 15:06"), (3_600_000_000, "60 min")):
        vertex = VertexProgress(
            vertex="join", parallelism=1, rows_in=1, rows_out=1, lag_us=lag_us, event_time_us=1_750_000_000_000_000
        )
        assert said in drawn(
            status_after((0, Deployed(tasks=1, standbys=1)), (1, Progress(vertices=(vertex,), in_flight_bytes=0)))
        )


CHOSEN = IntervalChosen(4.2, 4.2, None, 0.012, 0.48, 12.5, 3 / 60, 0.9531)
CHOSEN_TEXT = (
    "checkpoint interval 4.2 s: a checkpoint costs 12 ms, a restart takes 480 ms, replays run at 12.5 times normal "
    "speed, a failure every 20 s; utilization so far 95.31%"
)


def test_an_interval_that_the_job_chooses_is_shown_with_what_it_follows_from() -> None:
    assert CHOSEN_TEXT in " ".join(drawn(status_after(STORY[0], (1, CHOSEN))).split())
    assert f"  {CHOSEN_TEXT}" in list(summary("hot", status_after(*STORY, (2, CHOSEN), (4_000_000, Finished()))))
    bounded = interval_text(IntervalChosen(1, 0.25, "checkpoint_interval_min", 1e-5, None, None, 1 / 86_400, 1))
    assert bounded == (
        "checkpoint interval 1 s instead of 250 ms, bound by checkpoint_interval_min: a checkpoint costs 10 us, a "
        "failure every 1 d; utilization so far 100.00%"
    )


def test_lines_report_an_interval_only_if_it_has_changed_much() -> None:
    status, said = RunStatus(), []
    for interval_s in (5.0, 5.5, 4.5, 7.0, 6.0):
        event = msgspec.structs.replace(CHOSEN, interval_s=interval_s)
        status.on(1, event)
        said += [line[1].split(":")[0] for line in [log_line(status, 1, event)] if line]
    assert said == ["checkpoint interval 5 s", "checkpoint interval 7 s"]


def test_the_live_view_can_be_drawn_before_any_event() -> None:
    assert "deploying" in drawn(RunStatus())


def test_the_live_view_shows_which_processes_start_before_the_job_runs() -> None:
    starting = (0, Preparing(doing="starting Ray"))
    assert "starting Ray" in drawn(status_after(starting))
    some = (1, Deploying(up=3, processes=6, missing=3, awaited=JOIN))
    up = "starting processes: 3 are up"
    assert f"{up}, none yet for join[0] and 2 more tasks" in drawn(status_after(starting, some))
    assert f"{up}\n" in drawn(status_after((1, Deploying(up=3, processes=6, missing=0, awaited=None)))).replace(
        " \n", "\n"
    )
    assert up not in drawn(status_after(some, (2, Deployed(tasks=3, standbys=3))))


def test_a_recovery_is_timed_from_its_failure_and_counts_the_replayed_rows() -> None:
    (recovery,) = status_after(*STORY).recoveries
    times = (recovery.detected_ms, recovery.activated_ms, recovery.replayed_ms, recovery.first_new_effect_ms)
    assert times == (12, 50, 200, 210)
    assert (recovery.recovered_ms, recovery.rows_replayed, recovery.attempt) == (1_000, 123_456, Attempt(1, 1))


def test_a_task_that_moves_to_another_process_has_not_failed() -> None:
    moved = TaskFailed(task=JOIN, how="its process has another task", planned=True)
    assert "join[0] moved (its process has another task)" in drawn(status_after(STORY[0], (1, moved)))


def test_two_failures_of_one_task_are_two_recoveries() -> None:
    again = (4_000_000, TaskFailed(task=JOIN, how="SIGKILL"))
    status = status_after(*STORY, again, (4_030_000, Detected(task=JOIN)))
    assert [recovery.detected_ms for recovery in status.recoveries] == [12, 30]


def test_an_abort_and_a_rollback_are_shown_with_their_reasons() -> None:
    text = drawn(
        status_after(
            *STORY,
            (3_000_000, CheckpointAborted(checkpoint=2, reason="timed out after 10s")),
            (3_100_000, RolledBack(checkpoint=1, reason="determinants of join[0] are lost")),
        )
    )
    assert "checkpoint 2 aborted: timed out after 10s" in text
    assert "rolled back to checkpoint 1: determinants of join[0] are lost" in text


def test_the_wait_for_a_coordinator_is_one_line_until_it_has_started() -> None:
    waits = [(0, CoordinatorAwaited(waited_us=s * 1_000_000, seen="1 worker process starting")) for s in (5, 15)]
    text = drawn(status_after(*waits))
    assert "waiting for Ray to start the coordinator: 15 s so far (1 worker process starting)" in text
    assert "5 s so far (" not in text.replace("15 s so far (", "")
    assert "waiting" not in drawn(status_after(*waits, (1, Deployed(tasks=1, standbys=1))))


def test_a_lapse_of_exactly_once_is_shown_at_once_and_in_the_summary() -> None:
    status = status_after(
        *STORY,
        (3_100_000, RestartedWithoutLog(checkpoint=1, reason="b[0] depends on a[0]")),
        (4_000_000, Finished()),
    )
    line = "exactly-once lost, rows sent since checkpoint 1 may count twice: b[0] depends on a[0]"
    assert line in drawn(status)
    first, *rest = summary("hot", status)
    assert first.endswith("1 checkpoint, 1 recovery, 1 lapse of exactly-once")
    assert f"  {line}" in rest


def test_a_task_that_keeps_dying_is_shown_at_once() -> None:
    status = status_after(*STORY[:4], (2_000_000, TaskKeepsDying(task=JOIN, times=5, how="killed")))
    (line,) = status.news
    assert line.startswith("join[0] has died 5 times without a completed checkpoint in between (killed): if it dies")


def test_unfulfilled_orders_are_in_the_summary() -> None:
    lines = watched(
        False,
        *STORY[:4],
        (1_200_000, StandbyUnready(task=JOIN, checkpoint=1, reason="a chunk is damaged")),
        (1_300_000, IntervalExceeded(task=JOIN, asked_ms=300, kept_ms=1_234.5)),
        (1_300_000, DeletionFailed(reason="a is stuck")),
        (5_000_000, KillMissed(task=JOIN, after_us=60_000_000)),
        (5_000_000, Finished()),
    ).splitlines()
    (finished,) = [number for number, line in enumerate(lines) if line.startswith("hot finished")]
    assert lines[finished + 1 :] == [
        "  the standby of join[0] could not load checkpoint 1: a chunk is damaged",
        "  the checkpoint interval of 0.3 s is not kept: snapshots of join[0] become durable more slowly, and it takes"
        " one every 1.23 s",
        "  old checkpoints are not deleted, which is tried again with each new one: a is stuck",
        "  kill of join[0] at 60s never happened: the job had ended",
    ]


@pytest.mark.parametrize(
    ("amount", "live", "last"),
    [
        (1, "", "1 checkpoint was skipped, as the one before was not complete"),
        (4, "3 checkpoints in a row were skipped, and checkpoint 7 is not complete after 6 s",
         "4 checkpoints were skipped, as the one before was not complete"),
    ],
)  # fmt: skip
def test_skipped_checkpoints_are_counted_and_many_in_a_row_are_shown_at_once(amount: int, live: str, last: str) -> None:
    skips = [
        (n * 2_000_000, CheckpointSkipped(pending=7, pending_ms=2_000 * n, asked_ms=2_000, in_a_row=n))
        for n in range(1, amount + 1)
    ]
    begin = "the checkpoint interval of 2 s is not kept: "
    status = status_after(*STORY[:4], *skips, (9_000_000, Finished()))
    assert list(status.news)[-1:] == [begin + live] * bool(live)
    assert f"  {begin}{last}" in summary("hot", status)


def test_late_rows_and_dead_letters_are_in_the_summary() -> None:
    counts = {"window-2.late_rows": 1_234, "files.rows_out": 99, "parse.dead_letters": 7, "parse.late_rows": 0}
    last = (5_000_000, Progress(vertices=(), in_flight_bytes=0, counts=counts))
    lines = watched(False, last, (5_000_000, Finished())).splitlines()
    assert lines[1:] == ["  counted: 7 dead letters in parse, 1,234 late rows in window-2"]


def test_metrics_of_functions_are_in_the_summary() -> None:
    metrics = {
        "enrich.depth": {0: UserMetric(MetricKind.GAUGE, 3), 1: UserMetric(MetricKind.GAUGE, 0.25)},
        "enrich.orders": {0: UserMetric(MetricKind.COUNTER, 1_000), 1: UserMetric(MetricKind.COUNTER, 234.5)},
        "parse.load": {0: UserMetric(MetricKind.GAUGE, 2.0)},
        "parse.sizes": {0: UserMetric(MetricKind.HISTOGRAM, 9, (5.0,), (1, 1))},
    }
    last = (5_000_000, Progress(vertices=(), in_flight_bytes=0, metrics=metrics))
    lines = watched(False, last, (5_000_000, Finished())).splitlines()
    assert lines[1:] == [
        "  measured: depth 0.25 to 3 in enrich, orders 1,234.5 in enrich, load 2 in parse, "
        "sizes 4.5 on average of 2 in parse"
    ]


@pytest.mark.parametrize(
    ("duration_us", "text"),
    [
        (-5, "0 ms"),
        (14_000, "14 ms"),
        (9_999_000, "9,999 ms"),
        (12_000_000, "12 s"),
        (86_400_000_000 * 4_000, "4,000 d"),
    ],
)
def test_durations_are_shown_in_a_suitable_unit(duration_us: int, text: str) -> None:
    assert duration_text(duration_us) == text


def watched(terminal: bool, *events: Timed) -> str:
    text = io.StringIO()
    with watch("hot", console=Console(file=text, force_terminal=terminal, width=150)) as listener:
        for at_us, event in events:
            listener(at_us, event)
    return text.getvalue()


def test_a_piped_run_prints_its_summary() -> None:
    lines = watched(False, *STORY, (5_000_000, Finished())).splitlines()[-2:]
    assert lines[0] == "hot finished after 5.0 s, 2,500,000 rows read, 250,000 written in all, 1 checkpoint, 1 recovery"
    assert lines[1].startswith("  join[0] failed (SIGKILL): detected after 12 ms")


def test_a_terminal_shows_the_live_view_and_the_summary() -> None:
    text = watched(True, *STORY, (5_000_000, Finished()))
    assert "rows in/s" in text
    assert "hot finished after 5.0 s" in text


def interrupt_watched(console: Console) -> None:
    with watch("hot", console=console) as listener:
        listener(2_000_000, Finished(stopped=True))
        raise KeyboardInterrupt


def test_an_interrupted_run_has_a_summary() -> None:
    text = io.StringIO()
    with pytest.raises(KeyboardInterrupt):
        interrupt_watched(Console(file=text, width=150))
    assert text.getvalue() == "hot stopped after 2.0 s\n"


def test_implausible_event_times_are_a_warning_at_once() -> None:
    text = io.StringIO()
    with watch("hot", console=Console(file=text, width=20)) as listener:
        reason = "source 'bids': event time 'at' is 1970-01-21 12:18:43, before 1990"
        listener(0, ImplausibleEventTimes(source="bids", column="at", value_us=5, reason=reason))
        assert text.getvalue() == f"warning: {reason}\n"


def test_a_failed_run_has_no_summary() -> None:
    assert not [line for line in watched(False, *STORY).splitlines() if "finished" in line or line.startswith("  ")]


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (999, "999 B"), (1_234_567, "1.2 MB"), (5 * 10**15, "5000.0 TB")]
)
def test_bytes_are_shown_in_a_suitable_unit(size: int, text: str) -> None:
    assert bytes_text(size) == text


def test_a_run_that_resumed_with_other_code_says_so_in_one_line() -> None:
    text = io.StringIO()
    with watch("hot", console=Console(file=text, width=200)) as listener:
        listener(0, CodeChanged(checkpoint=7))
        listener(1_000_000, Finished())
    assert text.getvalue().endswith(
        "hot finished after 1.0 s\n  the code has changed since checkpoint 7, from which this run went on\n"
    )


def test_checkpoints_of_a_killed_run_are_named_with_the_option_that_resumes_from_them() -> None:
    left = (0, CheckpointsLeft(folder="/tmp/clonos-checkpoints-x", checkpoint=7))
    line = (
        "an earlier run was killed after checkpoint 7: to continue from there, run the job with "
        "--checkpoints /tmp/clonos-checkpoints-x"
    )
    assert line in watched(False, left, *STORY[:4], (5_000_000, Finished())).splitlines()[-1]
