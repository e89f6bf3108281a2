"""For each row the result of the sketch of its group so far, without a sketch for each row.

``parts`` has one sketch per row (``columns.sketches``): of its value, or of all rows before. Rows of one group lie
together, and ``ids`` has the group of each, in ascending order. A batch takes as long as its slots are many, and no
longer if many rows are of one group.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from clonos_py.columns import sketches
from clonos_py.columns.ordering import stable_order
from clonos_py.columns.running import last_so_far
from clonos_py.columns.views import Ints


def running_quantiles(parts: Any, ids: Ints, share: float) -> Any:
    """``sketches.quantiles`` of the merged sketches of each row and all earlier ones of its group.

    The slots are split by one bit after the other of their rank, as in a wavelet matrix ("The wavelet matrix",
    Information Systems 47, 2015): so all rows are looked up at once, each in the slots of its group up to it.
    """
    slots, numbers, rows = sketches.entries(parts)
    distinct, codes = np.unique(slots, return_inverse=True)
    ends = np.searchsorted(rows, np.arange(len(ids)), side="right")
    starts = np.searchsorted(ids[rows], ids)
    counts = _before(numbers)[ends] - _before(numbers)[starts]
    ranks, found = sketches.rank(share, counts), np.zeros(len(ids), np.int64)
    for bit in range(max(len(distinct) - 1, 0).bit_length() - 1, -1, -1):
        above = (codes >> bit & 1).astype(bool)
        place, weight = _before(~above), _before(np.where(above, 0, numbers))
        below = weight[ends] - weight[starts]
        upper = ranks > below
        starts, ends = (np.where(upper, place[-1] + bound - place[bound], place[bound]) for bound in (starts, ends))
        ranks, found = np.where(upper, ranks - below, ranks), 2 * found + upper
        order = np.concatenate([np.flatnonzero(~above), np.flatnonzero(above)])
        codes, numbers = codes[order], numbers[order]
    if not len(distinct):
        return pa.nulls(len(ids), pa.float64())
    return pa.array(sketches.lower_ends(distinct)[np.where(counts > 0, found, 0)], mask=counts == 0)


def running_distinct_counts(parts: Any, ids: Ints) -> Any:
    """``sketches.distinct_counts`` of the merged sketches of each row and all earlier ones of its group.

    A sketch is estimated from how many of its registers have each number. So these are counted on, row by row.
    """
    rows, former, new = _raised(*sketches.entries(parts), ids)
    changed, of_changed = np.unique(rows, return_inverse=True)
    levels = np.zeros((len(changed), sketches.LEVELS), np.int64)
    np.add.at(levels, (of_changed, former), -1)
    np.add.at(levels, (of_changed, new), 1)
    levels = np.cumsum(levels, axis=0)
    begins = np.searchsorted(ids[changed], ids[changed])
    levels -= np.concatenate([np.zeros((1, sketches.LEVELS), np.int64), levels])[begins]
    levels[:, 0] += sketches.REGISTERS
    place, known = last_so_far(changed, ids)
    found = np.append(sketches.estimates(levels), 0)
    return pa.array(np.where(known, found[place], 0))


def _raised(slots: Ints, numbers: Ints, rows: Ints, ids: Ints) -> tuple[Ints, Ints, Ints]:
    """The rows that raise a register of their group, with the register's number before and after, in any order."""
    registers = ids[rows] * sketches.REGISTERS + slots
    order = stable_order(registers)
    registers, numbers, rows = registers[order], numbers[order], rows[order]
    begins = np.append(True, registers[1:] != registers[:-1])[: len(rows)]
    group = np.cumsum(begins) * sketches.LEVELS
    after = np.maximum.accumulate(group + numbers) - group if len(rows) else numbers
    before = np.where(begins, 0, np.append(0, after[:-1])[: len(rows)])
    raised = after > before
    return rows[raised], before[raised], after[raised]


def _before(numbers: Any) -> Ints:
    """The sum of the numbers before each place, and of all."""
    found: Ints = np.append(0, np.cumsum(numbers, dtype=np.int64))
    return found
