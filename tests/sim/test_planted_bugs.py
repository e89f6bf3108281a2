"""Checks that cannot fail are defects: each protocol bug, planted once, must be found by the simulator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from clonos_py.causal.determinants import Abort, Linger, Merged, Order, TimerFired
from clonos_py.causal.gate import Gate
from clonos_py.causal.log import CausalStore
from clonos_py.channel.inflight import InFlightLog
from clonos_py.job.checkpoints import Checkpoints
from clonos_py.job.rounds import Rounds
from clonos_py.model.segments import Segment
from clonos_py.runtime.sim.run import simulate
from clonos_py.task.epochs import Epochs
from clonos_py.task.link import LinkMachine
from clonos_py.task.machine import TaskMachine
from clonos_py.task.receiving import InputChannel
from clonos_py.task.sending import OutputChannel
from clonos_py.task.timers import Timers

SEEDS_MAX = 2_000
"""Most bugs are found by the first seeds; those that need one failure at one moment of another by one in 250."""

Patch = Callable[[pytest.MonkeyPatch], None]
BUGS: dict[str, Patch] = {}


def bug(plant: Patch) -> Patch:
    BUGS[plant.__name__] = plant
    return plant


def unlogged(kind: type) -> Patch:
    """The choice is made live, and nobody is told."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        record = Gate.record
        patch.setattr(Gate, "record", lambda self, d: None if isinstance(d, kind) else record(self, d))

    return plant


BUGS["arrival order is not logged"] = unlogged(Order)
BUGS["timers are not logged"] = unlogged(TimerFired)
BUGS["linger cuts are not logged"] = unlogged(Linger)
BUGS["aborts are not logged"] = unlogged(Abort)


@bug
def frames_taken_together_are_logged_one_by_one(patch: pytest.MonkeyPatch) -> None:
    record = Gate.record

    def one_by_one(self: Gate, determinant: Any) -> None:
        record(self, Order(determinant.channel, determinant.count) if isinstance(determinant, Merged) else determinant)

    patch.setattr(Gate, "record", one_by_one)


@bug
def random_seed_is_drawn_anew_on_replay(patch: pytest.MonkeyPatch) -> None:
    seed = Gate.seed

    def drawn_anew(self: Gate, live: Callable[[], int]) -> int:
        seed(self, live)
        return live()

    patch.setattr(Gate, "seed", drawn_anew)


@bug
def time_is_read_anew_on_replay(patch: pytest.MonkeyPatch) -> None:
    now = Gate.now

    def read_anew(self: Gate, live: Callable[[], int]) -> int:
        now(self, live)
        return live()

    patch.setattr(Gate, "now", read_anew)


@bug
def services_are_asked_again_on_replay(patch: pytest.MonkeyPatch) -> None:
    ask = Gate.ask

    def asked_again(self: Gate, kind: str, live: Callable[[], Any]) -> Any:
        ask(self, kind, live)
        return live()

    patch.setattr(Gate, "ask", asked_again)


@bug
def frames_leave_without_determinants(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OutputChannel, "_delta", lambda self, store: [])


@bug
def determinants_leave_one_frame_too_late(patch: pytest.MonkeyPatch) -> None:
    delta = OutputChannel._delta
    held: dict[int, list[Segment]] = {}

    def late(self: OutputChannel, store: CausalStore) -> list[Segment]:
        before, held[id(self)] = held.get(id(self), []), delta(self, store)
        return before

    patch.setattr(OutputChannel, "_delta", late)


@bug
def in_flight_log_is_truncated_one_epoch_early(patch: pytest.MonkeyPatch) -> None:
    truncate = InFlightLog.truncate
    patch.setattr(InFlightLog, "truncate", lambda self, checkpoint: truncate(self, checkpoint + 1))


@bug
def causal_log_is_truncated_one_epoch_early(patch: pytest.MonkeyPatch) -> None:
    truncate = CausalStore.truncate

    def early(self: CausalStore, checkpoint: int) -> None:
        truncate(self, checkpoint + 1 if checkpoint else 0)

    patch.setattr(CausalStore, "truncate", early)


@bug
def a_receiver_asks_for_one_frame_too_many(patch: pytest.MonkeyPatch) -> None:
    receive = InputChannel.receive

    def off_by_one(self: InputChannel, header: Any) -> None:
        receive(self, header)
        if header.seq % 13 == 5:
            self.next_seq -= 1

    patch.setattr(InputChannel, "receive", off_by_one)


