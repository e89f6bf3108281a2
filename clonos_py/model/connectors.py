"""Definitions of sources and sinks as users write them in a job: plain values that open no connections."""

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
    """The Record classes of the rows, one per port, if the definition was given any."""
    commits: bool = False
    """Whether the source reports the positions of completed checkpoints to an external system (``Source.commit``)."""

    def identified_by(self, columns: frozenset[str]) -> None:
        """Called before ``resolve``. ``columns``: those by which the job finds the row that a change of this source is
        about, in a table or in what a sink writes to; empty if it does not. Of a deleted row a source has to give
        these."""

    def resolve(self) -> None:
        """Called once, when the job is submitted. Looks up what must be equal in all processes and must not be looked
        up again by a replacement, such as the latest offset. Raises SourceError."""

    def create(self, columns: tuple[tuple[str, ...] | None, ...], read_rows: int | None = None) -> Source:
        """The reader of one task. ``columns[port]``: the columns to deliver, in this order (None: all). ``read_rows``:
        the most rows of a read, if the consumer needs small batches."""
        raise NotImplementedError


class MultiSourceDefinition(SourceDefinition[Any]):
    """A source with several ports; with it, type checkers infer that ``job.source`` returns a tuple of streams."""


class Delivery(StrEnum):
    """How a sink makes its output exactly-once (D16)."""

    IDEMPOTENT = "idempotent"
    """Rows may be written again: later ones replace earlier ones, which are equal."""
    TRANSACTIONAL = "transactional"
    """Rows are visible when the checkpoint that covers them is complete."""
    CAUSAL = "causal"
    """Rows are visible at once: the output holds the determinants they depend on. ``create`` returns a CausalSink."""


class SinkDefinition:
    """A sink as written in a job. Picklable."""

    place: str = ""
    """What it writes to, such as a topic, if a checkpoint with rows for it belongs there."""

    delivery: Delivery | None = None
    """None: after a failure rows may appear twice, or there is no output to read."""

    upserts: bool = False
    """Whether a later row of a key replaces an earlier one: what a ``Table`` needs (P6)."""

    only_here: bool = False
    """Whether its rows can be read only in the process of its tasks, so that a run on Ray would lose them."""

    deletes: bool = False
    """Whether it accepts deletions, which a ``Table`` needs whose rows may be removed. The schema passed to ``create``
    then has the column ``_change``: ``insert``, ``update`` or ``delete``."""

    identifies: tuple[str, ...] = ()
    """The columns by which it finds the row that another one replaces or deletes."""

    def resolve(self, schema: pa.Schema) -> None:
        """Called once, when the job is submitted. Checks what rows of ``schema`` are written to, such as the columns of
        a table. Raises SinkError."""

    def create(self, schema: pa.Schema) -> Sink:
        """The writer of one task for rows of ``schema``. Raises GraphError if the sink cannot write these."""
        raise NotImplementedError

    def on_trial(self, folder: str) -> SinkDefinition | None:
        """A sink like this one whose rows are not visible, for ``clonos check``, which writes rows, prepares a
        checkpoint and never commits. Files are written below ``folder``. None if there is no such sink."""
        return self if self.delivery is Delivery.TRANSACTIONAL else None
