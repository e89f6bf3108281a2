"""The web server of a run: metrics, health, the state of the run as JSON, its events, and who may ask."""

from __future__ import annotations

import json
import math
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from clonos_py.bench.ports import free_ports
from clonos_py.model.coordinator_events import (
    CheckpointAborted,
    CheckpointCompleted,
    Finished,
    FirstNewEffect,
    Replayed,
    StandbyActivated,
)
from clonos_py.model.counters import ProcessCounters
from clonos_py.model.errors import CheckpointError, SettingError
from clonos_py.model.ids import Attempt
from clonos_py.model.state import StateSize
from clonos_py.model.user_metrics import MetricDefinition, MetricKind, UserMetric, after
from clonos_py.observe.events import Detected, Event, Progress, Recovered, TaskFailed, no_listener
from clonos_py.observe.metrics import LatencyHistogram
from clonos_py.runtime.stop_switch import StopSwitch
from clonos_py.runtime.web.metrics import cause
from clonos_py.runtime.web.server import served
from clonos_py.settings.definitions import Guarantee, Settings
from clonos_py.settings.kinds import ListenAddress
from tests.unit.runtime.served_runs import SECOND, TOKEN, Served, active, serving
from tests.unit.task.plans import DOWN, MIDDLE, UP, three


@pytest.fixture
def run() -> Iterator[Served]:
    with serving() as found:
        yield found


def test_counters_add_up_the_processes_of_a_task_without_what_is_replayed(run: Served) -> None:
    run.measured(
        SECOND, (UP, 0, active(rows_in=100, rows_out=60, cpu_us=2 * SECOND)), (UP, 1, ProcessCounters(cpu_us=9))
    )
    run.measured(2 * SECOND, (UP, 1, active(rows_in=70, rows_replayed=50, rows_out=40, cpu_us=SECOND)))
    found = run.metrics()
    assert found["clonos_rows_in_total", UP.vertex, "0"] == 120
    assert found["clonos_rows_replayed_total", UP.vertex, "0"] == 50
    assert found["clonos_rows_out_total", UP.vertex, "0"] == 100
    assert found["clonos_cpu_seconds_total", UP.vertex, "0"] == 3


def test_standbys_are_counted_and_have_no_rows(run: Served) -> None:
    run.measured(SECOND, (UP, 0, active()), (UP, 1, ProcessCounters(cpu_us=9)), (MIDDLE, 2, ProcessCounters()))
    found = run.metrics()
    assert found["clonos_standbys_ready",] == 2
    assert ("clonos_rows_in_total", MIDDLE.vertex, "0") not in found
    assert found["clonos_cpu_seconds_total", UP.vertex, "0"] == 0


def test_a_process_that_is_silent_for_long_is_no_gauge_and_stays_in_the_totals(run: Served) -> None:
    run.measured(SECOND, (UP, 0, active(rows_in=5, in_flight_bytes=7)))
    assert run.metrics()["clonos_in_flight_bytes", UP.vertex, "0"] == 7
    run.measured(60 * SECOND, (DOWN, 1, active()))
    found = run.metrics()
    assert ("clonos_in_flight_bytes", UP.vertex, "0") not in found
    assert found["clonos_rows_in_total", UP.vertex, "0"] == 5


