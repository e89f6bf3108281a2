"""Instructions of the coordinator that later ones of the same step have overtaken."""

from __future__ import annotations

from typing import Any

from clonos_py.job.events import Send
from clonos_py.model.ids import Attempt
from clonos_py.model.messages import Promote, Restore
from clonos_py.runtime.executors.job import JobExecutor


class Recorded:
    """An environment, and a coordinator whose process 7 has failed in the step in which it was promoted."""

    processes: dict[int, Any] = {}  # noqa: RUF012

    def __init__(self) -> None:
        self.sent: list[int] = []

    def now_us(self) -> int:
        return 0

    def send(self, number: int, message: object) -> None:
        self.sent.append(number)


def test_a_process_that_was_given_up_since_its_promotion_is_no_error() -> None:
    recorded: Any = Recorded()
    JobExecutor(recorded, recorded).carry_out([Send(7, Promote(1, Attempt(1, 1), Restore(0), []))])
    assert recorded.sent == [7]
