"""Scores payments with a model: how likely is it that a payment is not by the owner of the account?

Each task loads the model when it opens, and so does its replacement. The model compares a payment with the mean of the
account so far, which is keyed state. On a cluster every node needs the file of the model.

    clonos run examples/scoring.py --runtime local --out scores
"""

from __future__ import annotations

import json
import math
from pathlib import Path

from clonos_py import Context, Job, OpenContext, Process, Record, state
from clonos_py.connectors import FileSink, FileSource

DATA = Path(__file__).parent / "data"


class Payment(Record):
    account: int
    cents: int


class Score(Payment):
    risk: float


class Scorer(Process[Payment, Score]):
    payments: int = state(0)
    cents: int = state(0)

    def __init__(self, model: str) -> None:
        self.path = model

    def open(self, ctx: OpenContext) -> None:
        self.model = json.loads(Path(self.path).read_text())

    def on_row(self, payment: Payment, ctx: Context) -> Score:
        self.payments, self.cents = self.payments + 1, self.cents + payment.cents
        features = (1.0, math.log(payment.cents), payment.cents * self.payments / self.cents)
        logit = sum(weight * feature for weight, feature in zip(self.model["weights"], features, strict=True))
        return Score.extend(payment, risk=1 / (1 + math.exp(-logit)))


def job(payments: str = f"{DATA}/transactions.jsonl", model: str = f"{DATA}/risk.json", out: str = "scores") -> Job:
    job = Job("scoring")
    paid = job.source(FileSource(payments, Payment)).named("payments")
    paid.key_by("account").process(Scorer(model)).named("scorer").sink(FileSink(out)).named("scores")
    return job
