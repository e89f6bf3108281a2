"""Maps the state of a checkpoint to the operators of a job. State that maps to none is refused, unless the user renames
or drops it.

State belongs to the operator with its name. Without this check, an operator that was renamed would start with empty
state, without any message. Results that a renamed sink had prepared in the last checkpoint, and that may not be visible
yet, would be lost.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from clonos_py.model.errors import SettingError, UnmappedStateError
from clonos_py.model.ids import TaskId
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.snapshots import Manifest, TaskHandle
from clonos_py.model.state_definitions import StateDefinition, differences
from clonos_py.model.user_metrics import operator_and_name
from clonos_py.process.contract import ORDER_TABLE
from clonos_py.process.progress import progress_of

T = TypeVar("T")
SOURCE, SINK = "source", "sink"


@dataclass(frozen=True)
class StateMapping:
    """The user's decisions about state that maps to no operator by its name."""

    dropped: Collection[str] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)


def kinds_of(plan: PhysicalPlan) -> dict[str, str]:
    """By name: the verb of each operator of a plan that keeps state or has results to commit, ``sink`` for sinks and
    ``source`` for sources."""
    found = {o.name: SINK if o.sink else o.verb for v in plan.vertices for o in v.operators if o.stateful or o.sink}
    return found | {v.source.name: SOURCE for v in plan.vertices if v.source}


def definitions_of(plan: PhysicalPlan) -> dict[str, StateDefinition]:
    """By name: what the state of each operator of a plan means."""
    return {o.name: o.definition for v in plan.vertices for o in v.operators if o.definition is not None}


def mapped(
    manifest: Manifest | None, plan: PhysicalPlan, mapping: StateMapping, code_digest: str = "", run: str = ""
) -> Manifest | None:
    """The checkpoint to resume from, with its state under the operator names of ``plan``. A decision about state that
    the checkpoint no longer holds is ignored if an earlier run has carried it out. So are all decisions if this ``run``
    has taken the checkpoint: its state is that of the operators since then. Raises UnmappedStateError for state
    that maps to no operator, and for a decision about an operator that neither the checkpoint nor the job has. Raises
    SettingError if the checkpoint has another number of key groups, or can only be resumed with other tasks, other code
    or another protocol."""
    if manifest is None:
        _check_decisions(None, plan, mapping)
        return None
    if manifest.key_groups != plan.key_groups:
        raise SettingError(
            f"key_groups is {plan.key_groups}, but checkpoint {manifest.checkpoint} holds state in "
            f"{manifest.key_groups} key groups: run with --key-groups {manifest.key_groups}, or start over with --fresh"
        )
    if run and manifest.run == run:
        mapping = StateMapping()
    _check_decisions(manifest, plan, mapping)
    for old, new in mapping.renamed.items():
        manifest = _renamed(manifest, plan, old, new)
    if mapping.dropped:
        manifest = _with_names(manifest, {name: name for name in _names(manifest) if name not in mapping.dropped})
    if decided := {*mapping.dropped, *mapping.renamed}:
        manifest = msgspec.structs.replace(manifest, decided=sorted({*manifest.decided, *decided}))
    unmapped = [name for name in _kept(manifest) if name not in operators_of(plan)]
    if unmapped:
        raise UnmappedStateError(_complaint(manifest, plan, unmapped))
    _check_definitions(manifest, plan)
    if not manifest.coordinated and not at_the_end(manifest):
        _check_same_run(manifest, plan, code_digest)
    if not same_shape(manifest, plan):
        _check_nothing_in_flight(manifest)
    return manifest


def _check_decisions(manifest: Manifest | None, plan: PhysicalPlan, mapping: StateMapping) -> None:
    """Raises UnmappedStateError for the first decision about an operator that the checkpoint has not, the job has not,
    and no earlier run has decided about. ``manifest``: None if there is no checkpoint."""
    found = [] if manifest is None else sorted({*_names(manifest), *manifest.operators})
    known = {*found, *operators_of(plan), *([] if manifest is None else manifest.decided)}
    options = {name: f"--drop-state {name}" for name in mapping.dropped}
    options |= {old: f"--rename {old}={new}" for old, new in mapping.renamed.items()}
    for name, option in options.items():
        if name in known:
            continue
        if manifest is None:
            raise UnmappedStateError(
                f"{option}: there is no checkpoint, and this job has no {name!r}; leave the option out"
            )
        near = difflib.get_close_matches(name, found, n=1)
        raise UnmappedStateError(
            f"{option}: checkpoint {manifest.checkpoint} has no {name!r}{f' (is it {near[0]!r}?)' if near else ''}; "
            f"it has {', '.join(found)}"
        )


