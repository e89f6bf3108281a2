"""State that maps to no operator is refused, renamed or dropped, in any kind of handle."""

from __future__ import annotations

import msgspec
import pytest

from clonos_py.job.completed import CompletedCheckpoint
from clonos_py.job.events import JobPolicy
from clonos_py.job.machine import JobMachine
from clonos_py.job.state_mapping import StateMapping, mapped
from clonos_py.model.errors import SettingError, UnmappedStateError
from clonos_py.model.ids import TaskId
from clonos_py.model.snapshots import Manifest, OperatorHandle, StoredChunk, TaskHandle
from clonos_py.model.user_metrics import MetricKind, UserMetric
from clonos_py.process.contract import ORDER_TABLE, InputProgress, TaskProgress
from clonos_py.process.progress import progress_of
from clonos_py.protocols.known import protocol_of
from tests.unit.job.stage import chain

NO_VALUES = msgspec.msgpack.encode({})


def manifest(operator: str, handle: OperatorHandle, kind: str | None = "process", commit: bool = False) -> Manifest:
    committables = {operator: [b"rows"]} if commit else {}
    task = TaskHandle(TaskId("middle", 0), 7, {operator: handle}, b"", committables)
    kinds = {operator: kind} if kind else {}
    return Manifest("stage", 7, 1, 128, {"middle": 1}, [task], {operator: "middle"}, kinds=kinds)


def rows(count: int) -> OperatorHandle:
    return OperatorHandle({"rows": [StoredChunk("1.chunks", count, 10, 0)]}, NO_VALUES)


VALUES = OperatorHandle({}, msgspec.msgpack.encode({"checksum": 3}))


@pytest.mark.parametrize(
    ("found", "refused"),
    [
        (manifest("gone", rows(3)), True),
        (manifest("gone", rows(3), kind=None), True),
        (manifest("gone", rows(0)), False),
        (manifest("gone", VALUES), True),
        (manifest("gone", VALUES, kind=None), False),
        (manifest("gone", rows(0), commit=True), True),
        (manifest("middle", rows(3)), False),
    ],
    ids=["rows", "waiting rows", "no rows", "values", "what is found out again", "results", "mapped"],
)
def test_state_that_maps_to_no_operator_is_refused_unless_it_is_dropped(found: Manifest, refused: bool) -> None:
    if refused:
        with pytest.raises(UnmappedStateError, match=r"checkpoint 7 holds state .* of 'gone'.*; .* --drop-state gone"):
            mapped(found, chain(), StateMapping())
        kept = mapped(found, chain(), StateMapping(dropped=("gone",)))
        assert kept is not None
        assert [(task.operators, task.committables) for task in kept.tasks] == [({}, {})]
    else:
        assert mapped(found, chain(), StateMapping()) == found


@pytest.mark.parametrize(("dropped", "back_to"), [("middle", 9), ("other", 5)])
def test_input_of_dropped_state_in_parts_does_not_come_again(dropped: str, back_to: int) -> None:
    """The rebuild takes frames from the third on for one operator. They must not come without its state, but do if that
    of another operator is dropped."""
    progress = TaskProgress(
        [InputProgress(7)], [], [], [], False, 0, [], [], [], {}, taken=9, rebuild_taken=5, rebuild=[InputProgress(3)]
    )
    order = OperatorHandle({ORDER_TABLE: [StoredChunk("1.chunks", 4, 10, 0)]}, NO_VALUES)
    found = manifest("middle", order)
    handle = msgspec.structs.replace(
        found.tasks[0], operators={"middle": order, "other": rows(3)}, progress=msgspec.msgpack.encode(progress)
    )
    kept = mapped(msgspec.structs.replace(found, tasks=[handle]), chain(), StateMapping(dropped=(dropped,)))
    assert kept is not None
    restored = progress_of(kept.tasks[0])
    assert (restored.begun.taken, restored.covered) == (back_to, [7] if dropped == "middle" else [3])


