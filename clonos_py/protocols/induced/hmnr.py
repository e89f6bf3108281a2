"""HMNR (communication-induced checkpoints; E10): decides when frames force a task to take a snapshot first.

Helary, Mostefaoui, Netzer and Raynal: *Communication-based prevention of useless checkpoints in distributed
computations*, Distributed Computing 13 (2000). Processes are tasks, messages are frames. A checkpoint of a task is
*useless* if it is part of no recovery line. This is so if it lies on a Z-cycle: a chain of messages that starts after
the checkpoint and ends before it, in which each message is sent in the checkpoint interval in which the previous one
was received, or in a later one. Every frame carries a stamp. A task whose next frame might close a Z-cycle takes a
checkpoint first.

Guarantee: if every task calls ``must_force`` before it takes frames, no checkpoint of any task is useless. The state is
saved with every snapshot, and a frame that is sent again carries its original stamp. The caller keeps to one order:

    before frames are taken:    must_force, if so a snapshot; then took for each frame, in the order in which they came
    when a frame is cut:        sent, then stamp
    when a snapshot is taken:   snapshot, then encode, which goes into it

Vectors of booleans are integers, with bit k for task k.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from clonos_py.channel.stamps import HmnrStamp, packed, unpacked
from clonos_py.model.errors import CodecError, ProtocolError


class _Saved(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The state in a snapshot; vectors of booleans as bytes, lowest first."""

    task: int
    clock: int
    sent_to: bytes
    greater: bytes
    taken: bytes
    checkpoints: tuple[int, ...]


_decoder = msgspec.msgpack.Decoder(_Saved)


class Hmnr:
    """The state of one of ``tasks`` tasks. A new state is that right after the initial checkpoint."""

    def __init__(self, task: int, tasks: int) -> None:
        self.task, self.tasks = task, tasks
        self.clock = 1
        """A Lamport clock, which checkpoints advance and stamps carry (``lc``)."""
        self.sent_to = 0
        """The tasks to which this task has sent frames since its last checkpoint."""
        self.greater = 0
        """The tasks whose clock is behind that of this task, by the stamps taken so far."""
        self.taken = 0
        """For task k: whether a chain of messages that includes a checkpoint leads from the last checkpoint of k that a
        stamp named to the next checkpoint of this task."""
        self.checkpoints = tuple(int(k == task) for k in range(tasks))
        """The number of checkpoints that each task has taken, by the stamps taken so far (``ckpt``)."""
        self._own = 1 << task
        self._others = (1 << tasks) - 1 & ~self._own
        self._stamp: HmnrStamp | None = None

    # ---- frames are taken

    def must_force(self, stamps: Iterable[HmnrStamp]) -> bool:
        """Whether a checkpoint is needed before frames with these stamps are taken together. Each frame is checked as
        if the frames before it had been taken. If one needs a checkpoint, it is taken before all of them."""
        clock, own = self.clock, self.checkpoints[self.task]
        for stamp in stamps:
            if self.sent_to & stamp.greater and stamp.clock > clock:
                return True
            if stamp.taken & self._own and stamp.checkpoints[self.task] == own:
                return True
            clock = max(clock, stamp.clock)
        return False

    def took(self, stamp: HmnrStamp) -> None:
        """Records that a frame with this stamp was taken. Raises ProtocolError if it depends on checkpoints that this
        task has not taken, since then state was lost."""
        if stamp.checkpoints[self.task] > self.checkpoints[self.task]:
            raise ProtocolError(
                f"a frame depends on checkpoint {stamp.checkpoints[self.task]} of task {self.task}, "
                f"which has taken {self.checkpoints[self.task]}"
            )
        if stamp.clock > self.clock:
            self.clock, self.greater = stamp.clock, stamp.greater & self._others
        elif stamp.clock == self.clock:
            self.greater &= stamp.greater
        newer, older = _compared(stamp.checkpoints, self.checkpoints)
        self.taken = (self.taken & ~newer | stamp.taken & ~older) & self._others
        if newer:
            self.checkpoints = tuple(map(max, self.checkpoints, stamp.checkpoints))
        self._stamp = None

    # ---- frames are cut

    def sent(self, receiver: int) -> None:
        """Records that a frame for task ``receiver`` was cut."""
        self.sent_to |= 1 << receiver

    def stamp(self) -> HmnrStamp:
        """The stamp of a frame that is cut now."""
        if self._stamp is None:
            self._stamp = HmnrStamp(self.clock, self.greater, self.taken, self.checkpoints)
        return self._stamp

    # ---- snapshots

    def snapshot(self) -> None:
        """Records that a checkpoint was taken, forced or not."""
        self.sent_to = 0
        self.taken = self.greater = self._others
        self.clock += 1
        counts = list(self.checkpoints)
        counts[self.task] += 1
        self.checkpoints = tuple(counts)
        self._stamp = None

    def encode(self) -> bytes:
        """The state, for a snapshot."""
        sent_to, greater, taken = (packed(bits, self.tasks) for bits in (self.sent_to, self.greater, self.taken))
        return msgspec.msgpack.encode(_Saved(self.task, self.clock, sent_to, greater, taken, self.checkpoints))

    @staticmethod
    def decode(data: bytes) -> Hmnr:
        """Reads an encoded state. Raises CodecError on any other bytes."""
        try:
            saved = _decoder.decode(data)
            tasks = len(saved.checkpoints)
            if not 0 <= saved.task < tasks:
                raise ValueError(f"task {saved.task} of {tasks}")
            state = Hmnr(saved.task, tasks)
            state.clock, state.checkpoints = saved.clock, saved.checkpoints
            state.sent_to = unpacked(saved.sent_to, tasks)
            state.greater = unpacked(saved.greater, tasks)
            state.taken = unpacked(saved.taken, tasks)
            if (state.greater | state.taken) & state._own:
                raise ValueError("a task is compared with itself")
            if state.clock < 1 or min(state.checkpoints) < 0 or state.checkpoints[state.task] < 1:
                raise ValueError("a task that has not taken its initial checkpoint")
        except (msgspec.MsgspecError, ValueError) as problem:
            raise CodecError(f"{len(data)} bytes are not the state of a checkpoint protocol: {problem}") from problem
        return state


def _compared(theirs: tuple[int, ...], ours: tuple[int, ...]) -> tuple[int, int]:
    """The bits of the tasks where ``theirs`` is greater, and where it is less."""
    newer = older = 0
    if theirs != ours:
        for task, (their, our) in enumerate(zip(theirs, ours, strict=True)):
            if their > our:
                newer |= 1 << task
            elif their < our:
                older |= 1 << task
    return newer, older