@bug
def replay_starts_before_survivors_have_answered(patch: pytest.MonkeyPatch) -> None:
    tell = Rounds._tell_everybody

    def hasty(self: Rounds, round_: Any, promoted: Any) -> None:
        tell(self, round_, promoted)
        round_.awaited.clear()

    patch.setattr(Rounds, "_tell_everybody", hasty)


@bug
def a_checkpoint_completes_without_its_last_task(patch: pytest.MonkeyPatch) -> None:
    acknowledge = Checkpoints.acknowledge

    def hasty(self: Checkpoints, handle: Any, generation: int) -> Any:
        manifest = acknowledge(self, handle, generation)
        pending = self.pending
        if manifest is None and pending and len(pending.handles) == len(self._plan.tasks) - 1 and self.manifest:
            for old in self.manifest.tasks:
                pending.handles.setdefault(old.task, old)
            pending.writing = True
            return self._manifest(pending, generation)
        return manifest

    patch.setattr(Checkpoints, "acknowledge", hasty)


@bug
def timers_are_lost_with_the_task(patch: pytest.MonkeyPatch) -> None:
    take_state = TaskMachine._take_state

    def forgetful(self: TaskMachine, item: Any) -> None:
        take_state(self, item)
        self._shared.timers.clear()

    patch.setattr(TaskMachine, "_take_state", forgetful)


@bug
def a_timer_fires_again_after_replay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Timers, "remove", lambda self, operator, at_us: None)


@bug
def sinks_commit_before_the_checkpoint_is_complete(patch: pytest.MonkeyPatch) -> None:
    persisted = LinkMachine._on_persisted
    handlers = dict(LinkMachine._HANDLERS)

    def hasty(self: LinkMachine, event: Any) -> None:
        persisted(self, event)
        from clonos_py.task import instructions as io

        self._out.append(io.Commit(event.handle.checkpoint, event.handle.committables))

    handlers[next(t for t, h in handlers.items() if h is persisted)] = hasty
    patch.setattr(LinkMachine, "_HANDLERS", handlers)


@bug
def what_an_aborted_checkpoint_prepared_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    def only_own(self: Epochs, checkpoint: int) -> dict[str, list[bytes]]:
        return {n: list(c) for n, c in self._prepared.get(checkpoint, {}).items()}

    patch.setattr(Epochs, "uncommitted", only_own)


@bug
def a_replacement_does_not_commit_what_its_checkpoint_names(patch: pytest.MonkeyPatch) -> None:
    start = LinkMachine._start

    def silent(self: LinkMachine) -> None:
        start(self)
        from clonos_py.task import instructions as io

        self._out[:] = [io.Commit(i.checkpoint, {}) if isinstance(i, io.Commit) else i for i in self._out]

    patch.setattr(LinkMachine, "_start", silent)


@bug
def a_finished_task_forgets_its_frames(patch: pytest.MonkeyPatch) -> None:
    entered = LinkMachine._on_entered
    handlers = dict(LinkMachine._HANDLERS)

    def forgets(self: LinkMachine, event: Any) -> None:
        entered(self, event)
        if event.state.name == "FINISHED":
            for output in self.outputs:
                while output.log._entries and output.log.first < output.log.acked:
                    output.log._drop_first()

    handlers[next(t for t, h in handlers.items() if h is entered)] = forgets
    patch.setattr(LinkMachine, "_HANDLERS", handlers)


@bug
def survivors_do_not_say_what_they_hold(patch: pytest.MonkeyPatch) -> None:
    of = CausalStore.of
    patch.setattr(CausalStore, "of", lambda self, task: of(self, task)[:-1])


@bug
def recovering_processes_are_not_asked_what_they_hold(patch: pytest.MonkeyPatch) -> None:
    tell = Rounds._tell_everybody

    def only_active(self: Rounds, round_: Any, promoted: Any) -> None:
        tell(self, round_, promoted)
        silent = {p.number for p in self._desk.fleet.processes.values() if p.role.name == "PROMOTED"}
        round_.awaited -= silent

    patch.setattr(Rounds, "_tell_everybody", only_active)


@pytest.mark.parametrize("name", list(BUGS))
def test_the_simulator_finds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    BUGS[name](monkeypatch)
    for seed in range(SEEDS_MAX):
        try:
            outcome = simulate(seed, kills=6)
        except (AttributeError, NameError):
            raise  # the bug is not planted: what it patches has another name now
        except Exception:  # noqa: BLE001 - a machine that trips over its own invariant has found the bug
            return
        if outcome.problems:
            return
    pytest.fail(f"{SEEDS_MAX} seeds did not find it")