@pytest.mark.parametrize("mapping", [StateMapping(("gon",)), StateMapping(renamed={"gon": "middle"})])
def test_a_decision_about_an_operator_that_is_nowhere_is_refused(mapping: StateMapping) -> None:
    """Also if nothing needs it: the user believes that some state is gone, and it is not."""
    option = "--rename gon=middle" if mapping.renamed else "--drop-state gon"
    with pytest.raises(
        UnmappedStateError, match=rf"^{option}: checkpoint 7 has no 'gon' \(is it 'gone'\?\); it has gone$"
    ):
        mapped(manifest("gone", rows(3), kind=None), chain(), mapping)
    with pytest.raises(UnmappedStateError, match=rf"^{option}: there is no checkpoint, and this job has no 'gon'; "):
        mapped(None, chain(), mapping)


@pytest.mark.parametrize("mapping", [StateMapping(("gone",)), StateMapping(renamed={"gone": "middle"})])
def test_a_decision_that_an_earlier_run_has_carried_out_is_none_any_more(mapping: StateMapping) -> None:
    """The same command is run again. Checkpoints since then do not have the name, but say that it was decided about."""
    found = mapped(manifest("gone", rows(3), kind=None), chain(), mapping)
    assert found is not None
    written = CompletedCheckpoint(chain(), found, "", "lineage").next(8, 1, found.tasks)
    assert "gone" not in {*written.operators, *written.tasks[0].operators}
    assert mapped(written, chain(), mapping) == written


@pytest.mark.parametrize("mapping", [StateMapping(("middle",)), StateMapping(renamed={"gone": "middle"})])
def test_a_later_coordinator_of_a_run_keeps_the_state_that_the_run_has_made_since(mapping: StateMapping) -> None:
    """The first one has dropped or renamed what the checkpoint before the run had."""
    found = msgspec.structs.replace(
        manifest("gone" if mapping.renamed else "middle", rows(3), kind=None), run="earlier"
    )
    mapped_once = mapped(found, chain(), mapping, run="this")
    assert mapped_once is not None
    assert mapped_once != found
    since = msgspec.structs.replace(manifest("middle", rows(3)), run="this")
    assert mapped(since, chain(), mapping, run="this") == since
    policy = JobPolicy(state_mapping=mapping, lineage="this")
    machine = JobMachine(chain(), policy, protocol_of(chain()).job, since)
    assert machine._completed.manifest == since


def test_state_in_another_number_of_key_groups_is_refused() -> None:
    found = msgspec.structs.replace(manifest("middle", rows(3)), key_groups=64)
    with pytest.raises(SettingError, match="key_groups is 128, but checkpoint 7 holds state in 64 key groups"):
        mapped(found, chain(), StateMapping())


def test_what_a_renamed_operator_has_counted_goes_on_under_its_new_name() -> None:
    metrics = {name: UserMetric(MetricKind.COUNTER, 5) for name in ("old.orders", "older.orders")}
    progress = TaskProgress([], [], [], [], False, 0, [], [], [], {}, counts={"old.late_rows": 7}, metrics=metrics)
    before = manifest("old", rows(3), kind=None)
    task = msgspec.structs.replace(before.tasks[0], progress=msgspec.msgpack.encode(progress))
    after = mapped(msgspec.structs.replace(before, tasks=[task]), chain(), StateMapping(renamed={"old": "middle"}))
    assert after is not None
    counted = progress_of(after.tasks[0])
    assert counted.counts == {"middle.late_rows": 7}
    assert counted.metrics.keys() == {"middle.orders", "older.orders"}


def test_a_vertex_named_after_a_renamed_operator_is_renamed_too() -> None:
    before = manifest("old", rows(3), kind=None)
    handle = msgspec.structs.replace(before.tasks[0], task=TaskId("old", 0))
    before = msgspec.structs.replace(
        before, parallelism={"old": 1}, operators={"old": "old"}, tasks=[handle], earlier=[handle]
    )
    after = mapped(before, chain(), StateMapping(renamed={"old": "middle"}))
    assert after is not None
    assert (after.parallelism, after.operators) == ({"middle": 1}, {"middle": "middle"})
    assert {handle.task for handle in after.handles} == {TaskId("middle", 0)}
    assert mapped(after, chain(), StateMapping(renamed={"old": "middle"})) == after, (
        "applied again, the mapping has no effect"
    )
