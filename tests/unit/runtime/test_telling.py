from __future__ import annotations

from typing import Any

from clonos_py.model.ids import TaskId
from clonos_py.observe.events import Event, TaskFailed
from clonos_py.runtime.telling import News, Teller
from tests.unit.task.plans import three

MIDDLE = TaskId("middle", 0)


def counters(active: int, at_stake: int) -> dict[str, Any]:
    counted = dict.fromkeys(("events", "rows_out", "in_flight_bytes", "log_bytes", "data_bytes", "delta_bytes"), 0)
    return {**counted, "latency": {}, "counts": {}, "active": active, "frames_at_stake": at_stake}


def test_what_a_failure_puts_at_stake_is_told_by_the_task_and_not_by_its_standby() -> None:
    told: list[Event] = []
    teller = Teller(three(), 0, told.append)
    teller.tell(News(counters={1: (MIDDLE, counters(1, 70))}), 10)
    teller.tell(News(counters={2: (MIDDLE, counters(0, 0))}), 20)
    teller.tell(News(crashes=[(30, MIDDLE)]), 30)
    assert [event.frames_at_stake for event in told if isinstance(event, TaskFailed)] == [70]
