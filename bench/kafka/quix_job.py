"""Copies all rows from one topic to another with Quix Streams, exactly-once. Runs in the environment of Quix Streams.

``python quix_job.py BOOTSTRAP INDEX ADDRESS...``: runs one of several processes, which share the partitions.
"""

from __future__ import annotations

import sys

from quixstreams import Application  # pyright: ignore[reportMissingImports]

bootstrap = sys.argv[1]
app = Application(
    broker_address=bootstrap,
    consumer_group="quix",
    auto_offset_reset="earliest",
    processing_guarantee="exactly-once",
    commit_interval=1.0,
)
given, out = app.topic("in", value_deserializer="json"), app.topic("out", value_serializer="json")
app.dataframe(given).filter(lambda row: row["id"] >= 0).to_topic(out)
app.run(timeout=10.0)
