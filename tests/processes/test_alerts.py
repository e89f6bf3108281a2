"""The alerts for Prometheus, checked and tested by its own tool, and the document that says what to do about each."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

FOLDER = Path("deploy/prometheus")
RULES = (FOLDER / "rules.yaml").read_text(encoding="utf-8")
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


def test_the_rules_use_metrics_that_exist() -> None:
    listed = Path("docs/tasks/monitoring.md").read_text(encoding="utf-8")
    used = {re.sub(r"_(bucket|count|sum)$", "", name) for name in re.findall(r"\bclonos_\w+", RULES)}
    assert used
    for name in used:
        assert f"`{name}`" in listed, name