def _check_definitions(manifest: Manifest, plan: PhysicalPlan) -> None:
    """Raises UnmappedStateError if the state of an operator has another meaning in the checkpoint."""
    for name, definition in definitions_of(plan).items():
        old, parts = manifest.definitions.get(name), manifest.parts(name)
        if old is None or not parts:
            continue
        stored = Counter[str]()
        for handle in parts:
            stored.update({table: sum(c.rows for c in chunks) for table, chunks in handle.tables.items()})
        if changes := list(differences(old, definition, stored)):
            sink = manifest.kinds.get(name) == SINK
            remedies = "put that back" if sink else f"put that back, add --drop-state {name} to continue without it"
            raise UnmappedStateError(
                f"checkpoint {manifest.checkpoint} holds state of {name!r} under another definition "
                f"({'; '.join(changes)}): {remedies}, or start over with --fresh"
            )


def at_the_end(manifest: Manifest) -> bool:
    """Whether all tasks had finished when the checkpoint was taken. False for a progress that cannot be read: the task
    that restores it reports that."""
    try:
        return all(progress_of(task).finished for task in manifest.tasks)
    except msgspec.MsgspecError:
        return False


def _check_same_run(manifest: Manifest, plan: PhysicalPlan, code_digest: str) -> None:
    """Raises SettingError if a checkpoint of snapshots that tasks took alone comes from a different job. They fit
    together only through the logs between them (E8) or the frames in flight between them (E9)."""
    differing = [
        *(["other operators or another parallelism"] if not same_shape(manifest, plan) else []),
        *([f"protocol {plan.protocol}"] if plan.protocol.name != manifest.protocol else []),
        *([f"sharing_depth {plan.sharing_depth}"] if plan.rollback != manifest.rollback else []),
        *(["other code"] if manifest.of_other_code(code_digest) else []),
    ]
    if differing:
        raise SettingError(
            f"checkpoint {manifest.checkpoint} was taken with protocol {manifest.protocol}, and this run has "
            f"{', '.join(differing)}: snapshots that tasks have taken alone fit together in the same job only; resume "
            "with the code and the settings that it was written with, or start over with --fresh"
        )


def _check_nothing_in_flight(manifest: Manifest) -> None:
    """Raises SettingError if the checkpoint holds channel state, which fits only the receiver it was sent to (E3)."""
    in_flight = sum(stored.rows for task in manifest.tasks for frames in task.frames.values() for stored in frames)
    if in_flight and not at_the_end(manifest):
        tasks = ", ".join(f"{vertex} x {parallelism}" for vertex, parallelism in manifest.parallelism.items())
        raise SettingError(
            f"checkpoint {manifest.checkpoint} holds {in_flight} rows that were in flight between tasks ({tasks}), and "
            "this job has others: resume with the operators and the parallelism that it was written with, once with "
            "--protocol aligned if they are to change after its next checkpoint, or start over with --fresh"
        )


def operators_of(plan: PhysicalPlan) -> dict[str, str]:
    """By name: the vertex of each operator, sources included."""
    found = {o.name: v.name for v in plan.vertices for o in v.operators}
    return found | {v.source.name: v.name for v in plan.vertices if v.source}


def same_shape(manifest: Manifest, plan: PhysicalPlan) -> bool:
    """Whether the tasks of a plan have the same operators at the same places as those that wrote the checkpoint. Only
    then can they use its progress (watermarks, timers, sequence numbers)."""
    if manifest.operators and list(manifest.operators.items()) != list(operators_of(plan).items()):
        return False
    return manifest.parallelism == {v.name: v.parallelism for v in plan.vertices}


def _remedy(manifest: Manifest, old: str, new: str) -> str:
    """How the user gives an operator the state under its old name. The files of a sink bear that name, too."""
    return f"name it {old!r} again" if manifest.kinds.get(old) == SINK else f"add --rename {old}={new}"


def _names(manifest: Manifest) -> list[str]:
    return sorted({name for task in manifest.tasks for name in (*task.operators, *task.committables)})


def _kept(manifest: Manifest) -> list[str]:
    """The operators for which the checkpoint holds more than the next run can find out by itself."""
    return [name for name in _names(manifest) if any(_keeps(task, name, manifest) for task in manifest.tasks)]


def _keeps(task: TaskHandle, name: str, manifest: Manifest) -> bool:
    handle = task.operators.get(name)
    is_source = bool(manifest.kinds) and name not in manifest.kinds  # its positions include what it commits
    tables = handle.tables.values() if handle else ()
    if not is_source and (task.committables.get(name) or any(c.rows for chunks in tables for c in chunks)):
        return True
    return handle is not None and name in manifest.kinds and bool(msgspec.msgpack.decode(handle.values))


