"""Bugs of the protocol that can be switched on, one at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from clonos_py.model.protocols import ProtocolProperties
from clonos_py.runtime.sim.generator import Range
from clonos_py.settings.protocols import ALIGNED

Patch = Callable[[pytest.MonkeyPatch], None]
KILLS = ("kill",)


@dataclass(frozen=True)
class Bug:
    """``plant`` makes the engine wrong; ``faults`` bring it to light quickly. ``endless``: jobs do not end with it,
    which counts as found. With any other bug a job may take longer than it should, which proves nothing. ``anywhere``:
    runs of every kind are drawn, as only a rare one finds it."""

    plant: Patch
    faults: tuple[str, ...] = KILLS
    depth: int | None = -1
    protocol: ProtocolProperties = ALIGNED
    cycles: bool = False
    time_granularity_us: int | None = None
    fed: bool = False
    recorded: bool = False
    silent: bool = False
    endless: bool = False
    rescaled: bool = False
    anywhere: bool = False

    @property
    def range(self) -> Range:
        if self.anywhere:
            return Range(protocol=None)
        return Range(
            self.faults,
            self.depth,
            tasks_max=10,
            protocol=self.protocol,
            cycles=self.cycles,
            time_granularity_us=self.time_granularity_us,
            fed=self.fed,
            recorded=self.recorded,
            silent=self.silent,
            rescaled=self.rescaled,
        )


class Bugs(dict[str, Bug]):
    """By name. A function that plants one is registered by decorating it."""

    def planted(
        self,
        *faults: str,
        depth: int = -1,
        protocol: ProtocolProperties = ALIGNED,
        cycles: bool = False,
        time_granularity_us: int | None = None,
        fed: bool = False,
        recorded: bool = False,
        silent: bool = False,
        endless: bool = False,
        rescaled: bool = False,
        anywhere: bool = False,
    ) -> Callable[[Patch], Patch]:
        def register(plant: Patch) -> Patch:
            self[plant.__name__] = Bug(
                plant,
                faults or KILLS,
                depth,
                protocol,
                cycles,
                time_granularity_us,
                fed,
                recorded,
                silent,
                endless,
                rescaled,
                anywhere,
            )
            return plant

        return register
