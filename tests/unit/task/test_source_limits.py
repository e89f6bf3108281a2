"""A source that is too far ahead of others does not read, and says how far it is."""

from __future__ import annotations

from dataclasses import replace

from clonos_py.causal.determinants import SourceEnd, SourceRead, Trigger
from clonos_py.model.ids import Attempt
from clonos_py.model.operators import EventTime
from clonos_py.model.plan import Partitioning
from clonos_py.model.times import MAX_TIME
from clonos_py.process.contract import Begin, SourceEndRequest, SourceLimit, TaskState, TriggerRequest, WatermarkReached
from tests.machines import task_machine
from tests.unit.task.given import Given
from tests.unit.task.plans import UP, Counting, Outside, three


class Run(Given):
    """A source of the numbers from 0, two a read, which are their event times."""

    def __init__(self, ahead: int | None) -> None:
        super().__init__()
        made = three((1, 1, 1), Partitioning.REBALANCE)
        up, *others = made.vertices
        assert up.source is not None
        source = replace(up.source, factory=lambda: Counting(12), event_time=EventTime(("key",), ahead_us=ahead))
        plan = replace(made, vertices=(replace(up, source=source), *others))
        self.machine = task_machine(plan, UP, Outside())
        self.machine.offer(Begin(Attempt(1, 1), (), ()))

    def reads(self, limit: int | None = None) -> int:
        """How many reads it does with this limit, before it waits or has ended."""
        if limit is not None:
            self.machine.offer(SourceLimit(limit))
        before = len(self.logged)
        for _ in range(20):
            self.events += self.machine.step(0).events
        return len(self.logged) - before

    @property
    def logged(self) -> list[SourceRead]:
        return [found for found in self.log if isinstance(found, SourceRead)]

    @property
    def reached(self) -> int:
        return self.of(WatermarkReached)[-1].reached_us


def test_it_reads_until_it_has_a_watermark_and_then_up_to_its_limit() -> None:
    run = Run(0)
    assert run.reads() == 1, "numbers 0 and 1: no limit is known"
    assert run.reads(1) == 1
    assert run.reached == 1
    assert run.reads(4) == 1, "up to 5"
    assert run.reads(4) == 0
    assert run.reads(MAX_TIME) == 3
    run.reads(0)
    assert run.reached == MAX_TIME, "it has ended"


def test_without_a_distance_it_reads_at_any_limit_of_its_own() -> None:
    assert Run(None).reads() == 6


def test_a_source_that_is_told_to_end_reads_no_further() -> None:
    run = Run(None)
    run.events += run.machine.step(0).events
    run.machine.offer(SourceEndRequest())
    assert run.reads() == 0
    assert isinstance(run.log[-1], SourceEnd)
    assert run.machine.state is TaskState.FINISHED


def test_checkpoints_go_on_while_it_waits() -> None:
    run = Run(0)
    run.reads()
    run.machine.offer(TriggerRequest(1))
    run.reads(0)
    assert any(isinstance(found, Trigger) for found in run.log)
