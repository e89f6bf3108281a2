"""Bugs of loops: what their heads wait for, what is stored of them, when they end, and what is logged."""

from __future__ import annotations

from functools import partial

import msgspec
import pytest

from clonos_py.job.loops import LoopEnds
from clonos_py.link.held_logs import HeldLogs
from clonos_py.link.machine import LinkMachine
from clonos_py.link.pressure import Pressure
from clonos_py.link.sending import OutputChannel
from clonos_py.model.ids import TaskId
from clonos_py.model.messages import HeldLogsReport, Probed, Sever
from clonos_py.model.plan import PhysicalPlan
from clonos_py.settings.protocols import UNCOORDINATED
from clonos_py.task.inputs import Inputs
from clonos_py.task.loops import LoopInputs, LoopMember
from tests.sim.planted.bug import Bugs
from tests.sim.planted.unaligned import snapshots_are_durable_without_the_frames_between_them

BUGS = Bugs()
in_loops = partial(BUGS.planted, cycles=True)


@in_loops(endless=True)
def the_head_of_a_loop_waits_for_the_barriers_of_its_feedback(patch: pytest.MonkeyPatch) -> None:
    """Those that come after its snapshot."""
    patch.setattr(LoopInputs, "all_blocked", Inputs.all_blocked)


@in_loops("crash")
def what_is_fed_back_is_not_stored(patch: pytest.MonkeyPatch) -> None:
    snapshots_are_durable_without_the_frames_between_them(patch)


@in_loops(endless=True)
def feedback_holds_tasks_back(patch: pytest.MonkeyPatch) -> None:
    """Each waits for the other to take its rows."""
    before = Pressure.__init__

    def crowded(self: Pressure, outputs: list[OutputChannel], *others: object) -> None:
        before(self, outputs, *others)  # type: ignore[arg-type]
        for output in outputs:
            output.feedback = False

    patch.setattr(Pressure, "__init__", crowded)


@in_loops()
def a_loop_ends_when_rows_are_on_their_way(patch: pytest.MonkeyPatch) -> None:
    """The coordinator does not see that some are cut and not taken."""
    answer = LoopEnds.answer

    def uncounted(self: LoopEnds, task: TaskId, message: Probed) -> None:
        nothing = {"cut": [0] * len(message.cut), "taken": [0] * len(message.taken)}
        answer(self, task, msgspec.structs.replace(message, **nothing))

    patch.setattr(LoopEnds, "answer", uncounted)


@in_loops()
def a_loop_ends_when_rows_wait_to_be_cut_or_are_in_work(patch: pytest.MonkeyPatch) -> None:
    counts = LoopMember.counts
    patch.setattr(
        LoopMember, "counts", lambda self, number, at_rest, epoch, cut: counts(self, number, True, epoch, cut)
    )


@in_loops(endless=True)
def heads_are_not_told_again_after_a_failure(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LoopEnds, "reset", lambda self: None)


@in_loops(protocol=UNCOORDINATED, endless=True)
def tasks_of_a_loop_connect_before_they_have_their_own_log(patch: pytest.MonkeyPatch) -> None:
    before = LinkMachine.__init__

    def as_others(self: LinkMachine, *given: object) -> None:
        with pytest.MonkeyPatch.context() as meanwhile:
            meanwhile.setattr(PhysicalPlan, "loop_of", lambda self, task: None)
            before(self, *given)  # type: ignore[arg-type]

    patch.setattr(LinkMachine, "__init__", as_others)


@in_loops(protocol=UNCOORDINATED)
def a_log_comes_without_that_of_its_holder_which_it_depends_on(patch: pytest.MonkeyPatch) -> None:
    """In a loop, the holder of a log may be a task upstream, too. If that task fails before it has sent its own log, no
    other process may hold that."""
    answer = HeldLogs.answer

    def without_own(self: HeldLogs, process: int, message: Sever) -> HeldLogsReport:
        found = answer(self, process, message)
        return HeldLogsReport(**{name: getattr(found, name) for name in found.__struct_fields__ if name != "own"})

    patch.setattr(HeldLogs, "answer", without_own)
