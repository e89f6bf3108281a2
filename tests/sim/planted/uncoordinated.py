"""Bugs of snapshots that tasks take alone: what is stored with them, when they count, what manifests name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
import pytest

from clonos_py.checkpoint import manifest as manifests
from clonos_py.checkpoint import manifest_chain
from clonos_py.checkpoint.manifest import Base, ManifestDelta, Mark
from clonos_py.checkpoint.manifest_chain import ManifestChain
from clonos_py.checkpoint.retention import OldestEpochs
from clonos_py.link import instructions as io
from clonos_py.link.held_logs import HeldLogs
from clonos_py.link.machine import LinkMachine
from clonos_py.model.messages import Restore
from clonos_py.model.segments import LogSegment, StableMark
from clonos_py.model.snapshots import Manifest, StoredFrames
from clonos_py.protocols.parts import retained
from clonos_py.protocols.parts.gathered import GatheredSnapshots
from clonos_py.runtime.disk import Snapshots
from clonos_py.settings.protocols import UNCOORDINATED
from tests.sim.planted.bug import Bugs
from tests.sim.planted.checkpoints import sinks_commit_before_the_checkpoint_is_complete
from tests.sim.planted.recovery import replacements_are_not_asked
from tests.sim.planted.seams import Handle, rehandled

BUGS = Bugs()
alone = partial(BUGS.planted, protocol=UNCOORDINATED)


@alone("kill", "crash")
def determinants_are_left_out_of_snapshots(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(HeldLogs, "to_store", lambda self: [])


@alone("kill", "crash")
def frames_are_stored_from_where_their_receivers_are(patch: pytest.MonkeyPatch) -> None:
    """The receiver restarts before that."""

    patch.setattr(retained, "all_retained", lambda output, checkpoint: output.cursor.acked)


@alone("kill", "crash")
def frames_that_are_stored_already_are_left_out_of_snapshots(patch: pytest.MonkeyPatch) -> None:
    persist = Snapshots.persist

    def fresh(self: Snapshots, request: io.Persist) -> io.Persisted | io.PersistFailed:
        frames = {
            output: [part for part in parts if not isinstance(part, StoredFrames)]
            for output, parts in request.snapshot.frames.items()
        }
        return persist(self, msgspec.structs.replace(request, snapshot=replace(request.snapshot, frames=frames)))

    patch.setattr(Snapshots, "persist", fresh)


@alone("kill", "crash")
def determinants_are_stable_before_the_snapshot_counts(patch: pytest.MonkeyPatch) -> None:
    def hasty(handle: Handle, link: LinkMachine, event: io.Persisted) -> list[io.Instruction]:
        link.store.mark(StableMark(link.task_id.log_id, event.handle.checkpoint))
        return handle(link, event)

    rehandled(patch, io.Persisted, hasty)


@alone("kill", "crash")
def sinks_commit_before_the_snapshot_counts(patch: pytest.MonkeyPatch) -> None:
    sinks_commit_before_the_checkpoint_is_complete(patch)


@alone("kill", "crash")
def what_a_dead_task_has_stored_counts_after_its_restart(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GatheredSnapshots, "drop_all_but_those_of", lambda self, processes: None)


@alone("kill", "crash")
def replacements_are_not_asked_what_their_snapshots_hold(patch: pytest.MonkeyPatch) -> None:
    replacements_are_not_asked(patch)


@alone("kill", "crash")
def replacements_answer_before_their_state_is_here(patch: pytest.MonkeyPatch) -> None:
    def restore(self: HeldLogs, logs: list[LogSegment]) -> None:
        """The loaded state comes too late."""

    patch.setattr(HeldLogs, "restore", restore)


def changed_deltas(patch: pytest.MonkeyPatch, change: Callable[[ManifestChain, ManifestDelta], ManifestDelta]) -> None:
    encode = ManifestChain.encode

    def changed(self: ManifestChain, manifest: Manifest) -> bytes:
        content = encode(self, manifest)
        if not manifests.is_delta(content):
            return content
        delta = manifests.decode_delta(content, manifest.job, "", (manifest.checkpoint, manifest.generation))
        return manifests.encode(change(self, delta))

    patch.setattr(ManifestChain, "encode", changed)


@alone("kill", "coordinator")
def a_delta_goes_on_from_another_base_than_it_names(patch: pytest.MonkeyPatch) -> None:
    """It has only what is new since the manifest before it, and names an older manifest as its base."""
    written = ManifestChain.written
    whole: dict[ManifestChain, Base] = {}

    def noted(self: ManifestChain, manifest: Manifest, content: bytes) -> None:
        written(self, manifest, content)
        if not manifests.is_delta(content):
            whole[self] = Base(manifest.checkpoint, manifests.checksum(content))

    patch.setattr(ManifestChain, "written", noted)
    changed_deltas(patch, lambda chain, delta: msgspec.structs.replace(delta, base=whole[chain]))


@alone("kill", "coordinator")
def a_delta_leaves_out_a_task_with_a_new_snapshot(patch: pytest.MonkeyPatch) -> None:
    changed_deltas(patch, lambda chain, delta: msgspec.structs.replace(delta, named=delta.named[1:]))


@alone("kill", "coordinator")
def a_base_is_deleted_while_a_kept_delta_goes_on_from_it(patch: pytest.MonkeyPatch) -> None:
    read = manifest_chain.read

    def alone(*given: Any) -> tuple[Manifest, list[Mark]]:
        manifest, marks = read(*given)
        return manifest, marks[-1:]

    patch.setattr(manifest_chain, "read", alone)


@alone("kill", "crash")
def a_standby_takes_the_logs_of_an_earlier_snapshot(patch: pytest.MonkeyPatch) -> None:
    load = Snapshots.load
    first: dict[Snapshots, Sequence[LogSegment]] = {}

    def known(self: Snapshots, restore: Restore) -> io.Loaded | io.LoadFailed:
        event = load(self, restore)
        if isinstance(event, io.LoadFailed) or not event.logs:
            return event
        return msgspec.structs.replace(event, logs=first.setdefault(self, event.logs))

    patch.setattr(Snapshots, "load", known)


@alone("kill", "crash")
def what_no_manifest_names_yet_is_deleted(patch: pytest.MonkeyPatch) -> None:
    """The epoch of one task does not determine those of others."""
    patch.setattr(OldestEpochs, "of", lambda self, writer: max(self.by_writer.values()))
