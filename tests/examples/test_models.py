"""The examples that score with models of other libraries: what the library gives, batch by batch, whatever dies."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest
from sklearn.ensemble import IsolationForest

from clonos_py import testing
from clonos_py.cli.main import invoke
from clonos_py.connectors import read_results
from examples import scoring_onnx, unusual_trips
from tests import oracles

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
WEIGHTS = json.loads((oracles.DATA / "risk.json").read_text())["weights"]
"""From which the ONNX model is made: a matrix product and a sigmoid."""


def risks(rows: list[tuple[int, int, float]]) -> Counter[tuple[int, int, float]]:
    return Counter((account, cents, round(risk, 5)) for account, cents, risk in rows)


def test_an_onnx_model_scores_each_payment_once_whatever_dies() -> None:
    payments = oracles.rows("transactions.jsonl")
    given = [scoring_onnx.Payment(row["account"], row["cents"]) for row in payments]
    for kills in (0, 2):
        out = testing.run(scoring_onnx.job(), {"payments": given}, kills=kills)["scores"]
        assert risks([(row.account, row.cents, row.risk) for row in out]) == risks(oracles.scores(payments, WEIGHTS))


def test_the_forest_finds_the_trips_that_scikit_learn_finds(tmp_path: Path) -> None:
    example = str(EXAMPLES / "unusual_trips.py")
    assert invoke(["run", example, "--runtime", "local", "--out", str(tmp_path)]) == 0
    trips = pd.read_csv(unusual_trips.TRIPS)
    features = trips[["seconds", "km"]]
    scores = IsolationForest(random_state=0).fit(features).decision_function(features)
    assert sorted(row["id"] for row in read_results(str(tmp_path))) == trips["id"][scores < 0].tolist()


@pytest.mark.parametrize(
    ("model", "why"), [("nothing.onnx", "File doesn't exist"), ("risk.json", "Protobuf parsing failed")]
)
def test_a_model_that_does_not_load_is_one_error(
    model: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(EXAMPLES / "data" / model)
    run = ["run", str(EXAMPLES / "scoring_onnx.py"), "--runtime", "local", "--out", str(tmp_path), "--model", path]
    assert invoke(run) == 1
    (error,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error:")]
    assert "operator 'scored' failed in open:" in error
    assert why in error
    assert "scoring_onnx.py" in error
