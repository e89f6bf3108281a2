"""What users name in a job: definitions of sources and sinks, plain values that connect to nothing until created."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic

import pyarrow as pa
from typing_extensions import TypeVar

if TYPE_CHECKING:
    from clonos_py.model.operators import Sink, Source
    from clonos_py.model.record import Record


R = TypeVar("R", bound="Record", default=Any)


class SourceDefinition(Generic[R]):
    """A source as written in a job. Picklable. ``R`` is the class of its rows, for type checkers."""

    schemas: tuple[pa.Schema, ...]
    """One per output port; ``job.source`` gives as many streams."""
    records: tuple[type[Record] | None, ...] = ()
    """The classes of their rows, one per port, where the definition was given any."""
    commits: bool = False
    """Whether the source tells others how far completed checkpoints have come (``Source.commit``)."""

    def resolve(self) -> None:
        """Called once, when the job is submitted: what all processes must find alike, and a replacement must not look
        up again, such as the latest offset, is looked up now. Raises SourceError."""

    def create(self, columns: tuple[tuple[str, ...] | None, ...], read_rows: int | None = None) -> Source:
        """The reader of one task. ``columns[port]``: the columns to deliver, in this order (None: all of them);
        ``read_rows``: a read covers at most so many rows, where the consumer needs small batches."""
        raise NotImplementedError


class MultiSourceDefinition(SourceDefinition[Any]):
    """A source with several ports, so that type checkers know that ``job.source`` gives a tuple of streams."""


class Delivery(StrEnum):
    """How a sink makes its output exactly-once (D16)."""

    IDEMPOTENT = "idempotent"
    """Rows may be written again: the later ones replace the earlier, which they equal."""
    TRANSACTIONAL = "transactional"
    """Rows are visible when the checkpoint that covers them is complete."""
    CAUSAL = "causal"
    """Rows are visible at once: the output holds the determinants that they depend on. ``create`` gives a
    CausalSink."""


class SinkDefinition:
    """A sink as written in a job. Picklable."""

    delivery: Delivery | None = None
    """None: after a failure rows may be there twice, or there is no output to read."""

    upserts: bool = False
    """Whether a later row of a key replaces an earlier one: what a ``Table`` needs (P6)."""

    deletes: bool = False
    """Whether it takes deletions, too: what a ``Table`` needs whose rows may leave it. The schema that ``create`` is
    given has the column ``_change`` then, which is ``insert``, ``update`` or ``delete``."""

    def create(self, schema: pa.Schema) -> Sink:
        """The writer of one task for rows of ``schema``. Raises GraphError where it cannot take them."""
        raise NotImplementedError

    def on_trial(self, folder: str) -> SinkDefinition | None:
        """A sink like this one whose rows are not visible, for ``clonos check``, which gives it rows, prepares a
        checkpoint and never commits; what goes to files goes below ``folder``. None if there is none."""
        return self if self.delivery is Delivery.TRANSACTIONAL else None
