"""Copies all rows from one topic to another with Bytewax. Runs in the environment of Bytewax.

``python bytewax_job.py BOOTSTRAP INDEX ADDRESS...``: runs process ``INDEX`` of those at the addresses.
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
from bytewax.testing import cluster_main  # pyright: ignore[reportMissingImports]

bootstrap, index, addresses = sys.argv[1].split(","), int(sys.argv[2]), sys.argv[3:]


def decoded(message: KafkaSourceMessage[Any, Any]) -> Any:
    return json.loads(message.value)


def encoded(row: Any) -> KafkaSinkMessage[Any, Any]:
    return KafkaSinkMessage(None, json.dumps(row).encode())


flow = Dataflow("topic-to-topic")
rows = op.map("decode", op.input("in", flow, KafkaSource(bootstrap, ["in"], tail=False, batch_size=10_000)), decoded)
passed = op.filter("filter", rows, lambda row: row["id"] >= 0)
op.output("out", op.map("encode", passed, encoded), KafkaSink(bootstrap, "out"))
cluster_main(flow, addresses, index)
