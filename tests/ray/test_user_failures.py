"""Functions that harm themselves or their process, on real actors: the job ends with the line of the function."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from pathlib import Path

import pytest
import ray

from clonos_py import Job, UserCodeError
from clonos_py.dsl.loading import load_job_file
from clonos_py.model.coordinator_events import FunctionHangs, StandbyActivated
from clonos_py.observe.events import Event, TaskFailed
from clonos_py.runtime import crash_notes
from clonos_py.runtime.launch import run_job
from clonos_py.runtime.ray.cluster import Cluster
from clonos_py.runtime.ray.opened_actors import on_node
from clonos_py.settings.resolution import resolve
from tests.jobs.failing import FATAL, place, written
from tests.waiting import SOON_S, wait_until

pytestmark = pytest.mark.ray


def loaded(file: Path) -> Job:
    return load_job_file(str(file)).job()


def test_an_error_has_its_place_and_its_whole_traceback(cluster: Cluster, tmp_path: Path) -> None:
    file = written(tmp_path, "failing_on_ray", "rows.key_by('key').process(Totals).sink(out)")
    with pytest.raises(UserCodeError, match=re.escape('record {"key":1,"value":7,"at":7000000}')) as caught:
        run_job(loaded(file), resolve())
    assert str(caught.value).endswith(f"; at {place(file, 'checked', 'checked')}")
    assert "[0]" not in str(caught.value)
    assert "self.total += checked(row.value)" in caught.value.traceback
    assert caught.value.traceback.rstrip().endswith("ValueError: 7 is too much")


@pytest.mark.parametrize(
    ("function", "said"),
    [
        FATAL[1],
        *(
            pytest.param(*other, marks=pytest.mark.thorough)
            for other in (FATAL[0], ("leaves", "SystemExit: 3"), *FATAL[2:])
        ),
    ],
)
def test_a_function_that_ends_its_process_ends_the_job(
    cluster: Cluster, tmp_path: Path, function: str, said: str
) -> None:
    file = written(tmp_path, f"ending_{function}", f"rows.rebalance().map({function}).named('guilty').sink(out)")
    events: list[Event] = []
    began = time.monotonic()
    with pytest.raises(UserCodeError, match=f"operator 'guilty' .*{re.escape(said)}") as caught:
        run_job(loaded(file), resolve(), lambda at_us, event: events.append(event))
    assert str(caught.value).endswith(f"; at {place(file, function, function)}")
    assert time.monotonic() - began < SOON_S
    assert not [event for event in events if isinstance(event, StandbyActivated)]


def test_a_function_that_hangs_is_reported_and_does_not_end_the_job(cluster: Cluster, tmp_path: Path) -> None:
    file = written(tmp_path, "hanging_on_ray", "rows.map(hangs).named('slow').sink(out)")
    events: list[Event] = []
    run_job(
        loaded(file), resolve(command_line={"function_timeout": "300ms"}), lambda at_us, event: events.append(event)
    )
    (reason,) = [event.reason for event in events if isinstance(event, FunctionHangs)]
    assert reason.startswith("operator 'slow' has been at work on one row for 0.")
    assert reason.endswith(f"; at {place(file, 'hangs', 'hangs')}")
    assert not [event for event in events if isinstance(event, TaskFailed)]


def test_an_interrupt_while_a_function_sleeps_stops_the_job(cluster: Cluster, tmp_path: Path) -> None:
    asleep = tmp_path / "asleep"
    function = f"def sleeping(row: Row) -> Row:\n    open({str(asleep)!r}, 'w').close()\n    time.sleep(600)\n"
    file = written(tmp_path, "sleeping_on_ray", f"{function}rows.map(sleeping).sink(out)")
    sent: list[float] = []

    def interrupt() -> None:
        wait_until(asleep.exists)
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    threading.Thread(target=interrupt, daemon=True).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            run_job(loaded(file), resolve())
    finally:
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - sent[0] < SOON_S


def test_crash_notes_can_be_read_from_another_node(cluster: Cluster, tmp_path: Path) -> None:
    """A task reads them where the process ran, as for the coordinator."""
    stack = f"""Fatal Python error: Segmentation fault

Current thread 0x1 (most recent call first):
  File "{tmp_path}/fraud.py", line 31 in on_row
  File "/lib/clonos_py/task/chain.py", line 120 in _guard
"""
    (tmp_path / "7.stack").write_text(stack)
    (tmp_path / "7.note").write_bytes(b"guilty\0\0")
    read = ray.remote(crash_notes.read).options(scheduling_strategy=on_node(ray.get_runtime_context().get_node_id()))
    error = ray.get(read.remote(tmp_path, 7))
    assert error is not None
    assert str(error) == "operator 'guilty' crashed its process: Segmentation fault; at fraud.py:31 in on_row"
    assert error.traceback == stack
    assert ray.get(read.remote(tmp_path, 8)) is None
