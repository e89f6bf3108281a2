"""The grid of runs: every combination that CheckMate evaluates, repeated several times."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from clonos_py.evaluation.checkmate.dimensions import (
    BY_HASH,
    CAUSAL,
    KEYED,
    KEYS,
    LOAD,
    LOADS_SKEWED,
    NONE,
    QUERIES,
    RECOVERIES,
    ROLLBACK,
)
from clonos_py.model.errors import SettingError
from clonos_py.settings.protocols import COMPARED_NAMES

PARALLELISM_MAX, SKEW_MAX = 128, 100

_SETTINGS: Mapping[str, Mapping[str, object]] = {
    CAUSAL: {"guarantee": "exactly-once", "sharing_depth": "full"},
    ROLLBACK: {"guarantee": "exactly-once", "sharing_depth": "0"},
    NONE: {"guarantee": "at-most-once", "checkpoint_interval": "1000h", "standbys": 0, "standbys_per_process": 1},
}


@dataclass(frozen=True)
class Variant:
    """A combination that has its own maximum sustainable throughput. ``protocol`` and ``recovery`` are both ``none``
    for runs without checkpoints."""

    query: str
    protocol: str
    recovery: str
    parallelism: int

    @property
    def settings(self) -> dict[str, object]:
        """The settings in which variants differ, in the syntax of the command line."""
        chosen = {} if self.recovery == NONE else {"protocol": self.protocol, "checkpoint_calls": "independent"}
        return {"chaining": "off", "parallelism": self.parallelism, **chosen, **_SETTINGS[self.recovery]}

    @property
    def kills(self) -> bool:
        """Whether a task is killed. Without checkpoints the job could not recover."""
        return self.recovery != NONE

    def __str__(self) -> str:
        how = "no checkpoints" if self.recovery == NONE else f"{self.protocol}, {self.recovery}"
        return f"{self.query}, {how}, parallelism {self.parallelism}"


@dataclass(frozen=True)
class CheckmateCell:
    """One run. ``load``: percent of the maximum sustainable throughput; None if a rate is given. ``skew``: the
    percentage of hot events. ``keys``: how rows are partitioned; by hash without skew."""

    variant: Variant
    skew: int
    load: int | None
    run: int
    keys: str = BY_HASH

    @property
    def key(self) -> dict[str, Any]:
        """The identity of the run as a flat dict, for the results file."""
        return {**asdict(self.variant), "skew": self.skew, "load": self.load, "run": self.run, "keys": self.keys}

    def __str__(self) -> str:
        skew = f", skew {self.skew}% by {self.keys}" if self.skew else ""
        load = f", {self.load}% load" if self.load is not None else ""
        return f"{self.variant}{skew}{load}, run {self.run}"


@dataclass(frozen=True)
class GridSelection:
    """The requested part of the grid. Raises SettingError for unknown values."""

    queries: Sequence[str] = QUERIES
    protocols: Sequence[str] = COMPARED_NAMES
    recoveries: Sequence[str] = RECOVERIES
    parallelisms: Sequence[int] = (1, 2, 4)
    skews: Sequence[int] = (0, 10, 20, 30)
    runs: int = 5
    keys: Sequence[str] = KEYS

    def __post_init__(self) -> None:
        _check("query", self.queries, QUERIES)
        _check("protocol", self.protocols, COMPARED_NAMES)
        _check("recovery", self.recoveries, RECOVERIES)
        _check("way to share keys", self.keys, KEYS)
        _check_range("parallelism", self.parallelisms, 1, PARALLELISM_MAX)
        _check_range("skew", self.skews, 0, SKEW_MAX)


def _check(what: str, given: Sequence[str], known: Sequence[str]) -> None:
    for name in given:
        if name not in known:
            raise SettingError(f"there is no {what} {name!r} in CheckMate's evaluation: choose from {', '.join(known)}")


def _check_range(what: str, given: Sequence[int], least: int, most: int) -> None:
    for value in given:
        if not least <= value <= most:
            raise SettingError(f"{what} {value} cannot be run: choose from {least} to {most}")


def variants(selection: GridSelection) -> Iterator[Variant]:
    """All variants, grouped by query and parallelism; the baseline without checkpoints is first in each group."""
    for query, parallelism in itertools.product(selection.queries, selection.parallelisms):
        if NONE in selection.recoveries:
            yield Variant(query, NONE, NONE, parallelism)
        for protocol, recovery in itertools.product(selection.protocols, selection.recoveries):
            if recovery != NONE:
                yield Variant(query, protocol, recovery, parallelism)


def cells(selection: GridSelection, paced: bool) -> list[CheckmateCell]:
    """All runs, grouped by variant. ``paced``: runs at a given rate, for which there is only one load. The baseline is
    run without skew only. Raises SettingError if there are no runs."""
    found = [
        CheckmateCell(variant, skew, load, run, keys)
        for variant in variants(selection)
        for skew in selection.skews
        if not skew or (variant.query in KEYED and variant.recovery != NONE)
        for keys in (selection.keys if skew else KEYS[:1])
        for load in ((None,) if paced else LOADS_SKEWED if skew else (LOAD,))
        for run in range(1, selection.runs + 1)
    ]
    if not found:
        raise SettingError(
            f"nothing to run: only {', '.join(KEYED)} are run under skew, and not with recovery {NONE}; "
            "choose skew 0, or one of these queries and another recovery"
        )
    return found
