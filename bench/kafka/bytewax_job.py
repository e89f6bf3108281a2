"""Runs in Bytewax's own environment: all rows from one topic to another.

``python bytewax_job.py BOOTSTRAP ROWS``
"""

from __future__ import annotations

import json
import sys
from typing import Any

import bytewax.operators as op  # pyright: ignore[reportMissingImports]
from bytewax.connectors.kafka import (  # pyright: ignore[reportMissingImports]
    KafkaSink,
    KafkaSinkMessage,
    KafkaSource,
    KafkaSourceMessage,
)
from bytewax.dataflow import Dataflow  # pyright: ignore[reportMissingImports]
from bytewax.testing import run_main  # pyright: ignore[reportMissingImports]

bootstrap = sys.argv[1].split(",")


def decoded(message: KafkaSourceMessage[Any, Any]) -> Any:
    return json.loads(message.value)


def encoded(row: Any) -> KafkaSinkMessage[Any, Any]:
    return KafkaSinkMessage(None, json.dumps(row).encode())


flow = Dataflow("topic-to-topic")
rows = op.map("decode", op.input("in", flow, KafkaSource(bootstrap, ["in"], tail=False, batch_size=10_000)), decoded)
passed = op.filter("filter", rows, lambda row: row["id"] >= 0)
op.output("out", op.map("encode", passed, encoded), KafkaSink(bootstrap, "out"))
run_main(flow)