def _renamed(manifest: Manifest, plan: PhysicalPlan, old: str, new: str) -> Manifest:
    operators, names = operators_of(plan), _names(manifest)
    if new not in operators:
        raise UnmappedStateError(f"--rename {old}={new}: this job has no {new!r}; it has {', '.join(operators)}")
    if old not in names:
        return manifest
    if old in operators:
        raise UnmappedStateError(f"--rename {old}={new}: this job has {old!r}, too, and the state is that operator's")
    if manifest.kinds.get(old) == SINK:
        raise UnmappedStateError(
            f"--rename {old}={new}: results of a sink bear its name: {_remedy(manifest, old, new)}"
        )
    if new in names:
        raise UnmappedStateError(f"--rename {old}={new}: checkpoint {manifest.checkpoint} has state of {new!r}, too")
    if manifest.kinds.get(old, "") != kinds_of(plan).get(new, "") and manifest.kinds:
        was, is_ = (found.get(name, "without state") for found, name in ((manifest.kinds, old), (kinds_of(plan), new)))
        raise UnmappedStateError(f"--rename {old}={new}: {old!r} was of another kind ({was}) than {new!r} is ({is_})")
    return _with_names(manifest, {name: new if name == old else name for name in names}, {old: operators[new]})


def _with_names(manifest: Manifest, names: Mapping[str, str], vertices: Mapping[str, str] | None = None) -> Manifest:
    """The manifest with operators, and vertices named after them, renamed. Operators not in ``names`` are left out."""
    vertex_of = {vertex: (vertices or {}).get(vertex, vertex) for vertex in manifest.parallelism}

    def with_names(task: TaskHandle) -> TaskHandle:
        return msgspec.structs.replace(
            task,
            progress=_progress_of(task, names),
            task=TaskId(vertex_of.get(task.task.vertex, task.task.vertex), task.task.index),
            operators={names[name]: handle for name, handle in task.operators.items() if name in names},
            committables={names[name]: named for name, named in task.committables.items() if name in names},
        )

    operators = {names.get(name, name): vertex_of.get(vertex, vertex) for name, vertex in manifest.operators.items()}
    return msgspec.structs.replace(
        manifest,
        tasks=list(map(with_names, manifest.tasks)),
        earlier=list(map(with_names, manifest.earlier)),
        operators=operators,
        parallelism={vertex_of[vertex]: number for vertex, number in manifest.parallelism.items()},
        kinds={names.get(name, name): kind for name, kind in manifest.kinds.items()},
        closed=[names[name] for name in manifest.closed if name in names],
        definitions={names.get(name, name): definition for name, definition in manifest.definitions.items()},
    )


def _progress_of(task: TaskHandle, names: Mapping[str, str]) -> bytes:
    """The progress of a task of which only the operators ``names`` keep their state, by old name. If the one is missing
    whose state is saved in parts, no input before the snapshot comes again (E15): that would count as new input. What
    operators have counted goes to their new names. A progress that cannot be read stays: the task that restores it
    reports that."""
    lost = (handle for name, handle in task.operators.items() if name not in names)
    without_rebuild = any(ORDER_TABLE in handle.tables for handle in lost)
    if not without_rebuild and all(old == new for old, new in names.items()):
        return task.progress
    try:
        progress = progress_of(task)
    except msgspec.MsgspecError:
        return task.progress
    if without_rebuild:
        progress = msgspec.structs.replace(progress, rebuild_taken=progress.taken, rebuild=[])
    counts, metrics = _under(names, progress.counts), _under(names, progress.metrics)
    return msgspec.msgpack.encode(msgspec.structs.replace(progress, counts=counts, metrics=metrics))


def _under(names: Mapping[str, str], counted: Mapping[str, T]) -> dict[str, T]:
    """What is counted by ``operator.name``, under the operators' new names."""
    parts = ((*operator_and_name(key), value) for key, value in counted.items())
    return {f"{names.get(operator, operator)}.{name}": value for operator, name, value in parts}


def _complaint(manifest: Manifest, plan: PhysicalPlan, unmapped: Collection[str]) -> str:
    new, kinds = [name for name in operators_of(plan) if name not in manifest.operators], kinds_of(plan)
    named = []
    for old in unmapped:
        alike = [name for name in new if kinds.get(name) == manifest.kinds.get(old)]
        near = difflib.get_close_matches(old, alike, n=1, cutoff=0.0 if len(alike) == 1 else 0.3)
        named.append(f"{old!r}" + (f" (is it {near[0]!r} now? then {_remedy(manifest, old, near[0])})" if near else ""))
    remedies = [f"--drop-state {old}" for old in unmapped]
    return (
        f"checkpoint {manifest.checkpoint} holds state that maps to no operator of this job, of {', '.join(named)}; "
        f"--rename OLD=NEW gives it to another operator, {' '.join(remedies)} continues without it"
    )
