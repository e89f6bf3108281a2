"""What the live view keeps of a run does not grow with its length; reports keep everything."""

from __future__ import annotations

import typing

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clonos_py.model.coordinator_events import CheckpointSkipped, RolledBack
from clonos_py.model.ids import TaskId
from clonos_py.observe.console import summary
from clonos_py.observe.events import Event, Measured, Progress, TaskFailed
from clonos_py.observe.latest import LATEST_MAX, Latest
from clonos_py.observe.status import RunStatus

KINDS = [kind for kind in typing.get_args(Event) if kind not in (Measured, Progress)]
EVENTS = st.tuples(*map(st.from_type, KINDS))


@settings(max_examples=1, suppress_health_check=[HealthCheck.too_slow])
@given(EVENTS)
def test_the_size_of_a_status_does_not_depend_on_the_number_of_events(events: tuple[Event, ...]) -> None:
    status, sizes = RunStatus(), []
    for amount in (LATEST_MAX + 10, 100):
        for _ in range(amount):
            for event in events:
                status.on(0, event)
        sizes.append(sum(len(value) for value in vars(status).values() if isinstance(value, typing.Sized)))
    assert sizes[0] == sizes[1] <= len(KINDS) * LATEST_MAX
    assert list(summary("job", status))


@given(st.lists(st.integers()), st.one_of(st.none(), st.integers(1, 9)))
def test_the_latest_items_are_kept_in_their_order_and_all_are_counted(items: list[int], most: int | None) -> None:
    latest: Latest[int] = Latest(most)
    for item in items:
        latest.append(item)
    kept = items if most is None else items[-most:]
    assert (list(latest), latest.amount, latest.dropped) == (kept, len(items), len(items) - len(kept))
    assert (latest[-2:], bool(latest)) == (kept[-2:], bool(kept))


def test_the_summary_counts_all_and_lists_the_latest() -> None:
    short, all_ = RunStatus(), RunStatus.of_all()
    for number in range(LATEST_MAX + 7):
        for status in (short, all_):
            status.on(number, RolledBack(number, "lost"))
            status.on(number, TaskFailed(task=TaskId("join", number), how="SIGKILL"))
            status.on(number, CheckpointSkipped(1, 2.0, 5_000.0, 1))
    lines = list(summary("job", short))
    assert f"{LATEST_MAX + 7} recoveries, {LATEST_MAX + 7} rollbacks" in lines[0]
    assert lines.count("  7 earlier ones like the next are not listed") == 2
    assert lines[2] == "  join[7] failed (SIGKILL)"
    assert any(f"{LATEST_MAX + 7} checkpoints were skipped" in line for line in lines)
    assert len(all_.rollbacks) == len(all_.recoveries) == all_.skipped.amount == LATEST_MAX + 7
