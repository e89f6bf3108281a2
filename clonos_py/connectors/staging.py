"""The two-phase commit of transactional sinks (D16), for any medium: pieces are staged, named and published.

The rows of an epoch go into one staged piece. At the barrier it is closed and named. It becomes visible under a name
that depends only on operator, task and checkpoint, so committing twice equals committing once. Pieces of aborted
checkpoints are committed with the next one, oldest first. A replacement writes its predecessor's rows again, into
pieces of its own. Pieces that a dead process left behind are found at the next commit: they were begun before the
checkpoint that is complete, and neither it nor an earlier one names them (named pieces are visible by then).
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence

import msgspec

from clonos_py.model.errors import SinkError
from clonos_py.model.operators import Sink
from clonos_py.model.state import OperatorState

_process = os.urandom(4).hex()
"""Unique among all processes that stage pieces in one place, on all machines."""
_numbers = itertools.count()


class StagedFile(msgspec.Struct, frozen=True, array_like=True):
    """A file of a piece: its folder within the piece (empty if there is only this file), its size and its digest.
    ``part``: its number among those of one folder, if files are closed at a size."""

    place: str
    size_bytes: int
    digest: int
    part: int = 0


class StagedPiece(msgspec.Struct, frozen=True, array_like=True):
    """The rows of one epoch: the checkpoint that ends it, where they are staged, and the name under which they become
    visible. ``files``: only if the medium has files."""

    checkpoint: int
    staged: str
    final: str
    files: tuple[StagedFile, ...] = ()
    folder: str = ""
    """The output folder, if the medium is one."""


class StagedSink(Sink):
    """Base of sinks that publish rows only when their checkpoint is complete. Subclasses implement the medium."""

    _checkpoint = 0

    def restore(self, parts: Sequence[OperatorState]) -> None:
        """Drops the open piece. Rows that the checkpoint names are committed; later rows come again."""
        self._discard_open()
        self._checkpoint = max((int(part.values["checkpoint"]) for part in parts), default=0)

    def snapshot(self) -> OperatorState:
        return OperatorState(values={"checkpoint": self._checkpoint})

    def prepare(self, checkpoint: int) -> bytes | None:
        staged = self._close_staged()
        self._checkpoint = checkpoint
        if staged is None:
            return None
        return msgspec.msgpack.encode(self._piece(checkpoint, staged))

    def _piece(self, checkpoint: int, staged: str) -> StagedPiece:
        return StagedPiece(checkpoint, staged, self._final_name(checkpoint))

    def commit(self, committable: bytes) -> None:
        try:
            piece = msgspec.msgpack.decode(committable, type=StagedPiece)
        except msgspec.DecodeError as error:
            raise SinkError(f"operator {self.ctx.operator!r}: the checkpoint names no staged rows ({error})") from error
        self._publish(piece)
        self._discard_before(piece.checkpoint)

    def close(self) -> None:
        self._discard_open()

    def _new_staged_name(self) -> str:
        """A unique name, which includes the checkpoint after which the piece was begun."""
        return f"{self._owner}.after-{self._checkpoint}.{_process}-{next(_numbers)}"

    def _final_name(self, checkpoint: int) -> str:
        return f"{self._owner}-{checkpoint}"

    @property
    def _owner(self) -> str:
        return f"{self.ctx.operator}-{self.ctx.task.index}"

    def _is_left_over(self, staged: str, checkpoint: int) -> bool:
        """Whether a piece of this task was begun before ``checkpoint``, which is complete."""
        owner, _, rest = staged.rpartition(".after-")
        begun_after = rest.partition(".")[0]
        return owner == self._owner and begun_after.isdigit() and int(begun_after) < checkpoint

    # ---- implemented for each medium

    def _close_staged(self) -> str | None:
        """Makes the rows written since the last call durable and returns their staged name; None if there are none."""
        raise NotImplementedError

    def _publish(self, piece: StagedPiece) -> None:
        """Makes a piece visible, unless it is. Raises SinkError if it is neither staged nor visible."""
        raise NotImplementedError

    def _discard_open(self) -> None:
        """Drops the rows written since the last barrier."""
        raise NotImplementedError

    def _discard_before(self, checkpoint: int) -> None:
        """Deletes staged pieces for which ``_is_left_over`` holds."""
        raise NotImplementedError
