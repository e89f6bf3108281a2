"""Whether a job can go on from a checkpoint, and what becomes of each operator's state, before it runs."""

from __future__ import annotations

from typing import NamedTuple

from clonos_py.job.state_mapping import StateMapping, kinds_of, mapped, same_shape
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.snapshots import Manifest


class FittedOperator(NamedTuple):
    """An operator with state, a source or a sink. ``verb``: of the job, or of the checkpoint if the job lacks it."""

    name: str
    verb: str
    state: str


def fitted(
    manifest: Manifest, plan: PhysicalPlan, mapping: StateMapping, code_digest: str = ""
) -> tuple[list[FittedOperator], bool]:
    """What a run of ``plan`` that goes on from this checkpoint would do with the state of each operator, and whether
    its tasks are the same; state of other tasks is distributed anew. Raises UnmappedStateError or SettingError if such
    a run would be refused, with the message of that."""
    resumed = mapped(manifest, plan, mapping, code_digest)
    assert resumed is not None
    former = {new: old for old, new in mapping.renamed.items()}
    found = [
        FittedOperator(name, verb, _state(name, bool(resumed.parts(name)), former))
        for name, verb in kinds_of(plan).items()
    ]
    dropped = [
        FittedOperator(name, manifest.kinds.get(name, ""), "dropped")
        for name in mapping.dropped
        if manifest.parts(name)
    ]
    return found + dropped, same_shape(resumed, plan)


def _state(name: str, kept: bool, former: dict[str, str]) -> str:
    if not kept:
        return "new: it begins without state"
    return f"kept, under the name {former[name]!r} until now" if name in former else "kept"
