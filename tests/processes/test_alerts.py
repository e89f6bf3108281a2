"""The alerts for Prometheus, tested by its own tool, their document, and the dashboard for Grafana."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

FOLDER = Path("deploy/prometheus")
RULES = (FOLDER / "rules.yaml").read_text(encoding="utf-8")
DASHBOARD = Path("deploy/grafana/clonos.json").read_text(encoding="utf-8")
ALERTS = re.findall(r"- alert: (\w+)", RULES)

promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed: apt-get install prometheus"
)


@promtool
@pytest.mark.parametrize("words", [("check", "rules", "rules.yaml"), ("test", "rules", "tests.yaml")])
def test_prometheus_accepts_the_rules_and_their_tests(words: tuple[str, ...]) -> None:
    done = subprocess.run(["promtool", *words], cwd=FOLDER, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_has_tests_of_both_kinds_and_a_part_of_the_document() -> None:
    assert ALERTS
    tests = (FOLDER / "tests.yaml").read_text(encoding="utf-8")
    document = Path("docs/tasks/alerts.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (\w+)$", document, re.M) == ALERTS
    for alert in ALERTS:
        quiet = re.findall(rf"alertname: {alert}, eval_time: \w+, exp_alerts: \[\]", tests)
        fires = re.findall(rf"alertname: {alert}\n +eval_time: \w+\n +exp_alerts:\n +- exp_labels", tests)
        assert quiet, f"{alert}: where it must not fire"
        assert fires, f"{alert}: where it must fire"
        assert f"runbook: docs/tasks/alerts.md#{alert.lower()}" in RULES


@pytest.mark.parametrize("text", [RULES, DASHBOARD], ids=["rules", "dashboard"])
def test_only_metrics_that_exist_are_used(text: str) -> None:
    listed = Path("docs/tasks/monitoring.md").read_text(encoding="utf-8")
    used = {re.sub(r"_(bucket|count|sum)$", "", name) for name in re.findall(r"\bclonos_\w+", text)}
    assert used
    for name in used:
        assert f"`{name}`" in listed, name


@promtool
def test_prometheus_can_read_the_queries_of_the_dashboard(tmp_path: Path) -> None:
    panels = json.loads(DASHBOARD)["panels"]
    queries = [target["expr"] for panel in panels for target in panel["targets"]]
    rules = [{"record": f"panel:{number}", "expr": _filled_in(query)} for number, query in enumerate(queries)]
    (tmp_path / "rules.json").write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    done = subprocess.run(
        ["promtool", "check", "rules", str(tmp_path / "rules.json")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(queries)} rules found" in done.stdout


def _filled_in(query: str) -> str:
    """The query with values in place of Grafana's variables."""
    return query.replace("$__rate_interval", "1m").replace("$job", ".*")