def test_shares_of_time_are_those_of_the_last_seconds(run: Served) -> None:
    run.measured(SECOND, (UP, 0, active(alive_us=SECOND)))
    for second in range(2, 20):  # idle for half of each second, held back for a quarter
        alive_us = second * SECOND
        times = {"alive_us": alive_us, "idle_us": (alive_us - SECOND) // 2, "held_back_us": (alive_us - SECOND) // 4}
        run.measured(alive_us, (UP, 0, active(**times)))
    found = run.metrics()
    assert math.isclose(found["clonos_idle_ratio", UP.vertex, "0"], 0.5)
    assert math.isclose(found["clonos_back_pressure_ratio", UP.vertex, "0"], 0.25)
    assert math.isclose(found["clonos_busy_ratio", UP.vertex, "0"], 0.25)
    vertex = run.job()["vertices"][0]
    assert (vertex["busy"], vertex["held_back"]) == (0.25, 0.25)


def test_without_times_no_share_is_given(run: Served) -> None:
    run.measured(SECOND, (UP, 0, active()))
    run.measured(2 * SECOND, (UP, 0, active()))
    assert not [name for name, *_ in run.metrics() if name.endswith("_ratio")]


def test_state_latency_lag_and_counts(run: Served) -> None:
    latencies = LatencyHistogram()
    latencies.record(900, 3)
    latencies.record(400_000)
    counters = active(
        state={"window": StateSize(10, 640)}, latency=latencies.counts, lag_us=1_500_000, rows_waiting=4,
        bytes_kept=512,
        counts={"window.late_rows": 2, "a.b.c": 1},
    )  # fmt: skip
    run.measured(SECOND, (DOWN, 0, counters))
    found = run.metrics()
    assert found["clonos_state_rows", "window", "0"] == 10
    assert found["clonos_state_bytes", "window", "0"] == 640
    assert found["clonos_latency_seconds_bucket", "0.001", DOWN.vertex] == 3
    assert found["clonos_latency_seconds_bucket", "0.5", DOWN.vertex] == 4
    assert found["clonos_latency_seconds_count", DOWN.vertex] == 4
    assert found["clonos_watermark_lag_seconds", DOWN.vertex, "0"] == 1.5
    assert found["clonos_source_lag_records", DOWN.vertex, "0"] == 4
    assert found["clonos_source_kept_bytes", DOWN.vertex, "0"] == 512
    assert found["clonos_operator_counts_total", "late_rows", "window", "0"] == 2
    assert found["clonos_operator_counts_total", "c", "a.b", "0"] == 1


def kept(kind: MetricKind, *given: float) -> UserMetric:
    value: UserMetric | None = None
    for number in given:
        value = after(value, MetricDefinition("any", kind, (1.0, 2.5) if kind is MetricKind.HISTOGRAM else ()), number)
    assert value is not None
    return value


def test_metrics_of_functions_are_families_of_their_own(run: Served) -> None:
    metrics = {
        "en.rich.orders": kept(MetricKind.COUNTER, 3, 4),
        "en.rich.depth": kept(MetricKind.GAUGE, 3, 0.5),
        "en.rich.size": kept(MetricKind.HISTOGRAM, 1, 2, 7),
    }
    run.measured(SECOND, (DOWN, 0, active(metrics=metrics)))
    found = run.metrics()
    assert found["clonos_user_orders_total", "en.rich", "0"] == 7
    assert found["clonos_user_depth", "en.rich", "0"] == 0.5
    assert found["clonos_user_size_bucket", "1.0", "en.rich", "0"] == 1
    assert found["clonos_user_size_bucket", "+Inf", "en.rich", "0"] == 3
    assert found["clonos_user_size_sum", "en.rich", "0"] == 10
    run.listen(2 * SECOND, Progress(vertices=(), in_flight_bytes=0, metrics={n: {4: m} for n, m in metrics.items()}))
    depth, _, size = run.job()["metrics"]
    assert depth == {"operator": "en.rich", "name": "depth", "task": 4, "kind": "gauge", "value": 0.5}
    assert (size["count"], size["buckets"]) == (3, {"1.0": 1, "2.5": 2, "+Inf": 3})


def test_counters_of_functions_and_operators_never_fall(run: Served) -> None:
    """Prometheus takes a fall for the restart of a process, and would add the rows of a replay again."""

    def shown(process: int, orders: int, sizes: int, late: int, depth: int) -> tuple[float, ...]:
        metrics = {
            "o.orders": kept(MetricKind.COUNTER, *[1] * orders),
            "o.size": kept(MetricKind.HISTOGRAM, *[1] * sizes),
            "o.depth": kept(MetricKind.GAUGE, depth),
        }
        run.measured(process * SECOND, (DOWN, process, active(metrics=metrics, counts={"o.late_rows": late})))
        found = run.metrics()
        names = [("user_orders_total",), ("user_size_count",), ("operator_counts_total", "late_rows"), ("user_depth",)]
        return tuple(found[f"clonos_{name}", *labels, "o", "0"] for name, *labels in names)

    assert shown(1, orders=10, sizes=10, late=10, depth=10) == (10, 10, 10, 10)
    assert shown(2, orders=4, sizes=5, late=6, depth=7) == (10, 10, 10, 7)
    assert shown(2, orders=11, sizes=12, late=13, depth=1) == (11, 12, 13, 1)


def test_of_a_name_with_two_kinds_one_is_shown(run: Served) -> None:
    metrics = {"a.depth": kept(MetricKind.GAUGE, 3), "b.depth": kept(MetricKind.HISTOGRAM, 3)}
    run.measured(SECOND, (DOWN, 0, active(metrics=metrics)))
    assert run.metrics()["clonos_user_depth", "a", "0"] == 3


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed: apt-get install prometheus")
def test_prometheus_has_nothing_to_say_against_the_metrics(run: Served) -> None:
    metrics = {f"o.rows_{number}": kept(kind, 1) for number, kind in enumerate(MetricKind)}
    run.listen(SECOND, CheckpointCompleted(1, 120.0, 5_000))
    run.measured(2 * SECOND, (DOWN, 0, active(metrics=metrics, counts={"o.late_rows": 1})))
    text = run.get("/metrics").text
    assert text.count("# TYPE clonos_user_") == len(metrics)
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_checkpoints_and_recoveries(run: Served) -> None:
    run.deployed()
    run.listen(2 * SECOND, CheckpointCompleted(1, 120.0, 5_000, requests={"put": 3, "list": 14}))
    run.listen(3 * SECOND, CheckpointAborted(2, "a task failed"))
    run.listen(4 * SECOND, TaskFailed(task=UP, how="its process died"))
    steps: tuple[tuple[int, Event], ...] = (
        (20_000, Detected(UP)),
        (60_000, StandbyActivated(UP, Attempt(1, 2))),
        (90_000, Replayed(UP, 500)),
        (95_000, FirstNewEffect(UP)),
        (300_000, Recovered(UP)),
    )
    for after_us, event in steps:
        run.listen(4 * SECOND + after_us, event)
    found = run.metrics()
    assert found["clonos_checkpoints_total", "completed"] == 1
    assert found["clonos_checkpoints_total", "aborted"] == 1
    assert found["clonos_checkpoints_total", "skipped"] == 0
    assert found["clonos_checkpoint_duration_seconds_sum",] == 0.12
    assert found["clonos_checkpoint_size_bytes",] == 5_000
    assert found["clonos_storage_requests_total", "list"] == 14
    assert run.job()["checkpoints"]["last"][0]["requests"] == {"put": 3, "list": 14}
    assert found["clonos_failures_total", "process_died"] == 1
    assert found["clonos_recovery_seconds_bucket", "0.025", "detected"] == 1
    assert found["clonos_recovery_seconds_bucket", "0.05", "activated"] == 0
    assert math.isclose(found["clonos_recovery_seconds_sum", "latency_normal"], 0.3)
    (recovery,) = run.job()["recoveries"]
    assert recovery["task"] == str(UP)
    assert [step["after_ms"] for step in recovery["steps"]] == [20, 60, 90, 95, 300]
    assert run.heard[-1] == Recovered(UP)


def test_a_planned_move_is_no_failure(run: Served) -> None:
    run.listen(SECOND, TaskFailed(task=UP, how="it moves", planned=True))
    run.listen(2 * SECOND, Detected(UP))
    found = run.metrics()
    assert sum(value for (name, *_), value in found.items() if name == "clonos_failures_total") == 0
    assert found["clonos_recovery_seconds_count", "detected"] == 0


@pytest.mark.parametrize(
    ("how", "label"),
    [
        ("killed by --kill", "ordered"),
        ("its process died", "process_died"),
        ("its process has ended", "process_died"),
        ("its node was lost", "node_lost"),
        ("the node is low on memory, Ray ended its process", "out_of_memory"),
        ("silent for the heartbeat timeout", "silent"),
        ("it cannot connect to join[0]", "other"),
    ],
)
def test_kinds_of_failures_are_few(how: str, label: str) -> None:
    assert cause(how) == label


def test_the_document_lists_all_metrics(run: Served) -> None:
    run.listen(SECOND, CheckpointCompleted(1, 120.0, 5_000))
    run.measured(2 * SECOND, (UP, 0, active()))
    text = Path("docs/tasks/monitoring.md").read_text(encoding="utf-8")
    listed = {name for name in re.findall(r"`(clonos_\w+)`", text) if not name.startswith("clonos_user_")}
    families = text_string_to_metric_families(run.get("/metrics").text)
    assert listed == {family.name + ("_total" if family.type == "counter" else "") for family in families}


def test_a_run_is_ready_from_deployment_to_its_end(run: Served) -> None:
    assert (run.get("/readyz").status_code, run.get("/healthz").status_code) == (503, 200)
    run.deployed()
    assert run.get("/readyz").text == "ready\n"
    run.listen(2 * SECOND, Finished())
    assert run.get("/readyz").status_code == 503


@pytest.mark.parametrize(
    ("changed", "late_s"),
    [
        ({"checkpoint_interval_us": 10 * SECOND}, 51),
        ({"checkpoint_interval_us": SECOND // 10}, 11),
        ({"guarantee": Guarantee.AT_MOST_ONCE}, None),
    ],
)
def test_a_run_without_checkpoints_for_several_intervals_is_not_ready(changed: Any, late_s: int | None) -> None:
    with serving(**changed) as run:
        run.deployed(0)
        run.listen((late_s or 999) * SECOND - 2 * SECOND, Detected(UP))
        assert run.get("/readyz").status_code == 200
        run.listen((late_s or 999) * SECOND, Detected(UP))
        answer = run.get("/readyz")
        if late_s is None:
            assert answer.status_code == 200
        else:
            assert (answer.status_code, answer.text) == (503, f"no checkpoint has completed for {late_s} s\n")
        run.listen((late_s or 999) * SECOND, CheckpointCompleted(1, 1.0, 1))
        assert run.get("/readyz").status_code == 200


def test_events_come_from_the_given_number_on(run: Served) -> None:
    run.deployed()
    for number in range(1, 4):
        run.listen(number * SECOND, CheckpointCompleted(number, 1.0, 1))
    found: list[dict[str, Any]] = []
    with httpx.stream("GET", f"{run.url}/api/v1/events", headers={"last-event-id": "2"}) as stream:
        for line in stream.iter_lines():
            if line.startswith("data: "):
                found.append(json.loads(line[6:]))
            if len(found) == 2:
                run.listen(9 * SECOND, Finished())
            if len(found) == 3:
                break
    assert [event["event"] for event in found] == ["CheckpointCompleted", "CheckpointCompleted", "Finished"]
    assert [event["number"] for event in found] == [3, 4, 5]
    assert found[0]["checkpoint"] == 2
    assert run.get("/api/v1/events?after=x").status_code == 400


def test_requests_for_another_host_are_refused(run: Served) -> None:
    assert run.get("/metrics", host="evil.example:80").status_code == 421
    assert run.get("/metrics", host="localhost:80").status_code == 200
    assert run.get("/metrics", host="[::1]").status_code == 200


def test_requests_need_the_token_if_there_is_one(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    with serving(web_token_file=str(tmp_path / "token")) as run:
        assert run.get("/metrics").status_code == 401
        assert run.get("/api/v1/job", authorization=f"Bearer {TOKEN}x").status_code == 401
        assert run.get("/api/v1/job", authorization=f"Bearer {TOKEN}").status_code == 200
        assert run.get("/healthz").status_code == 200
        foreign = {"authorization": f"Bearer {TOKEN}", "origin": "http://evil.example"}
        assert httpx.post(f"{run.url}/api/v1/stop").status_code == 401
        assert httpx.post(f"{run.url}/api/v1/stop", headers=foreign).status_code == 403
        assert not run.stop.requested
        assert httpx.post(f"{run.url}/api/v1/stop", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 202
        assert run.stop.requested


@pytest.mark.parametrize("what", ["stop", "savepoint", "rescale"])
def test_without_a_token_nothing_can_be_changed(run: Served, what: str) -> None:
    refused = httpx.post(f"{run.url}/api/v1/{what}", json={"name": "n"})
    assert (refused.status_code, refused.text) == (403, "to change the job from here, run it with web_token_file\n")
    assert (run.stop.requested, run.kept, run.rescaled) == (False, [], [])
    assert run.job()["controls"] == []


def test_with_the_token_savepoints_are_kept_and_the_parallelism_is_changed(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    with serving(web_token_file=str(tmp_path / "token")) as run:

        def asked(what: str, wanted: object) -> tuple[int, str]:
            answer = httpx.post(f"{run.url}/api/v1/{what}", json=wanted, headers=headers)
            return answer.status_code, answer.text

        headers = {"authorization": f"Bearer {TOKEN}"}
        assert json.loads(run.get("/api/v1/job", **headers).text)["controls"] == ["stop", "savepoint", "rescale"]
        assert asked("savepoint", {"name": "before"}) == (201, '{"savepoint":"before","checkpoint":7}')
        assert asked("rescale", {"parallelism": 4})[0] == 202
        assert asked("rescale", {"operators": {"join": 2}})[0] == 202
        assert (run.kept, run.rescaled) == (["before"], [(4, {}), (None, {"join": 2})])
        for what, wrong, reason in (
            ("savepoint", {}, "missing required field `name`"),
            ("savepoint", {"name": 3}, "Expected `str`, got `int`"),
            ("savepoint", {"name": "a", "to": "b"}, "unknown field `to`"),
            ("rescale", {}, "name a parallelism, or that of an operator in operators"),
            ("rescale", {"parallelism": 0}, "`int` >= 1"),
            ("rescale", {"operators": {"join": "x"}}, "Expected `int`"),
            ("rescale", [4], "Expected `object`, got `array`"),
        ):
            status, text = asked(what, wrong)
            assert (status, text.count("\n")) == (400, 1)
            assert reason in text
        run.refusal = CheckpointError("'three' has a savepoint 'before'")
        assert asked("savepoint", {"name": "before"}) == (409, "'three' has a savepoint 'before'\n")
        assert asked("rescale", {"parallelism": 4}) == (409, "'three' has a savepoint 'before'\n")
    assert (len(run.kept), len(run.rescaled)) == (1, 2)


def test_what_a_run_cannot_do_is_refused(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    headers = {"authorization": f"Bearer {TOKEN}"}
    settings = replace(
        Settings(), web=ListenAddress("127.0.0.1", free_ports(1)[0]), web_token_file=str(tmp_path / "token")
    )
    with served(three(), settings, no_listener, StopSwitch()):
        assert httpx.get(f"http://{settings.web}/api/v1/job", headers=headers).json()["controls"] == ["stop"]
        for what, wanted in (("savepoint", {"name": "n"}), ("rescale", {"parallelism": 2})):
            refused = httpx.post(f"http://{settings.web}/api/v1/{what}", json=wanted, headers=headers)
            assert refused.status_code == 409


@pytest.mark.parametrize("content", ["short", "two words of enough length", "", "\xe4" * 20])
def test_a_file_without_a_token_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "token").write_text(content, encoding="utf-8")
    with pytest.raises(SettingError, match="web_token_file"), serving(web_token_file=str(tmp_path / "token")):
        pass
    with pytest.raises(SettingError, match="No such file"), serving(web_token_file=str(tmp_path / "none")):
        pass


def test_an_address_that_is_taken_or_elsewhere_is_refused() -> None:
    with ExitStack() as stack:
        taken = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        address = ListenAddress("127.0.0.1", taken.getsockname()[1])
        with pytest.raises(SettingError, match="choose another port"), serving(web=address):
            pass
    with pytest.raises(SettingError, match=r"203\.0\.113\.1:8080"), serving(web=ListenAddress("203.0.113.1", 8080)):
        pass


def test_nothing_listens_after_the_run() -> None:
    with serving() as run:
        run.get("/healthz")
    with pytest.raises(httpx.ConnectError):
        run.get("/healthz")
