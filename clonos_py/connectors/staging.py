"""The two-phase part of transactional sinks (D16), whatever the medium: what is staged, named, and made visible when.

Rows of one epoch go into one staged piece. At the barrier it is closed and named; the committable lists *all* pieces
that are not yet visible, those of aborted checkpoints included, so that no epoch is forgotten when its checkpoint is.
A piece becomes visible under a name that depends only on operator, task and epoch, so that committing twice is
committing once. A replacement writes its predecessor's rows again, into pieces of its own; those that the dead left
behind are recognised at the next commit: begun before a checkpoint that is complete, and not named by it.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence

import msgspec

from clonos_py.model.errors import SinkError
from clonos_py.model.operators import OperatorContext, Output, Sink
from clonos_py.model.state import OperatorState

_numbers = itertools.count()


class StagedPiece(msgspec.Struct, frozen=True, array_like=True):
    """Rows of one epoch: where they are staged and the name under which they appear."""

    staged: str
    final: str


class Committable(msgspec.Struct, frozen=True, array_like=True):
    """What a checkpoint makes visible."""

    checkpoint: int
    pieces: list[StagedPiece]


class StagedSink(Sink):
    """Base of sinks that show rows only when their checkpoint is complete. Subclasses know the medium."""

    def open(self, ctx: OperatorContext, out: Output) -> None:
        super().open(ctx, out)
        self._pending: dict[str, StagedPiece] = {}
        self._checkpoint = 0

    def restore(self, parts: Sequence[OperatorState]) -> None:
        """What the checkpoint named is committed by whoever restores; all later rows will come again."""
        self._discard_open()
        self._pending = {}
        self._checkpoint = max((int(part.values["checkpoint"]) for part in parts), default=0)

    def snapshot(self) -> OperatorState:
        return OperatorState(values={"checkpoint": self._checkpoint})

    def prepare(self, checkpoint: int) -> bytes | None:
        staged = self._close_staged()
        if staged is not None:
            self._pending[staged] = StagedPiece(staged, self._final_name(checkpoint))
        self._checkpoint = checkpoint
        pieces = list(self._pending.values())
        return msgspec.msgpack.encode(Committable(checkpoint, pieces)) if pieces else None

    def commit(self, committable: bytes) -> None:
        try:
            named = msgspec.msgpack.decode(committable, type=Committable)
        except msgspec.DecodeError as error:
            raise SinkError(f"operator {self.ctx.operator!r}: the checkpoint names no staged rows ({error})") from error
        for piece in named.pieces:
            self._publish(piece)
            self._pending.pop(piece.staged, None)
        self._discard_before(named.checkpoint)

    def close(self) -> None:
        self._discard_open()

    def _new_staged_name(self) -> str:
        """Never the same twice, and it tells after which checkpoint the piece was begun."""
        return f"{self._owner}.after-{self._checkpoint}.{os.getpid()}-{next(_numbers)}"

    def _final_name(self, checkpoint: int) -> str:
        return f"{self._owner}-{checkpoint}"

    @property
    def _owner(self) -> str:
        return f"{self.ctx.operator}-{self.ctx.task.index}"

    def _is_left_over(self, staged: str, checkpoint: int) -> bool:
        """Whether a piece of this task was begun before ``checkpoint``, which is complete."""
        owner, _, rest = staged.rpartition(".after-")
        begun_after = rest.partition(".")[0]
        return (
            owner == self._owner
            and begun_after.isdigit()
            and int(begun_after) < checkpoint
            and staged not in self._pending
        )

    # What the medium does

    def _close_staged(self) -> str | None:
        """Makes durable what was written since the last call and gives its staged name; None if that was nothing."""
        raise NotImplementedError

    def _publish(self, piece: StagedPiece) -> None:
        """Makes a piece visible; nothing if it is already. Raises SinkError if it is neither staged nor visible."""
        raise NotImplementedError

    def _discard_open(self) -> None:
        """Forgets what was written since the last barrier."""
        raise NotImplementedError

    def _discard_before(self, checkpoint: int) -> None:
        """Deletes staged pieces for which ``_is_left_over`` holds."""
        raise NotImplementedError
