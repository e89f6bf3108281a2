"""Finds trips that are unlike the others, with a model of scikit-learn.

Each task trains the model on the trips of a file when it opens. It needs scikit-learn: uv sync --group scikit-learn

    clonos run examples/unusual_trips.py --runtime local --out unusual
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from clonos_py import Job, OpenContext, Record, col
from clonos_py.connectors import FileSink, FileSource

TRIPS = str(Path(__file__).parent / "data" / "trips.csv")


class Trip(Record):
    id: int
    seconds: int
    km: float


class Judged(Trip):
    score: float
    """Below 0: unlike the others."""


class Forest:
    def __init__(self, known: str) -> None:
        self.known = known

    def open(self, ctx: OpenContext) -> None:
        from sklearn.ensemble import IsolationForest

        known = pd.read_csv(self.known)[["seconds", "km"]]
        self.model = IsolationForest(random_state=0).fit(known)  # the same in each task

    def __call__(self, trips: pd.DataFrame) -> pd.DataFrame:
        return trips.assign(score=self.model.decision_function(trips[["seconds", "km"]]))


def job(trips: str = TRIPS, known: str = TRIPS, out: str = "unusual") -> Job:
    job = Job("unusual-trips")
    read = job.source(FileSource(trips, Trip)).named("trips")
    judged = read.map_batches(Forest(known), returns=Judged, rows=50, wait="20ms").named("judged")
    judged.filter(col("score") < 0).sink(FileSink(out)).named("unusual")
    return job
