"""Communication-induced checkpoints (HMNR): none is useless in any history; without forced ones some are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.channel.stamps import HmnrStamp
from clonos_py.model.errors import CodecError, ProtocolError
from clonos_py.protocols.induced.hmnr import Hmnr
from tests.checkpoint_histories import History, drawn_history

SEEDS, MANY = range(150), range(400)


def restored_from_its_snapshot(task: int, state: bytes) -> Hmnr:
    return Hmnr.decode(state)


def test_useless_checkpoints_are_exactly_those_on_no_recovery_line() -> None:
    found = 0
    for seed in range(100):
        history = drawn_history(seed, forces=False, tasks_max=3, steps=40)
        assert history.useless() == history.without_a_line(), seed
        found += len(history.useless())
    assert found > 40


def test_no_checkpoint_is_useless_in_any_history() -> None:
    forced = 0
    for seed in SEEDS:
        history = drawn_history(seed)
        assert not history.useless(), seed
        forced += history.forced
    assert forced > len(SEEDS), "some are forced in most histories"


def test_without_forced_checkpoints_some_are_useless() -> None:
    assert sum(bool(drawn_history(seed, forces=False).useless()) for seed in SEEDS) > len(SEEDS) // 4


def test_without_cycles_no_checkpoint_is_useless_and_forced_ones_are_pure_cost() -> None:
    forced = 0
    for seed in SEEDS:
        assert not drawn_history(seed, cyclic=False, forces=False).useless(), seed
        forced += drawn_history(seed, cyclic=False).forced
    assert forced


def test_no_checkpoint_is_useless_after_rollbacks() -> None:
    for seed in SEEDS:
        assert not drawn_history(seed, restored=restored_from_its_snapshot).useless(), seed


class _OnlyTheFirstCondition(Hmnr):
    def must_force(self, stamps: object) -> bool:
        own, self._own = self._own, 0
        try:
            return super().must_force(stamps)  # type: ignore[arg-type]
        finally:
            self._own = own


class _OnlyTheSecondCondition(Hmnr):
    def must_force(self, stamps: object) -> bool:
        sent_to, self.sent_to = self.sent_to, 0
        try:
            return super().must_force(stamps)  # type: ignore[arg-type]
        finally:
            self.sent_to = sent_to


class _MergesNothing(Hmnr):
    def took(self, stamp: HmnrStamp) -> None:
        pass


class _ForgetsWhatItSent(Hmnr):
    def sent(self, receiver: int) -> None:
        pass


@pytest.mark.parametrize("bug", [_OnlyTheFirstCondition, _OnlyTheSecondCondition, _MergesNothing, _ForgetsWhatItSent])
def test_each_part_of_the_rule_is_needed(bug: type[Hmnr], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.checkpoint_histories.Hmnr", bug)
    assert any(drawn_history(seed).useless() for seed in range(2_000))


class _Unchecked(Hmnr):
    """Accepts stamps that count more checkpoints than it has taken."""

    def took(self, stamp: HmnrStamp) -> None:
        checkpoints = list(stamp.checkpoints)
        checkpoints[self.task] = min(checkpoints[self.task], self.checkpoints[self.task])
        super().took(replace(stamp, checkpoints=tuple(checkpoints)))


@pytest.mark.parametrize(("bug", "useless", "refused"), [(_Unchecked, True, False), (Hmnr, False, True)])
def test_vectors_that_are_not_restored_cause_useless_checkpoints_or_errors(
    bug: type[Hmnr], useless: bool, refused: bool
) -> None:
    """A bug of the reference implementation, planted: vectors begin again after a rollback."""
    seen = {"useless": 0, "refused": 0}
    for seed in MANY:

        def restored(task: int, state: bytes) -> Hmnr:
            return bug(task, Hmnr.decode(state).tasks)

        try:
            seen["useless"] += bool(drawn_history(seed, steps=160, restored=restored).useless())
        except ProtocolError:
            seen["refused"] += 1
    assert {what: times > 10 for what, times in seen.items()} == {"useless": useless, "refused": refused}


@pytest.mark.parametrize("restored", [None, restored_from_its_snapshot])
def test_clocks_grow_along_messages_and_checkpoints(restored: Callable[[int, bytes], Hmnr] | None) -> None:
    """This is why there is no Z-cycle: clocks grow along every chain of messages, or there is a checkpoint."""
    for seed in range(100):
        history = drawn_history(seed, restored=restored)
        for saved in history.saved:
            clocks = [Hmnr.decode(state).clock for _, state in saved]
            assert all(earlier < later for earlier, later in pairwise(clocks))


def test_of_merged_frames_one_that_forces_a_checkpoint_forces_it_before_all() -> None:
    history = History(3, [(0, 1), (1, 0), (2, 0)])
    there, back, other = history.wires
    history.send(there)
    history.checkpoint(2)
    history.send(back)
    history.send(other)
    assert not history.machines[0].must_force(back.stamps)
    assert history.machines[0].must_force([*back.stamps, *other.stamps])
    history.take([back, other])
    assert (back.taken_in, other.taken_in) == ([1], [1])


def test_a_frame_taken_earlier_may_make_a_forced_checkpoint_unnecessary() -> None:
    """The frames are examined one after the other: the clock of one is that of the task for the next."""
    state = Hmnr(0, 3)
    state.sent(1)
    ahead = HmnrStamp(5, 0b000, 0, (0, 0, 5))
    behind = HmnrStamp(3, 0b010, 0, (0, 0, 0))
    assert state.must_force([behind, ahead])
    assert not state.must_force([ahead, behind])


def test_the_state_survives_a_snapshot() -> None:
    for seed in range(100):
        for machine in drawn_history(seed).machines:
            restored = Hmnr.decode(machine.encode())
            assert vars(restored) | {"_stamp": None} == vars(machine) | {"_stamp": None}
            assert restored.stamp() == machine.stamp()


SAVED = [1, 4, b"\x01", b"\x04", b"\x05", (2, 3, 0)]


def test_a_decoded_state_has_the_encoded_values() -> None:
    state = Hmnr.decode(msgspec.msgpack.encode(SAVED))
    assert (state.task, state.tasks, state.clock, state.sent_to) == (1, 3, 4, 1)
    assert state.stamp() == HmnrStamp(4, 4, 5, (2, 3, 0))


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (0, 3),
        (0, -1),
        (1, 0),
        (2, b"\x08"),
        (2, b""),
        (3, b"\x00\x00"),
        (3, b"\x02"),
        (4, b"\x02"),
        (5, (2, 0, 0)),
        (5, (2, 3, -1)),
        (5, ()),
    ],
)
def test_a_damaged_state_is_refused(place: int, value: object) -> None:
    damaged = [*SAVED[:place], value, *SAVED[place + 1 :]]
    with pytest.raises(CodecError, match="not the state of a checkpoint protocol"):
        Hmnr.decode(msgspec.msgpack.encode(damaged))


@given(st.binary() | st.recursive(st.integers(-(2**63), 2**64 - 1) | st.binary(), st.lists).map(msgspec.msgpack.encode))
def test_any_bytes_are_a_state_or_raise_codec_error(data: bytes) -> None:
    try:
        state = Hmnr.decode(data)
    except CodecError:
        return
    assert Hmnr.decode(state.encode()).stamp() == state.stamp()


def test_a_stamp_that_names_checkpoints_never_taken_is_refused() -> None:
    with pytest.raises(ProtocolError, match="checkpoint 2 of task 0, which has taken 1"):
        Hmnr(0, 2).took(HmnrStamp(2, 0, 0, (2, 1)))
