"""Scores payments with an ONNX model, many at once: how likely is it that a payment is not by the owner of the account?

The model compares a payment with the mean of the account so far, which a running aggregate gives. Each task loads the
model when it opens, and so does its replacement. It needs onnxruntime: uv sync --group onnx

    clonos run examples/scoring_onnx.py --runtime local --out scores
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from clonos_py import Job, OpenContext, Record, col, count
from clonos_py.connectors import FileSink, FileSource

DATA = Path(__file__).parent / "data"


class Payment(Record):
    account: int
    cents: int


class Compared(Payment):
    payments: int
    spent: int


class Score(Payment):
    risk: float


class Scorer:
    def __init__(self, model: str) -> None:
        self.path = model

    def open(self, ctx: OpenContext) -> None:
        import onnxruntime

        self.model = onnxruntime.InferenceSession(self.path)

    def __call__(self, payments: pl.DataFrame) -> pl.DataFrame:
        cents = pl.col("cents")
        features = payments.select(
            constant=pl.lit(1.0), log=cents.log(), of_mean=cents * pl.col("payments") / pl.col("spent")
        )
        risk = np.asarray(self.model.run(["risk"], {"features": features.to_numpy().astype(np.float32)})[0])
        return payments.select("account", "cents", risk=pl.Series(risk[:, 0]))


def job(payments: str = f"{DATA}/transactions.jsonl", model: str = f"{DATA}/risk.onnx", out: str = "scores") -> Job:
    job = Job("scoring-onnx")
    paid = job.source(FileSource(payments, Payment)).named("payments")
    compared = paid.key_by("account").reduce(Compared, payments=count(), spent=col("cents").sum()).named("compared")
    scored = compared.map_batches(Scorer(model), returns=Score, rows=64, wait="20ms").named("scored")
    scored.sink(FileSink(out)).named("scores")
    return job
