"""The commands of the reachability query as a source, replayable from any offset, with an optional rate."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import xxhash

from clonos_py.columns.views import fixed
from clonos_py.evaluation.nexmark.layout import Layout
from clonos_py.evaluation.nexmark.schedule import Pace
from clonos_py.evaluation.nexmark.source import Columns
from clonos_py.evaluation.nexmark.stripe_reader import Stripe, StripeReader
from clonos_py.evaluation.nexmark.tempo import Tempo
from clonos_py.evaluation.reachability.generator import Command, Reachability
from clonos_py.model.connectors import SourceDefinition
from clonos_py.model.errors import SettingError
from clonos_py.model.record import Record


@dataclass(frozen=True)
class CommandSource(SourceDefinition):
    """``rate``: commands per second of processing time over all partitions, None for as fast as possible."""

    commands: Reachability
    rate: float | None = None
    partitions: int = 8
    schemas: tuple[pa.Schema, ...] = field(default=(Command.schema(),), init=False)
    records: tuple[type[Record] | None, ...] = field(default=(Command,), init=False)

    def __post_init__(self) -> None:
        for name in ("rate", "partitions"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise SettingError(f"{name} is {value}: a source of commands needs a number above 0")

    def create(self, columns: Columns, read_rows: int | None = None) -> StripeReader:
        layout = Layout(self.commands.rows, self.partitions)
        store = GeneratedCommands(self.commands, layout, columns[0])
        return StripeReader(store, layout, self._pace(layout.partitions), read_rows, kinds=1)

    def _pace(self, partitions: int) -> Pace | None:
        if self.rate is None:
            return None
        return Pace(Tempo((self.commands.event_rate,)), partitions, self.commands.event_rate / self.rate)


class GeneratedCommands:
    """Generates commands when they are read; the generator caches the last blocks."""

    def __init__(self, commands: Reachability, layout: Layout, columns: tuple[str, ...] | None) -> None:
        self._commands, self._layout, self._columns = commands, layout, columns

    def open(self, partitions: int) -> None:
        """Nothing to do."""

    def seek(self) -> None:
        """Nothing to do."""

    def read(self, partition: int, start: int, stop: int) -> Stripe:
        first = self._layout.event(partition, start)
        rows = self._commands.batch(first, first + stop - start)
        checksum = xxhash.xxh3_64_intdigest(np.ascontiguousarray(fixed(rows.column("node"))).data)
        return Stripe((rows if self._columns is None else rows.select(list(self._columns)),), checksum)
