"""Instructions of the coordinator that later ones of the same step have overtaken."""

from __future__ import annotations

from typing import Any

import pytest

from clonos_py.job.events import EndJob, OpenGeneration, Send
from clonos_py.model.coordinator_events import CoordinatorEvent, StorageAwaited
from clonos_py.model.errors import CheckpointError, StorageUnavailableError
from clonos_py.model.ids import Attempt
from clonos_py.model.messages import Promote, Restore, Stop
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


class Storage(Recorded):
    """An environment whose storage gives no answer ``silences`` times, and then fails if there is a ``problem``."""

    def __init__(self, silences: int, problem: CheckpointError | None = None, interrupted: bool = False) -> None:
        super().__init__()
        self.silences, self.problem, self.interrupted = silences, problem, interrupted
        self.opened: list[int] = []
        self.reported: list[CoordinatorEvent] = []
        self.ended: list[EndJob] = []

    def open_generation(self, generation: int) -> None:
        self.silences -= 1
        if self.silences >= 0:
            raise StorageUnavailableError(f"no answer, {self.silences} to come")
        if self.problem is not None:
            raise self.problem
        self.opened.append(generation)

    def is_interrupted(self) -> bool:
        return self.interrupted

    def report(self, event: CoordinatorEvent) -> None:
        self.reported.append(event)

    def end(self, end: EndJob) -> None:
        self.ended.append(end)


def test_a_generation_is_opened_as_soon_as_storage_answers() -> None:
    storage: Any = Storage(3)
    JobExecutor(storage, storage).carry_out([OpenGeneration(7), Send(7, Stop(""))])
    assert (storage.opened, storage.sent, storage.ended) == ([7], [7], [])
    assert storage.reported == [StorageAwaited(None, "no answer, 2 to come")], "the wait is reported once"


@pytest.mark.parametrize("storage", [Storage(3, CheckpointError("replaced")), Storage(1, interrupted=True)])
def test_a_generation_that_cannot_be_opened_ends_the_job(storage: Any) -> None:
    JobExecutor(storage, storage).carry_out([OpenGeneration(7)])
    (end,) = storage.ended
    assert (end.error, end.message) in {
        ("CheckpointError", "replaced"),
        ("StorageUnavailableError", "no answer, 0 to come"),
    }


def test_a_process_that_was_given_up_since_its_promotion_is_no_error() -> None:
    recorded: Any = Recorded()
    JobExecutor(recorded, recorded).carry_out([Send(7, Promote(1, Attempt(1, 1), Restore(0), []))])
    assert recorded.sent == [7]
