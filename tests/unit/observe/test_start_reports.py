"""Lines that tell what a run waits for before its tasks run."""

from __future__ import annotations

import io
from collections.abc import Mapping

from rich.console import Console

from clonos_py.model.coordinator_events import Deployed, Deploying, Finished
from clonos_py.model.ids import TaskId
from clonos_py.observe.console import watch
from clonos_py.observe.events import CoordinatorAwaited, Event, Preparing
from clonos_py.observe.start_reports import StartReports
from clonos_py.observe.status import RunStatus
from tests.waiting import wait_until


def lines(seen: Mapping[int, str | None], until_s: int, detail: str = "") -> dict[int, str]:
    """What is printed at which second. ``seen``: what the run waits for from a second on."""
    reports, waits_for, found = StartReports(), None, {}
    for second in range(until_s):
        waits_for = seen.get(second, waits_for)
        if (line := reports.line(waits_for, detail, second)) is not None:
            found[second] = line
    return found


def test_a_wait_is_named_after_two_seconds_and_then_every_ten() -> None:
    assert lines({3: "starting Ray"}, 27) == {
        5: "starting Ray, 2 s so far",
        15: "starting Ray, 12 s so far",
        25: "starting Ray, 22 s so far",
    }


def test_what_takes_less_than_two_seconds_is_not_named() -> None:
    assert lines({0: "starting Ray", 1: "starting the coordinator", 2: None}, 30) == {}


def test_each_thing_that_is_waited_for_is_named() -> None:
    assert list(lines({0: "starting Ray", 4: "starting the coordinator"}, 10)) == [2, 6]


def test_many_short_waits_are_reported_as_well() -> None:
    assert list(lines({second: f"starting processes: {second} are up" for second in range(25)}, 25)) == [10, 20]


def test_a_second_wait_of_a_run_is_named_after_two_seconds() -> None:
    assert list(lines({0: "starting Ray", 3: None, 50: "starting the coordinator", 53: None}, 60)) == [2, 52]


def test_the_line_has_what_is_seen_meanwhile() -> None:
    assert lines({0: "starting the coordinator"}, 3, "no worker process starts") == {
        2: "starting the coordinator, 2 s so far (no worker process starts)"
    }


def waits_for(*events: Event) -> tuple[str | None, str]:
    status = RunStatus()
    for event in events:
        status.on(0, event)
    return status.waits_for


def test_a_run_waits_for_its_platform_then_the_coordinator_then_processes() -> None:
    starting, deploying = Preparing(doing="starting Ray"), Deploying(3, 13, 2, TaskId("window", 0))
    awaited = CoordinatorAwaited(waited_us=2_000_000, seen="no worker process starts")
    assert waits_for() == (None, "")
    assert waits_for(starting) == ("starting Ray", "")
    assert waits_for(starting, awaited) == ("starting the coordinator", "no worker process starts")
    named = "starting processes: 3 are up, none yet for window[0] and 1 more task"
    assert waits_for(starting, awaited, deploying) == (named, "")
    assert waits_for(starting, deploying, Deployed(2, 2)) == (None, "")
    assert waits_for(starting, deploying, Deployed(2, 2), awaited)[0] == "starting the coordinator"
    assert waits_for(starting, Finished(stopped=True)) == (None, "")


def test_a_local_run_waits_for_nothing() -> None:
    assert waits_for(Deploying(0, 3, 2, TaskId("window", 0))) == (None, "")


def test_a_run_without_a_terminal_prints_what_it_waits_for() -> None:
    printed = io.StringIO()
    with watch("hot", console=Console(file=printed)) as listener:
        listener(0, Preparing(doing="starting Ray"))
        wait_until(printed.getvalue)
    assert ": starting Ray, " in printed.getvalue()
